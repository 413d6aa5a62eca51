// Perplexity of texts under one way of storing KV, and how far another way is from it.
//
// Definition. A text's tokens (control tokens spelled in it are text) are cut into windows of
// `window_tokens` positions; the model's BOS, if it puts one in front of texts, is the first
// position of every window. The next window begins window_tokens / 2 tokens later. Every token is
// scored exactly once, in the first window that holds it: so all of the first window (without BOS
// all but its first token), and of each later one what the one before did not reach, with at least
// window_tokens / 2 - 1 tokens before it. A score is the negative logarithm of the token's
// probability in nats; with m their mean over n tokens, perplexity = exp(m), and its standard
// error, by the delta method, perplexity * s / sqrt(n), s being the scores' standard deviation.
// Scores count as independent; neighbours are not quite, so it is a little too small.
//
// Comparison. All subjects read the same windows, chunk by chunk in turn. Against subject 0 the
// others have the mean of their score's difference d for each token: exp(mean d) is the ratio of
// the perplexities, with the paired standard error ratio * s(d) / sqrt(n); KL(subject 0 || subject)
// over the whole vocabulary, mean of all scored positions; and at how many the most probable tokens
// are the same.
// Numerics: softmax in double over float32 logits. Thread: one; rows are shared out to the team.
// Source: Jelinek et al. 1977 (perplexity); Kullback and Leibler 1951.
#ifndef KVASIR_ENGINE_PERPLEXITY_H_
#define KVASIR_ENGINE_PERPLEXITY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "kv/kv_cache.h"
#include "model/model_runner.h"

namespace kvasir {

inline constexpr uint32_t kMinPerplexityWindow = 16;

// Text tokens [begin, end) are read, [scored_begin, end) are scored.
struct PerplexityWindow {
  size_t begin = 0;
  size_t end = 0;
  size_t scored_begin = 0;
};

// As defined above. REQUIRES: window_tokens >= kMinPerplexityWindow. None if no token is scored.
std::vector<PerplexityWindow> CutWindows(size_t text_tokens, uint32_t window_tokens, bool bos);

// Mean and spread of numbers that come one by one (Welford 1962).
class RunningMean {
 public:
  void Add(double value);
  uint64_t count() const { return count_; }
  double mean() const { return mean_; }
  double standard_error() const;  // Of the mean; 0 for fewer than two numbers.

 private:
  uint64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // Sum of squared distances from the mean.
};

struct RowComparison {
  double base_nll = 0;  // Of the target, in nats.
  double nll = 0;
  double kl = 0;  // KL(base || row), >= 0 but for rounding.
  bool same_best = false;
};

// -log softmax(row)[target]. `best`, if given, gets the index of the largest logit.
double NegativeLogLikelihood(std::span<const float> row, TokenId target, uint32_t* best = nullptr);
// REQUIRES: rows of one length; `target` is an index of it.
RowComparison CompareRows(std::span<const float> base, std::span<const float> row, TokenId target);

// What was measured of one subject so far.
struct PerplexityScores {
  RunningMean nll;
  // Against subject 0; its own has none.
  RunningMean difference;  // nll minus subject 0's.
  RunningMean kl;
  uint64_t same_best = 0;

  double perplexity() const;
  double standard_error() const;
  double ratio() const;  // exp of the mean difference.
  double ratio_standard_error() const;
  double top1_agreement() const;  // Share of positions, in [0, 1].
};

class PerplexityMeter {
 public:
  // One way to compute: both must outlive the meter and serve nobody else meanwhile.
  struct Subject {
    ModelRunner* runner = nullptr;
    KvCache* kv = nullptr;
  };
  // REQUIRES: at least one subject; one vocabulary for all.
  PerplexityMeter(std::vector<Subject> subjects, WorkerTeam& team);

  // Scores a whole text, `tokens` without BOS. `progress`, if any, is told how many tokens are
  // scored and goes on while it returns true. kResourceExhausted when a cache is too small for a
  // window, kInternal when logits are not numbers, kCancelled when told to stop.
  Status Score(std::span<const TokenId> tokens, std::optional<TokenId> bos, uint32_t window_tokens,
               const std::function<bool(size_t scored)>& progress);

  // By subject.
  const std::vector<PerplexityScores>& scores() const { return scores_; }

 private:
  Status ScoreWindow(std::span<const TokenId> window, size_t first_scored);
  Status ComputeChunk(const Subject& subject, SequenceId id, std::span<const TokenId> chunk,
                      uint32_t logits_begin);
  Status CompareChunk(std::span<const TokenId> targets);

  const std::vector<Subject> subjects_;
  WorkerTeam& team_;
  std::vector<PerplexityScores> scores_;
  std::vector<RowComparison> rows_;  // Of one chunk and subject.
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PERPLEXITY_H_
