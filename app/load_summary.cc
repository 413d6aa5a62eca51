#include "load_summary.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

double PerSecond(uint64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Calls `add(record)` for each request that succeeded.
template <typename Add>
void ForEachAnswer(const std::vector<LoadResult>& rounds, Add add) {
  for (const LoadResult& round : rounds) {
    for (const LoadRecord& record : round.records) {
      if (record.ok()) add(record);
    }
  }
}

}  // namespace

Distribution DistributionOf(std::vector<double> values_ms) {
  Distribution result;
  result.count = values_ms.size();
  if (values_ms.empty()) return result;
  std::sort(values_ms.begin(), values_ms.end());
  const auto rank = [&](double share) {
    const double n = std::ceil(share * static_cast<double>(values_ms.size()));
    return values_ms[static_cast<size_t>(std::max(n, 1.0)) - 1];
  };
  for (const double value : values_ms) result.mean += value;
  result.mean /= static_cast<double>(values_ms.size());
  result.p50 = rank(0.5);
  result.p95 = rank(0.95);
  result.p99 = rank(0.99);
  result.max = values_ms.back();
  return result;
}

std::vector<double> FirstTokenTimes(const std::vector<LoadResult>& rounds) {
  std::vector<double> times;
  ForEachAnswer(rounds, [&](const LoadRecord& record) {
    if (record.piece_s.empty()) return;
    times.push_back(1e3 * (record.piece_s.front() - record.intended_s));
  });
  return times;
}

std::vector<double> Gaps(const std::vector<LoadResult>& rounds) {
  std::vector<double> gaps;
  ForEachAnswer(rounds, [&](const LoadRecord& record) {
    for (size_t i = 1; i < record.piece_s.size(); ++i) {
      gaps.push_back(1e3 * (record.piece_s[i] - record.piece_s[i - 1]));
    }
  });
  return gaps;
}

std::vector<double> Latencies(const std::vector<LoadResult>& rounds) {
  std::vector<double> times;
  ForEachAnswer(rounds, [&](const LoadRecord& record) {
    times.push_back(1e3 * (record.end_s - record.intended_s));
  });
  return times;
}

LoadSummary Summarise(const std::vector<LoadResult>& rounds) {
  LoadSummary summary;
  for (const LoadResult& round : rounds) {
    summary.wall_s += round.wall_s;
    summary.not_asked += round.not_asked;
    summary.requests += round.records.size();
    for (const LoadRecord& record : round.records) {
      if (record.ok()) continue;
      ErrorCount& error = summary.errors[record.error];
      if (error.count++ == 0) error.example = record.message;
    }
  }
  ForEachAnswer(rounds, [&](const LoadRecord& record) {
    ++summary.succeeded;
    summary.with_usage += record.has_usage ? 1 : 0;
    summary.with_cached += record.has_cached ? 1 : 0;
    summary.prompt_tokens += record.prompt_tokens;
    summary.cached_tokens += record.cached_tokens;
    summary.output_tokens += record.output_tokens;
  });
  summary.first_token = DistributionOf(FirstTokenTimes(rounds));
  summary.gap = DistributionOf(Gaps(rounds));
  summary.latency = DistributionOf(Latencies(rounds));
  return summary;
}

double LoadSummary::RequestsPerSecond() const { return PerSecond(succeeded, wall_s); }

double LoadSummary::OutputTokensPerSecond() const { return PerSecond(output_tokens, wall_s); }

double LoadSummary::PromptTokensPerSecond() const { return PerSecond(prompt_tokens, wall_s); }

double LoadSummary::CachedShare() const {
  return prompt_tokens == 0
             ? 0.0
             : static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
}

}  // namespace kvasir
