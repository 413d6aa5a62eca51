#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kvasir {
namespace {

struct Peak {
  float value = 0;
  uint32_t index = 0;
};

Peak PeakOf(std::span<const float> row) {
  const auto at = std::max_element(row.begin(), row.end());
  return {*at, static_cast<uint32_t>(at - row.begin())};
}

size_t IndexOf(TokenId token) { return static_cast<size_t>(Index(token)); }

}  // namespace

std::vector<PerplexityWindow> CutWindows(size_t text_tokens, uint32_t window_tokens, bool bos) {
  KV_CHECK_GE(window_tokens, kMinPerplexityWindow);
  const size_t room = window_tokens - (bos ? 1 : 0);
  const size_t first_scored = bos ? 0 : 1;  // Nothing predicts a text's first token without BOS.
  std::vector<PerplexityWindow> windows;
  if (text_tokens <= first_scored) return windows;
  size_t scored = first_scored;
  for (size_t begin = 0; scored < text_tokens; begin += window_tokens / 2) {
    const size_t end = std::min(text_tokens, begin + room);
    windows.push_back({begin, end, scored});
    scored = end;
  }
  return windows;
}

void RunningMean::Add(double value) {
  ++count_;
  const double before = value - mean_;
  mean_ += before / static_cast<double>(count_);
  squares_ += before * (value - mean_);
}

double RunningMean::standard_error() const {
  if (count_ < 2) return 0;
  const double n = static_cast<double>(count_);
  return std::sqrt(squares_ / (n - 1) / n);
}

double NegativeLogLikelihood(std::span<const float> row, TokenId target, uint32_t* best) {
  const Peak peak = PeakOf(row);
  double sum = 0;
  for (const float logit : row) sum += std::exp(double{logit} - peak.value);
  if (best != nullptr) *best = peak.index;
  return std::log(sum) - (double{row[IndexOf(target)]} - peak.value);
}

RowComparison CompareRows(std::span<const float> base, std::span<const float> row, TokenId target) {
  KV_CHECK_EQ(base.size(), row.size());
  const Peak base_peak = PeakOf(base), row_peak = PeakOf(row);
  double base_sum = 0, row_sum = 0, distance = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    const double b = double{base[i]} - base_peak.value;
    const double r = double{row[i]} - row_peak.value;
    const double weight = std::exp(b);
    base_sum += weight;
    row_sum += std::exp(r);
    // An impossible token weighs nothing, also where the other one is impossible too.
    if (weight > 0) distance += weight * (b - r);
  }
  // Below the peak everything is small, so that little is lost in the differences.
  const double base_log = std::log(base_sum), row_log = std::log(row_sum);
  RowComparison out;
  out.base_nll = base_log - (double{base[IndexOf(target)]} - base_peak.value);
  out.nll = row_log - (double{row[IndexOf(target)]} - row_peak.value);
  out.kl = distance / base_sum - base_log + row_log;
  out.same_best = base_peak.index == row_peak.index;
  return out;
}

double PerplexityScores::perplexity() const { return std::exp(nll.mean()); }
double PerplexityScores::standard_error() const { return perplexity() * nll.standard_error(); }
double PerplexityScores::ratio() const { return std::exp(difference.mean()); }
double PerplexityScores::ratio_standard_error() const {
  return ratio() * difference.standard_error();
}
double PerplexityScores::top1_agreement() const {
  return static_cast<double>(same_best) / static_cast<double>(std::max<uint64_t>(1, kl.count()));
}

PerplexityMeter::PerplexityMeter(std::vector<Subject> subjects, WorkerTeam& team)
    : subjects_(std::move(subjects)), team_(team), scores_(subjects_.size()) {
  KV_CHECK(!subjects_.empty());
  for (const Subject& subject : subjects_) {
    KV_CHECK_EQ(subject.runner->config().vocab_size, subjects_[0].runner->config().vocab_size);
  }
}

Status PerplexityMeter::Score(std::span<const TokenId> tokens, std::optional<TokenId> bos,
                              uint32_t window_tokens,
                              const std::function<bool(size_t scored)>& progress) {
  const size_t front = bos.has_value() ? 1 : 0;
  std::vector<TokenId> window;
  for (const PerplexityWindow& cut : CutWindows(tokens.size(), window_tokens, bos.has_value())) {
    window.clear();
    if (bos.has_value()) window.push_back(*bos);
    window.insert(window.end(), tokens.begin() + static_cast<ptrdiff_t>(cut.begin),
                  tokens.begin() + static_cast<ptrdiff_t>(cut.end));
    KV_RETURN_IF_ERROR(ScoreWindow(window, cut.scored_begin - cut.begin + front));
    if (progress && !progress(cut.end)) {
      return MakeStatus(StatusCode::kCancelled, "stopped");
    }
  }
  return OkStatus();
}

Status PerplexityMeter::ScoreWindow(std::span<const TokenId> window, size_t first_scored) {
  std::vector<SequenceId> ids;
  Status status = OkStatus();
  for (const Subject& subject : subjects_) {
    // Found by its first token alone nothing is reused: every position's logits are computed.
    const uint32_t length = static_cast<uint32_t>(window.size());
    const std::optional<SequenceId> id =
        length > subject.kv->max_sequence_tokens()
            ? std::nullopt
            : subject.kv->Open(BlockHash(), window.first(1), length);
    if (!id.has_value()) {
      status = ResourceExhausted("the KV memory has no place for {} tokens", window.size());
      break;
    }
    ids.push_back(*id);
  }
  const StepLimits& limits = subjects_[0].runner->limits();
  const size_t scored_rows = std::min(limits.max_rows, limits.max_logits_rows);
  // The last token is predicted only.
  for (size_t done = 0; status.ok() && done + 1 < window.size();) {
    const size_t unscored = first_scored - 1 > done ? first_scored - 1 - done : 0;
    const size_t most = unscored > 0 ? std::min<size_t>(unscored, limits.max_rows) : scored_rows;
    const size_t rows = std::min(most, window.size() - 1 - done);
    const uint32_t logits_begin = static_cast<uint32_t>(unscored > 0 ? rows : 0);
    for (size_t i = 0; status.ok() && i < subjects_.size(); ++i) {
      status = ComputeChunk(subjects_[i], ids[i], window.subspan(done, rows), logits_begin);
    }
    if (status.ok() && unscored == 0) status = CompareChunk(window.subspan(done + 1, rows));
    done += rows;
  }
  for (size_t i = 0; i < ids.size(); ++i) subjects_[i].kv->Close(ids[i]);
  return status;
}

Status PerplexityMeter::ComputeChunk(const Subject& subject, SequenceId id,
                                     std::span<const TokenId> chunk, uint32_t logits_begin) {
  KvCache& kv = *subject.kv;
  if (!kv.Reserve(id, static_cast<uint32_t>(chunk.size()))) {
    return ResourceExhausted("the KV memory is full");
  }
  Batch batch;
  BatchSequence& sequence = batch.sequences.emplace_back();
  sequence.tokens = chunk;
  sequence.start = kv.computed(id);
  sequence.logits_begin = logits_begin;
  for (uint32_t group = 0; group < kv.layout().group_count(); ++group) {
    sequence.blocks[group] = kv.table(id, group).addresses();
  }
  sequence.tail = kv.tail(id);
  subject.runner->Run(batch);
  kv.Commit(id, chunk);
  return OkStatus();
}

Status PerplexityMeter::CompareChunk(std::span<const TokenId> targets) {
  rows_.resize(targets.size());
  for (size_t s = 0; s < subjects_.size(); ++s) {
    const ModelRunner& base = *subjects_[0].runner;
    const ModelRunner& runner = *subjects_[s].runner;
    if (s == 0 && subjects_.size() > 1) continue;  // Subject 1's comparison gives both scores.
    team_.Run([&](int) {
      team_.For(static_cast<uint32_t>(targets.size()), 1, [&](uint32_t begin, uint32_t end) {
        for (uint32_t i = begin; i < end; ++i) {
          if (s == 0) {
            rows_[i].nll = NegativeLogLikelihood(runner.logits(i), targets[i]);
          } else {
            rows_[i] = CompareRows(base.logits(i), runner.logits(i), targets[i]);
          }
        }
      });
    });
    for (const RowComparison& row : rows_) {
      if (!std::isfinite(row.nll) || !std::isfinite(row.base_nll) || !std::isfinite(row.kl)) {
        return Internal("the model's logits are not all finite numbers");
      }
      scores_[s].nll.Add(row.nll);
      if (s == 0) continue;
      if (s == 1) scores_[0].nll.Add(row.base_nll);
      scores_[s].difference.Add(row.nll - row.base_nll);
      scores_[s].kl.Add(row.kl);
      scores_[s].same_best += row.same_best ? 1 : 0;
    }
  }
  return OkStatus();
}

}  // namespace kvasir
