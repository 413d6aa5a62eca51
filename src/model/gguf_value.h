// GgufEntry and its views: one key of a GGUF file's metadata, read in place.
//
// Views into the file's bytes, valid as long as those; nothing is copied, so that a vocabulary of
// 262,144 strings costs nothing until somebody walks it. Made by GgufFile::Parse, which has checked
// that every element lies inside the file. Values are unaligned in the file: reads go through
// memcpy. Thread: immutable.
#ifndef KVASIR_MODEL_GGUF_VALUE_H_
#define KVASIR_MODEL_GGUF_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace kvasir {

// The numbers are the file's.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr uint32_t kGgufTypeCount = 13;

std::string_view NameOf(GgufType type);  // "uint32", "string", "array".

// Bytes of one value, 0 for strings and arrays, whose length varies.
size_t FixedBytes(GgufType type);

// An array of strings, walked front to back: element i lies behind the i before it, so there is no
// O(1) access. ToVector() gives that for 16 bytes an element.
class GgufStrings {
 public:
  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = std::string_view;
    using difference_type = std::ptrdiff_t;
    using pointer = const std::string_view*;
    using reference = std::string_view;

    Iterator() = default;
    explicit Iterator(const std::byte* at) : at_(at) {}
    std::string_view operator*() const;
    Iterator& operator++();
    Iterator operator++(int);
    bool operator==(const Iterator& other) const { return at_ == other.at_; }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const std::byte* at_ = nullptr;  // The element's 8-byte length, then its bytes.
  };

  GgufStrings() = default;
  GgufStrings(uint64_t count, std::span<const std::byte> bytes) : count_(count), bytes_(bytes) {}

  uint64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  Iterator begin() const { return Iterator(bytes_.data()); }
  Iterator end() const { return Iterator(bytes_.data() + bytes_.size()); }
  std::vector<std::string_view> ToVector() const;

 private:
  uint64_t count_ = 0;
  std::span<const std::byte> bytes_;
};

// An array of integers, floats or bools of any width; O(1) access.
class GgufNumbers {
 public:
  GgufNumbers() = default;
  GgufNumbers(GgufType type, std::span<const std::byte> bytes) : type_(type), bytes_(bytes) {}

  GgufType type() const { return type_; }
  uint64_t size() const { return bytes_.size() / FixedBytes(type_); }
  bool empty() const { return bytes_.empty(); }
  bool is_integer() const;  // Neither float, double nor bool.

  // Element i, converted. Int: floats truncate towards zero, what does not fit saturates.
  // REQUIRES: i < size().
  int64_t Int(uint64_t i) const;
  double Float(uint64_t i) const;

 private:
  GgufType type_ = GgufType::kUint8;
  std::span<const std::byte> bytes_;
};

struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::kUint8;
  GgufType element_type = GgufType::kUint8;  // For arrays only.
  uint64_t count = 0;                        // Elements; 1 for what is no array.
  uint64_t offset = 0;                       // Of the value in the file, for messages.
  std::span<const std::byte> bytes;          // The value, without a string's or array's header.

  // nullopt when the value is of another kind.
  std::optional<uint64_t> AsUint() const;  // Any integer type; nullopt when negative.
  std::optional<double> AsFloat() const;   // float32 or float64.
  std::optional<bool> AsBool() const;
  std::optional<std::string_view> AsString() const;
  std::optional<GgufStrings> AsStrings() const;
  std::optional<GgufNumbers> AsNumbers() const;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_GGUF_VALUE_H_
