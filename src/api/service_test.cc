#include "api/service.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "api/metrics.h"
#include "api/request_log.h"

namespace kvasir {
namespace {

ApiService::Options TestOptions(std::vector<std::string> keys = {}) {
  ApiService::Options options;
  options.served_names = {"one", "two"};
  options.api_keys = std::move(keys);
  options.log = [](const std::string&) {};
  options.wall_clock = [] { return std::time_t{0}; };
  return options;
}

HttpRequest WithHeader(std::string name, std::string value) {
  HttpRequest request;
  request.headers.Add(std::move(name), std::move(value));
  return request;
}

TEST(ApiService, KeysAreTenants) {
  const ApiService open(TestOptions());
  EXPECT_EQ(open.TenantOf(HttpRequest()), 0u);
  const ApiService service(TestOptions({"alpha", "beta"}));
  EXPECT_EQ(service.TenantOf(WithHeader("Authorization", "Bearer alpha")), 0u);
  EXPECT_EQ(service.TenantOf(WithHeader("authorization", "bearer beta")), 1u);
  EXPECT_EQ(service.TenantOf(WithHeader("X-Api-Key", "beta")), 1u);
  for (const char* wrong : {"Bearer alph", "Bearer alphaa", "Bearer ", "alpha", "Basic alpha",
                            "Bearer  alpha", "Bearer ALPHA"}) {
    EXPECT_EQ(service.TenantOf(WithHeader("Authorization", wrong)), std::nullopt) << wrong;
  }
  EXPECT_EQ(service.TenantOf(HttpRequest()), std::nullopt);
}

TEST(ApiService, SaltsOfDifferentPartsNeverMeet) {
  const ApiService open(TestOptions());
  EXPECT_EQ(open.SaltOf(0, ""), "");
  EXPECT_NE(open.SaltOf(0, "a"), open.SaltOf(0, "b"));
  const ApiService service(TestOptions({"alpha", "beta"}));
  EXPECT_NE(service.SaltOf(0, ""), service.SaltOf(1, ""));
  EXPECT_NE(service.SaltOf(0, ""), "");
  EXPECT_NE(service.SaltOf(0, "x"), service.SaltOf(0, ""));
  EXPECT_NE(service.SaltOf(0, "x"), service.SaltOf(1, "x"));
  // A key is not found in its salt: salts go into names that others may see.
  EXPECT_EQ(service.SaltOf(0, "").find("alpha"), std::string::npos);
}

TEST(ApiService, ModelNames) {
  const ApiService service(TestOptions());
  EXPECT_FALSE(service.CheckModelName("").has_value());
  EXPECT_FALSE(service.CheckModelName("two").has_value());
  EXPECT_EQ(service.CheckModelName("three")->status, 404);
  EXPECT_EQ(service.ReplyName(""), "one");
  EXPECT_EQ(service.ReplyName("two"), "two");
  ApiService::Options any = TestOptions();
  any.any_model = true;
  EXPECT_FALSE(ApiService(std::move(any)).CheckModelName("three").has_value());
}

TEST(ApiService, AMomentHasOneUnixTime) {
  ApiService::Options options = TestOptions();
  // A wall clock of whole seconds beside an engine's clock of microseconds.
  TimeUs wall_us = 1'700'000'000'900'000;
  options.wall_clock = [&] { return static_cast<std::time_t>(wall_us / 1'000'000); };
  ApiService service(std::move(options));
  TimeUs now = 5'000'000;
  const TimeUs moment = 605'300'000;
  const int64_t told = service.UnixTimeOf(moment, now);
  EXPECT_LE(std::abs(told - 1'700'000'601), 1);
  for (int i = 0; i < 50; ++i) {
    now += 70'000;
    wall_us += 70'000;
    EXPECT_EQ(service.UnixTimeOf(moment, now), told) << i;
  }
  // The clock is set: what is told follows it.
  wall_us += 3'600'000'000;
  EXPECT_LE(std::abs(service.UnixTimeOf(moment, now) - told - 3600), 1);
}

TEST(ApiService, RejectionsAreLogged) {
  std::vector<std::string> lines;
  ApiService::Options options = TestOptions();
  options.log = [&](const std::string& line) { lines.push_back(line); };
  ApiService service(std::move(options));
  service.LogRejection({"p", "r", "GET", "/\xff" + std::string(5000, 'x'), 404, "Unknown"});
  service.LogRejection({"p", "r", "", "", 400, "Malformed"});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LT(lines[0].size(), 400u);
  EXPECT_EQ(lines[0].find('\xff'), std::string::npos);
  EXPECT_NE(lines[0].find(" status=404 "), std::string::npos) << lines[0];
  EXPECT_EQ(
      lines[1],
      "event=request id=r peer=p method=\"\" path=\"\" status=400 total_ms=0.0 error=Malformed");
}

TEST(RequestLog, KeyValuePairsAndJson) {
  RequestRecord record;
  record.request_id = "r1";
  record.peer = "127.0.0.1:5";
  record.method = "POST";
  record.path = "/v1/x y\n";
  record.status = 200;
  record.total_ms = 12.345;
  EXPECT_EQ(FormatRecord(record, false),
            "event=request id=r1 peer=127.0.0.1:5 method=POST path=\"/v1/x y\\n\" status=200 "
            "total_ms=12.3");
  GenerationRecord& generation = record.generation.emplace();
  generation.model = "m";
  generation.stream = true;
  generation.choices = 2;
  generation.finish = "stop,length";
  generation.summary.prompt_tokens = 9;
  generation.summary.queue_us = 1500;
  record.error = "it \"broke\"";
  EXPECT_EQ(FormatRecord(record, true),
            R"({"event":"request","id":"r1","peer":"127.0.0.1:5","method":"POST",)"
            R"("path":"/v1/x y\n","status":200,"total_ms":12.3,"model":"m","tenant":0,)"
            R"("stream":true,"choices":2,"priority":0,"end":"finished","finish":"stop,length",)"
            R"("prompt_tokens":9,"cached_tokens":0,"generated_tokens":0,"draft_tokens":0,)"
            R"("accepted_draft_tokens":0,"preemptions":0,)"
            R"("queue_ms":1.5,"prefill_ms":0.0,"decode_ms":0.0,"error":"it \"broke\""})");
  EXPECT_EQ(FormatRecord(record, false).find('\n'), std::string::npos);
}

TEST(ApiMetrics, HistogramsAreCumulative) {
  ApiMetrics metrics;
  metrics.ObserveFirstToken(0.02);
  metrics.ObserveFirstToken(0.02);
  metrics.ObserveFirstToken(100.0);
  metrics.CountReply("/v1/x", 200);
  metrics.CountReply("/v1/x", 200);
  const std::string text = metrics.Render("a\"b\\c\nd", std::nullopt, std::nullopt);
  const auto has = [&](const std::string& line) {
    EXPECT_NE(("\n" + text).find("\n" + line + "\n"), std::string::npos) << line << "\n" << text;
  };
  has("kvasir_api_first_token_seconds_bucket{le=\"0.01\"} 0");
  has("kvasir_api_first_token_seconds_bucket{le=\"0.025\"} 2");
  has("kvasir_api_first_token_seconds_bucket{le=\"60\"} 2");
  has("kvasir_api_first_token_seconds_bucket{le=\"+Inf\"} 3");
  has("kvasir_api_first_token_seconds_count 3");
  has("kvasir_api_replies_total{route=\"/v1/x\",status=\"200\"} 2");
  has("vllm:time_to_first_token_seconds_count{model_name=\"a\\\"b\\\\c\\nd\"} 3");
  EngineSnapshot engine;
  for (const uint32_t rows : {1u, 64u, 65u, 5000u}) engine.scheduler.step_rows.Add(rows);
  const std::string rows = metrics.Render("m", engine, std::nullopt);
  for (const char* line :
       {"step_rows_bucket{le=\"0\"} 0", "step_rows_bucket{le=\"32\"} 1",
        "step_rows_bucket{le=\"64\"} 2", "step_rows_bucket{le=\"2048\"} 3",
        "step_rows_bucket{le=\"+Inf\"} 4", "step_rows_sum 5130", "step_rows_count 4",
        "step_rows_max 5000", "prompt_rows_beside_streams_count 0"}) {
    const std::string whole = std::string("\nkvasir_engine_") + line + "\n";
    EXPECT_NE(rows.find(whole), std::string::npos) << line << "\n" << rows;
  }
  // Loading: nothing about an engine yet.
  EXPECT_EQ(text.find("kvasir_engine_"), std::string::npos);
  const std::string ready = metrics.Render("m", EngineSnapshot(), HttpServerCounters());
  for (const char* name :
       {"kvasir_engine_running_sequences 0", "kvasir_kv_hit_tokens_total 0",
        "kvasir_engine_lock_waits_total 0", "kvasir_engine_lock_wait_seconds_total 0",
        "kvasir_engine_padding_rows_total 0", "kvasir_kv_copies_total{reason=\"copy_on_write\"} 0",
        "kvasir_http_connections_open 0", "vllm:num_requests_running{model_name=\"m\"} 0",
        "vllm:prefix_cache_hits_total{model_name=\"m\"} 0"}) {
    EXPECT_NE(ready.find(name), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace kvasir
