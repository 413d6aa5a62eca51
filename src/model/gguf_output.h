// GgufOutput: the header of a GGUF file that has another file's metadata and tensors, some of them
// in another format: what `kvasir quantize` writes.
//
// Metadata is copied byte for byte, but for general.file_type, general.quantization_version and
// general.alignment, which say what was written, and the keys of split files, which are left out.
// Version 3. No I/O. Thread: pure function.
#ifndef KVASIR_MODEL_GGUF_OUTPUT_H_
#define KVASIR_MODEL_GGUF_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/weight_format.h"
#include "model/gguf_file.h"

namespace kvasir {

// A tensor of a file, and the format that it is to be written in.
struct PlannedTensor {
  const GgufTensor* tensor = nullptr;
  WeightFormat format = WeightFormat::kF32;
  // What was wanted in its place, where the rows are no whole blocks of that.
  std::optional<WeightFormat> instead_of = std::nullopt;

  uint64_t bytes() const {
    return tensor->rows() * FileRowBytes(format, static_cast<uint32_t>(tensor->cols()));
  }
};

struct GgufOutput {
  std::string header;             // All bytes before the tensors' data, padding included.
  std::vector<uint64_t> offsets;  // Of each planned tensor's data in the file.
  uint64_t file_bytes = 0;
};

// `file_type` is general.file_type's number. Tensors keep their order.
// REQUIRES: each tensor's columns are a multiple of its new format's block_values.
GgufOutput LayOutGguf(const GgufFile& source, std::span<const PlannedTensor> tensors,
                      uint32_t file_type);

}  // namespace kvasir

#endif  // KVASIR_MODEL_GGUF_OUTPUT_H_
