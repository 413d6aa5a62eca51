#include "model/gguf_file.h"

#include <algorithm>

#include "model/quoted_text.h"

namespace kvasir {
namespace {

// The element of `items` whose name is `name`, through the index sorted by it.
template <typename Item>
const Item* FindByName(const std::vector<Item>& items, const std::vector<uint32_t>& sorted,
                       std::string_view Item::*name_of, std::string_view name) {
  const auto at = std::lower_bound(
      sorted.begin(), sorted.end(), name,
      [&](uint32_t index, std::string_view wanted) { return items[index].*name_of < wanted; });
  if (at == sorted.end() || items[*at].*name_of != name) return nullptr;
  return &items[*at];
}

Status MissingKey(std::string_view key) {
  return InvalidArgument("metadata key {} is missing", Quoted(key));
}

Status WrongKind(const GgufEntry& entry, std::string_view wanted) {
  const bool is_array = entry.type == GgufType::kArray;
  return InvalidArgument("metadata key {}: expected {}, found {}{} (at offset {})",
                         Quoted(entry.key), wanted, is_array ? "an array of type " : "type ",
                         NameOf(is_array ? entry.element_type : entry.type), entry.offset);
}

// The value of `key` through one of GgufEntry's As functions.
template <typename T>
StatusOr<T> GetAs(const GgufFile& file, std::string_view key, std::string_view wanted,
                  std::optional<T> (GgufEntry::*as)() const) {
  const GgufEntry* entry = file.FindEntry(key);
  if (entry == nullptr) return MissingKey(key);
  const std::optional<T> value = (entry->*as)();
  if (!value.has_value()) return WrongKind(*entry, wanted);
  return *value;
}

constexpr std::string_view kUintKind = "an integer that is not negative";
constexpr std::string_view kFloatKind = "a floating-point number";
constexpr std::string_view kBoolKind = "a bool";
constexpr std::string_view kStringKind = "a string";

}  // namespace

const GgufEntry* GgufFile::FindEntry(std::string_view key) const {
  return FindByName(entries_, entries_by_key_, &GgufEntry::key, key);
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  return FindByName(tensors_, tensors_by_name_, &GgufTensor::name, name);
}

std::optional<uint64_t> GgufFile::FindUint(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  return entry == nullptr ? std::nullopt : entry->AsUint();
}

std::optional<double> GgufFile::FindFloat(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  return entry == nullptr ? std::nullopt : entry->AsFloat();
}

std::optional<bool> GgufFile::FindBool(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  return entry == nullptr ? std::nullopt : entry->AsBool();
}

std::optional<std::string_view> GgufFile::FindString(std::string_view key) const {
  const GgufEntry* entry = FindEntry(key);
  return entry == nullptr ? std::nullopt : entry->AsString();
}

StatusOr<uint64_t> GgufFile::GetUint(std::string_view key) const {
  return GetAs(*this, key, kUintKind, &GgufEntry::AsUint);
}

StatusOr<double> GgufFile::GetFloat(std::string_view key) const {
  return GetAs(*this, key, kFloatKind, &GgufEntry::AsFloat);
}

StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  return GetAs(*this, key, kStringKind, &GgufEntry::AsString);
}

StatusOr<uint64_t> GgufFile::GetUintOr(std::string_view key, uint64_t fallback) const {
  if (FindEntry(key) == nullptr) return fallback;
  return GetUint(key);
}

StatusOr<double> GgufFile::GetFloatOr(std::string_view key, double fallback) const {
  if (FindEntry(key) == nullptr) return fallback;
  return GetFloat(key);
}

StatusOr<bool> GgufFile::GetBoolOr(std::string_view key, bool fallback) const {
  if (FindEntry(key) == nullptr) return fallback;
  return GetAs(*this, key, kBoolKind, &GgufEntry::AsBool);
}

StatusOr<std::string_view> GgufFile::GetStringOr(std::string_view key,
                                                 std::string_view fallback) const {
  if (FindEntry(key) == nullptr) return fallback;
  return GetString(key);
}

StatusOr<GgufStrings> GgufFile::GetStrings(std::string_view key) const {
  if (FindEntry(key) == nullptr) return GgufStrings();
  return GetAs(*this, key, "an array of strings", &GgufEntry::AsStrings);
}

StatusOr<GgufNumbers> GgufFile::GetNumbers(std::string_view key) const {
  if (FindEntry(key) == nullptr) return GgufNumbers();
  return GetAs(*this, key, "an array of numbers", &GgufEntry::AsNumbers);
}

}  // namespace kvasir
