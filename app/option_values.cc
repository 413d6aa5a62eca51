#include "option_values.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "kernels/isa.h"

namespace kvasir {
namespace {

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

template <typename Value>
std::string Problem(const StatusOr<Value>& parsed) {
  return parsed.ok() ? std::string() : std::string(MessageOf(parsed.status()));
}

template <typename Number>
std::optional<Number> ParseNumber(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

StatusOr<uint64_t> ParseByteSize(std::string_view text) {
  const std::string_view trimmed = Trim(text);
  const size_t digits = std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  const std::optional<double> number = ParseNumber<double>(trimmed.substr(0, digits));
  std::string_view unit = Trim(trimmed.substr(digits));
  int power = 0;
  constexpr std::string_view kUnits = "KMGT";
  if (!unit.empty()) {
    const size_t which = kUnits.find(static_cast<char>(unit[0] & ~0x20));
    if (which != std::string_view::npos) {
      power = static_cast<int>(which) + 1;
      unit.remove_prefix(1);
    }
  }
  const bool unit_known = unit.empty() || unit == "B" || (power > 0 && unit == "iB");
  if (!number.has_value() || !unit_known) {
    return InvalidArgument("'{}' is not a size; write a number and K, M, G or T", text);
  }
  const double bytes = *number * std::pow(1024.0, power);
  if (!(bytes >= 1.0) || bytes > 0x1p60) return InvalidArgument("size {} is out of range", text);
  return static_cast<uint64_t>(bytes);
}

std::string ByteSizeProblem(const std::string& text) { return Problem(ParseByteSize(text)); }

StatusOr<std::vector<int64_t>> ParseIntegers(std::string_view text) {
  std::vector<int64_t> numbers;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view item = Trim(text.substr(begin, comma - begin));
    const std::optional<int64_t> number = ParseNumber<int64_t>(item);
    if (!number.has_value()) {
      return InvalidArgument("item {} of the list is '{}', not a whole number", numbers.size() + 1,
                             item);
    }
    numbers.push_back(*number);
    begin = comma + 1;
  }
  return numbers;
}

StatusOr<std::vector<TokenId>> ParseTokenIds(std::string_view text) {
  KV_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseIntegers(text));
  std::vector<TokenId> ids;
  ids.reserve(numbers.size());
  for (const int64_t number : numbers) {
    if (number < 0 || number > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("{} at position {} is no token id", number, ids.size());
    }
    ids.push_back(TokenId{static_cast<int32_t>(number)});
  }
  return ids;
}

std::string TokenIdsProblem(const std::string& text) { return Problem(ParseTokenIds(text)); }

StatusOr<std::vector<uint32_t>> ParseCounts(std::string_view text) {
  KV_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers, ParseIntegers(text));
  std::vector<uint32_t> counts;
  counts.reserve(numbers.size());
  for (const int64_t number : numbers) {
    if (number < 1 || number > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("{} is out of range; must be at least 1", number);
    }
    counts.push_back(static_cast<uint32_t>(number));
  }
  return counts;
}

std::string CountsProblem(const std::string& text) { return Problem(ParseCounts(text)); }

StatusOr<std::pair<TokenId, float>> ParseLogitBias(std::string_view text) {
  const size_t colon = text.find(':');
  const std::optional<int32_t> id = ParseNumber<int32_t>(Trim(text.substr(0, colon)));
  std::optional<float> bias;
  if (colon != std::string_view::npos) bias = ParseNumber<float>(Trim(text.substr(colon + 1)));
  if (!id.has_value() || *id < 0 || !bias.has_value()) {
    return InvalidArgument("'{}' is not TOKEN:BIAS, for instance 42:-5 or 42:-inf", text);
  }
  return std::pair{TokenId{*id}, *bias};
}

std::string LogitBiasProblem(const std::string& text) { return Problem(ParseLogitBias(text)); }

std::string IsaProblem(const std::string& text) {
  const std::optional<Isa> isa = IsaFromName(text);
  if (!isa.has_value()) return "'" + text + "' is unknown; use avx512, avx2 or scalar";
  for (const Isa supported : SupportedIsas()) {
    if (supported == *isa) return {};
  }
  return "'" + text + "' is not supported by this CPU";
}

std::vector<std::string_view> SplitList(std::string_view text) {
  std::vector<std::string_view> items;
  while (true) {
    const size_t comma = text.find(',');
    items.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

Status CheckTokenIds(const std::vector<TokenId>& ids, uint32_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (Index(ids[i]) < 0 || static_cast<uint32_t>(Index(ids[i])) >= vocab_size) {
      return InvalidArgument("token id {} at position {} is outside the vocabulary (0 to {})",
                             Index(ids[i]), i, vocab_size - 1);
    }
  }
  return OkStatus();
}

}  // namespace kvasir
