// LoadSummary: what the records of a load say about the server, in numbers.
#ifndef KVASIR_APP_LOAD_SUMMARY_H_
#define KVASIR_APP_LOAD_SUMMARY_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "load_run.h"

namespace kvasir {

// Of a set of durations, in milliseconds. Percentiles are nearest rank: a value that occurred.
struct Distribution {
  uint64_t count = 0;
  double mean = 0.0;
  double p50 = 0.0;
  double p95 = 0.0;
  double p99 = 0.0;
  double max = 0.0;
};

Distribution DistributionOf(std::vector<double> values_ms);

struct ErrorCount {
  uint64_t count = 0;
  std::string example;  // The message of the first one.
};

struct LoadSummary {
  uint64_t requests = 0;
  uint64_t succeeded = 0;
  uint64_t not_asked = 0;
  double wall_s = 0.0;
  std::map<std::string, ErrorCount> errors;  // By kind.

  // Of the requests that succeeded.
  uint64_t prompt_tokens = 0;  // Of those with usage only, as are cached tokens.
  uint64_t cached_tokens = 0;
  uint64_t output_tokens = 0;
  uint64_t with_usage = 0;   // Requests whose server counted tokens,
  uint64_t with_cached = 0;  // and said how many it reused.
  Distribution first_token;  // From the intended start.
  Distribution gap;          // Between a request's neighbouring pieces of text.
  Distribution latency;      // From the intended start to the last byte.

  double RequestsPerSecond() const;
  double OutputTokensPerSecond() const;
  double PromptTokensPerSecond() const;
  double CachedShare() const;  // Of all prompt tokens; 0 when unknown.
};

// Of several rounds: wall times add up.
LoadSummary Summarise(const std::vector<LoadResult>& rounds);

// Milliseconds of each request that succeeded (or, gaps, of each neighbouring pair), unsorted.
std::vector<double> FirstTokenTimes(const std::vector<LoadResult>& rounds);
std::vector<double> Gaps(const std::vector<LoadResult>& rounds);
std::vector<double> Latencies(const std::vector<LoadResult>& rounds);

}  // namespace kvasir

#endif  // KVASIR_APP_LOAD_SUMMARY_H_
