// Paged attention against its double-precision twin, and bit for bit against itself: other
// instruction sets, tile splits, block sizes, chunk-wise evaluation and stale bytes in unused
// slots.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/isa.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

struct Shape {
  uint32_t head_dim = 64;
  uint32_t block_tokens = 16;
  uint32_t group = 1;
  uint32_t row_count = 1;
  uint32_t first_position = 0;
  uint32_t window = 0;
  float cap = 0;

  uint32_t last_position() const { return first_position + row_count - 1; }
  uint32_t first_seen(uint32_t position) const {
    return window == 0 || position < window ? 0 : position - window + 1;
  }
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << "head_dim " << s.head_dim << " block " << s.block_tokens << " group " << s.group
             << " rows " << s.row_count << " first " << s.first_position << " window " << s.window
             << " cap " << s.cap;
}

// Keys, values and queries by position, whatever the paging: [position][head_dim].
struct Tokens {
  Tokens(Rng& rng, const Shape& shape, float key_deviation)
      : head_dim(shape.head_dim),
        k(size_t{shape.last_position() + 1} * head_dim),
        v(k.size()),
        q(size_t{shape.row_count} * shape.group * head_dim) {
    for (float& x : k) x = rng.Normal() * key_deviation;
    for (float& x : v) x = rng.Normal();
    for (float& x : q) x = rng.Normal();
  }
  std::span<const float> key(uint32_t position) const {
    return std::span(k).subspan(size_t{position} * head_dim, head_dim);
  }
  std::span<const float> value(uint32_t position) const {
    return std::span(v).subspan(size_t{position} * head_dim, head_dim);
  }

  uint32_t head_dim;
  std::vector<float> k, v, q;  // q: [row_count][group][head_dim]
};

// Where the KV of one sequence lies.
struct PagedKv {
  const std::byte* const* blocks = nullptr;
  uint32_t block_tokens = 0;
  size_t k_offset = 0;
  size_t v_offset = 0;
};

// A paged copy of the tokens that rows at [first, last] see: blocks in random places, those outside
// the window null, and every slot that holds no visible token filled with `stale`.
class Pages {
 public:
  Pages(const Tokens& tokens, const Shape& shape, uint32_t first, uint32_t last, uint16_t stale,
        uint64_t seed)
      : block_tokens_(shape.block_tokens) {
    Rng rng(seed);
    const size_t plane = size_t{block_tokens_} * tokens.head_dim * sizeof(uint16_t);
    kv_.block_tokens = block_tokens_;
    kv_.k_offset = 64 * rng.Below(3);
    kv_.v_offset = kv_.k_offset + plane + 64 * rng.Below(3);
    const size_t block_bytes = kv_.v_offset + plane;
    const uint32_t seen = shape.first_seen(first);
    const uint32_t count = last / block_tokens_ + 1;
    std::vector<size_t> place(count);
    for (uint32_t b = 0; b < count; ++b) place[b] = b;
    for (uint32_t b = count; b > 1; --b) std::swap(place[b - 1], place[rng.Below(b)]);
    bytes_.resize(block_bytes * count);
    auto* halves = reinterpret_cast<uint16_t*>(bytes_.data());
    std::fill(halves, halves + bytes_.size() / 2, stale);
    blocks_.assign(count, nullptr);
    for (uint32_t b = seen / block_tokens_; b < count; ++b) {
      blocks_[b] = bytes_.data() + place[b] * block_bytes;
    }
    for (uint32_t t = seen; t <= last; ++t) {
      std::byte* block = bytes_.data() + place[t / block_tokens_] * block_bytes;
      WriteKv(tokens.key(t), tokens.value(t), block, kv_.k_offset, kv_.v_offset, t % block_tokens_);
    }
    kv_.blocks = blocks_.data();
  }
  const PagedKv& kv() const { return kv_; }

 private:
  uint32_t block_tokens_;
  PagedKv kv_;
  std::vector<std::byte> bytes_;
  std::vector<const std::byte*> blocks_;
};

struct AlignedFree {
  void operator()(float* p) const { std::free(p); }
};
using AlignedFloats = std::unique_ptr<float, AlignedFree>;
AlignedFloats AllocateAligned(size_t count) {
  auto* p = static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
  std::fill(p, p + count, std::numeric_limits<float>::quiet_NaN());  // Nothing may rely on zeros.
  return AlignedFloats(p);
}

// A tile of one sequence with what it points to. `q` and `out` are [row][stride].
struct OwnedTile {
  std::vector<AttentionRow> rows;
  std::vector<const float*> q;
  AttentionTile tile;
};

OwnedTile TileOf(const Shape& shape, const float* q, size_t q_stride, const PagedKv& kv) {
  OwnedTile owned;
  for (uint32_t i = 0; i < shape.row_count; ++i) {
    owned.rows.push_back({shape.first_position + i, 0, i == 0 ? 0 : kWholeSequence, kv.blocks});
    owned.q.push_back(q + i * q_stride);
  }
  owned.tile.rows = owned.rows.data();
  owned.tile.q = owned.q.data();
  owned.tile.row_count = shape.row_count;
  owned.tile.group = shape.group;
  owned.tile.head_dim = shape.head_dim;
  owned.tile.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  owned.tile.cap = shape.cap;
  owned.tile.window = shape.window;
  owned.tile.block_tokens = kv.block_tokens;
  owned.tile.k_offset = kv.k_offset;
  owned.tile.v_offset = kv.v_offset;
  return owned;
}

OwnedTile TileOf(const Shape& shape, const Tokens& tokens, const PagedKv& kv) {
  return TileOf(shape, tokens.q.data(), size_t{shape.group} * shape.head_dim, kv);
}

std::vector<float*> RowsAt(float* out, uint32_t rows, size_t stride) {
  std::vector<float*> at;
  for (uint32_t i = 0; i < rows; ++i) at.push_back(out + i * stride);
  return at;
}

// All of a tile; row i's heads go to out + i * stride.
uint32_t AttendInto(const AttentionTile& tile, float* out, size_t stride);

constexpr uint16_t kStaleNan = 0xFFFF;
constexpr uint16_t kStaleInf = 0x7C00;
constexpr uint16_t kStaleMinusInf = 0xFC00;

using Output = std::vector<float>;  // [row_count][group][head_dim]

Output Whole(const Shape& shape, const Tokens& tokens, uint16_t stale, uint64_t seed) {
  const Pages pages(tokens, shape, shape.first_position, shape.last_position(), stale, seed);
  const OwnedTile owned = TileOf(shape, tokens, pages.kv());
  Output out(tokens.q.size());
  AttendInto(owned.tile, out.data(), size_t{shape.group} * shape.head_dim);
  return out;
}

// The same rows in tiles of at most `rows` positions and `heads` heads.
Output InParts(const Shape& shape, const Tokens& tokens, uint32_t rows, uint32_t heads,
               uint64_t seed) {
  Output out(tokens.q.size());
  const size_t stride = size_t{shape.group} * shape.head_dim;
  for (uint32_t i = 0; i < shape.row_count; i += rows) {
    for (uint32_t g = 0; g < shape.group; g += heads) {
      Shape part = shape;
      part.first_position += i;
      part.row_count = std::min(rows, shape.row_count - i);
      const Pages pages(tokens, part, part.first_position, part.last_position(), kStaleMinusInf,
                        seed + i);
      part.group = std::min(heads, shape.group - g);
      const size_t offset = i * stride + size_t{g} * shape.head_dim;
      const OwnedTile owned = TileOf(part, tokens.q.data() + offset, stride, pages.kv());
      AttendInto(owned.tile, out.data() + offset, stride);
    }
  }
  return out;
}

uint32_t AttendInto(const AttentionTile& tile, float* out, size_t stride) {
  const AlignedFloats scratch =
      AllocateAligned(AttendScratchFloats(tile.row_count, tile.group, tile.head_dim));
  return Attend(tile, scratch.get(), RowsAt(out, tile.row_count, stride).data());
}

class OwnedState {
 public:
  OwnedState(uint32_t rows, uint32_t head_dim)
      : o_(AllocateAligned(size_t{rows} * head_dim)),
        max_(AllocateAligned(rows)),
        sum_(AllocateAligned(rows)) {}
  AttentionState get() const { return {o_.get(), max_.get(), sum_.get()}; }

 private:
  AlignedFloats o_, max_, sum_;
};

// Chunks evaluated right to left, as threads might, then merged left to right.
Output ByChunks(const Shape& shape, const Tokens& tokens) {
  const Pages pages(tokens, shape, shape.first_position, shape.last_position(), kStaleInf, 9);
  const OwnedTile owned = TileOf(shape, tokens, pages.kv());
  const AttentionTile& tile = owned.tile;
  const uint32_t rows = tile.row_count * tile.group;
  const ChunkRange range = ChunksOf(tile);
  std::vector<OwnedState> states;
  for (uint32_t c = range.begin; c < range.end; ++c) states.emplace_back(rows, tile.head_dim);
  for (uint32_t c = range.end; c > range.begin; --c) {
    AttendChunk(tile, c - 1, states[c - 1 - range.begin].get());
  }
  for (uint32_t c = range.begin + 1; c < range.end; ++c) {
    MergeAttention(rows, tile.head_dim, states[c - range.begin].get(), states[0].get());
  }
  Output out(tokens.q.size());
  const size_t stride = size_t{tile.group} * tile.head_dim;
  FinishAttention(tile, states[0].get(), RowsAt(out.data(), tile.row_count, stride).data());
  return out;
}

bool SameBytes(const Output& a, const Output& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The largest |scale q . k| that some row sees.
double LargestScore(const Shape& shape, const Tokens& tokens) {
  double largest = 0;
  for (uint32_t row = 0; row < shape.row_count * shape.group; ++row) {
    const uint32_t position = shape.first_position + row / shape.group;
    for (uint32_t t = shape.first_seen(position); t <= position; ++t) {
      double score = 0;
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        score += static_cast<double>(tokens.q[size_t{row} * shape.head_dim + d]) * tokens.key(t)[d];
      }
      largest = std::max(largest, std::abs(score));
    }
  }
  return largest / std::sqrt(shape.head_dim);
}

void ExpectNearTwin(const Shape& shape, const Tokens& tokens, const Output& got) {
  const Pages pages(tokens, shape, shape.first_position, shape.last_position(), kStaleNan, 5);
  const OwnedTile owned = TileOf(shape, tokens, pages.kv());
  std::vector<double> expected(got.size());
  AttentionReference(owned.tile, expected.data());
  double largest = 0;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double error = std::abs(got[i] - expected[i]);
    worst = std::isnan(error) ? error : std::max(worst, error);
    if (std::isnan(worst)) break;
  }
  const double factor = std::max(1.0, LargestScore(shape, tokens));
  EXPECT_LE(worst, kAttentionMaxRelError * factor * largest) << shape;
}

class AttentionTest : public ::testing::Test {
 protected:
  ~AttentionTest() override { SetActiveIsa(SupportedIsas().back()); }
};

// Everything that must not change a bit, on one shape.
void CheckShape(const Shape& shape, float key_deviation, uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << shape << " seed " << seed);
  Rng rng(seed);
  const Tokens tokens(rng, shape, key_deviation);
  SetActiveIsa(SupportedIsas().back());
  const Output expected = Whole(shape, tokens, kStaleNan, seed);
  ExpectNearTwin(shape, tokens, expected);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    EXPECT_TRUE(SameBytes(Whole(shape, tokens, kStaleInf, seed + 1), expected)) << IsaName(isa);
    EXPECT_TRUE(SameBytes(InParts(shape, tokens, 1, shape.group, seed), expected)) << IsaName(isa);
  }
  // The fastest and, now and then, the others: what matters is the shared source.
  SetActiveIsa(SupportedIsas()[seed % SupportedIsas().size()]);
  EXPECT_TRUE(SameBytes(InParts(shape, tokens, 1, 1, seed), expected));
  EXPECT_TRUE(SameBytes(InParts(shape, tokens, 5, 2, seed), expected));
  EXPECT_TRUE(SameBytes(ByChunks(shape, tokens), expected));
  Shape other = shape;
  other.block_tokens = uint32_t{16} << rng.Below(5);
  EXPECT_TRUE(SameBytes(Whole(other, tokens, 0, seed), expected)) << other;
}

TEST_F(AttentionTest, RandomShapes) {
  static constexpr uint32_t kHeadDims[] = {16, 32, 48, 64, 80, 96, 128, 256};
  static constexpr uint32_t kGroups[] = {1, 2, 3, 4, 7};
  static constexpr uint32_t kWindows[] = {0, 0, 1, 2, 5, 16, 17, 100, 256, 512};
  for (const uint64_t seed : TestSeeds(40)) {
    Rng rng(seed);
    Shape shape;
    shape.head_dim = kHeadDims[rng.Below(std::size(kHeadDims))];
    shape.block_tokens = uint32_t{16} << rng.Below(5);
    shape.group = kGroups[rng.Below(std::size(kGroups))];
    shape.window = kWindows[rng.Below(std::size(kWindows))];
    shape.row_count = 1 + static_cast<uint32_t>(
                              rng.Below(rng.Below(3) == 0 ? kMaxAttentionRows / shape.group : 6));
    shape.first_position = static_cast<uint32_t>(rng.Below(rng.Below(3) == 0 ? 900 : 300));
    shape.cap = rng.Below(3) == 0 ? 50.0f / static_cast<float>(1 + rng.Below(20)) : 0.0f;
    CheckShape(shape, rng.Below(3) == 0 ? 12.0f : 1.0f, seed);
  }
}

TEST_F(AttentionTest, ModelShapesAcrossChunkBorders) {
  // SmolLM2 and Gemma: decode, a prefill tile over a chunk border, a window that ends at one.
  CheckShape({64, 16, 3, 1, 511, 0}, 1, 1);
  CheckShape({64, 32, 3, 1, 512, 0}, 1, 2);
  CheckShape({64, 64, 3, 4, 254, 0}, 1, 3);
  CheckShape({64, 16, 3, 21, 500, 0}, 1, 4);
  CheckShape({256, 16, 4, 1, 600, 512}, 1, 5);
  CheckShape({256, 32, 4, 4, 766, 512}, 1, 6);
  CheckShape({256, 256, 4, 16, 760, 512}, 1, 7);
  CheckShape({16, 16, 1, 64, 230, 16}, 1, 8);
  CheckShape({64, 16, 1, 64, 0, 0}, 1, 9);
}

TEST_F(AttentionTest, FirstTokenReturnsItsValue) {
  const Shape shape{64, 16, 3, 1, 0, 0};
  Rng rng(1);
  const Tokens tokens(rng, shape, 1);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const Output out = Whole(shape, tokens, kStaleNan, 1);
    for (uint32_t g = 0; g < 3; ++g) {
      for (uint32_t d = 0; d < 64; ++d) {
        EXPECT_EQ(out[g * 64 + d], FloatFromHalf(HalfFromFloat(tokens.v[d])));
      }
    }
  }
}

// A later token of the same tile is real data, but an earlier row may not notice it: not its score,
// and not 0 times its value, which overflowed to infinity.
TEST_F(AttentionTest, LaterRowsDoNotLeakIntoEarlierOnes) {
  for (const uint32_t window : {0u, 4u, 300u}) {
    for (const uint32_t first : {3u, 250u, 509u}) {
      Shape shape{64, 16, 3, 9, first, window};
      Rng rng(first);
      Tokens tokens(rng, shape, 1);
      const Output clean = Whole(shape, tokens, kStaleNan, 1);
      const uint32_t bad_row = 5;
      for (uint32_t d = 0; d < shape.head_dim; ++d) {
        tokens.k[size_t{first + bad_row} * shape.head_dim + d] = 1e9f;
        tokens.v[size_t{first + bad_row} * shape.head_dim + d] = d % 2 == 0 ? 1e9f : NAN;
      }
      for (const Isa isa : SupportedIsas()) {
        SetActiveIsa(isa);
        const Output out = Whole(shape, tokens, kStaleNan, 1);
        const size_t untouched = size_t{bad_row} * shape.group * shape.head_dim;
        EXPECT_EQ(std::memcmp(out.data(), clean.data(), untouched * sizeof(float)), 0)
            << shape << IsaName(isa);
        EXPECT_TRUE(std::isnan(out[untouched + 1])) << "the row itself sees it";
      }
    }
  }
}

// The mirror image: a token that has left the window of the later rows.
TEST_F(AttentionTest, EarlierTokensDoNotLeakIntoLaterWindows) {
  const Shape shape{32, 16, 2, 12, 280, 20};
  Rng rng(3);
  Tokens tokens(rng, shape, 1);
  const Output clean = Whole(shape, tokens, kStaleNan, 1);
  const uint32_t bad = shape.first_seen(shape.first_position) + 4;  // Seen by rows 0..4.
  for (uint32_t d = 0; d < shape.head_dim; ++d) {
    tokens.k[size_t{bad} * shape.head_dim + d] = NAN;
    tokens.v[size_t{bad} * shape.head_dim + d] = INFINITY;
  }
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const Output out = Whole(shape, tokens, kStaleNan, 1);
    const size_t from = size_t{5} * shape.group * shape.head_dim;
    EXPECT_EQ(
        std::memcmp(out.data() + from, clean.data() + from, (out.size() - from) * sizeof(float)), 0)
        << IsaName(isa);
    EXPECT_TRUE(std::isnan(out[from - 1]));
  }
}

TEST_F(AttentionTest, ChunkWithoutVisibleTokensIsEmpty) {
  // Row 0 at 255 sees nothing of chunk 1, row 1 at 256 one token.
  const Shape shape{16, 16, 1, 2, 255, 0};
  Rng rng(4);
  const Tokens tokens(rng, shape, 1);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const Pages pages(tokens, shape, 255, 256, kStaleNan, 1);
    const OwnedTile owned = TileOf(shape, tokens, pages.kv());
    const OwnedState state(2, 16);
    EXPECT_EQ(AttendChunk(owned.tile, 1, state.get()), 2u);
    EXPECT_EQ(state.get().max[0], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(state.get().sum[0], 0);
    EXPECT_EQ(state.get().sum[1], 1);
    for (uint32_t d = 0; d < 16; ++d) EXPECT_EQ(state.get().o[d], 0);
  }
}

// Sequences whose first blocks are those of the sequence before them, each with a few query rows at
// its end: a tree of prefixes in depth-first order.
class SharedPages {
 public:
  SharedPages(const Shape& shape, uint32_t sequences, uint64_t seed) : shape_(shape) {
    Rng rng(seed);
    const size_t plane = size_t{shape.block_tokens} * shape.head_dim * sizeof(uint16_t);
    const uint32_t most = kMaxAttentionRows / shape.group / sequences;
    std::vector<float> k(shape.head_dim), v(shape.head_dim);
    for (uint32_t s = 0; s < sequences; ++s) {
      const uint32_t start = static_cast<uint32_t>(rng.Below(700));
      const uint32_t rows = 1 + static_cast<uint32_t>(rng.Below(std::min(most, 5u)));
      uint32_t shared = 0;
      if (s > 0 && rng.Below(4) != 0) {
        const uint32_t limit = std::min(start, starts_.back());
        shared = rng.Below(2) == 0 ? limit : static_cast<uint32_t>(rng.Below(limit + 1));
      }
      const uint32_t shared_blocks = shared / shape.block_tokens;
      std::vector<std::byte*> blocks(s == 0 ? 0 : shared_blocks);
      if (s > 0) std::copy_n(all_[s - 1].begin(), shared_blocks, blocks.begin());
      for (uint32_t p = shared_blocks * shape.block_tokens; p < start + rows; ++p) {
        if (p % shape.block_tokens == 0) {
          memory_.push_back(std::make_unique<std::vector<uint16_t>>(plane, kStaleNan));
          blocks.push_back(reinterpret_cast<std::byte*>(memory_.back()->data()));
        }
        for (float& x : k) x = rng.Normal();
        for (float& x : v) x = rng.Normal();
        WriteKv(k, v, blocks.back(), 0, plane, p % shape.block_tokens);
      }
      all_.push_back(blocks);
      starts_.push_back(start);
      AddRows(start, rows, shared_blocks);
    }
    q_.resize(rows_.size() * shape.group * shape.head_dim);
    for (float& x : q_) x = rng.Normal();
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].blocks = held_[sequence_[i]].data();
      q_rows_.push_back(q_.data() + i * shape.group * shape.head_dim);
    }
  }

  // Rows [first, first + count); what they share is of use only when they begin with a sequence.
  AttentionTile Tile(uint32_t first, uint32_t count) const {
    AttentionTile tile;
    tile.rows = rows_.data() + first;
    tile.q = q_rows_.data() + first;
    tile.row_count = count;
    tile.group = shape_.group;
    tile.head_dim = shape_.head_dim;
    tile.scale = 0.2f;
    tile.window = shape_.window;
    tile.block_tokens = shape_.block_tokens;
    tile.v_offset = size_t{shape_.block_tokens} * shape_.head_dim * sizeof(uint16_t);
    return tile;
  }
  uint32_t row_count() const { return static_cast<uint32_t>(rows_.size()); }

  // Different units of 16 tokens that rows see, K and V.
  size_t DistinctUnits() const {
    std::set<const std::byte*> units;
    for (const AttentionRow& row : rows_) {
      for (uint32_t p = shape_.first_seen(row.position); p <= row.position; ++p) {
        const size_t unit = p % shape_.block_tokens / kUnitTokens;
        units.insert(row.blocks[p / shape_.block_tokens] + unit);
      }
    }
    return 2 * units.size();
  }

 private:
  void AddRows(uint32_t start, uint32_t rows, uint32_t shared_blocks) {
    const uint32_t s = static_cast<uint32_t>(starts_.size()) - 1;
    const uint32_t first_block = shape_.first_seen(start) / shape_.block_tokens;
    std::vector<const std::byte*> held(all_[s].begin(), all_[s].end());
    std::fill(held.begin(), held.begin() + first_block, nullptr);
    held_.push_back(held);
    const uint32_t before = s == 0 ? 0 : shape_.first_seen(starts_[s - 1]) / shape_.block_tokens;
    for (uint32_t i = 0; i < rows; ++i) {
      AttentionRow row;
      row.position = start + i;
      row.shared_begin = i == 0 ? std::max(first_block, before) * shape_.block_tokens : 0;
      row.shared_end = i == 0 ? shared_blocks * shape_.block_tokens : kWholeSequence;
      rows_.push_back(row);
      sequence_.push_back(s);
    }
  }

  Shape shape_;
  std::vector<std::unique_ptr<std::vector<uint16_t>>> memory_;
  std::vector<std::vector<std::byte*>> all_;         // [sequences] blocks, none missing
  std::vector<std::vector<const std::byte*>> held_;  // Those before the window null.
  std::vector<uint32_t> starts_;
  std::vector<AttentionRow> rows_;
  std::vector<uint32_t> sequence_;  // Of each row.
  std::vector<float> q_;
  std::vector<const float*> q_rows_;
};

TEST_F(AttentionTest, SharedUnitsAreReadOnceAndChangeNothing) {
  static constexpr uint32_t kWindows[] = {0, 0, 20, 200, 512};
  for (const uint64_t seed : TestSeeds(60)) {
    Rng rng(seed);
    Shape shape;
    shape.head_dim = rng.Below(2) == 0 ? 64 : 16 + 16 * static_cast<uint32_t>(rng.Below(16));
    shape.block_tokens = uint32_t{16} << rng.Below(4);
    shape.group = 1 + static_cast<uint32_t>(rng.Below(4));
    shape.window = kWindows[rng.Below(std::size(kWindows))];
    const SharedPages pages(shape, 1 + static_cast<uint32_t>(rng.Below(12)), seed);
    SCOPED_TRACE(::testing::Message() << shape << " seed " << seed);
    const size_t stride = size_t{shape.group} * shape.head_dim;
    const uint32_t rows = pages.row_count();
    SetActiveIsa(SupportedIsas().back());
    Output alone(rows * stride);
    for (uint32_t i = 0; i < rows; ++i) {
      AttendInto(pages.Tile(i, 1), alone.data() + i * stride, stride);
    }
    for (const Isa isa : SupportedIsas()) {
      SetActiveIsa(isa);
      Output together(rows * stride);
      const uint32_t units = AttendInto(pages.Tile(0, rows), together.data(), stride);
      EXPECT_TRUE(SameBytes(together, alone)) << IsaName(isa);
      if (shape.window == 0) {
        EXPECT_EQ(units, pages.DistinctUnits());
      } else {
        EXPECT_GE(units, pages.DistinctUnits());
      }
    }
  }
}

TEST_F(AttentionTest, ChunksOfCoversWhatRowsSee) {
  const auto range = [&](uint32_t first, uint32_t rows, uint32_t window) {
    const Shape shape{16, 16, 1, rows, first, window};
    const ChunkRange r = ChunksOf(TileOf(shape, nullptr, 0, PagedKv{}).tile);
    return std::pair(r.begin, r.end);
  };
  EXPECT_EQ(range(0, 1, 0), std::pair(0u, 1u));
  EXPECT_EQ(range(255, 1, 0), std::pair(0u, 1u));
  EXPECT_EQ(range(255, 2, 0), std::pair(0u, 2u));
  EXPECT_EQ(range(767, 1, 512), std::pair(1u, 3u));  // Sees 256..767.
  EXPECT_EQ(range(766, 1, 512), std::pair(0u, 3u));  // Sees 255..766.
  EXPECT_EQ(range(1000, 1, 1), std::pair(3u, 4u));
}

TEST_F(AttentionTest, WriteKvPutsKeysInColumnsAndValuesInRows) {
  const uint32_t head_dim = 48;
  const uint32_t block_tokens = 32;
  Rng rng(8);
  for (const Isa isa : SupportedIsas()) {
    SetActiveIsa(isa);
    const size_t plane = size_t{block_tokens} * head_dim;
    std::vector<uint16_t> block(16 + 2 * plane + 8, 0xABCD);
    std::vector<uint16_t> expected = block;
    const size_t k_offset = 16;
    const size_t v_offset = k_offset + 8 + plane;
    for (const uint32_t slot : {0u, 15u, 16u, 21u, 31u}) {
      std::vector<float> k(head_dim), v(head_dim);
      for (uint32_t d = 0; d < head_dim; ++d) {
        k[d] = rng.Normal() * 1e5f;  // Some beyond the range of f16.
        v[d] = rng.Normal() * 1e-6f;
        const size_t unit = size_t{slot / 16} * 16 * head_dim;
        expected[k_offset + unit + d * 16 + slot % 16] = HalfFromFloat(k[d]);
        expected[v_offset + unit + (slot % 16) * head_dim + d] = HalfFromFloat(v[d]);
      }
      WriteKv(k, v, reinterpret_cast<std::byte*>(block.data()), k_offset * 2, v_offset * 2, slot);
      EXPECT_EQ(block, expected) << IsaName(isa) << " slot " << slot;
    }
  }
}

}  // namespace
}  // namespace kvasir
