// Batch: what one forward step computes: for each of its sequences, some consecutive tokens at any
// position.
//
// Prefill chunks, single decode tokens and verification of drafts are one thing here: a sequence
// with one token decodes, one with many prefills. Rows are packed in the order of the sequences,
// without padding. A value, built by the caller for one Run; it owns nothing.
#ifndef KVASIR_MODEL_BATCH_H_
#define KVASIR_MODEL_BATCH_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kv/kv_layout.h"
#include "kv/tail_store.h"

namespace kvasir {

struct BatchSequence {
  std::span<const TokenId> tokens;  // To compute now, at positions start, start + 1, ...
  uint32_t start = 0;
  // Logits are produced for tokens[logits_begin..]; logits_begin == tokens.size() asks for none.
  uint32_t logits_begin = 0;
  // By KV group (KvLayout order): base addresses of the sequence's blocks by position /
  // block_tokens. Blocks for positions [start, start + tokens.size()) are written and must be this
  // sequence's alone; those before hold the KV of the tokens before `start` (window groups: of the
  // last window).
  std::array<std::span<std::byte* const>, kMaxKvGroups> blocks;
  // Where keys of a staged KV type wait for the rest of their unit: of positions from start / 16 *
  // 16 on, or, if it is complete, of the 16 before `start`. Written; this sequence's alone.
  KvTail tail;
  // Whoever reads its logits asks for the largest only (ModelRunner::logits).
  bool arg_max_only = false;
  // Whoever reads its logits asks for log-probabilities (ModelRunner::logits_row).
  bool wants_log_sums = false;
};

struct Batch {
  std::vector<BatchSequence> sequences;

  uint32_t row_count() const {
    size_t rows = 0;
    for (const BatchSequence& sequence : sequences) rows += sequence.tokens.size();
    return static_cast<uint32_t>(rows);
  }
  uint32_t logits_row_count() const {
    size_t rows = 0;
    for (const BatchSequence& sequence : sequences) {
      rows += sequence.tokens.size() - sequence.logits_begin;
    }
    return static_cast<uint32_t>(rows);
  }
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_BATCH_H_
