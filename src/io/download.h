// Download: one file from the network into a folder: resumed, checked, and there only when whole.
//
// Decisions are DownloadPlan's, files DownloadTarget's; here they meet the network. Blocking.
// Everything that came stays in NAME.part when a download ends early, and the same call goes on
// from there. Thread: any; `stop` may be set by another one or a signal handler.
#ifndef KVASIR_IO_DOWNLOAD_H_
#define KVASIR_IO_DOWNLOAD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "io/download_plan.h"

namespace kvasir {

// The proxy for `url` by the usual variables, "host:port" or "http://host:port"; empty: none.
// `no_proxy` lists hosts (with what is below them) that are reached directly; "*": all.
struct ProxyRules {
  std::string http_proxy;
  std::string https_proxy;
  std::string no_proxy;
  std::string For(const Url& url) const;
};

struct DownloadProgress {
  enum class Phase : uint8_t { kFetching, kChecking };
  Phase phase = Phase::kFetching;
  uint64_t bytes = 0;
  std::optional<uint64_t> total;
  uint64_t resumed_at = 0;  // Bytes that were there before this call.
};

struct DownloadOptions {
  std::string url;                 // http://, https:// or hf:.
  std::string folder;              // Created when missing.
  std::string name;                // Empty: by earlier records, the URL, or what the server says.
  std::string sha256;              // 64 hexadecimal digits, or empty: not checked.
  bool force = false;              // Fetch again although the file is there.
  std::string ending = ".gguf";    // Of names that are made here.
  std::string magic = "GGUF";      // What the file must begin with.
  std::string hugging_face_token;  // Sent to huggingface.co by https, and nowhere else.
  ProxyRules proxies;
  DownloadPlan::Options plan;
  std::chrono::milliseconds connect_timeout{15'000};
  std::chrono::milliseconds idle_timeout{60'000};
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const DownloadProgress&)> progress;  // Often.
  std::function<void(const std::string&)> note;           // One line on what happened.
};

struct DownloadResult {
  std::string path;
  uint64_t bytes = 0;
  bool was_there = false;
};

// Errors: kCancelled (stop), kUnavailable and kDeadlineExceeded (the network, retries included),
// kNotFound, kPermissionDenied (refused, or a certificate that is not trusted), kDataLoss (a server
// that contradicts itself, a wrong checksum), kResourceExhausted (disk), kInvalidArgument.
StatusOr<DownloadResult> Download(const DownloadOptions& options);

// "Bearer ..." where `token` may be sent: the named host itself, and only Hugging Face by https.
std::string AuthorizationFor(const DownloadRequest& request, const std::string& token);

}  // namespace kvasir

#endif  // KVASIR_IO_DOWNLOAD_H_
