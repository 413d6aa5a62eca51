// GgufParser: one pass over a GGUF header, front to back. Internal to GgufFile::Parse.
//
// A field's name travels as text and is formatted only when the field is wrong: a Gemma header has
// half a million strings.
#ifndef KVASIR_MODEL_GGUF_PARSER_H_
#define KVASIR_MODEL_GGUF_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "model/gguf_file.h"

namespace kvasir {

// Limits beyond the format's own. Real files stay below a tenth of each.
inline constexpr uint64_t kMaxGgufEntries = 1u << 16;
inline constexpr uint64_t kMaxGgufTensors = 1u << 16;
inline constexpr uint64_t kMaxGgufKeyBytes = 65535;  // The specification's.
inline constexpr uint64_t kMaxTensorNameBytes = 64;  // The specification's.
inline constexpr uint32_t kMaxArrayDepth = 4;        // Arrays of arrays of ...
// Strings and arrays inside arrays, of the whole file: what reading costs time for.
inline constexpr uint64_t kMaxGgufElements = uint64_t{1} << 22;
inline constexpr uint64_t kMaxAlignment = 1u << 20;
inline constexpr uint64_t kDefaultAlignment = 32;

// The number that files give a format.
uint32_t TensorTypeNumber(WeightFormat format);

class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> file) : file_(file) {}

  StatusOr<GgufFile> Run();

 private:
  Status ReadVersion();
  Status ReadCounts();
  Status ReadEntries();
  Status ReadEntry(uint64_t index);
  Status ReadValue(GgufEntry& entry);
  Status ReadArrayHeader(const GgufEntry& entry, GgufType& element_type, uint64_t& count);
  Status SkipElements(const GgufEntry& entry, GgufType type, uint64_t count, uint32_t depth);
  Status ReadAlignment();
  Status ReadTensors();
  Status ReadTensorEntry(uint64_t index);
  Status ReadTensorDims(GgufTensor& tensor);
  Status ReadTensorFormat(GgufTensor& tensor);
  Status RefuseUnsupportedTypes() const;
  Status PlaceTensors();
  Status PlaceTensor(GgufTensor& tensor);
  Status IndexKeys();
  Status IndexTensors();
  Status RefuseOverlaps() const;

  uint64_t left() const { return file_.size() - at_; }

  // Reads a little-endian number; false when the file ends first.
  template <typename T>
  [[nodiscard]] bool Read(T& value);

  Status EndsInside(std::string_view field) const;

  std::span<const std::byte> file_;
  uint64_t at_ = 0;
  uint64_t entry_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t elements_left_ = kMaxGgufElements;
  std::vector<uint64_t> unsupported_;  // By type: tensors that this build has no kernels for.
  Status first_unsupported_;
  GgufFile out_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_GGUF_PARSER_H_
