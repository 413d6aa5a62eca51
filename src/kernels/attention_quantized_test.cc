// Attention over quantized K and V, every pair of types: near its twin in double over the same
// stored values, and bit for bit the same in every instruction set, tile split, block size and
// whatever bytes are stale.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "base/rng.h"
#include "kernels/attention.h"
#include "kernels/isa.h"

namespace kvasir {
namespace {

constexpr StoredType kTypes[] = {StoredType::kF16, StoredType::kInt8, StoredType::kInt4};

struct Shape {
  StoredType k_type = StoredType::kInt8;
  StoredType v_type = StoredType::kInt8;
  uint32_t head_dim = 64;
  uint32_t block_tokens = 16;
  uint32_t group = 1;
  uint32_t row_count = 1;
  uint32_t first_position = 0;
  uint32_t window = 0;
  float cap = 0;

  uint32_t token_count() const { return first_position + row_count; }
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << "k " << static_cast<int>(s.k_type) << " v " << static_cast<int>(s.v_type)
             << " head_dim " << s.head_dim << " block " << s.block_tokens << " group " << s.group
             << " rows " << s.row_count << " first " << s.first_position << " window " << s.window
             << " cap " << s.cap;
}

// A sequence's KV, and query rows for its last tokens.
class Sequence {
 public:
  Sequence(const Shape& shape, uint64_t seed, float key_deviation, uint8_t stale) : shape_(shape) {
    Rng rng(seed);
    const uint32_t dim = shape.head_dim;
    std::vector<float> size(dim, 1.0f);
    for (float& s : size) s = std::exp(rng.Normal() * 0.5f) * key_deviation;
    const size_t k_bytes = KUnitBytes(shape.k_type, dim);
    const size_t v_bytes = VUnitBytes(shape.v_type, dim);
    const uint32_t units_a_block = shape.block_tokens / kUnitTokens;
    v_offset_ = units_a_block * k_bytes;
    const size_t block_bytes = v_offset_ + units_a_block * v_bytes;
    const uint32_t blocks = (shape.token_count() + shape.block_tokens - 1) / shape.block_tokens;
    for (uint32_t b = 0; b < blocks; ++b) {
      memory_.push_back(std::vector<std::byte>(block_bytes, std::byte{stale}));
    }
    for (const auto& block : memory_) blocks_.push_back(block.data());
    std::vector<float> k(dim), v(dim);
    for (uint32_t t = 0; t < shape.token_count(); ++t) {
      for (uint32_t d = 0; d < dim; ++d) k[d] = rng.Normal() * size[d];
      for (uint32_t d = 0; d < dim; ++d) v[d] = rng.Normal();
      const uint32_t unit = t % shape.block_tokens / kUnitTokens;
      std::byte* const block = memory_[t / shape.block_tokens].data();
      WriteV(shape.v_type, v, block + v_offset_ + unit * v_bytes, t % kUnitTokens);
      std::byte* const k_unit = block + unit * k_bytes;
      if (!IsStaged(shape.k_type)) {
        WriteK(shape.k_type, k, k_unit, t % kUnitTokens);
        continue;
      }
      if (t % kUnitTokens == 0) {
        own_.push_back(std::vector<std::byte>(KUnitBytes(StoredType::kF16, dim), std::byte{stale}));
      }
      WriteK(StoredType::kF16, k, own_.back().data(), t % kUnitTokens);
      if (t % kUnitTokens == 15) QuantizeKUnit(shape.k_type, dim, own_.back().data(), k_unit);
    }
    q_.resize(size_t{shape.row_count} * shape.group * dim);
    for (float& x : q_) x = rng.Normal();
  }

  // Rows [first, first + count) and heads [head, head + heads).
  struct Tile {
    std::vector<AttentionRow> rows;
    std::vector<const float*> q;
    std::vector<const std::byte*> own_k;
    AttentionTile tile;
  };
  std::unique_ptr<Tile> Part(uint32_t first, uint32_t count, uint32_t head, uint32_t heads) const {
    auto part = std::make_unique<Tile>();
    for (uint32_t i = first; i < first + count; ++i) {
      const uint32_t position = shape_.first_position + i;
      part->rows.push_back({position, 0, i == first ? 0 : kWholeSequence, blocks_.data()});
      part->q.push_back(q_.data() + (size_t{i} * shape_.group + head) * shape_.head_dim);
      if (!own_.empty()) part->own_k.push_back(own_[position / kUnitTokens].data());
    }
    AttentionTile& tile = part->tile;
    tile.rows = part->rows.data();
    tile.q = part->q.data();
    tile.own_k = part->own_k.data();
    tile.row_count = count;
    tile.group = heads;
    tile.head_dim = shape_.head_dim;
    tile.scale = 1.0f / std::sqrt(static_cast<float>(shape_.head_dim));
    tile.cap = shape_.cap;
    tile.window = shape_.window;
    tile.block_tokens = shape_.block_tokens;
    tile.v_offset = v_offset_;
    tile.k_type = shape_.k_type;
    tile.v_type = shape_.v_type;
    return part;
  }

  // All rows in tiles of at most `rows` rows and `heads` heads.
  std::vector<float> Attended(uint32_t rows, uint32_t heads) const {
    std::vector<float> out(q_.size(), std::numeric_limits<float>::quiet_NaN());
    for (uint32_t i = 0; i < shape_.row_count; i += rows) {
      const uint32_t count = std::min(rows, shape_.row_count - i);
      for (uint32_t h = 0; h < shape_.group; h += heads) {
        const uint32_t some = std::min(heads, shape_.group - h);
        const auto part = Part(i, count, h, some);
        std::vector<float*> to;
        for (uint32_t r = i; r < i + count; ++r) {
          to.push_back(out.data() + (size_t{r} * shape_.group + h) * shape_.head_dim);
        }
        const size_t floats = AttendScratchFloats(count, some, shape_.head_dim);
        std::vector<float> scratch(floats + 16, std::numeric_limits<float>::quiet_NaN());
        void* aligned = scratch.data();
        size_t space = scratch.size() * sizeof(float);
        std::align(64, floats * sizeof(float), aligned, space);
        Attend(part->tile, static_cast<float*>(aligned), to.data());
      }
    }
    return out;
  }

  // The largest error against the twin relative to the largest output and score.
  double RelativeError(const std::vector<float>& got) const {
    const auto all = Part(0, shape_.row_count, 0, shape_.group);
    std::vector<double> expected(got.size());
    AttentionReference(all->tile, expected.data());
    double largest = 0, worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      worst = std::max(worst, std::abs(got[i] - expected[i]));
    }
    return worst / largest;
  }

 private:
  Shape shape_;
  size_t v_offset_ = 0;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<const std::byte*> blocks_;
  std::vector<std::vector<std::byte>> own_;  // f16 K units of a staged type, by unit.
  std::vector<float> q_;                     // [row_count][group][head_dim]
};

bool SameBytes(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class QuantizedAttentionTest : public ::testing::Test {
 protected:
  ~QuantizedAttentionTest() override { SetActiveIsa(SupportedIsas().back()); }
};

void CheckShape(const Shape& shape, uint64_t seed, float key_deviation) {
  SCOPED_TRACE(::testing::Message() << shape << " seed " << seed);
  SetActiveIsa(SupportedIsas().back());
  const Sequence sequence(shape, seed, key_deviation, 0xFF);
  const std::vector<float> expected = sequence.Attended(shape.row_count, shape.group);
  // Scores grow with the keys, and their rounding with them.
  EXPECT_LE(sequence.RelativeError(expected),
            kQuantizedAttentionMaxRelError * std::max(1.0f, key_deviation));
  const Sequence other_bytes(shape, seed, key_deviation, 0x7C);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    EXPECT_TRUE(SameBytes(other_bytes.Attended(shape.row_count, shape.group), expected))
        << IsaName(isa);
    EXPECT_TRUE(SameBytes(sequence.Attended(1, shape.group), expected)) << IsaName(isa);
  }
  SetActiveIsa(SupportedIsas()[seed % SupportedIsas().size()]);
  EXPECT_TRUE(SameBytes(sequence.Attended(1, 1), expected));
  EXPECT_TRUE(SameBytes(sequence.Attended(5, 2), expected));
  Shape other = shape;
  other.block_tokens = uint32_t{16} << seed % 5;
  EXPECT_TRUE(SameBytes(
      Sequence(other, seed, key_deviation, 0).Attended(shape.row_count, shape.group), expected));
}

TEST_F(QuantizedAttentionTest, RandomShapes) {
  static constexpr uint32_t kHeadDims[] = {16, 32, 48, 64, 80, 96, 128, 256};
  static constexpr uint32_t kGroups[] = {1, 2, 3, 4, 7};
  static constexpr uint32_t kWindows[] = {0, 0, 0, 2, 17, 100, 256, 512};
  for (const uint64_t seed : TestSeeds(72)) {
    Rng rng(seed);
    Shape shape;
    shape.k_type = kTypes[seed % 3];
    shape.v_type = kTypes[seed / 3 % 3];
    shape.head_dim = kHeadDims[rng.Below(std::size(kHeadDims))];
    shape.block_tokens = uint32_t{16} << rng.Below(5);
    shape.group = kGroups[rng.Below(std::size(kGroups))];
    shape.window = kWindows[rng.Below(std::size(kWindows))];
    shape.row_count = 1 + static_cast<uint32_t>(
                              rng.Below(rng.Below(3) == 0 ? kMaxAttentionRows / shape.group : 6));
    shape.first_position = static_cast<uint32_t>(rng.Below(rng.Below(3) == 0 ? 900 : 300));
    shape.cap = rng.Below(3) == 0 ? 50.0f / static_cast<float>(1 + rng.Below(20)) : 0.0f;
    CheckShape(shape, seed, rng.Below(3) == 0 ? 6.0f : 1.0f);
  }
}

TEST_F(QuantizedAttentionTest, ModelShapes) {
  uint64_t seed = 100;
  for (const StoredType type : {StoredType::kInt8, StoredType::kInt4}) {
    CheckShape({type, type, 64, 16, 3, 1, 511, 0}, seed++, 1);
    CheckShape({type, type, 64, 16, 3, 1, 512, 0}, seed++, 1);
    CheckShape({type, type, 64, 16, 3, 21, 500, 0}, seed++, 2);
    CheckShape({type, type, 256, 16, 4, 16, 760, 512}, seed++, 1);
    CheckShape({type, type, 64, 32, 1, 64, 0, 0}, seed++, 1);
  }
}

}  // namespace
}  // namespace kvasir
