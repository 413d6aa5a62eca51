#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "engine/counter_random.h"
#include "kernels/logits_row.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

constexpr uint32_t kFirstWindow = 64;
constexpr uint32_t kWindowGrowth = 8;

// The ranking of a row, unrolled as far as somebody looks: weights relative to the best token.
class RankedWeights {
 public:
  RankedWeights(const LogitsRow& logits, float max, float temperature, SamplerScratch& scratch)
      : logits_(logits),
        values_(logits.values),
        max_(max),
        inverse_temperature_(1.0 / static_cast<double>(temperature)),
        scratch_(scratch) {}

  uint32_t size() const { return static_cast<uint32_t>(values_.size()); }

  uint32_t IdAt(uint32_t rank) {
    if (rank >= window_) Widen(rank);
    return scratch_.ranking[rank];
  }

  double WeightAt(uint32_t rank) { return WeightOf(values_[IdAt(rank)]); }

  // Sum of all weights, by the vector kernels; good to 1e-5.
  double Total() {
    const std::span<float> scaled(scratch_.scaled);
    for (size_t i = 0; i < values_.size(); ++i) {
      scaled[i] = static_cast<float>((double{values_[i]} - max_) * inverse_temperature_);
    }
    // The maximum is 0, so this is log of at least 1 and at most log of the vocabulary.
    return 1.0 / ExpNonPositive(-static_cast<double>(LogSumExp(scaled)));
  }

  // Caps what will ever be asked for, so that top_k needs one selection of the right size.
  void Expect(uint32_t rank_count) { expected_ = std::min(rank_count, size()); }

 private:
  double WeightOf(float logit) const {
    if (std::isnan(logit)) return 0.0;
    return ExpNonPositive((double{logit} - max_) * inverse_temperature_);
  }

  void Widen(uint32_t rank) {
    uint32_t want = window_ == 0 ? std::max(kFirstWindow, expected_) : window_ * kWindowGrowth;
    want = std::min(std::max(want, rank + 1), size());
    window_ = TopK(logits_, want, scratch_.selection, scratch_.ranking);
    KV_CHECK_LT(rank, window_);
  }

  LogitsRow logits_;
  std::span<const float> values_;
  double max_;
  double inverse_temperature_;
  SamplerScratch& scratch_;
  uint32_t window_ = 0;  // Ranks known so far.
  uint32_t expected_ = 0;
};

// How many ranks min_p and top_k leave, and their mass.
struct Kept {
  uint32_t count;
  double mass;
};

Kept KeepByMinPAndTopK(const SamplingOptions& options, RankedWeights& weights) {
  const uint32_t limit =
      options.top_k == 0 ? weights.size() : std::min(options.top_k, weights.size());
  if (limit == weights.size() && options.min_p <= 0.0f) return {limit, weights.Total()};
  if (limit < weights.size()) weights.Expect(limit);
  Kept kept{0, 0.0};
  while (kept.count < limit) {
    const double weight = weights.WeightAt(kept.count);
    // The best token has weight 1, so this never leaves the set empty.
    if (weight < static_cast<double>(options.min_p)) break;
    kept.mass += weight;
    ++kept.count;
  }
  return kept;
}

Kept KeepByTopP(float top_p, Kept kept, RankedWeights& weights) {
  if (top_p >= 1.0f) return kept;
  const double target = static_cast<double>(top_p) * kept.mass;
  Kept nucleus{0, 0.0};
  while (nucleus.count < kept.count && nucleus.mass < target) {
    nucleus.mass += weights.WeightAt(nucleus.count);
    ++nucleus.count;
  }
  return nucleus;
}

uint32_t Draw(double uniform, Kept kept, RankedWeights& weights) {
  const double target = uniform * kept.mass;
  double sum = 0.0;
  uint32_t last_possible = 0;
  for (uint32_t rank = 0; rank < kept.count; ++rank) {
    const double weight = weights.WeightAt(rank);
    if (weight <= 0.0) break;  // Ranked by weight: nothing possible follows.
    last_possible = rank;
    sum += weight;
    if (sum > target) break;
  }
  // Total() is rounded: a target within 1e-5 of the mass can lie beyond the sum.
  return weights.IdAt(last_possible);
}

}  // namespace

double ExpNonPositive(double x) {
  if (!(x >= -708.0)) return 0.0;  // NaN too.
  if (x >= 0.0) return 1.0;
  // x = k ln2 + r, |r| <= ln2 / 2; ln2 in two parts keeps r exact to the last bits.
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kLn2High = 0x1.62e42fee00000p-1;
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double k = std::floor(x * kLog2E + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1.0;  // Taylor to r^13 by Horner: the remainder is below 1e-17.
  for (int n = 13; n >= 1; --n) sum = 1.0 + sum * r / static_cast<double>(n);
  const uint64_t exponent = static_cast<uint64_t>(static_cast<int64_t>(k) + 1023);
  return sum * std::bit_cast<double>(exponent << 52);
}

Sampler::Sampler(SamplingOptions options, uint32_t vocab_size, uint32_t max_tokens)
    : options_(std::move(options)), vocab_size_(vocab_size) {
  KV_CHECK_GT(vocab_size, 0u);
  KV_CHECK(options_.Validate(vocab_size).ok());
  if (options_.has_penalties()) {
    seen_.resize(vocab_size);
    seen_ids_.reserve(std::min(vocab_size, max_tokens));
  }
}

void Sampler::List(TokenId token) {
  Seen& seen = seen_[static_cast<size_t>(Index(token))];
  if (seen.listed) return;
  seen.listed = true;
  seen_ids_.push_back(token);
}

void Sampler::NotePrompt(std::span<const TokenId> tokens) {
  // Presence and frequency look at generated tokens only; the prompt matters to repetition alone.
  if (options_.repetition_penalty == 1.0f) return;
  for (const TokenId token : tokens) {
    KV_CHECK_LT(static_cast<uint32_t>(Index(token)), vocab_size_);
    List(token);
  }
}

void Sampler::NoteGenerated(TokenId token) {
  if (!options_.has_penalties()) return;
  KV_CHECK_LT(static_cast<uint32_t>(Index(token)), vocab_size_);
  List(token);
  ++seen_[static_cast<size_t>(Index(token))].generated;
}

void Sampler::Penalize(TokenId token, uint32_t times_generated, std::span<float> logits) const {
  float& logit = logits[static_cast<size_t>(Index(token))];
  if (logit > 0.0f) {
    logit /= options_.repetition_penalty;
  } else {
    logit *= options_.repetition_penalty;
  }
  if (times_generated == 0) return;
  logit -= options_.presence_penalty;
  logit -= options_.frequency_penalty * static_cast<float>(times_generated);
}

void Sampler::Adjust(std::span<float> logits, std::span<const TokenId> ahead) const {
  for (const auto& [id, bias] : options_.logit_bias) logits[static_cast<size_t>(Index(id))] += bias;
  if (!options_.has_penalties()) return;
  const auto count_in = [](std::span<const TokenId> tokens, TokenId id) {
    return static_cast<uint32_t>(std::count(tokens.begin(), tokens.end(), id));
  };
  for (const TokenId id : seen_ids_) {
    Penalize(id, seen_[static_cast<size_t>(Index(id))].generated + count_in(ahead, id), logits);
  }
  for (size_t i = 0; i < ahead.size(); ++i) {
    if (seen_[static_cast<size_t>(Index(ahead[i]))].listed) continue;
    if (count_in(ahead.first(i), ahead[i]) > 0) continue;
    Penalize(ahead[i], count_in(ahead, ahead[i]), logits);
  }
}

TokenId Sampler::Sample(const LogitsRow& raw, uint64_t position, SamplerScratch& scratch,
                        std::span<const TokenId> banned, std::span<const TokenId> ahead) const {
  LogitsRow logits = raw;
  KV_CHECK_EQ(logits.values.size(), vocab_size_);
  KV_CHECK_EQ(scratch.adjusted.size(), vocab_size_);
  const bool penalized = !seen_ids_.empty() || (options_.has_penalties() && !ahead.empty());
  if (!options_.logit_bias.empty() || penalized || !banned.empty()) {
    std::copy(raw.values.begin(), raw.values.end(), scratch.adjusted.begin());
    Adjust(scratch.adjusted, ahead);
    for (const TokenId id : banned) scratch.adjusted[static_cast<size_t>(Index(id))] = -INFINITY;
    logits = LogitsRow(scratch.adjusted);
  }
  const uint32_t best = ArgMax(logits);
  const float max = logits.values[best];
  if (options_.greedy() || !std::isfinite(max)) return TokenId{static_cast<int32_t>(best)};

  RankedWeights weights(logits, max, options_.temperature, scratch);
  Kept kept = KeepByMinPAndTopK(options_, weights);
  kept = KeepByTopP(options_.top_p, kept, weights);
  const double uniform = UniformAt(options_.seed + options_.choice, position);
  return TokenId{static_cast<int32_t>(Draw(uniform, kept, weights))};
}

LogProbReport ReportLogProbs(const LogitsRow& logits, TokenId token, uint32_t top_count,
                             SamplerScratch& scratch) {
  const float log_sum = LogSumExp(logits);
  LogProbReport report;
  report.log_prob = logits.values[static_cast<size_t>(Index(token))] - log_sum;
  const uint32_t count =
      top_count == 0 ? 0 : TopK(logits, top_count, scratch.selection, scratch.ranking);
  report.top.reserve(count);
  for (uint32_t rank = 0; rank < count; ++rank) {
    const uint32_t id = scratch.ranking[rank];
    report.top.push_back({TokenId{static_cast<int32_t>(id)}, logits.values[id] - log_sum});
  }
  return report;
}

}  // namespace kvasir
