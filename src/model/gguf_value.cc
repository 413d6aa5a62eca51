#include "model/gguf_value.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace kvasir {
namespace {

struct TypeTraits {
  std::string_view name;
  size_t bytes;
};
constexpr std::array<TypeTraits, kGgufTypeCount> kTypes = {{{"uint8", 1},
                                                            {"int8", 1},
                                                            {"uint16", 2},
                                                            {"int16", 2},
                                                            {"uint32", 4},
                                                            {"int32", 4},
                                                            {"float32", 4},
                                                            {"bool", 1},
                                                            {"string", 0},
                                                            {"array", 0},
                                                            {"uint64", 8},
                                                            {"int64", 8},
                                                            {"float64", 8}}};

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
int64_t Saturated(T value) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  if constexpr (std::is_floating_point_v<T>) {
    if (!(value > -9.2e18)) return std::numeric_limits<int64_t>::min();  // NaN, too.
    return value < T{9.2e18} ? static_cast<int64_t>(value) : kMax;
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    return value > static_cast<uint64_t>(kMax) ? kMax : static_cast<int64_t>(value);
  } else {
    return value;
  }
}

// Calls visit(value) with the number at `at` in its own type. REQUIRES: FixedBytes(type) > 0.
template <typename Visit>
auto VisitNumber(GgufType type, const std::byte* at, Visit&& visit) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kBool:
      return visit(Load<uint8_t>(at));
    case GgufType::kInt8:
      return visit(Load<int8_t>(at));
    case GgufType::kUint16:
      return visit(Load<uint16_t>(at));
    case GgufType::kInt16:
      return visit(Load<int16_t>(at));
    case GgufType::kUint32:
      return visit(Load<uint32_t>(at));
    case GgufType::kInt32:
      return visit(Load<int32_t>(at));
    case GgufType::kFloat32:
      return visit(Load<float>(at));
    case GgufType::kUint64:
      return visit(Load<uint64_t>(at));
    case GgufType::kInt64:
      return visit(Load<int64_t>(at));
    default:
      return visit(Load<double>(at));
  }
}

bool IsInteger(GgufType type) {
  return FixedBytes(type) > 0 && type != GgufType::kBool && type != GgufType::kFloat32 &&
         type != GgufType::kFloat64;
}

}  // namespace

std::string_view NameOf(GgufType type) { return kTypes[static_cast<size_t>(type)].name; }

size_t FixedBytes(GgufType type) { return kTypes[static_cast<size_t>(type)].bytes; }

std::string_view GgufStrings::Iterator::operator*() const {
  return {reinterpret_cast<const char*>(at_ + sizeof(uint64_t)),
          static_cast<size_t>(Load<uint64_t>(at_))};
}

GgufStrings::Iterator& GgufStrings::Iterator::operator++() {
  at_ += sizeof(uint64_t) + Load<uint64_t>(at_);
  return *this;
}

GgufStrings::Iterator GgufStrings::Iterator::operator++(int) {
  const Iterator old = *this;
  ++*this;
  return old;
}

std::vector<std::string_view> GgufStrings::ToVector() const {
  std::vector<std::string_view> out;
  out.reserve(count_);
  for (const std::string_view text : *this) out.push_back(text);
  return out;
}

bool GgufNumbers::is_integer() const { return IsInteger(type_); }

int64_t GgufNumbers::Int(uint64_t i) const {
  KV_CHECK_LT(i, size());
  return VisitNumber(type_, bytes_.data() + i * FixedBytes(type_),
                     [](auto value) { return Saturated(value); });
}

double GgufNumbers::Float(uint64_t i) const {
  KV_CHECK_LT(i, size());
  return VisitNumber(type_, bytes_.data() + i * FixedBytes(type_),
                     [](auto value) { return static_cast<double>(value); });
}

std::optional<uint64_t> GgufEntry::AsUint() const {
  if (!IsInteger(type)) return std::nullopt;
  return VisitNumber(type, bytes.data(), [](auto value) -> std::optional<uint64_t> {
    if (value < 0) return std::nullopt;
    return static_cast<uint64_t>(value);
  });
}

std::optional<double> GgufEntry::AsFloat() const {
  if (type == GgufType::kFloat32) return Load<float>(bytes.data());
  if (type == GgufType::kFloat64) return Load<double>(bytes.data());
  return std::nullopt;
}

std::optional<bool> GgufEntry::AsBool() const {
  if (type != GgufType::kBool) return std::nullopt;
  return bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufEntry::AsString() const {
  if (type != GgufType::kString) return std::nullopt;
  return TextOf(bytes);
}

std::optional<GgufStrings> GgufEntry::AsStrings() const {
  if (type != GgufType::kArray || element_type != GgufType::kString) return std::nullopt;
  return GgufStrings(count, bytes);
}

std::optional<GgufNumbers> GgufEntry::AsNumbers() const {
  if (type != GgufType::kArray || FixedBytes(element_type) == 0) return std::nullopt;
  return GgufNumbers(element_type, bytes);
}

}  // namespace kvasir
