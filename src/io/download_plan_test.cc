#include "io/download_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/rng.h"
#include "io/download.h"

namespace kvasir {
namespace {

using Kind = DownloadVerdict::Kind;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

const char* const kUrl = "http://h/m.gguf";

HttpResponse Head(int status, HttpHeaders headers = {}) {
  HttpResponse head;
  head.status = status;
  head.headers = std::move(headers);
  return head;
}

HttpResponse Whole(uint64_t length, const std::string& etag = "\"a\"") {
  return Head(200, {{"Content-Length", fmt::format("{}", length)}, {"ETag", etag}});
}

HttpResponse Part(const std::string& range, const std::string& etag = "\"a\"") {
  return Head(206, {{"Content-Range", range}, {"ETag", etag}});
}

Status Cut() { return MakeStatus(StatusCode::kUnavailable, "cut"); }

DownloadPlan Plan(DownloadPlan::Options options = {}, const char* url = kUrl) {
  return {options, *ParseUrl(url), url, std::nullopt, 0};
}

// A plan that holds `bytes` of `length` bytes after an answer that was cut.
DownloadPlan CutAt(uint64_t bytes, uint64_t length, DownloadPlan::Options options = {}) {
  DownloadPlan plan = Plan(options);
  EXPECT_EQ(plan.OnHead(Whole(length)).kind, Kind::kTake);
  EXPECT_TRUE(plan.OnBytes(bytes));
  EXPECT_EQ(plan.OnEnd(Cut()).kind, Kind::kWait);
  return plan;
}

std::string Message(const DownloadVerdict& verdict) {
  return std::string(MessageOf(verdict.status));
}

TEST(ContentRangeTest, ParsesAndRefuses) {
  const auto range = ParseContentRange("bytes 5-9/10");
  ASSERT_TRUE(range.has_value());
  EXPECT_EQ(range->first, 5u);
  EXPECT_EQ(range->last, 9u);
  EXPECT_EQ(range->total, 10u);
  EXPECT_EQ(ParseContentRange("Bytes 0-0/*")->total, std::nullopt);
  EXPECT_EQ(ParseContentRange("bytes */10")->first, std::nullopt);
  EXPECT_EQ(ParseContentRange("bytes 1-6000000000/6000000001")->last, 6'000'000'000u);
  for (const char* bad :
       {"", "bytes", "bytes ", "bytes 5-9", "bytes 9-5/10", "bytes 5-10/10", "bytes -5/10",
        "bytes 5-/10", "bytes a-b/c", "bytes */*", "bytes 5-9/", "bytes 5 - 9/10", "items 5-9/10",
        "bytes 0-18446744073709551615/*", "bytes 0-18446744073709551616/*", "bytes 5-9/-1"}) {
    EXPECT_FALSE(ParseContentRange(bad).has_value()) << bad;
  }
}

TEST(DownloadRecordTest, RoundTrip) {
  const DownloadRecord record = {kUrl, "\"a b\"", "Mon", "W/\"c\"", 6'000'000'000};
  const std::string text = record.ToText();
  const auto back = DownloadRecord::FromText(text);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->ToText(), text);
  EXPECT_EQ(back->length, 6'000'000'000u);
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(DownloadRecord::FromText(text.substr(0, size)).has_value()) << size;
  }
  EXPECT_EQ(record.Validator(), "\"a b\"");
  EXPECT_EQ((DownloadRecord{kUrl, "W/\"a\"", "Mon", "", {}}).Validator(), "Mon");
  EXPECT_EQ((DownloadRecord{kUrl, "W/\"a\"", "", "", {}}).Validator(), "");
}

TEST(DownloadPlanTest, WholeFileAtOnce) {
  DownloadPlan plan = Plan();
  EXPECT_EQ(plan.Request().from, 0u);
  EXPECT_EQ(plan.OnHead(Whole(10)).kind, Kind::kTake);
  EXPECT_TRUE(plan.OnBytes(4));
  EXPECT_TRUE(plan.OnBytes(6));
  EXPECT_EQ(plan.OnEnd(OkStatus()).kind, Kind::kDone);
  EXPECT_EQ(plan.record().length, 10u);
}

TEST(DownloadPlanTest, MoreThanAnnouncedIsNoticed) {
  DownloadPlan plan = CutAt(4, 10);
  EXPECT_EQ(plan.OnHead(Part("bytes 4-6/10")).kind, Kind::kTake);
  EXPECT_TRUE(plan.OnBytes(3));
  EXPECT_FALSE(plan.OnBytes(1));
}

TEST(DownloadPlanTest, ResumesWhereItWas) {
  DownloadPlan plan = CutAt(4, 10);
  EXPECT_EQ(plan.Request().from, 4u);
  EXPECT_EQ(plan.Request().if_range, "\"a\"");
  const DownloadVerdict verdict = plan.OnHead(Part("bytes 4-9/10"));
  EXPECT_EQ(verdict.kind, Kind::kTake);
  EXPECT_EQ(verdict.keep_bytes, 4u);
  EXPECT_TRUE(plan.OnBytes(6));
  EXPECT_EQ(plan.OnEnd(OkStatus()).kind, Kind::kDone);
}

TEST(DownloadPlanTest, LessThanAskedForIsFollowedByTheRest) {
  DownloadPlan plan = CutAt(4, 10);
  EXPECT_EQ(plan.OnHead(Part("bytes 4-6/10")).kind, Kind::kTake);
  EXPECT_TRUE(plan.OnBytes(3));
  EXPECT_EQ(plan.OnEnd(OkStatus()).kind, Kind::kAsk);
  EXPECT_EQ(plan.Request().from, 7u);
}

TEST(DownloadPlanTest, EarlierPartIsUsedOnlyWhenItIsSurelyOne) {
  const DownloadRecord good = {kUrl, "\"a\"", "", "", 10};
  const auto from = [](std::optional<DownloadRecord> record, uint64_t bytes) {
    return DownloadPlan({}, *ParseUrl(kUrl), kUrl, std::move(record), bytes).Request().from;
  };
  EXPECT_EQ(from(good, 4), 4u);
  EXPECT_EQ(from(std::nullopt, 4), 0u);
  EXPECT_EQ(from(good, 11), 0u);
  EXPECT_EQ(from(DownloadRecord{"http://h/other", "\"a\"", "", "", 10}, 4), 0u);
  EXPECT_EQ(from(DownloadRecord{kUrl, "W/\"a\"", "", "", 10}, 4), 0u);
  EXPECT_EQ(from(DownloadRecord{kUrl, "", "Mon", "", {}}, 4), 4u);
  EXPECT_TRUE(DownloadPlan({}, *ParseUrl(kUrl), kUrl, good, 10).whole());
  EXPECT_FALSE(DownloadPlan({}, *ParseUrl(kUrl), kUrl, good, 9).whole());
}

TEST(DownloadPlanTest, AnotherEntityBeginsAnew) {
  for (const HttpResponse& head :
       {Part("bytes 4-9/10", "\"b\""), Part("bytes 4-10/11"), Head(416),
        Head(416, {{"Content-Range", "bytes */3"}}), Head(416, {{"Content-Range", "bytes */4"}})}) {
    DownloadPlan plan = CutAt(4, 10);
    EXPECT_EQ(plan.OnHead(head).kind, Kind::kAsk) << head.status;
    EXPECT_EQ(plan.Request().from, 0u);
    EXPECT_EQ(plan.record().etag, "");
  }
  DownloadPlan plan = CutAt(4, 10);
  const DownloadVerdict verdict = plan.OnHead(Whole(12, "\"b\""));
  EXPECT_EQ(verdict.kind, Kind::kTake);
  EXPECT_EQ(verdict.keep_bytes, 0u);
  EXPECT_EQ(plan.received(), 0u);
  EXPECT_EQ(plan.record().length, 12u);
}

TEST(DownloadPlanTest, NeverStillForAFileThatNeverRests) {
  DownloadPlan plan = Plan();
  DownloadVerdict verdict;
  int asked = 0;
  do {
    verdict = plan.OnHead(Whole(10, fmt::format("\"{}\"", asked)));
    if (verdict.kind == Kind::kTake) {
      EXPECT_TRUE(plan.OnBytes(4));
      verdict = plan.OnEnd(Cut());
    }
    ASSERT_LT(++asked, 50);
  } while (verdict.kind != Kind::kFail);
  EXPECT_THAT(Message(verdict), HasSubstr("changes while it is fetched"));
}

TEST(DownloadPlanTest, PartThatWasWholeAlready) {
  const DownloadRecord record = {kUrl, "\"a\"", "", "", {}};
  DownloadPlan plan({}, *ParseUrl(kUrl), kUrl, record, 4);
  EXPECT_EQ(plan.OnHead(Head(416, {{"Content-Range", "bytes */4"}})).kind, Kind::kDone);
}

TEST(DownloadPlanTest, ContradictionsFail) {
  for (const char* range : {"bytes 3-9/10", "bytes 5-9/10", "bytes */10", "", "x"}) {
    DownloadPlan plan = CutAt(4, 10);
    const DownloadVerdict verdict = plan.OnHead(Part(range));
    EXPECT_EQ(verdict.kind, Kind::kFail) << range;
    EXPECT_EQ(verdict.status.code(), StatusCode::kDataLoss) << range;
  }
  DownloadPlan length = CutAt(4, 10);
  HttpResponse head = Part("bytes 4-9/10");
  head.headers.Add("Content-Length", "5");
  EXPECT_THAT(Message(length.OnHead(head)), HasSubstr("contradicts"));
  EXPECT_EQ(Plan().OnHead(Part("bytes 0-9/10")).kind, Kind::kFail);
  EXPECT_EQ(Plan().OnHead(Head(416)).kind, Kind::kFail);
  EXPECT_EQ(Plan().OnHead(Head(200, {{"Content-Length", "0"}})).kind, Kind::kFail);
  EXPECT_EQ(Plan().OnHead(Head(200, {{"Content-Length", "-1"}})).kind, Kind::kFail);
  EXPECT_THAT(
      Message(Plan().OnHead(Head(200, {{"Content-Length", "5"}, {"Content-Encoding", "gzip"}}))),
      HasSubstr("gzip"));
}

TEST(DownloadPlanTest, UnknownLengthNeedsAChecksum) {
  EXPECT_THAT(Message(Plan().OnHead(Head(200))), HasSubstr("--sha256"));
  DownloadPlan::Options options;
  options.length_needed = false;
  DownloadPlan plan = Plan(options);
  EXPECT_EQ(plan.OnHead(Head(200)).kind, Kind::kTake);
  EXPECT_TRUE(plan.OnBytes(7));
  EXPECT_EQ(plan.OnEnd(OkStatus()).kind, Kind::kDone);
}

TEST(DownloadPlanTest, WaitsDoubleAndEnd) {
  DownloadPlan::Options options;
  options.retries = 4;
  options.longest_wait = milliseconds(1500);
  DownloadPlan plan = Plan(options);
  for (const int wait : {500, 1000, 1500, 1500}) {
    const DownloadVerdict verdict = plan.OnEnd(Cut());
    EXPECT_EQ(verdict.kind, Kind::kWait);
    EXPECT_EQ(verdict.wait, milliseconds(wait));
  }
  const DownloadVerdict last = plan.OnEnd(Cut());
  EXPECT_EQ(last.kind, Kind::kFail);
  EXPECT_EQ(last.status.code(), StatusCode::kUnavailable);
  // What no time will heal is not tried again.
  for (const StatusCode code : {StatusCode::kPermissionDenied, StatusCode::kCancelled}) {
    EXPECT_EQ(Plan().OnEnd(MakeStatus(code, "x")).kind, Kind::kFail);
  }
}

TEST(DownloadPlanTest, OnlyNewBytesAreProgress) {
  DownloadPlan::Options options;
  options.retries = 1;
  DownloadPlan plan = CutAt(4, 10, options);
  EXPECT_EQ(plan.OnEnd(Cut()).kind, Kind::kWait);
  EXPECT_EQ(plan.OnHead(Part("bytes 4-9/10")).kind, Kind::kTake);
  EXPECT_TRUE(plan.OnBytes(1));
  EXPECT_EQ(plan.OnEnd(Cut()).wait, milliseconds(100));
  EXPECT_EQ(plan.OnEnd(Cut()).kind, Kind::kWait);
  EXPECT_EQ(plan.OnHead(Whole(10)).kind, Kind::kTake);
  EXPECT_TRUE(plan.OnBytes(5));
  EXPECT_EQ(plan.OnEnd(Cut()).kind, Kind::kFail);
}

TEST(DownloadPlanTest, RetryAfter) {
  DownloadPlan plan = Plan();
  EXPECT_EQ(plan.OnHead(Head(503, {{"Retry-After", "7"}})).wait, milliseconds(7000));
  EXPECT_EQ(plan.OnHead(Head(429, {{"Retry-After", "Mon, 01 Jan"}})).wait, milliseconds(1000));
  EXPECT_EQ(plan.OnHead(Head(503, {{"Retry-After", "121"}})).kind, Kind::kFail);
  EXPECT_EQ(plan.OnHead(Head(503, {{"Retry-After", "18446744073709551615"}})).kind, Kind::kFail);
}

TEST(DownloadPlanTest, Redirects) {
  const auto to = [](const char* where) { return Head(302, {{"Location", where}}); };
  DownloadPlan plan = Plan({}, "https://huggingface.co/o/r/m.gguf");
  EXPECT_EQ(AuthorizationFor(plan.Request(), "t"), "Bearer t");
  EXPECT_EQ(AuthorizationFor(plan.Request(), ""), "");
  EXPECT_EQ(plan.OnHead(to("../x/m.gguf")).kind, Kind::kAsk);
  EXPECT_EQ(plan.Request().url.Full(), "https://huggingface.co/o/x/m.gguf");
  EXPECT_EQ(AuthorizationFor(plan.Request(), "t"), "Bearer t");
  EXPECT_EQ(plan.OnHead(to("https://cdn.huggingface.co/z?sig=secret")).kind, Kind::kAsk);
  EXPECT_EQ(AuthorizationFor(plan.Request(), "t"), "");
  const DownloadVerdict down = plan.OnHead(to("http://huggingface.co/"));
  EXPECT_THAT(Message(down), HasSubstr("from https to http"));
  EXPECT_THAT(Message(down), ::testing::Not(HasSubstr("secret")));
  // An attempt begins at the first URL.
  EXPECT_EQ(plan.OnEnd(Cut()).kind, Kind::kWait);
  EXPECT_EQ(plan.Request().url.Full(), "https://huggingface.co/o/r/m.gguf");
  for (const char* host : {"http://huggingface.co/", "https://huggingface.co.evil.org/",
                           "https://evilhuggingface.co/", "https://huggingface.co:8443.x/"}) {
    const auto url = ParseUrl(host);
    if (!url.ok()) continue;
    EXPECT_EQ(AuthorizationFor({*url, 0, "", true}, "t"), "") << host;
  }
  // Another port is another server.
  DownloadPlan ports = Plan({}, "https://huggingface.co/m");
  EXPECT_EQ(ports.OnHead(to("https://huggingface.co:444/m")).kind, Kind::kAsk);
  EXPECT_EQ(AuthorizationFor(ports.Request(), "t"), "");
}

TEST(DownloadPlanTest, ContentStoreIsAnIdentityToo) {
  const auto redirect = [](const char* linked) {
    return Head(302, {{"Location", "http://store/x"}, {"X-Linked-Etag", linked}});
  };
  DownloadPlan plan = Plan();
  EXPECT_EQ(plan.OnHead(redirect("\"one\"")).kind, Kind::kAsk);
  EXPECT_EQ(plan.OnHead(Whole(10)).kind, Kind::kTake);
  EXPECT_EQ(plan.record().linked_etag, "\"one\"");
  EXPECT_TRUE(plan.OnBytes(4));
  EXPECT_EQ(plan.OnEnd(Cut()).kind, Kind::kWait);
  EXPECT_EQ(plan.OnHead(redirect("\"two\"")).kind, Kind::kAsk);
  EXPECT_EQ(plan.OnHead(Part("bytes 4-9/10")).kind, Kind::kAsk);
  EXPECT_EQ(plan.Request().from, 0u);
}

TEST(ProxyRulesTest, ByScheme) {
  const ProxyRules rules = {"a:1", "b:2", "x.org, .y.org,127.0.0.1"};
  const auto proxy = [&](const char* url) { return rules.For(*ParseUrl(url)); };
  EXPECT_EQ(proxy("http://h/"), "a:1");
  EXPECT_EQ(proxy("https://h/"), "b:2");
  EXPECT_EQ(proxy("https://x.org/"), "");
  EXPECT_EQ(proxy("https://a.X.org/"), "");
  EXPECT_EQ(proxy("https://ax.org/"), "b:2");
  EXPECT_EQ(proxy("http://y.org/"), "");
  EXPECT_EQ(proxy("http://127.0.0.1:8/"), "");
  EXPECT_EQ((ProxyRules{"a", "b", "*"}).For(*ParseUrl("http://h/")), "");
}

// Whatever servers do, a plan ends, and what it calls done is exactly the last file announced.
TEST(DownloadPlanTest, EndsWhateverHappens) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed);
    uint64_t length = 1 + rng.Below(50);
    int version = 0;
    DownloadPlan plan = Plan();
    std::string file;  // Each byte names its version and place: what is on the disk.
    const auto byte = [](int of, uint64_t at) { return static_cast<char>((of * 61 + at) & 0x7f); };
    for (int step = 0;; ++step) {
      ASSERT_LT(step, 5000) << seed;
      if (rng.Below(40) == 0) {
        ++version;
        length = 1 + rng.Below(50);
      }
      const DownloadRequest request = plan.Request();
      const std::string etag = fmt::format("\"{}\"", version);
      const bool ranged = request.from > 0 && request.if_range == etag && rng.Below(4) != 0;
      DownloadVerdict verdict;
      if (rng.Below(8) == 0) {
        verdict = plan.OnEnd(Cut());
      } else if (ranged && request.from >= length) {
        verdict = plan.OnHead(Head(416, {{"Content-Range", fmt::format("bytes */{}", length)}}));
      } else {
        const uint64_t first = ranged ? request.from : 0;
        verdict = plan.OnHead(
            ranged ? Part(fmt::format("bytes {}-{}/{}", first, length - 1, length), etag)
                   : Whole(length, etag));
        if (verdict.kind == Kind::kTake) {
          file.resize(verdict.keep_bytes);
          const uint64_t sent = rng.Below(length - first + 1);
          for (uint64_t i = 0; i < sent; ++i) file += byte(version, first + i);
          ASSERT_TRUE(plan.OnBytes(sent));
          verdict = plan.OnEnd(sent == length - first ? OkStatus() : Cut());
        }
      }
      if (verdict.kind == Kind::kFail) break;
      if (verdict.kind != Kind::kDone) continue;
      ASSERT_EQ(file.size(), plan.record().length) << seed;
      const int of = std::stoi(plan.record().etag.substr(1));
      for (uint64_t i = 0; i < file.size(); ++i) ASSERT_EQ(file[i], byte(of, i)) << seed;
      break;
    }
  }
}

}  // namespace
}  // namespace kvasir
