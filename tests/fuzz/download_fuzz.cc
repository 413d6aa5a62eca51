// What a server says to `kvasir pull`: URLs, redirects, names, ranges, and whole replies that the
// download's plan acts on.
//
// The input's first line is a URL (or hf:), the second a reference (a Location, a file's name, a
// Content-Range, a Content-Disposition), the third a number of bytes that are there already; the
// rest are replies, one after the other. Checked beyond "no crash": what is accepted reads back the
// same, names are harmless, nothing but text fit for a request line gets into one, and the plan
// asks for no byte twice, keeps no byte that nobody vouched for, and comes to an end.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "io/download_plan.h"
#include "io/download_url.h"
#include "io/http_parser.h"

namespace kvasir {
namespace {

constexpr std::string_view kEnding = ".gguf";
constexpr int kMostReplies = 200;

std::string_view TakeLine(std::string_view* text) {
  const size_t end = std::min(text->find('\n'), text->size());
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(std::min(end + 1, text->size()));
  return line;
}

void CheckError(const Status& status) {
  KV_CHECK(!status.ok());
  KV_CHECK(!MessageOf(status).empty());
  KV_CHECK(MessageOf(status).find('\n') == std::string_view::npos);
}

void CheckUrl(const Url& url) {
  KV_CHECK(!url.host.empty() && url.host.size() <= 253);
  KV_CHECK(url.port != 0);
  KV_CHECK(!url.target.empty() && url.target[0] == '/');
  for (const char c : url.target) KV_CHECK(c > 0x20 && c < 0x7f);
  const StatusOr<Url> again = ParseUrl(url.Full());
  KV_CHECK(again.ok());
  KV_CHECK(again->SameOrigin(url) && again->target == url.target);
  KV_CHECK(LooksLikeUrl(url.Full()));
  KV_CHECK(url.Shown().find('?') == std::string::npos);
}

void CheckFileName(const std::string& name) {
  if (name.empty()) return;
  KV_CHECK(FileNameProblem(name).empty());
  KV_CHECK(name.size() > kEnding.size());
  std::string lower = name.substr(name.size() - kEnding.size());
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  KV_CHECK(lower == kEnding);
}

void CheckTexts(std::string_view text) {
  CheckFileName(SafeFileName(text, kEnding));
  CheckFileName(SafeFileName(DispositionFileName(text), kEnding));
  (void)FileNameProblem(text);
  if (const auto range = ParseContentRange(text)) {
    KV_CHECK(range->first.has_value() == range->last.has_value());
    KV_CHECK(range->first.has_value() || range->total.has_value());
    if (range->first.has_value()) KV_CHECK_LE(*range->first, *range->last);
    if (range->first.has_value() && range->total.has_value()) {
      KV_CHECK_LT(*range->last, *range->total);
    }
  }
  if (const auto record = DownloadRecord::FromText(text)) {
    const auto again = DownloadRecord::FromText(record->ToText());
    KV_CHECK(again.has_value());
    KV_CHECK(again->url == record->url && again->etag == record->etag &&
             again->last_modified == record->last_modified &&
             again->linked_etag == record->linked_etag && again->length == record->length);
  }
}

void CheckRequest(const DownloadPlan& plan) {
  const DownloadRequest request = plan.Request();
  CheckUrl(request.url);
  KV_CHECK_EQ(request.from, plan.received());
  KV_CHECK_EQ(request.from > 0, !request.if_range.empty());
}

// The replies to a download of `url`; `there`: bytes of a part whose record lies beside it.
void Download(const Url& url, uint64_t there, std::string_view replies) {
  DownloadRecord part;
  part.url = url.Full();
  part.etag = "\"e\"";
  part.length = 1000;
  DownloadPlan plan({}, url, url.Full(), part, there);
  if (plan.whole()) return;
  for (int i = 0; i < kMostReplies; ++i) {
    CheckRequest(plan);
    uint64_t body_bytes = 0;
    HttpResponseParser parser(/*to_head_request=*/false, [&](std::string_view bytes) {
      body_bytes += bytes.size();
      return true;
    });
    const StatusOr<size_t> used = parser.Feed(replies);
    if (used.ok()) replies.remove_prefix(std::min(*used, replies.size()));
    Status transport = used.status();
    if (transport.ok() && !parser.done()) transport = parser.FeedEnd();
    if (!parser.done()) replies = {};
    DownloadVerdict verdict;
    if (!used.ok() || !parser.headers_done()) {
      verdict = plan.OnEnd(transport.ok() ? Internal("cut") : transport);
    } else {
      const uint64_t before = plan.received();
      verdict = plan.OnHead(parser.response());
      if (verdict.kind == DownloadVerdict::Kind::kTake) {
        KV_CHECK_LE(verdict.keep_bytes, before);
        KV_CHECK_EQ(verdict.keep_bytes, plan.received());
        if (!plan.OnBytes(body_bytes)) return;
        KV_CHECK_EQ(plan.received(), verdict.keep_bytes + body_bytes);
        verdict = plan.OnEnd(transport);
      }
    }
    switch (verdict.kind) {
      case DownloadVerdict::Kind::kTake:
        KV_CHECK(false);
        return;
      case DownloadVerdict::Kind::kFail:
        return CheckError(verdict.status);
      case DownloadVerdict::Kind::kDone:
        if (plan.record().length.has_value()) KV_CHECK_EQ(plan.received(), *plan.record().length);
        return;
      case DownloadVerdict::Kind::kWait:
        CheckError(verdict.status);
        KV_CHECK(verdict.wait <= DownloadPlan::Options().longest_retry_after);
        break;
      case DownloadVerdict::Kind::kAsk:
        break;
    }
  }
  KV_CHECK(!replies.empty());  // Nothing comes any more and it still asks.
}

}  // namespace
}  // namespace kvasir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvasir;
  const std::string_view whole(reinterpret_cast<const char*>(data), size);
  CheckTexts(whole);
  std::string_view rest = whole;
  const std::string_view address = TakeLine(&rest);
  const std::string_view reference = TakeLine(&rest);
  const std::string_view count = TakeLine(&rest);
  CheckTexts(reference);
  const StatusOr<std::string> expanded = ExpandUrl(address);
  if (!expanded.ok()) return 0;
  const StatusOr<Url> url = ParseUrl(*expanded);
  if (!url.ok()) return 0;
  CheckUrl(*url);
  CheckFileName(FileNameOfUrl(*url, kEnding));
  const StatusOr<Url> resolved = ResolveUrl(*url, reference);
  if (resolved.ok()) CheckUrl(*resolved);
  uint64_t there = 0;
  for (const char c : count) there = (there * 10 + static_cast<uint8_t>(c) % 10) % 1100;
  Download(*url, there, rest);
  return 0;
}
