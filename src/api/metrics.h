// ApiMetrics: what the API measures itself, and all metrics as Prometheus text.
//
// Latencies are taken where a client would see them: on the way out, when an event reaches the
// reply. Names are kvasir_*; a few come under vLLM's names too, so that dashboards and autoscalers
// made for it work. Thread: any.
// Source: Prometheus documentation, "Exposition formats", text format 0.0.4.
#ifndef KVASIR_API_METRICS_H_
#define KVASIR_API_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/mutex.h"
#include "engine/engine_loop.h"
#include "io/http_server.h"

namespace kvasir {

// Counts per upper bound, as Prometheus wants them. Not synchronized.
class Histogram {
 public:
  void Observe(double seconds);

  // The lines of one histogram called `name` with label `labels` ("" or `model_name="x"`).
  void AppendTo(std::string_view name, std::string_view help, std::string_view labels,
                std::string* out) const;

 private:
  static constexpr std::array<double, 17> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                                     0.075, 0.1,    0.25,  0.5,  0.75,  1.0,
                                                     2.5,   5.0,    10.0,  30.0, 60.0};
  std::array<uint64_t, kBounds.size() + 1> counts_{};  // The last: above all bounds.
  double sum_ = 0;
  uint64_t count_ = 0;
};

class ApiMetrics {
 public:
  // A reply was complete (or its client gone: status 499).
  void CountReply(std::string_view route, int status) KV_EXCLUDES(mutex_);
  void ObserveFirstToken(double seconds) KV_EXCLUDES(mutex_);  // Since the request had come.
  void ObserveGap(double seconds) KV_EXCLUDES(mutex_);         // Between two tokens of a choice.
  // A generation ended; all since the request had come, and its time in the queue.
  void ObserveEnd(double seconds, double queue_seconds) KV_EXCLUDES(mutex_);

  // `engine` is absent while the model loads, `http` if nobody said.
  std::string Render(std::string_view model_name, const std::optional<EngineSnapshot>& engine,
                     const std::optional<HttpServerCounters>& http) const KV_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> replies_ KV_GUARDED_BY(mutex_);
  Histogram first_token_ KV_GUARDED_BY(mutex_);
  Histogram gap_ KV_GUARDED_BY(mutex_);
  Histogram end_ KV_GUARDED_BY(mutex_);
  Histogram queue_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvasir

#endif  // KVASIR_API_METRICS_H_
