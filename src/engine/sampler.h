// Sampler: chooses the next token of one sequence from its row of logits.
//
// The options act in the order that engine/sampling_options.h states. The draw is the inverse of
// the cumulative distribution in rank order (best token first, ties to the lowest id) at the
// uniform number UniformAt(seed + choice, position), so a choice depends on the logits, the
// options, the tokens seen and the position: never on the batch, the thread or the instruction set
// (no libm: its exponential differs between CPUs in the last bit).
//
// Cost: one scan of the notes (kernels/logits_row.h) when greedy; otherwise the ranking is read
// through TopK in windows of 64, 512, ... until the draw is decided, which in practice is the first
// window: a full sort only when a flat distribution asks for it, with the same result. Thread: one
// at a time per object; SamplerScratch is shared by the samplers of one thread.
#ifndef KVASIR_ENGINE_SAMPLER_H_
#define KVASIR_ENGINE_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "engine/sampling_options.h"
#include "kernels/logits_row.h"

namespace kvasir {

// Buffers for one row at a time; sized once, so that sampling allocates nothing.
struct SamplerScratch {
  explicit SamplerScratch(uint32_t vocab_size)
      : adjusted(vocab_size), scaled(vocab_size), ranking(vocab_size), selection(vocab_size) {}

  std::vector<float> adjusted;      // [vocab] logits after bias and penalties.
  std::vector<float> scaled;        // [vocab] (logit - max) / temperature.
  std::vector<uint32_t> ranking;    // [vocab] ids, best first.
  std::vector<uint32_t> selection;  // [vocab] TopK's own.
};

class Sampler {
 public:
  // REQUIRES: options.Validate(vocab_size) is OK. `max_tokens` bounds prompt plus generated tokens;
  // with penalties on, the memory for that many is taken here.
  Sampler(SamplingOptions options, uint32_t vocab_size, uint32_t max_tokens);

  // Tells the penalties what the sequence contains. Ids outside the vocabulary are our own bug.
  void NotePrompt(std::span<const TokenId> tokens);
  void NoteGenerated(TokenId token);

  // The token to stand at `position` (its index in the sequence, prompt included), none of
  // `banned`. Does not note it. `ahead`: generated tokens before `position` that were not noted
  // yet; the answer is as if they had been. Rows without a finite maximum (all -infinity or NaN)
  // give ArgMax's answer. REQUIRES: logits.values.size() == vocab_size, all ids below it.
  TokenId Sample(const LogitsRow& logits, uint64_t position, SamplerScratch& scratch,
                 std::span<const TokenId> banned = {}, std::span<const TokenId> ahead = {}) const;

  const SamplingOptions& options() const { return options_; }
  // Whether Sample without banned tokens reads nothing but the largest logit and its index.
  bool takes_largest() const {
    return options_.greedy() && options_.logit_bias.empty() && !options_.has_penalties();
  }

 private:
  struct Seen {
    uint32_t generated = 0;
    bool listed = false;  // Is in seen_ids_.
  };
  void List(TokenId token);
  void Adjust(std::span<float> logits, std::span<const TokenId> ahead) const;
  void Penalize(TokenId token, uint32_t times_generated, std::span<float> logits) const;

  SamplingOptions options_;
  uint32_t vocab_size_;
  std::vector<Seen> seen_;         // [vocab]; empty without penalties.
  std::vector<TokenId> seen_ids_;  // Distinct ids of the sequence, in order of appearance.
};

struct TokenLogProb {
  TokenId token;
  float log_prob;
};

// Log-probabilities of the raw logits, whatever the sampling options: of `token`, and of the
// `top_count` best into `top`, best first.
struct LogProbReport {
  float log_prob = 0.0f;
  std::vector<TokenLogProb> top;
};
LogProbReport ReportLogProbs(const LogitsRow& logits, TokenId token, uint32_t top_count,
                             SamplerScratch& scratch);

// e^x for x <= 0, relative error <= 1e-14, the same bits everywhere; 0 below -708.
double ExpNonPositive(double x);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SAMPLER_H_
