// A model file in several parts, of arbitrary bytes: the input is cut where "GGUF" stands, and the
// pieces are the parts.
//
// Checked beyond "no crash": what parses has views into its own parts only, the tensors of all of
// them, each found by its name, and errors are one line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/gguf_file.h"

namespace kvasir {
namespace {

constexpr size_t kMostParts = 16;

using Bytes = std::span<const std::byte>;

std::vector<Bytes> CutAtMagic(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<Bytes> parts;
  size_t begin = 0;
  while (parts.size() + 1 < kMostParts) {
    const size_t next = text.find("GGUF", begin + 1);
    if (next == std::string_view::npos) break;
    parts.emplace_back(bytes + begin, next - begin);
    begin = next;
  }
  parts.emplace_back(bytes + begin, size - begin);
  return parts;
}

bool IsInside(const std::vector<Bytes>& parts, const void* begin, size_t size) {
  const auto* at = static_cast<const std::byte*>(begin);
  return size == 0 || std::any_of(parts.begin(), parts.end(), [&](Bytes part) {
           return at >= part.data() && size <= part.size() &&
                  static_cast<size_t>(at - part.data()) <= part.size() - size;
         });
}

}  // namespace
}  // namespace kvasir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvasir;
  if (size == 0) return 0;
  const std::vector<Bytes> parts = CutAtMagic(data, size);
  const StatusOr<GgufFile> file = GgufFile::ParseParts(parts);
  if (!file.ok()) {
    KV_CHECK(!MessageOf(file.status()).empty());
    KV_CHECK(MessageOf(file.status()).find('\n') == std::string_view::npos);
    return 0;
  }
  KV_CHECK_EQ(file->file_bytes(), size);
  uint64_t tensor_bytes = 0;
  for (const GgufTensor& tensor : file->tensors()) {
    KV_CHECK(IsInside(parts, tensor.name.data(), tensor.name.size()));
    KV_CHECK(IsInside(parts, tensor.bytes.data(), tensor.bytes.size()));
    KV_CHECK(file->FindTensor(tensor.name) == &tensor);
    tensor_bytes += tensor.bytes.size();
  }
  KV_CHECK_EQ(file->tensor_bytes(), tensor_bytes);
  for (const GgufEntry& entry : file->entries()) {
    KV_CHECK(IsInside(parts, entry.key.data(), entry.key.size()));
    KV_CHECK(IsInside(parts, entry.bytes.data(), entry.bytes.size()));
  }
  return 0;
}
