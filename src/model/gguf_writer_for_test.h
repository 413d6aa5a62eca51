// GgufWriter: builds small GGUF files in memory, well-formed or not, for tests.
//
// It writes what it is told, without checks. Tests that want a broken file either ask for odd
// values or patch the bytes at an offset from Find().
#ifndef KVASIR_MODEL_GGUF_WRITER_FOR_TEST_H_
#define KVASIR_MODEL_GGUF_WRITER_FOR_TEST_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_value.h"

namespace kvasir {

class GgufWriter {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;
  int64_t extra_entries = 0;  // Added to the counts in the header, not to what follows.
  int64_t extra_tensors = 0;

  void Uint(std::string_view key, uint32_t value) { Scalar(key, GgufType::kUint32, value); }
  void Float(std::string_view key, float value) { Scalar(key, GgufType::kFloat32, value); }
  void Bool(std::string_view key, bool value) {
    Scalar(key, GgufType::kBool, static_cast<uint8_t>(value));
  }
  template <typename T>
  void Scalar(std::string_view key, GgufType type, T value) {
    Key(key, type);
    Put(entries_, value);
  }
  void String(std::string_view key, std::string_view value) {
    Key(key, GgufType::kString);
    PutString(entries_, value);
  }
  void Strings(std::string_view key, const std::vector<std::string>& values) {
    Key(key, GgufType::kArray);
    Put(entries_, static_cast<uint32_t>(GgufType::kString));
    Put(entries_, static_cast<uint64_t>(values.size()));
    for (const std::string& value : values) PutString(entries_, value);
  }
  template <typename T>
  void Numbers(std::string_view key, GgufType type, const std::vector<T>& values) {
    Key(key, GgufType::kArray);
    Put(entries_, static_cast<uint32_t>(type));
    Put(entries_, static_cast<uint64_t>(values.size()));
    for (const T value : values) Put(entries_, value);
  }
  void Raw(std::string_view key, GgufType type, std::string_view bytes) {
    Key(key, type);
    entries_ += bytes;
  }

  // dims[0] is the contiguous one. `type` is the file's number.
  void Tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
              std::string_view data) {
    while (data_.size() % alignment != 0) data_ += '\0';
    TensorAt(name, dims, type, data_.size());
    data_ += data;
  }
  void TensorAt(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                uint64_t offset) {
    PutString(tensors_, name);
    Put(tensors_, static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) Put(tensors_, dim);
    Put(tensors_, type);
    Put(tensors_, offset);
    ++tensor_count_;
  }

  std::string Finish() const {
    std::string out = "GGUF";
    Put(out, version);
    Put(out, static_cast<uint64_t>(tensor_count_ + extra_tensors));
    Put(out, static_cast<uint64_t>(entry_count_ + extra_entries));
    out += entries_;
    out += tensors_;
    while (out.size() % alignment != 0) out += '\0';
    return out + data_;
  }

 private:
  template <typename T>
  static void Put(std::string& to, T value) {
    char bytes[sizeof(T)];
    std::memcpy(bytes, &value, sizeof(T));
    to.append(bytes, sizeof(T));
  }
  static void PutString(std::string& to, std::string_view text) {
    Put(to, static_cast<uint64_t>(text.size()));
    to += text;
  }
  void Key(std::string_view key, GgufType type) {
    PutString(entries_, key);
    Put(entries_, static_cast<uint32_t>(type));
    ++entry_count_;
  }

  std::string entries_;
  std::string tensors_;
  std::string data_;
  int64_t entry_count_ = 0;
  int64_t tensor_count_ = 0;
};

inline std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace kvasir

#endif  // KVASIR_MODEL_GGUF_WRITER_FOR_TEST_H_
