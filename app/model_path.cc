#include "model_path.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "io/mapped_parts.h"
#include "output.h"
#include "pull_progress.h"
#include "terminal.h"

namespace kvasir {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Lower case comes first, as everywhere; a CGI program's HTTP_PROXY would be a client's header.
std::string EitherCase(const char* lower, const char* upper) {
  const std::string value = Variable(lower);
  return value.empty() ? Variable(upper) : value;
}

StatusOr<DownloadResult> PullFile(DownloadOptions options, bool quiet) {
  PullProgress progress(quiet, IsTerminal(STDERR_FILENO));
  options.progress = [&progress](const DownloadProgress& now) { progress.Update(now); };
  options.note = [&progress](const std::string& line) { progress.Note(line); };
  StatusOr<DownloadResult> result = Download(options);
  progress.Finish(result.ok() ? &*result : nullptr);
  return result;
}

}  // namespace

void AddModelsDir(Options& options, std::string* models_dir) {
  options
      .Add("--models-dir", models_dir,
           "Where models from URLs are kept (default: ~/.cache/kvasir/models)")
      .Type("DIR");
}

void AddModelPath(Options& options, std::string* path, std::string* models_dir) {
  options.Add("MODEL,--model", path, "Model file (GGUF), or its URL (http, https, hf:)")
      .Type("FILE")
      .Required();
  AddModelsDir(options, models_dir);
}

std::string ModelsFolder(const std::string& models_dir) {
  if (!models_dir.empty()) return models_dir;
  const std::string home = Variable("HOME");
  return (home.empty() ? "." : home) + "/.cache/kvasir/models";
}

Status FetchModel(std::string* path, const std::string& models_dir) {
  if (!LooksLikeUrl(*path)) return OkStatus();
  DownloadOptions options;
  options.url = *path;
  options.folder = ModelsFolder(models_dir);
  KV_ASSIGN_OR_RETURN(const DownloadResult result, PullModel(options, /*quiet=*/false));
  *path = result.path;
  return OkStatus();
}

StatusOr<DownloadResult> PullModel(DownloadOptions options, bool quiet) {
  CatchInterrupts();
  options.stop = &Interrupted();
  options.hugging_face_token = Variable("HF_TOKEN");
  options.proxies.http_proxy = Variable("http_proxy");
  options.proxies.https_proxy = EitherCase("https_proxy", "HTTPS_PROXY");
  options.proxies.no_proxy = EitherCase("no_proxy", "NO_PROXY");
  const size_t query = std::min(options.url.find_first_of("?#"), options.url.size());
  const std::string rest = options.url.substr(query);
  const std::optional<PartName> part = ReadPartName(std::string_view(options.url).substr(0, query));
  // A sum or a name of its own is one file's.
  const bool one = !options.sha256.empty() || !options.name.empty();
  if (!part.has_value() || one || part->count > kMaxFileParts) return PullFile(options, quiet);
  StatusOr<DownloadResult> named = NotFound("{}: has no parts", options.url);
  for (uint32_t number = 1; number <= part->count; ++number) {
    options.url = NameOfPart(*part, number) + rest;
    StatusOr<DownloadResult> result = PullFile(options, quiet);
    if (!result.ok()) return result;
    if (number == part->number) named = std::move(result);
  }
  return named;
}

}  // namespace kvasir
