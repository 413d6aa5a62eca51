// DownloadPlan: what to ask a server next, and what its answer means for a partly fetched file.
//
// A state machine without I/O and without a clock: the caller sends what Request() says and reports
// head, bytes and end of each answer; the verdicts say how to go on. A byte counts only when the
// server vouched for its place in the same entity (206 with the right Content-Range and validators)
// or when the file began anew (200). Each attempt begins at the first URL, so that a link that was
// signed for a short time is signed again.
// Source: RFC 9110, sections 13.1.5 (If-Range), 14 (ranges), 15.4 (redirects), 10.2.3
// (Retry-After).
#ifndef KVASIR_IO_DOWNLOAD_PLAN_H_
#define KVASIR_IO_DOWNLOAD_PLAN_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/download_url.h"
#include "io/http_parser.h"

namespace kvasir {

// What a file is a copy of. ETags are names of an entity here, never checksums.
struct DownloadRecord {
  std::string url;  // As it was asked for, before redirects.
  std::string etag;
  std::string last_modified;
  std::string linked_etag;  // X-Linked-Etag of a redirect to a content store.
  std::optional<uint64_t> length;

  // Lines of "key value"; nullopt when the text is not such a record, or is cut short.
  std::string ToText() const;
  static std::optional<DownloadRecord> FromText(std::string_view text);

  // The field for If-Range: a strong ETag, else Last-Modified; empty: cannot be resumed.
  std::string Validator() const;
};

struct ContentRange {  // "bytes first-last/total" or "bytes */total"
  std::optional<uint64_t> first;
  std::optional<uint64_t> last;  // Inclusive; first <= last.
  std::optional<uint64_t> total;
};
// nullopt: malformed, or contradicting itself.
std::optional<ContentRange> ParseContentRange(std::string_view field);

struct DownloadRequest {
  Url url;
  uint64_t from = 0;       // > 0: Range: bytes=from-
  std::string if_range;    // Set when from > 0.
  bool first_host = true;  // Still the host that the caller named: credentials may go there.
};

struct DownloadVerdict {
  enum class Kind : uint8_t {
    kAsk,   // Send Request() now.
    kTake,  // The body follows: keep `keep_bytes` of the part, append what comes.
    kWait,  // As kAsk, after `wait`; `status` says why.
    kDone,  // The part is whole, as far as the server can be believed.
    kFail,  // See `status`.
  };
  Kind kind = Kind::kFail;
  uint64_t keep_bytes = 0;
  std::chrono::milliseconds wait{0};
  Status status;
};

class DownloadPlan {
 public:
  struct Options {
    int redirect_limit = 10;
    int retries = 5;                            // Failures in a row without one new byte.
    std::chrono::milliseconds first_wait{500};  // Doubles with each such failure.
    std::chrono::milliseconds longest_wait{30'000};
    std::chrono::milliseconds longest_retry_after{120'000};
    bool length_needed = true;  // False when a checksum will tell whether the file is whole.
  };

  // `part`: the record of the `part_bytes` bytes that are there already, if any.
  DownloadPlan(const Options& options, Url url, std::string url_text,
               std::optional<DownloadRecord> part, uint64_t part_bytes);

  // True when the part is whole before anything was asked.
  bool whole() const { return received_ > 0 && record_.length == received_; }

  DownloadRequest Request() const;
  DownloadVerdict OnHead(const HttpResponse& head);

  // Bytes of the body. False: more than the server announced, the part cannot be trusted.
  [[nodiscard]] bool OnBytes(uint64_t count);

  // After kTake, or when no head came: how the exchange ended.
  DownloadVerdict OnEnd(const Status& transport);

  const DownloadRecord& record() const { return record_; }
  uint64_t received() const { return received_; }

 private:
  DownloadVerdict OnRedirect(const HttpResponse& head);
  DownloadVerdict OnWhole(const HttpResponse& head);
  DownloadVerdict OnPart(const HttpResponse& head);
  DownloadVerdict OnUnsatisfiable(const HttpResponse& head);
  DownloadVerdict OnRefusal(const HttpResponse& head);
  DownloadVerdict Changed();
  DownloadVerdict Retry(const Status& why, std::chrono::milliseconds at_least);
  void BeginAttempt();

  const Options options_;
  const Url first_url_;
  Url url_;                           // Where the next request goes.
  std::vector<std::string> visited_;  // In this attempt.
  std::string linked_etag_;           // Seen in this attempt.
  DownloadRecord record_;
  uint64_t received_ = 0;        // Bytes of the part that count.
  std::optional<uint64_t> end_;  // Where the body under way ends in the file; nullopt: unknown.
  uint64_t best_ = 0;            // The most of this entity that was ever there.
  int failures_ = 0;             // In a row, without a new byte.
  int attempts_ = 0;
  int changes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_IO_DOWNLOAD_PLAN_H_
