#include "kernels/logits_row.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "kernels/row_ops_table.h"

namespace kvasir {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

#include "kernels/half.inl"

// As RowOpsTable::block_keys, of one value that is a number.
uint32_t OrderedKeyOfFloat(float value) {
  const uint32_t bits = BitsOfFloat(value);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The inverse of the order-preserving keys of RowOpsTable::block_keys.
float FloatOfOrderedKey(uint32_t key) {
  return FloatOfBits((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// Some value that at least `count` elements reach: the count-th largest of the maxima of equal
// blocks. With many more blocks than `count` few elements exceed it. -infinity when the row is too
// short for that.
float TopThreshold(const RowOpsTable& ops, std::span<const float> x, size_t count,
                   std::span<uint32_t> scratch) {
  size_t block = 0;
  for (const size_t size : {256, 64, 16}) {
    if (x.size() / size >= 4 * count) {
      block = size;
      break;
    }
  }
  if (block == 0) return kMinusInfinity;
  const std::span<uint32_t> keys = scratch.first(x.size() / block);
  ops.block_keys(x.data(), x.size(), block, keys.data());
  const auto nth = keys.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(keys.begin(), nth, keys.end(), std::greater<uint32_t>());
  return FloatOfOrderedKey(*nth);
}

// Sum of e^(value - maximum) of a block. Without a finite maximum nothing is left but what is not a
// number, and that must come through.
float SumOf(const RowOpsTable& ops, std::span<const float> block, float maximum) {
  if (maximum > 0.0f && std::isinf(maximum)) return 0.0f;
  return ops.sum_exp(block.data(), block.size(), std::isinf(maximum) ? 0.0f : maximum);
}

// From the notes of a group of blocks at a time, in order: log of the sum of all.
class SumOfBlocks {
 public:
  SumOfBlocks(const RowOpsTable& ops, float maximum) : ops_(ops), maximum_(maximum) {}

  void Add(std::span<const float> maxima, std::span<const float> sums) {
    KV_CHECK_LE(maxima.size(), kGroup);
    float weights[kGroup];
    for (size_t i = 0; i < maxima.size(); ++i) weights[i] = maxima[i] - maximum_;
    ops_.exp(weights, weights, maxima.size());
    for (size_t i = 0; i < maxima.size(); ++i) total_ += double{weights[i]} * double{sums[i]};
  }
  float Log() const { return static_cast<float>(double{maximum_} + std::log(total_)); }

  static constexpr size_t kGroup = 64;

 private:
  const RowOpsTable& ops_;
  float maximum_;
  double total_ = 0.0;
};

float LargestOf(const RowOpsTable& ops, const LogitsRow& row) {
  const std::span<const float> scanned = row.maxima.empty() ? row.values : row.maxima;
  return ops.maximum(scanned.data(), scanned.size());
}

std::span<const float> BlockOf(std::span<const float> values, size_t block) {
  const size_t begin = block * kLogitsBlock;
  return values.subspan(begin, std::min(kLogitsBlock, values.size() - begin));
}

// The `wanted` best of candidates[0, count), best first, to out.
void TakeBest(std::span<const float> x, std::span<uint32_t> candidates, size_t wanted,
              std::span<uint32_t> out) {
  const auto better = [x](uint32_t a, uint32_t b) {
    return x[a] > x[b] || (x[a] == x[b] && a < b);
  };
  const auto begin = candidates.begin();
  const auto middle = begin + static_cast<std::ptrdiff_t>(wanted);
  if (candidates.size() > wanted) std::nth_element(begin, middle, candidates.end(), better);
  std::sort(begin, middle, better);
  std::copy(begin, middle, out.begin());
}

// TopK of a row without notes, or with too few of them to be of use.
uint32_t TopKOfPlain(std::span<const float> x, uint32_t count, std::span<uint32_t> scratch,
                     std::span<uint32_t> out) {
  const size_t wanted = std::min<size_t>(count, x.size());
  KV_CHECK_LE(x.size(), size_t{UINT32_MAX});
  KV_CHECK_GE(scratch.size(), x.size());
  KV_CHECK_GE(out.size(), wanted);
  if (wanted == 0) return 0;
  const RowOpsTable& ops = ActiveRowOps();
  const float threshold = TopThreshold(ops, x, wanted, scratch);
  // All above the threshold are candidates; among its equals the lowest indices win, and those are
  // found first, so they never need sorting however many there are.
  const size_t above = ops.collect_above(x.data(), x.size(), threshold, x.size(), scratch.data());
  const size_t taken = std::min(above, wanted);
  TakeBest(x, scratch.first(above), taken, out);
  const size_t equal =
      ops.collect_equal(x.data(), x.size(), threshold, wanted - taken, out.data() + taken);
  KV_CHECK_EQ(taken + equal, wanted);
  return static_cast<uint32_t>(wanted);
}

}  // namespace

void SummarizeBlocks(std::span<const float> values, std::span<float> maxima,
                     std::span<float> sums) {
  KV_CHECK_EQ(maxima.size(), LogitsBlocks(values.size()));
  KV_CHECK(sums.empty() || sums.size() == maxima.size());
  const RowOpsTable& ops = ActiveRowOps();
  for (size_t b = 0; b < maxima.size(); ++b) {
    const std::span<const float> block = BlockOf(values, b);
    maxima[b] = ops.maximum(block.data(), block.size());
    if (!sums.empty()) sums[b] = SumOf(ops, block, maxima[b]);
  }
}

uint32_t ArgMax(const LogitsRow& row) {
  KV_CHECK_GT(row.values.size(), 0u);
  KV_CHECK_LE(row.values.size(), size_t{UINT32_MAX});
  const RowOpsTable& ops = ActiveRowOps();
  if (row.maxima.empty()) {
    return static_cast<uint32_t>(ops.arg_max(row.values.data(), row.values.size()));
  }
  const size_t block = ops.arg_max(row.maxima.data(), row.maxima.size());
  const std::span<const float> values = BlockOf(row.values, block);
  const size_t index = ops.arg_max(values.data(), values.size());
  // All of a block without a number above -infinity: then there is none in any, and 0 answers.
  return static_cast<uint32_t>(block * kLogitsBlock + index);
}

float LogSumExp(const LogitsRow& row) {
  KV_CHECK_GT(row.values.size(), 0u);
  const RowOpsTable& ops = ActiveRowOps();
  const float largest = LargestOf(ops, row);
  if (std::isinf(largest)) return largest;
  SumOfBlocks sum(ops, largest);
  const size_t blocks = LogitsBlocks(row.values.size());
  for (size_t first = 0; first < blocks; first += SumOfBlocks::kGroup) {
    const size_t count = std::min(SumOfBlocks::kGroup, blocks - first);
    float maxima[SumOfBlocks::kGroup];
    float sums[SumOfBlocks::kGroup];
    if (!row.sums.empty()) {
      sum.Add(row.maxima.subspan(first, count), row.sums.subspan(first, count));
      continue;
    }
    const size_t begin = first * kLogitsBlock;
    const size_t size = std::min(count * kLogitsBlock, row.values.size() - begin);
    SummarizeBlocks(row.values.subspan(begin, size), {maxima, count}, {sums, count});
    sum.Add({maxima, count}, {sums, count});
  }
  return sum.Log();
}

uint32_t TopK(const LogitsRow& row, uint32_t count, std::span<uint32_t> scratch,
              std::span<uint32_t> out) {
  const std::span<const float> x = row.values;
  const size_t wanted = std::min<size_t>(count, x.size());
  if (wanted == 0 || row.maxima.size() < 4 * wanted) return TopKOfPlain(x, count, scratch, out);
  KV_CHECK_GE(scratch.size(), x.size());
  KV_CHECK_GE(out.size(), wanted);
  const RowOpsTable& ops = ActiveRowOps();
  // As many values as are wanted reach the least of the `wanted` largest maxima.
  const size_t blocks = row.maxima.size();
  std::transform(row.maxima.begin(), row.maxima.end(), scratch.begin(), OrderedKeyOfFloat);
  const auto nth = scratch.begin() + static_cast<std::ptrdiff_t>(wanted - 1);
  std::nth_element(scratch.begin(), nth, scratch.begin() + static_cast<std::ptrdiff_t>(blocks),
                   std::greater<uint32_t>());
  const float least = FloatOfOrderedKey(*nth);
  if (std::isinf(least)) return TopKOfPlain(x, count, scratch, out);
  const float below = std::nextafter(least, kMinusInfinity);
  size_t found = 0;
  for (size_t b = 0; b < blocks; ++b) {
    if (!(row.maxima[b] >= least)) continue;
    const std::span<const float> block = BlockOf(x, b);
    const size_t more =
        ops.collect_above(block.data(), block.size(), below, block.size(), scratch.data() + found);
    for (size_t i = 0; i < more; ++i) scratch[found + i] += static_cast<uint32_t>(b * kLogitsBlock);
    found += more;
  }
  KV_CHECK_GE(found, wanted);
  TakeBest(x, scratch.first(found), wanted, out);
  return static_cast<uint32_t>(wanted);
}

}  // namespace kvasir
