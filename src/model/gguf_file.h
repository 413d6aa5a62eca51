// GgufFile: the parsed header of a GGUF model file (versions 2 and 3, little endian) over bytes
// that somebody else holds.
//
// No I/O and no copies: names, strings, arrays and tensor data are views into the span given to
// Parse, which must outlive the GgufFile and everything obtained from it. It says what the file
// contains, not what a model needs: that is ReadModelConfig (model_config.h) and
// ReadTokenizerFields (tokenizer_fields.h).
//
// The bytes are input from outside. Every count, length, offset, dimension and alignment is
// checked, in arithmetic that cannot overflow, before anything is allocated in proportion to it.
// Errors are one line naming field and byte offset; the caller prefixes the file's name. Invariant:
// every view lies inside the span; keys and tensor names are unique; no two tensors share a byte.
// Thread: immutable. Source: the GGUF specification (ggml repository, docs/gguf.md);
// docs/MODEL_FILES.md.
#ifndef KVASIR_MODEL_GGUF_FILE_H_
#define KVASIR_MODEL_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kernels/weight_format.h"
#include "model/gguf_value.h"

namespace kvasir {

inline constexpr uint32_t kMaxTensorDims = 4;

struct GgufTensor {
  std::string_view name;
  WeightFormat format = WeightFormat::kF32;
  uint32_t dim_count = 0;              // 1..4.
  uint64_t dims[kMaxTensorDims] = {};  // dims[0] is contiguous; 1 beyond dim_count; none is 0.
  uint64_t entry_offset = 0;           // Of the tensor's entry in the header, for messages.
  uint64_t data_offset = 0;            // Of its first byte, from the start of its file.
  std::span<const std::byte> bytes;    // rows() rows of FileRowBytes(format, cols()).

  uint64_t cols() const { return dims[0]; }
  uint64_t rows() const { return dims[1] * dims[2] * dims[3]; }
};

class GgufFile {
 public:
  // O(header). kInvalidArgument for anything malformed; kUnimplemented for what is recognised but
  // not supported (big endian, version 1, a tensor type without kernels).
  // A part of a split file alone is kInvalidArgument.
  static StatusOr<GgufFile> Parse(std::span<const std::byte> file);

  // The parts of a split file, in order (keys split.no, split.count, split.tensors.count): metadata
  // of the first, tensors of all. kInvalidArgument, naming the part, when they are not all parts of
  // one model. One part: as Parse. REQUIRES: at least one.
  static StatusOr<GgufFile> ParseParts(std::span<const std::span<const std::byte>> parts);

  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t data_begin() const { return data_begin_; }      // Where tensor data starts (first part).
  uint64_t file_bytes() const { return file_bytes_; }      // Of all parts.
  uint64_t tensor_bytes() const { return tensor_bytes_; }  // Sum over tensors, without padding.

  std::span<const GgufEntry> entries() const { return entries_; }   // In file order.
  std::span<const GgufTensor> tensors() const { return tensors_; }  // In file order.
  const GgufEntry* FindEntry(std::string_view key) const;           // nullptr when absent.
  const GgufTensor* FindTensor(std::string_view name) const;        // nullptr when absent.

  // nullopt when the key is absent or its value is not of the kind (an integer that is not
  // negative; a float or double; a bool; a string).
  std::optional<uint64_t> FindUint(std::string_view key) const;
  std::optional<double> FindFloat(std::string_view key) const;
  std::optional<bool> FindBool(std::string_view key) const;
  std::optional<std::string_view> FindString(std::string_view key) const;

  // The same, but a missing key or another kind is an error that names the key and its offset.
  StatusOr<uint64_t> GetUint(std::string_view key) const;
  StatusOr<double> GetFloat(std::string_view key) const;
  StatusOr<std::string_view> GetString(std::string_view key) const;

  // The same, `fallback` when the key is absent; another kind is still an error.
  StatusOr<uint64_t> GetUintOr(std::string_view key, uint64_t fallback) const;
  StatusOr<double> GetFloatOr(std::string_view key, double fallback) const;
  StatusOr<bool> GetBoolOr(std::string_view key, bool fallback) const;
  StatusOr<std::string_view> GetStringOr(std::string_view key, std::string_view fallback) const;

  // Arrays; an absent key gives an empty view, elements of another kind an error.
  StatusOr<GgufStrings> GetStrings(std::string_view key) const;
  StatusOr<GgufNumbers> GetNumbers(std::string_view key) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  Status IndexParts();

  uint64_t file_bytes_ = 0;
  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  uint64_t data_begin_ = 0;
  uint64_t tensor_bytes_ = 0;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<uint32_t> entries_by_key_;   // Indices into entries_, sorted by key.
  std::vector<uint32_t> tensors_by_name_;  // Indices into tensors_, sorted by name.
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_GGUF_FILE_H_
