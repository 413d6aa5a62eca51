#include "api/metrics.h"

namespace kvasir {
namespace {

// Label values may hold anything; these three characters end or break them.
std::string Escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

class Exposition {
 public:
  void Header(std::string_view name, std::string_view type, std::string_view help) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }

  template <typename Number>
  void Line(std::string_view name, std::string_view labels, Number value) {
    if (labels.empty()) {
      text_ += fmt::format("{} {}\n", name, value);
    } else {
      text_ += fmt::format("{}{{{}}} {}\n", name, labels, value);
    }
  }

  template <typename Number>
  void Counter(std::string_view name, std::string_view help, Number value,
               std::string_view labels = "") {
    Header(name, "counter", help);
    Line(name, labels, value);
  }

  template <typename Number>
  void Gauge(std::string_view name, std::string_view help, Number value,
             std::string_view labels = "") {
    Header(name, "gauge", help);
    Line(name, labels, value);
  }

  std::string* text() { return &text_; }

 private:
  std::string text_;
};

void AppendRows(std::string_view name, std::string_view help, const RowHistogram& rows,
                Exposition* out) {
  out->Header(name, "histogram", help);
  const std::string bucket = fmt::format("{}_bucket", name);
  uint64_t below = 0;
  for (size_t i = 0; i < RowHistogram::kBounds.size(); ++i) {
    below += rows.counts[i];
    out->Line(bucket, fmt::format("le=\"{}\"", RowHistogram::kBounds[i]), below);
  }
  out->Line(bucket, "le=\"+Inf\"", rows.steps);
  out->Line(fmt::format("{}_sum", name), "", rows.rows);
  out->Line(fmt::format("{}_count", name), "", rows.steps);
  out->Gauge(fmt::format("{}_max", name), "The most of any step", rows.most);
}

void AppendScheduler(const EngineSnapshot& engine, Exposition* out) {
  const SchedulerCounters& s = engine.scheduler;
  out->Counter("kvasir_engine_requests_submitted_total", "Requests taken into the queue",
               s.submitted);
  out->Counter("kvasir_engine_requests_refused_total", "Requests refused: the queue was full",
               s.refused);
  out->Counter("kvasir_engine_requests_finished_total", "Requests that ended by themselves",
               s.finished);
  out->Counter("kvasir_engine_requests_cancelled_total", "Requests whose client went away",
               s.cancelled);
  out->Counter("kvasir_engine_requests_timed_out_total", "Requests that passed their deadline",
               s.timed_out);
  out->Counter("kvasir_engine_preemptions_total", "Sequences that had to make way", s.preemptions);
  out->Counter("kvasir_engine_recomputed_tokens_total",
               "Tokens that sequences which made way computed again", s.recomputed_tokens);
  out->Counter("kvasir_engine_dedupe_waits_total",
               "Requests that waited for a prefix which another one was computing", s.dedupe_waits);
  out->Counter("kvasir_engine_prompt_tokens_total", "Prompt tokens of admitted requests",
               s.prompt_tokens);
  out->Counter("kvasir_engine_cached_tokens_total", "Of those, tokens found in the cache",
               s.cached_tokens);
  out->Counter("kvasir_engine_computed_tokens_total", "Rows computed in all steps",
               s.computed_tokens);
  out->Counter("kvasir_engine_generated_tokens_total", "Tokens generated", s.generated_tokens);
  out->Counter("kvasir_engine_draft_tokens_total", "Guessed tokens that were verified",
               s.draft_tokens);
  out->Counter("kvasir_engine_accepted_draft_tokens_total", "Of those, right ones",
               s.accepted_draft_tokens);
  out->Counter("kvasir_engine_steps_total", "Forward passes", s.steps);
  AppendRows("kvasir_engine_step_rows", "Rows of a step", s.step_rows, out);
  AppendRows("kvasir_engine_prompt_rows_beside_streams",
             "Rows of prompts in a step with running streams", s.prompt_rows_beside, out);
  out->Gauge("kvasir_engine_running_sequences", "Sequences in the batch", s.running);
  out->Gauge("kvasir_engine_waiting_sequences", "Sequences in the queue", s.waiting);
  out->Gauge("kvasir_engine_last_step_rows", "Rows of the last step", engine.last_step_rows);
  out->Gauge("kvasir_engine_last_step_seconds", "Length of the last step",
             static_cast<double>(engine.last_step_us) * 1e-6);
  out->Gauge("kvasir_engine_macs_per_second", "Learned speed of prompt rows beside streams",
             engine.macs_per_us * 1e6);
  out->Counter("kvasir_engine_lock_waits_total",
               "Locks that the engine thread found held by another one", engine.lock_waits.count);
  out->Counter("kvasir_engine_lock_wait_seconds_total", "How long it waited for them",
               std::chrono::duration<double>(engine.lock_waits.time).count());
  out->Gauge("kvasir_adapt_running_limit", "Sequences that may run at once",
             s.adaptive.running_limit);
  out->Gauge("kvasir_adapt_step_stretch",
             "Steps with prompts take at most so many times a step of the streams alone",
             s.adaptive.stretch);
  out->Header("kvasir_adapt_decisions_total", "counter", "Moves of these limits, by reason");
  for (size_t i = 0; i < s.adaptive.by_reason.size(); ++i) {
    const char* reason = ReasonName(static_cast<AdaptiveDecision::Reason>(i));
    out->Line("kvasir_adapt_decisions_total", fmt::format("reason=\"{}\"", reason),
              s.adaptive.by_reason[i]);
  }
  // Rows are packed: there is nothing to pad.
  out->Counter("kvasir_engine_padding_rows_total", "Rows computed for nobody", 0);
}

void AppendKv(const EngineSnapshot& engine, Exposition* out) {
  const KvCounters& kv = engine.kv;
  out->Counter("kvasir_kv_queries_total",
               "Prompts looked up, once more at each attempt to find room for one", kv.queries);
  out->Counter("kvasir_kv_query_tokens_total", "Their tokens", kv.query_tokens);
  out->Counter("kvasir_kv_hits_total", "Look-ups that reused anything", kv.hits);
  out->Counter("kvasir_kv_hit_tokens_total", "Tokens they reused", kv.hit_tokens);
  out->Counter("kvasir_kv_committed_tokens_total", "Tokens whose KV was computed",
               kv.committed_tokens);
  out->Counter("kvasir_kv_published_blocks_total", "Blocks that became shareable",
               kv.published_nodes);
  out->Counter("kvasir_kv_duplicate_blocks_total", "Blocks computed though they were cached",
               kv.duplicate_nodes);
  out->Header("kvasir_kv_copies_total", "counter", "KV blocks copied, by reason");
  out->Line("kvasir_kv_copies_total", "reason=\"copy_on_write\"", kv.copies);
  out->Line("kvasir_kv_copies_total", "reason=\"move\"", kv.moves);
  out->Counter("kvasir_kv_moved_bytes_total", "Bytes copied to move regions", kv.moved_bytes);
  out->Counter("kvasir_kv_failed_reserves_total", "Times the KV memory was too small at once",
               kv.failed_reserves);
  out->Header("kvasir_kv_evictions_total", "counter", "Blocks evicted");
  for (size_t group = 0; group < engine.group_count; ++group) {
    out->Line("kvasir_kv_evictions_total", fmt::format("group=\"{}\"", group), kv.evictions[group]);
  }
  out->Counter("kvasir_kv_broken_pins_total",
               "Pins given up so that a sequence which was alone could go on", kv.broken_pins);
  const KvUsage& usage = engine.kv_usage;
  out->Header(
      "kvasir_kv_bytes", "gauge",
      "KV memory: total = reserved + free; used, wasted, idle, pinned are parts of reserved");
  for (const auto& [state, bytes] : {std::pair{"total", usage.total},
                                     {"reserved", usage.reserved},
                                     {"free", usage.total - usage.reserved},
                                     {"used", usage.used},
                                     {"wasted", usage.wasted()},
                                     {"idle", usage.idle},
                                     {"pinned", usage.pinned},
                                     // One piece: less than free where regions have scattered it.
                                     {"largest_free", usage.largest_free}}) {
    out->Line("kvasir_kv_bytes", fmt::format("state=\"{}\"", state), bytes);
  }
  out->Header("kvasir_kv_blocks", "gauge", "KV blocks by what holds them");
  for (size_t group = 0; group < engine.group_count; ++group) {
    const EngineSnapshot::Group& g = engine.groups[group];
    const auto line = [&](const char* state, uint32_t count) {
      out->Line("kvasir_kv_blocks", fmt::format("group=\"{}\",state=\"{}\"", group, state), count);
    };
    line("free", g.free_blocks);
    line("cached", g.cached_blocks);
    line("in_use", g.blocks - g.free_blocks - g.cached_blocks);
  }
}

void AppendEviction(const EngineSnapshot& engine, Exposition* out) {
  const KvEviction& eviction = engine.eviction;
  const auto each = [&](const char* name, const char* type, const char* help, const auto& value) {
    out->Header(name, type, help);
    for (uint32_t i = 0; i < kFixedKvEvicts; ++i) {
      const KvEvict policy = static_cast<KvEvict>(i);
      out->Line(name, fmt::format("policy=\"{}\"", KvEvictName(policy)), value(i));
    }
  };
  each("kvasir_kv_policy_evictions_total", "counter", "Blocks of group 0 evicted, by who ruled",
       [&](uint32_t i) { return eviction.evictions[i]; });
  each("kvasir_kv_policy_rules", "gauge", "1: this policy chooses what is evicted",
       [&](uint32_t i) { return static_cast<KvEvict>(i) == eviction.ruling ? 1 : 0; });
  out->Gauge("kvasir_kv_depth_cost_ratio",
             "Measured cost of a row for each token before it, of a row at the start",
             engine.depth_cost);
  if (eviction.policy != KvEvict::kAdaptive) return;
  each("kvasir_kv_policy_saved_ratio", "gauge",
       "Share of the prompts' compute that this policy saves in its shadow cache",
       [&](uint32_t i) { return eviction.saved[i]; });
  each("kvasir_kv_policy_saved_at_switch_ratio", "gauge",
       "The same when the ruling policy changed last: why it did",
       [&](uint32_t i) { return eviction.saved_at_switch[i]; });
  out->Counter("kvasir_kv_policy_windows_total", "Times the policies were compared",
               eviction.windows);
  out->Counter("kvasir_kv_policy_switches_total", "Times another one took over", eviction.switches);
  out->Gauge("kvasir_kv_shadow_blocks", "Capacity of a shadow cache", eviction.shadow_blocks);
  out->Gauge("kvasir_kv_shadow_sample_ratio", "Share of the block references that shadows see",
             eviction.sampled_share);
}

void AppendHttp(const HttpServerCounters& http, Exposition* out) {
  out->Counter("kvasir_http_connections_accepted_total", "Connections", http.connections_accepted);
  out->Counter("kvasir_http_connections_refused_total", "Connections above the limit",
               http.connections_refused);
  out->Gauge("kvasir_http_connections_open", "Open connections", http.connections_open);
  out->Counter("kvasir_http_requests_total", "Requests handed to a handler", http.requests);
  out->Counter("kvasir_http_requests_rejected_total", "Requests the HTTP layer answered itself",
               http.requests_rejected);
  out->Counter("kvasir_http_request_timeouts_total", "Requests that came too slowly",
               http.request_timeouts);
  out->Counter("kvasir_http_hang_ups_total", "Clients that left before their reply", http.hang_ups);
  out->Counter("kvasir_http_too_slow_total", "Clients dropped for not reading", http.too_slow);
}

void AppendVllmNames(const EngineSnapshot& engine, std::string_view labels, Exposition* out) {
  out->Gauge("vllm:num_requests_running", "As kvasir_engine_running_sequences",
             engine.scheduler.running, labels);
  out->Gauge("vllm:num_requests_waiting", "As kvasir_engine_waiting_sequences",
             engine.scheduler.waiting, labels);
  // Not the cache's own counts, which hold the look-ups of every attempt to find room.
  out->Counter("vllm:prefix_cache_queries_total", "As kvasir_engine_prompt_tokens_total",
               engine.scheduler.prompt_tokens, labels);
  out->Counter("vllm:prefix_cache_hits_total", "As kvasir_engine_cached_tokens_total",
               engine.scheduler.cached_tokens, labels);
  out->Counter("vllm:prompt_tokens_total", "As kvasir_engine_prompt_tokens_total",
               engine.scheduler.prompt_tokens, labels);
  out->Counter("vllm:generation_tokens_total", "As kvasir_engine_generated_tokens_total",
               engine.scheduler.generated_tokens, labels);
  out->Counter("vllm:spec_decode_num_draft_tokens_total", "As kvasir_engine_draft_tokens_total",
               engine.scheduler.draft_tokens, labels);
  out->Counter("vllm:spec_decode_num_accepted_tokens_total",
               "As kvasir_engine_accepted_draft_tokens_total",
               engine.scheduler.accepted_draft_tokens, labels);
  out->Counter("vllm:num_preemptions_total", "As kvasir_engine_preemptions_total",
               engine.scheduler.preemptions, labels);
  double used = 0;
  for (size_t i = 0; i < engine.group_count; ++i) {
    const EngineSnapshot::Group& group = engine.groups[i];
    if (group.blocks == 0) continue;
    const double in_use = group.blocks - group.free_blocks - group.cached_blocks;
    used = std::max(used, in_use / group.blocks);
  }
  out->Gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use (1 is all)", used, labels);
}

}  // namespace

void Histogram::Observe(double seconds) {
  size_t bucket = 0;
  while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
  ++counts_[bucket];
  sum_ += seconds;
  ++count_;
}

void Histogram::AppendTo(std::string_view name, std::string_view help, std::string_view labels,
                         std::string* out) const {
  *out += fmt::format("# HELP {} {}\n# TYPE {} histogram\n", name, help, name);
  const std::string more = labels.empty() ? "" : fmt::format("{},", labels);
  uint64_t below = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    below += counts_[i];
    *out += fmt::format("{}_bucket{{{}le=\"{}\"}} {}\n", name, more, kBounds[i], below);
  }
  *out += fmt::format("{}_bucket{{{}le=\"+Inf\"}} {}\n", name, more, count_);
  const std::string set = labels.empty() ? "" : fmt::format("{{{}}}", labels);
  *out += fmt::format("{}_sum{} {}\n{}_count{} {}\n", name, set, sum_, name, set, count_);
}

void ApiMetrics::CountReply(std::string_view route, int status) {
  MutexLock lock(mutex_);
  ++replies_[{std::string(route), status}];
}

void ApiMetrics::ObserveFirstToken(double seconds) {
  MutexLock lock(mutex_);
  first_token_.Observe(seconds);
}

void ApiMetrics::ObserveGap(double seconds) {
  MutexLock lock(mutex_);
  gap_.Observe(seconds);
}

void ApiMetrics::ObserveEnd(double seconds, double queue_seconds) {
  MutexLock lock(mutex_);
  end_.Observe(seconds);
  queue_.Observe(queue_seconds);
}

std::string ApiMetrics::Render(std::string_view model_name,
                               const std::optional<EngineSnapshot>& engine,
                               const std::optional<HttpServerCounters>& http) const {
  Exposition out;
  const std::string labels = fmt::format("model_name=\"{}\"", Escaped(model_name));
  if (engine.has_value()) {
    AppendScheduler(*engine, &out);
    AppendKv(*engine, &out);
    AppendEviction(*engine, &out);
    AppendVllmNames(*engine, labels, &out);
  }
  if (http.has_value()) AppendHttp(*http, &out);
  MutexLock lock(mutex_);
  out.Header("kvasir_api_replies_total", "counter", "Replies by route and status");
  for (const auto& [key, count] : replies_) {
    out.Line("kvasir_api_replies_total",
             fmt::format("route=\"{}\",status=\"{}\"", Escaped(key.first), key.second), count);
  }
  first_token_.AppendTo("kvasir_api_first_token_seconds", "Request to first token", "", out.text());
  gap_.AppendTo("kvasir_api_token_gap_seconds", "Between two tokens of a choice", "", out.text());
  end_.AppendTo("kvasir_api_request_seconds", "Request to the end of its reply", "", out.text());
  queue_.AppendTo("kvasir_api_queue_seconds", "Time in the queue", "", out.text());
  first_token_.AppendTo("vllm:time_to_first_token_seconds", "Request to first token", labels,
                        out.text());
  gap_.AppendTo("vllm:inter_token_latency_seconds", "Between two tokens of a choice", labels,
                out.text());
  end_.AppendTo("vllm:e2e_request_latency_seconds", "Request to the end of its reply", labels,
                out.text());
  return std::move(*out.text());
}

}  // namespace kvasir
