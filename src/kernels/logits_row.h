// LogitsRow: one row of logits, with what its producer has noted of each block of it, and the scans
// that sampling needs: the largest, the log of the sum of exponentials, the k largest.
//
// A vocabulary of 262,144 is a megabyte: reading it again costs more than everything else about
// choosing a token. So whoever writes a row notes maximum and sum of exponentials of each block
// while it lies in the nearest cache (SummarizeBlocks), and the scans read the notes and the few
// blocks that matter.
//
// Numerics: blocks lie at fixed places and each is summed in a fixed order of 16 lanes, so results
// are the same with notes or without, on every instruction set. Thread: pure functions.
#ifndef KVASIR_KERNELS_LOGITS_ROW_H_
#define KVASIR_KERNELS_LOGITS_ROW_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvasir {

inline constexpr size_t kLogitsBlock = 512;

// Blocks of a row, the last one may be shorter.
constexpr size_t LogitsBlocks(size_t vocab_size) {
  return (vocab_size + kLogitsBlock - 1) / kLogitsBlock;
}

// A view; owns nothing. A plain row is one without notes.
struct LogitsRow {
  LogitsRow() = default;
  template <typename Row>
  requires std::convertible_to<const Row&, std::span<const float>> LogitsRow(const Row& row)
      : values(row) {}
  LogitsRow(std::span<const float> row, std::span<const float> block_maxima,
            std::span<const float> block_sums)
      : values(row), maxima(block_maxima), sums(block_sums) {}

  std::span<const float> values;  // [vocab]
  // [LogitsBlocks(vocab)] largest value of each block, NaN as -infinity; empty: not noted.
  std::span<const float> maxima;
  // [LogitsBlocks(vocab)] sum of e^(value - maximum), 0 where the maximum is infinite; empty: not
  // noted.
  std::span<const float> sums;
};

// Notes of the blocks of `values`, the part of a row that begins at a block's border and ends at
// one or with the row. `sums` may be empty: it costs an exponential a value.
void SummarizeBlocks(std::span<const float> values, std::span<float> maxima, std::span<float> sums);

// Index of the largest value, ties to the lowest index; NaN counts as -infinity (all NaN gives 0).
uint32_t ArgMax(const LogitsRow& row);

// max + log(sum exp(x - max)), accurate to 1e-5 absolute; -infinity entries count nothing.
float LogSumExp(const LogitsRow& row);

// The indices of the `count` largest values, best first, ties to the lowest index, into out[0..n),
// n = min(count, values.size()) returned. NaN counts as -infinity. `scratch` must hold
// values.size() indices and is not read before written. Threshold scan and selection, not a sort of
// everything.
uint32_t TopK(const LogitsRow& row, uint32_t count, std::span<uint32_t> scratch,
              std::span<uint32_t> out);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_LOGITS_ROW_H_
