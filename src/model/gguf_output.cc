#include "model/gguf_output.h"

#include <cstring>
#include <string_view>

#include "model/gguf_parser.h"

namespace kvasir {
namespace {

constexpr uint32_t kVersion = 3;
constexpr uint32_t kQuantizationVersion = 2;  // Of the formats; 2 since 2023.

template <typename T>
void Put(std::string& to, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  to.append(bytes, sizeof(T));
}

void PutString(std::string& to, std::string_view text) {
  Put(to, static_cast<uint64_t>(text.size()));
  to += text;
}

void PutUint32(std::string& to, std::string_view key, uint32_t value) {
  PutString(to, key);
  Put(to, static_cast<uint32_t>(GgufType::kUint32));
  Put(to, value);
}

void PutEntry(std::string& to, const GgufEntry& entry) {
  PutString(to, entry.key);
  Put(to, static_cast<uint32_t>(entry.type));
  if (entry.type == GgufType::kArray) {
    Put(to, static_cast<uint32_t>(entry.element_type));
    Put(to, entry.count);
  }
  if (entry.type == GgufType::kString) Put(to, static_cast<uint64_t>(entry.bytes.size()));
  to.append(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size());
}

bool IsReplaced(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" ||
         key == "general.alignment" || key.substr(0, 6) == "split.";
}

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
}

}  // namespace

GgufOutput LayOutGguf(const GgufFile& source, std::span<const PlannedTensor> tensors,
                      uint32_t file_type) {
  std::string entries;
  uint64_t entry_count = 2;
  for (const GgufEntry& entry : source.entries()) {
    if (IsReplaced(entry.key)) continue;
    PutEntry(entries, entry);
    ++entry_count;
  }
  PutUint32(entries, "general.file_type", file_type);
  PutUint32(entries, "general.quantization_version", kQuantizationVersion);

  GgufOutput out;
  std::string index;
  uint64_t at = 0;
  for (const PlannedTensor& planned : tensors) {
    const GgufTensor& tensor = *planned.tensor;
    PutString(index, tensor.name);
    Put(index, tensor.dim_count);
    for (uint32_t d = 0; d < tensor.dim_count; ++d) Put(index, tensor.dims[d]);
    Put(index, TensorTypeNumber(planned.format));
    Put(index, at);
    out.offsets.push_back(at);
    at = Aligned(at + planned.bytes());
  }
  out.header = "GGUF";
  Put(out.header, kVersion);
  Put(out.header, static_cast<uint64_t>(tensors.size()));
  Put(out.header, entry_count);
  out.header += entries;
  out.header += index;
  out.header.resize(Aligned(out.header.size()), '\0');
  for (uint64_t& offset : out.offsets) offset += out.header.size();
  out.file_bytes = out.header.size() + at;
  return out;
}

}  // namespace kvasir
