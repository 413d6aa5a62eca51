// The model file reader on arbitrary bytes: parse, configuration, tensors, tokenizer fields,
// report, and, where all of that passes and the model is small, one forward pass.
//
// Checked beyond "no crash": what parses lies inside the file, names are found again, and errors
// are one line.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "model/gguf_file.h"
#include "model/model_config.h"
#include "model/model_digest.h"
#include "model/model_report.h"
#include "model/reference_forward.h"
#include "model/tokenizer_fields.h"

namespace kvasir {
namespace {

constexpr uint64_t kSmallModelBytes = 64 << 10;
constexpr uint32_t kSmallWidth = 512;

void CheckError(const Status& status) {
  KV_CHECK(!MessageOf(status).empty());
  KV_CHECK(MessageOf(status).find('\n') == std::string_view::npos);
}

void CheckInside(std::span<const std::byte> file, const void* begin, size_t size) {
  const auto* at = static_cast<const std::byte*>(begin);
  KV_CHECK(size == 0 || (at >= file.data() && size <= file.size() &&
                         static_cast<size_t>(at - file.data()) <= file.size() - size));
}

void CheckViews(std::span<const std::byte> bytes, const GgufFile& file) {
  for (const GgufEntry& entry : file.entries()) {
    CheckInside(bytes, entry.key.data(), entry.key.size());
    CheckInside(bytes, entry.bytes.data(), entry.bytes.size());
    KV_CHECK(file.FindEntry(entry.key) == &entry);
    if (const auto strings = entry.AsStrings()) {
      uint64_t count = 0;
      for (const std::string_view text : *strings) {
        CheckInside(bytes, text.data(), text.size());
        ++count;
      }
      KV_CHECK_EQ(count, strings->size());
    }
    if (const auto numbers = entry.AsNumbers(); numbers.has_value() && !numbers->empty()) {
      KV_CHECK_EQ(numbers->size(), entry.count);
      numbers->Int(numbers->size() - 1);
      numbers->Float(0);
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    CheckInside(bytes, tensor.name.data(), tensor.name.size());
    CheckInside(bytes, tensor.bytes.data(), tensor.bytes.size());
    KV_CHECK(file.FindTensor(tensor.name) == &tensor);
    KV_CHECK_EQ(tensor.bytes.size(),
                tensor.rows() * FileRowBytes(tensor.format, static_cast<uint32_t>(tensor.cols())));
  }
}

void RunIfSmall(const GgufFile& file, const ModelConfig& config) {
  if (file.tensor_bytes() > kSmallModelBytes || config.d_ffn > kSmallWidth) return;
  const ReferenceModel model(file, config, /*thread_count=*/1);
  const TokenId tokens[] = {TokenId{0}, TokenId{static_cast<int32_t>(config.vocab_size - 1)}};
  const uint32_t positions[] = {1};
  const auto logits = model.Logits(tokens, positions);
  if (!logits.ok()) return CheckError(logits.status());
  KV_CHECK_EQ((*logits)[0].size(), config.vocab_size);
}

}  // namespace
}  // namespace kvasir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvasir;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = GgufFile::Parse(bytes);
  if (!file.ok()) {
    CheckError(file.status());
    return 0;
  }
  CheckViews(bytes, *file);
  if (const auto fields = ReadTokenizerFields(*file); !fields.ok()) CheckError(fields.status());
  if (const auto report = BuildModelReport(*file); report.ok()) {
    KV_CHECK(!RenderText(*report).empty() && !RenderJson(*report).empty());
  } else {
    CheckError(report.status());
  }
  const auto config = ReadModelConfig(*file);
  if (!config.ok()) {
    CheckError(config.status());
    return 0;
  }
  KV_CHECK(ModelDigest(*file) == ModelDigest(*file, 2));
  RunIfSmall(*file, *config);
  return 0;
}
