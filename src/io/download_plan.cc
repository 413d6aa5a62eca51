#include "io/download_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/check.h"
#include "base/counted.h"

namespace kvasir {
namespace {

using Kind = DownloadVerdict::Kind;

constexpr std::string_view kRecordTitle = "kvasir download 1\n";
// An entity that changes more often while it is fetched will not be caught.
constexpr int kMaxChanges = 3;
// A server that cuts every answer after a few bytes makes progress, but no file.
constexpr int kMaxAttempts = 1000;
constexpr std::chrono::milliseconds kWaitAfterProgress{100};

std::optional<uint64_t> ParseUint(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::string FieldOf(const HttpResponse& head, std::string_view name) {
  const std::string* value = head.headers.Find(name);
  return value == nullptr ? std::string() : *value;
}

DownloadVerdict Fail(Status status) { return {Kind::kFail, 0, {}, std::move(status)}; }

template <typename... Args>
DownloadVerdict Lie(fmt::format_string<Args...> format, Args&&... args) {
  return Fail(MakeStatus(StatusCode::kDataLoss, fmt::format(format, std::forward<Args>(args)...)));
}

bool Differ(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

}  // namespace

std::string DownloadRecord::ToText() const {
  std::string text = fmt::format("{}url {}\n", kRecordTitle, url);
  const auto add = [&text](std::string_view key, const std::string& value) {
    if (!value.empty()) text += fmt::format("{} {}\n", key, value);
  };
  add("etag", etag);
  add("last-modified", last_modified);
  add("linked-etag", linked_etag);
  if (length.has_value()) text += fmt::format("length {}\n", *length);
  return text + "end\n";
}

std::optional<DownloadRecord> DownloadRecord::FromText(std::string_view text) {
  if (text.rfind(kRecordTitle, 0) != 0) return {};
  text.remove_prefix(kRecordTitle.size());
  DownloadRecord record;
  while (!text.empty() && text != "end\n") {
    const size_t end = text.find('\n');
    const size_t space = text.find(' ');
    if (end == std::string_view::npos || space == std::string_view::npos || space > end) return {};
    const std::string_view key = text.substr(0, space);
    const std::string value(text.substr(space + 1, end - space - 1));
    text.remove_prefix(end + 1);
    if (key == "url") record.url = value;
    if (key == "etag") record.etag = value;
    if (key == "last-modified") record.last_modified = value;
    if (key == "linked-etag") record.linked_etag = value;
    if (key == "length") {
      record.length = ParseUint(value);
      if (!record.length.has_value()) return {};
    }
  }
  if (text.empty() || record.url.empty()) return {};
  return record;
}

std::string DownloadRecord::Validator() const {
  if (!etag.empty() && etag[0] == '"') return etag;
  return last_modified;
}

std::optional<ContentRange> ParseContentRange(std::string_view field) {
  if (!EqualsIgnoreCase(field.substr(0, 6), "bytes ")) return {};
  field.remove_prefix(6);
  const size_t slash = field.find('/');
  if (slash == std::string_view::npos) return {};
  const std::string_view span = field.substr(0, slash);
  const std::string_view total = field.substr(slash + 1);
  ContentRange range;
  if (total != "*") {
    range.total = ParseUint(total);
    if (!range.total.has_value()) return {};
  }
  if (span == "*") {
    if (!range.total.has_value()) return {};
    return range;
  }
  const size_t dash = span.find('-');
  if (dash == std::string_view::npos) return {};
  range.first = ParseUint(span.substr(0, dash));
  range.last = ParseUint(span.substr(dash + 1));
  if (!range.first.has_value() || !range.last.has_value() || *range.first > *range.last) return {};
  if (*range.last == UINT64_MAX || (range.total.has_value() && *range.last >= *range.total)) {
    return {};
  }
  return range;
}

DownloadPlan::DownloadPlan(const Options& options, Url url, std::string url_text,
                           std::optional<DownloadRecord> part, uint64_t part_bytes)
    : options_(options), first_url_(std::move(url)) {
  // Bytes of another URL, without a validator, or more than there should be: begin anew.
  if (part.has_value() && part->url == url_text && part_bytes > 0 && !part->Validator().empty() &&
      part_bytes <= part->length.value_or(part_bytes)) {
    record_ = *std::move(part);
    received_ = best_ = part_bytes;
  }
  record_.url = std::move(url_text);
  BeginAttempt();
}

void DownloadPlan::BeginAttempt() {
  url_ = first_url_;
  visited_ = {url_.Full()};
  linked_etag_.clear();
  end_.reset();
}

DownloadRequest DownloadPlan::Request() const {
  DownloadRequest request{url_, received_, "", url_.SameOrigin(first_url_)};
  if (received_ > 0) request.if_range = record_.Validator();
  return request;
}

DownloadVerdict DownloadPlan::OnHead(const HttpResponse& head) {
  switch (head.status) {
    case 301:
    case 302:
    case 303:
    case 307:
    case 308:
      return OnRedirect(head);
    case 200:
    case 206: {
      const std::string coding = FieldOf(head, "Content-Encoding");
      if (!coding.empty() && !EqualsIgnoreCase(coding, "identity")) {
        return Lie("{}: the server sends the file encoded as {}, unasked", url_.Shown(), coding);
      }
      return head.status == 200 ? OnWhole(head) : OnPart(head);
    }
    case 416:
      return OnUnsatisfiable(head);
    default:
      return OnRefusal(head);
  }
}

DownloadVerdict DownloadPlan::OnRedirect(const HttpResponse& head) {
  const std::string* location = head.headers.Find("Location");
  if (location == nullptr || location->empty()) {
    return Fail(InvalidArgument("{}: HTTP {} without a Location", url_.Shown(), head.status));
  }
  StatusOr<Url> next = ResolveUrl(url_, *location);
  if (!next.ok()) return Fail(WithPrefix(next.status(), url_.Shown() + ": bad redirect"));
  if (url_.tls && !next->tls) {
    return Fail(InvalidArgument("{}: redirects from https to http ({}), which is refused",
                                url_.Shown(), next->Shown()));
  }
  const std::string full = next->Full();
  if (std::find(visited_.begin(), visited_.end(), full) != visited_.end()) {
    return Fail(InvalidArgument("{}: redirects in a loop ({})", first_url_.Shown(), next->Shown()));
  }
  if (visited_.size() > static_cast<size_t>(options_.redirect_limit)) {
    return Fail(
        InvalidArgument("{}: more than {} redirects", first_url_.Shown(), options_.redirect_limit));
  }
  const std::string linked = FieldOf(head, "X-Linked-Etag");
  if (!linked.empty()) linked_etag_ = linked;
  visited_.push_back(full);
  url_ = *std::move(next);
  return {Kind::kAsk, 0, {}, OkStatus()};
}

DownloadVerdict DownloadPlan::OnWhole(const HttpResponse& head) {
  DownloadRecord now;
  now.url = record_.url;
  now.etag = FieldOf(head, "ETag");
  now.last_modified = FieldOf(head, "Last-Modified");
  now.linked_etag = linked_etag_;
  // Chunked coding says where the message ends, not whether that is the file's end.
  const std::string length = FieldOf(head, "Content-Length");
  if (!length.empty()) {
    now.length = ParseUint(length);
    if (!now.length.has_value()) return Lie("{}: Content-Length {}", url_.Shown(), length);
    if (*now.length == 0) return Fail(InvalidArgument("{}: the file is empty", url_.Shown()));
  } else if (options_.length_needed) {
    return Lie(
        "{}: the server does not say how long the file is, so that nobody could tell whether it is "
        "whole; with --sha256 it can be fetched",
        url_.Shown());
  }
  const bool same = now.length == record_.length && !Differ(now.etag, record_.etag) &&
                    !Differ(now.last_modified, record_.last_modified) &&
                    !Differ(now.linked_etag, record_.linked_etag);
  if (best_ > 0 && !same) {
    best_ = 0;
    if (++changes_ > kMaxChanges) {
      return Lie("{}: the file changes while it is fetched", url_.Shown());
    }
  }
  record_ = std::move(now);
  received_ = 0;
  end_ = record_.length;
  return {Kind::kTake, 0, {}, OkStatus()};
}

DownloadVerdict DownloadPlan::OnPart(const HttpResponse& head) {
  if (received_ == 0) {
    return Lie("{}: the server sends a part (HTTP 206) of a file that was asked for whole",
               url_.Shown());
  }
  const std::string field = FieldOf(head, "Content-Range");
  const std::optional<ContentRange> range = ParseContentRange(field);
  if (!range.has_value() || !range->first.has_value()) {
    return Lie("{}: Content-Range '{}' makes no sense", url_.Shown(), field);
  }
  DownloadRecord now;
  now.length = range->total;
  const std::string etag = FieldOf(head, "ETag");
  if (Differ(etag, record_.etag) || Differ(linked_etag_, record_.linked_etag) ||
      (etag.empty() && Differ(FieldOf(head, "Last-Modified"), record_.last_modified)) ||
      (range->total.has_value() && record_.length.has_value() && range->total != record_.length)) {
    return Changed();
  }
  if (*range->first != received_) {
    return Lie("{}: asked for bytes from {} on, the server sends Content-Range '{}'", url_.Shown(),
               received_, field);
  }
  const uint64_t bytes = *range->last - *range->first + 1;
  const std::string length = FieldOf(head, "Content-Length");
  if (!length.empty() && ParseUint(length) != bytes) {
    return Lie("{}: Content-Length {} contradicts Content-Range '{}'", url_.Shown(), length, field);
  }
  if (!record_.length.has_value()) record_.length = range->total;
  if (record_.length.has_value() && *range->last >= *record_.length) return Changed();
  end_ = *range->last + 1;
  return {Kind::kTake, received_, {}, OkStatus()};
}

DownloadVerdict DownloadPlan::OnUnsatisfiable(const HttpResponse& head) {
  if (received_ == 0) {
    return Lie("{}: HTTP 416 to a request without a range", url_.Shown());
  }
  const std::optional<ContentRange> range = ParseContentRange(FieldOf(head, "Content-Range"));
  if (range.has_value() && range->total == received_ &&
      record_.length.value_or(received_) == received_ &&
      !Differ(FieldOf(head, "ETag"), record_.etag) && !Differ(linked_etag_, record_.linked_etag)) {
    return {Kind::kDone, received_, {}, OkStatus()};
  }
  return Changed();
}

DownloadVerdict DownloadPlan::OnRefusal(const HttpResponse& head) {
  const int code = head.status;
  const std::string what = fmt::format("{}: HTTP {}", url_.Shown(), code);
  if (code == 408 || code == 425 || code == 429 || code == 500 || code == 502 || code == 503 ||
      code == 504) {
    std::chrono::milliseconds at_least{0};
    // A date instead of seconds is left to our own patience.
    const std::optional<uint64_t> seconds = ParseUint(FieldOf(head, "Retry-After"));
    const auto longest =
        std::chrono::duration_cast<std::chrono::seconds>(options_.longest_retry_after);
    if (seconds.has_value() && *seconds > static_cast<uint64_t>(longest.count())) {
      return Fail(MakeStatus(
          StatusCode::kUnavailable,
          fmt::format("{}, and the server wants to be left alone for {} s", what, *seconds)));
    }
    if (seconds.has_value()) at_least = std::chrono::seconds(*seconds);
    return Retry(MakeStatus(StatusCode::kUnavailable, what), at_least);
  }
  if (code == 401 || code == 403) {
    return Fail(MakeStatus(StatusCode::kPermissionDenied,
                           what + " (the server wants to know who asks, or refuses)"));
  }
  if (code == 404 || code == 410) return Fail(NotFound("{} (there is no such file)", what));
  return Fail(InvalidArgument("{}, which is not an answer to a download", what));
}

DownloadVerdict DownloadPlan::Changed() {
  if (++changes_ > kMaxChanges) {
    return Lie("{}: the file changes while it is fetched", url_.Shown());
  }
  DownloadRecord anew;
  anew.url = record_.url;
  record_ = std::move(anew);
  received_ = best_ = 0;
  BeginAttempt();
  return {Kind::kAsk, 0, {}, OkStatus()};
}

bool DownloadPlan::OnBytes(uint64_t count) {
  received_ += count;
  return received_ <= end_.value_or(UINT64_MAX);
}

DownloadVerdict DownloadPlan::OnEnd(const Status& transport) {
  const StatusCode code = transport.code();
  if (!transport.ok() && code != StatusCode::kUnavailable &&
      code != StatusCode::kDeadlineExceeded) {
    return Fail(transport);
  }
  if (!transport.ok()) return Retry(transport, {});
  if (!end_.has_value()) {
    return received_ > 0 ? DownloadVerdict{Kind::kDone, received_, {}, OkStatus()}
                         : Fail(InvalidArgument("{}: the file is empty", url_.Shown()));
  }
  if (received_ < *end_) {
    return Retry(MakeStatus(StatusCode::kUnavailable,
                            fmt::format("{}: the answer ended {} early", url_.Shown(),
                                        Counted(*end_ - received_, "byte"))),
                 {});
  }
  if (received_ == record_.length.value_or(received_)) {
    return {Kind::kDone, received_, {}, OkStatus()};
  }
  // A server may send less of a range than it was asked for; each such answer is progress.
  best_ = std::max(best_, received_);
  failures_ = 0;
  BeginAttempt();
  return {Kind::kAsk, 0, {}, OkStatus()};
}

DownloadVerdict DownloadPlan::Retry(const Status& why, std::chrono::milliseconds at_least) {
  const bool progress = received_ > best_;
  best_ = std::max(best_, received_);
  // Bytes that cannot be continued (no validator) are fetched again.
  if (record_.Validator().empty()) received_ = 0;
  failures_ = progress ? 0 : failures_ + 1;
  ++attempts_;
  if (failures_ > options_.retries || attempts_ > kMaxAttempts) {
    return Fail(
        MakeStatus(why.code(),
                   fmt::format("{}; given up after {} without progress", MessageOf(why),
                               Counted(static_cast<uint64_t>(std::max(failures_, 1)), "attempt"))));
  }
  std::chrono::milliseconds wait = kWaitAfterProgress;
  if (failures_ > 0) {
    wait = options_.first_wait * (int64_t{1} << std::min(failures_ - 1, 20));
    wait = std::min(wait, options_.longest_wait);
  }
  BeginAttempt();
  return {Kind::kWait, 0, std::max(wait, at_least), why};
}

}  // namespace kvasir
