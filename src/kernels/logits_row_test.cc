#include "kernels/logits_row.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "kernels/isa.h"

namespace kvasir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class LogitsRowTest : public ::testing::Test {
 protected:
  ~LogitsRowTest() override { SetActiveIsa(before_); }
  const Isa before_ = ActiveIsa();
};

// A row with its notes taken `blocks_at_once` blocks at a time.
class NotedRow {
 public:
  NotedRow(std::vector<float> values, size_t blocks_at_once) : values_(std::move(values)) {
    const size_t blocks = LogitsBlocks(values_.size());
    maxima_.assign(blocks, kNan);
    sums_.assign(blocks, -1.0f);
    for (size_t b = 0; b < blocks; b += blocks_at_once) {
      const size_t count = std::min(blocks_at_once, blocks - b);
      const size_t begin = b * kLogitsBlock;
      const size_t size = std::min(count * kLogitsBlock, values_.size() - begin);
      SummarizeBlocks(std::span(values_).subspan(begin, size), std::span(maxima_).subspan(b, count),
                      std::span(sums_).subspan(b, count));
    }
  }
  std::span<const float> plain() const { return values_; }
  LogitsRow noted() const { return {values_, maxima_, sums_}; }
  LogitsRow without_sums() const { return {values_, maxima_, {}}; }

 private:
  std::vector<float> values_;
  std::vector<float> maxima_;
  std::vector<float> sums_;
};

// Equal values, infinities and what is not a number, in whole blocks too.
std::vector<float> NastyRow(Rng& rng, size_t size) {
  std::vector<float> x(size);
  const uint64_t kind = rng.Below(4);
  for (float& v : x) {
    v = kind == 0 ? static_cast<float>(rng.Below(5)) : rng.Normal() * 4.0f;
    if (kind == 1 && rng.Below(40) == 0) v = rng.Below(2) == 0 ? -kInf : kNan;
  }
  if (kind >= 2) {
    const size_t begin = rng.Below(size);
    const size_t end = std::min(size, begin + rng.Below(3 * kLogitsBlock));
    for (size_t i = begin; i < end; ++i) x[i] = kind == 2 ? -kInf : x[begin];
  }
  if (rng.Below(8) == 0) x[rng.Below(size)] = kInf;
  return x;
}

std::vector<uint32_t> BestOf(const LogitsRow& row, uint32_t count) {
  std::vector<uint32_t> scratch(row.values.size(), 0xDEADBEEF);
  std::vector<uint32_t> out(std::min<size_t>(count, row.values.size()));
  EXPECT_EQ(TopK(row, count, scratch, out), out.size());
  return out;
}

uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value); }

TEST_F(LogitsRowTest, NotesChangeNothing) {
  for (const uint64_t seed : TestSeeds(30)) {
    Rng rng(seed);
    for (const size_t size : {1, 511, 512, 513, 4096, 12'345, 65'536 + 3}) {
      const std::vector<float> x = NastyRow(rng, size);
      SetActiveIsa(Isa::kScalar);
      const uint32_t best = ArgMax(x);
      const float log_sum = LogSumExp(x);
      for (const Isa isa : SupportedIsas()) {
        SetActiveIsa(isa);
        const NotedRow row(x, 1 + rng.Below(4));
        for (const LogitsRow& form : {LogitsRow(row.plain()), row.noted(), row.without_sums()}) {
          ASSERT_EQ(ArgMax(form), best) << "seed " << seed << " size " << size;
          if (std::isnan(log_sum)) {
            ASSERT_TRUE(std::isnan(LogSumExp(form))) << "seed " << seed << " size " << size;
          } else {
            ASSERT_EQ(BitsOf(LogSumExp(form)), BitsOf(log_sum))
                << "seed " << seed << " size " << size << " " << IsaName(isa);
          }
        }
        for (const uint32_t count : {1u, 7u, 20u, 40u}) {
          ASSERT_EQ(BestOf(row.noted(), count), BestOf(row.plain(), count))
              << "seed " << seed << " size " << size << " count " << count;
        }
      }
    }
  }
}

TEST_F(LogitsRowTest, NotesAreReadInsteadOfTheRow) {
  // A block that no note speaks for cannot win, whatever lies in it.
  NotedRow row(std::vector<float>(64 * kLogitsBlock, 1.0f), 2);
  LogitsRow noted = row.noted();
  std::vector<float> maxima(noted.maxima.begin(), noted.maxima.end());
  maxima[5] = 2.0f;
  noted.maxima = maxima;
  EXPECT_EQ(ArgMax(noted) / kLogitsBlock, 5u);
}

}  // namespace
}  // namespace kvasir
