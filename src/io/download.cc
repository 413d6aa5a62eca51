#include "io/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "io/download_target.h"
#include "io/http_client.h"

namespace kvasir {
namespace {

using Kind = DownloadVerdict::Kind;

constexpr std::chrono::milliseconds kPoll{100};
constexpr std::chrono::milliseconds kLinger{200};

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// What came instead, for a message: printable, short.
std::string Shown(std::string_view bytes) {
  std::string text;
  for (const char c : bytes.substr(0, 16)) text += c >= 0x20 && c < 0x7f ? c : '?';
  return text;
}

class Downloader {
 public:
  explicit Downloader(const DownloadOptions& options) : options_(options) {}

  StatusOr<DownloadResult> Run() {
    KV_RETURN_IF_ERROR(CheckOptions());
    KV_ASSIGN_OR_RETURN(const std::string name, ChooseName());
    target_ = std::make_unique<DownloadTarget>(options_.folder, name);
    KV_RETURN_IF_ERROR(Lock());
    KV_ASSIGN_OR_RETURN(const uint64_t part_bytes, target_->OpenPart());
    if (!options_.force) {
      KV_ASSIGN_OR_RETURN(const bool there, AlreadyThere());
      if (there) return DownloadResult{target_->path(), *target_->FinishedBytes(), true};
    }
    DownloadPlan::Options plan = options_.plan;
    plan.length_needed = options_.sha256.empty();
    plan_ =
        std::make_unique<DownloadPlan>(plan, url_, url_text_, target_->PartRecord(), part_bytes);
    resumed_at_ = plan_->received();
    if (resumed_at_ > 0) Note(fmt::format("going on at byte {}", resumed_at_));
    const Status status = Fetch();
    if (!status.ok()) return Explained(status);
    KV_RETURN_IF_ERROR(Verify());
    KV_RETURN_IF_ERROR(target_->Finish(plan_->record()));
    return DownloadResult{target_->path(), plan_->received(), false};
  }

 private:
  void Note(const std::string& text) const {
    if (options_.note) options_.note(text);
  }
  bool Stopped() const { return options_.stop != nullptr && options_.stop->load(); }
  static Status StoppedStatus() { return MakeStatus(StatusCode::kCancelled, "stopped"); }

  Status CheckOptions() {
    KV_ASSIGN_OR_RETURN(url_text_, ExpandUrl(options_.url));
    KV_ASSIGN_OR_RETURN(url_, ParseUrl(url_text_));
    url_text_ = url_.Full();
    if (!options_.name.empty()) {
      const std::string problem = FileNameProblem(options_.name);
      if (!problem.empty()) return InvalidArgument("the name '{}' {}", options_.name, problem);
    }
    const std::string& sum = options_.sha256;
    const bool hex = sum.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!sum.empty() && (sum.size() != 64 || !hex)) {
      return InvalidArgument("'{}' is not a SHA-256 sum: want 64 hexadecimal digits", sum);
    }
    return OkStatus();
  }

  // Nothing is asked where the URL or an earlier download says it.
  StatusOr<std::string> ChooseName() {
    if (!options_.name.empty()) return options_.name;
    const std::optional<std::string> earlier = FindDownload(options_.folder, url_text_);
    if (earlier.has_value() && FileNameProblem(*earlier).empty()) return *earlier;
    const std::string bare = FileNameOfUrl(url_, "");
    const std::string full = FileNameOfUrl(url_, options_.ending);
    if (!full.empty() && bare == full) return full;
    // Such as /download?id=7: a request that is given up after its head.
    DownloadPlan plan(options_.plan, url_, url_text_, std::nullopt, 0);
    HttpResponse last;
    Url at = url_;
    while (true) {
      at = plan.Request().url;
      bool told = false;
      DownloadVerdict verdict;
      const Status sent = Ask(plan.Request(), [&](const HttpResponse& head) {
        told = true;
        last = head;
        verdict = plan.OnHead(head);
        return false;
      });
      if (!told) verdict = plan.OnEnd(sent);
      if (verdict.kind == Kind::kFail) return verdict.status;
      if (verdict.kind == Kind::kTake) break;
      KV_RETURN_IF_ERROR(WaitFor(verdict));
    }
    const std::string* field = last.headers.Find("Content-Disposition");
    std::string name;
    if (field != nullptr) name = SafeFileName(DispositionFileName(*field), options_.ending);
    if (name.empty()) name = FileNameOfUrl(at, options_.ending);
    if (name.empty()) name = full;
    return name.empty() ? "model" + options_.ending : name;
  }

  Status Lock() {
    bool said = false;
    while (true) {
      KV_ASSIGN_OR_RETURN(const bool locked, target_->TryLock());
      if (locked) return OkStatus();
      if (!said) Note(fmt::format("{}: another download is under way, waiting", target_->path()));
      said = true;
      if (Stopped()) return StoppedStatus();
      std::this_thread::sleep_for(kPoll);
    }
  }

  StatusOr<bool> AlreadyThere() {
    const std::optional<uint64_t> bytes = target_->FinishedBytes();
    if (!bytes.has_value()) return false;
    if (!options_.sha256.empty()) {
      KV_ASSIGN_OR_RETURN(const std::string sum, Sum(target_->path(), *bytes));
      if (sum == Lower(options_.sha256)) return true;
      return InvalidArgument(
          "{}: is there already, but its SHA-256 is {}, not {}; --force replaces it",
          target_->path(), sum, Lower(options_.sha256));
    }
    const std::optional<DownloadRecord> record = target_->FinishedRecord();
    if (record.has_value() && record->url == url_text_ && record->length == bytes) return true;
    return InvalidArgument(
        "{}: is there already and nothing says that it came from {}; --name chooses another name, "
        "--force replaces it",
        target_->path(), url_.Shown());
  }

  StatusOr<std::string> Sum(const std::string& path, uint64_t total) {
    return Sha256OfFile(path, [&](uint64_t bytes) {
      if (options_.progress) {
        options_.progress({DownloadProgress::Phase::kChecking, bytes, total, 0});
      }
      return !Stopped();
    });
  }

  // One request. `on_head` and `on_body` as in HttpClient.
  Status Ask(
      const DownloadRequest& request, const HttpClient::OnHead& on_head,
      const HttpResponseParser::Sink& on_body = [](std::string_view) { return true; }) {
    HttpClient::Options http;
    http.connect_timeout = options_.connect_timeout;
    http.idle_timeout = options_.idle_timeout;
    http.stop = options_.stop;
    http.linger = kLinger;
    const std::string proxy = options_.proxies.For(request.url);
    if (!proxy.empty()) {
      StatusOr<HttpUrl> address = ParseHttpUrl(proxy);
      if (!address.ok()) return WithPrefix(address.status(), "proxy");
      http.proxy_host = address->host;
      http.proxy_port = address->port;
    }
    if (request.url.tls) {
      if (tls_ == nullptr) {
        KV_ASSIGN_OR_RETURN(tls_, TlsContext::Create());
      }
      http.tls = tls_;
    }
    HttpClientRequest message;
    message.target = request.url.target;
    message.headers = {{"User-Agent", "kvasir"},
                       {"Accept", "*/*"},
                       {"Accept-Encoding", "identity"},
                       {"Connection", "close"}};
    if (request.from > 0) {
      message.headers.Add("Range", fmt::format("bytes={}-", request.from));
      if (!request.if_range.empty()) message.headers.Add("If-Range", request.if_range);
    }
    const std::string authorization = AuthorizationFor(request, options_.hugging_face_token);
    if (!authorization.empty()) message.headers.Add("Authorization", authorization);
    HttpClient client(request.url.host, request.url.port, http);
    const auto response = client.Stream(message, on_body, on_head);
    excess_ = client.excess();
    return response.ok() ? OkStatus() : response.status();
  }

  Status WaitFor(const DownloadVerdict& verdict) {
    if (verdict.kind == Kind::kWait) {
      Note(fmt::format("{}; trying again in {:.1f} s", MessageOf(verdict.status),
                       static_cast<double>(verdict.wait.count()) / 1000.0));
    }
    for (auto left = verdict.wait; left.count() > 0; left -= kPoll) {
      if (Stopped()) return StoppedStatus();
      std::this_thread::sleep_for(std::min(left, kPoll));
    }
    return Stopped() ? StoppedStatus() : OkStatus();
  }

  Status Fetch() {
    if (plan_->whole()) return OkStatus();
    while (true) {
      DownloadVerdict verdict = Exchange();
      if (verdict.kind == Kind::kDone) return OkStatus();
      if (verdict.kind == Kind::kFail) return verdict.status;
      KV_RETURN_IF_ERROR(WaitFor(verdict));
    }
  }

  DownloadVerdict Exchange() {
    DownloadVerdict verdict;
    bool told = false;
    Status trouble;     // Ours, not the network's.
    std::string start;  // The first bytes, until they have shown what they begin.
    bool begun = false;
    const auto begin = [&] {
      begun = true;
      if (plan_->received() == 0) resumed_at_ = 0;
      trouble = target_->Begin(plan_->record(), verdict.keep_bytes);
      return trouble.ok();
    };
    const Status sent = Ask(
        plan_->Request(),
        [&](const HttpResponse& head) {
          told = true;
          verdict = plan_->OnHead(head);
          if (verdict.kind != Kind::kTake) return false;
          const std::string* type = head.headers.Find("Content-Type");
          content_type_ = type == nullptr ? "" : *type;
          trouble = CheckSpace(verdict.keep_bytes);
          return trouble.ok();
        },
        [&](std::string_view piece) {
          std::string joined;
          if (!begun && verdict.keep_bytes == 0) {
            start.append(piece);
            if (start.size() < options_.magic.size()) return true;
            trouble = CheckMagic(start);
            if (!trouble.ok()) return false;
            joined.swap(start);
            piece = joined;
          }
          if (!begun && !begin()) return false;
          return Take(piece, &trouble);
        });
    if (!trouble.ok()) return {Kind::kFail, 0, {}, trouble};
    if (told && verdict.kind != Kind::kTake) return verdict;
    // A file shorter than its magic number, or cut off within it, was not begun.
    if (told && !begun && sent.ok() && !start.empty()) {
      return {Kind::kFail, 0, {}, CheckMagic(start)};
    }
    if (excess_) {
      target_->Discard();
      return {Kind::kFail,
              0,
              {},
              MakeStatus(StatusCode::kDataLoss,
                         fmt::format("{}: the server sends more than the {} bytes it announced, "
                                     "so that nothing it sent can be trusted",
                                     url_.Shown(), plan_->received()))};
    }
    return plan_->OnEnd(sent);
  }

  bool Take(std::string_view piece, Status* trouble) {
    if (!plan_->OnBytes(piece.size())) {
      target_->Discard();
      *trouble = MakeStatus(
          StatusCode::kDataLoss,
          fmt::format("{}: the server sends more than the part it announced", url_.Shown()));
      return false;
    }
    *trouble = target_->Append(piece);
    if (!trouble->ok()) return false;
    if (options_.progress) {
      options_.progress({DownloadProgress::Phase::kFetching, plan_->received(),
                         plan_->record().length, resumed_at_});
    }
    return true;
  }

  Status CheckSpace(uint64_t keep_bytes) {
    const std::optional<uint64_t> length = plan_->record().length;
    const uint64_t free = target_->FreeBytes();
    if (!length.has_value() || *length - keep_bytes <= free) return OkStatus();
    return ResourceExhausted("{}: {} bytes are to come, and the disk has {} free", options_.folder,
                             *length - keep_bytes, free);
  }

  Status CheckMagic(std::string_view start) const {
    if (start.substr(0, options_.magic.size()) == options_.magic) return OkStatus();
    return InvalidArgument("{}: is not a GGUF file: it begins with '{}'{}", url_.Shown(),
                           Shown(start),
                           content_type_.empty() ? "" : " and calls itself " + content_type_);
  }

  // The whole part, on the disk: what came before this call included.
  Status Verify() {
    const std::string part = target_->path() + ".part";
    KV_ASSIGN_OR_RETURN(const std::string start, ReadStart(part, 16));
    const Status magic = CheckMagic(start);
    if (!magic.ok()) {
      target_->Discard();
      return magic;
    }
    if (options_.sha256.empty()) return OkStatus();
    KV_ASSIGN_OR_RETURN(const std::string sum, Sum(part, plan_->received()));
    if (sum == Lower(options_.sha256)) return OkStatus();
    // A resumed part would be wrong for ever.
    target_->Discard();
    return MakeStatus(
        StatusCode::kDataLoss,
        fmt::format("{}: the SHA-256 of what came is {}, not {} as it should be; it is not kept",
                    url_.Shown(), sum, Lower(options_.sha256)));
  }

  Status Explained(const Status& status) const {
    const std::optional<uint64_t> total = plan_->record().length;
    if (plan_->received() == 0 || status.code() == StatusCode::kDataLoss) return status;
    return MakeStatus(status.code(),
                      fmt::format("{}; {}{} bytes are kept, the same command goes on from there",
                                  MessageOf(status), plan_->received(),
                                  total.has_value() ? fmt::format(" of {}", *total) : ""));
  }

  const DownloadOptions& options_;
  Url url_;
  std::string url_text_;  // Of url_, whole: the name under which the record keeps it.
  std::unique_ptr<DownloadTarget> target_;
  std::unique_ptr<DownloadPlan> plan_;
  std::shared_ptr<const TlsContext> tls_;
  std::string content_type_;
  uint64_t resumed_at_ = 0;
  bool excess_ = false;
};

}  // namespace

std::string ProxyRules::For(const Url& url) const {
  for (size_t at = 0; at < no_proxy.size();) {
    const size_t end = std::min(no_proxy.find(',', at), no_proxy.size());
    std::string entry = Lower(std::string(Trimmed(no_proxy.substr(at, end - at))));
    at = end + 1;
    if (entry == "*") return {};
    while (!entry.empty() && entry[0] == '.') entry.erase(0, 1);
    if (entry.empty() || url.host.size() < entry.size()) continue;
    const size_t rest = url.host.size() - entry.size();
    if (url.host.compare(rest, entry.size(), entry) == 0 &&
        (rest == 0 || url.host[rest - 1] == '.'))
      return {};
  }
  return url.tls ? https_proxy : http_proxy;
}

std::string AuthorizationFor(const DownloadRequest& request, const std::string& token) {
  const std::string& host = request.url.host;
  constexpr std::string_view kDomain = ".huggingface.co";
  const bool below = host.size() > kDomain.size() &&
                     host.compare(host.size() - kDomain.size(), kDomain.size(), kDomain) == 0;
  const bool theirs = host == kDomain.substr(1) || below;
  if (token.empty() || !request.url.tls || !request.first_host || !theirs) return {};
  return "Bearer " + token;
}

StatusOr<DownloadResult> Download(const DownloadOptions& options) {
  return Downloader(options).Run();
}

}  // namespace kvasir
