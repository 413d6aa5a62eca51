#include "model/foreign_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <string_view>

#include "base/counted.h"
#include "model/quoted_text.h"

namespace kvasir {
namespace {

constexpr size_t kSniffedBytes = 512;

struct Signature {
  std::string_view start;
  std::string_view what;
};
constexpr std::array<Signature, 9> kSignatures = {{
    {"FUGG", "a GGUF file with reversed magic"},
    {"lmgg", "a model in the old GGML format; convert it to GGUF"},
    {"tjgg", "a model in the old GGJT format; convert it to GGUF"},
    {"fmgg", "a model in the old GGMF format; convert it to GGUF"},
    {"PK\x03\x04", "a ZIP archive (a PyTorch checkpoint is one); convert the model to GGUF"},
    {"\x1f\x8b", "gzip-compressed; unpack it first"},
    {"\x28\xb5\x2f\xfd", "zstd-compressed; unpack it first"},
    {"version https://git-lfs",
     "a git-lfs pointer, not the model itself; fetch it with 'git lfs pull'"},
    {"%PDF", "a PDF document"},
}};

bool LooksLikeHtml(std::string_view head) {
  std::string lower(head);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const size_t begin = lower.find_first_not_of("\xef\xbb\xbf \t\r\n");
  if (begin == std::string::npos || lower[begin] != '<') return false;
  return lower.find("<!doctype") != std::string::npos || lower.find("<html") != std::string::npos ||
         lower.find("<?xml") != std::string::npos || lower.find("<head") != std::string::npos;
}

bool LooksLikeText(std::string_view head) {
  return std::all_of(head.begin(), head.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || c == '\n' || c == '\r' || c == '\t';
  });
}

}  // namespace

Status NotGguf(std::span<const std::byte> file) {
  if (file.empty()) return InvalidArgument("not a GGUF model: the file is empty (at offset 0)");
  const std::string_view head(reinterpret_cast<const char*>(file.data()),
                              std::min(file.size(), kSniffedBytes));
  if (std::string_view("GGUF").substr(0, head.size()) == head) {
    return InvalidArgument("not a GGUF model: the file ends inside the magic, after {}",
                           Counted(head.size(), "byte"));
  }
  for (const Signature& signature : kSignatures) {
    if (head.substr(0, signature.start.size()) == signature.start) {
      return InvalidArgument("not a GGUF model: the file is {} (at offset 0)", signature.what);
    }
  }
  if (LooksLikeHtml(head)) {
    return InvalidArgument(
        "not a GGUF model: the file is an HTML page, as a download that needs a login or a wrong "
        "address leaves it (at offset 0)");
  }
  if (head.size() > 9 && head[8] == '{') {
    return InvalidArgument(
        "not a GGUF model: the file looks like safetensors; convert it to GGUF (at offset 0)");
  }
  if (LooksLikeText(head)) {
    return InvalidArgument("not a GGUF model: the file is text that begins {} (at offset 0)",
                           Quoted(head, 32));
  }
  return InvalidArgument("not a GGUF model: the magic is {} instead of 'GGUF' (at offset 0)",
                         Quoted(head.substr(0, 4)));
}

}  // namespace kvasir
