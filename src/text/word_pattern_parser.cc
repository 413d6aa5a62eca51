#include "text/word_pattern_parser.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/utf8.h"

namespace kvasir {
namespace {

constexpr size_t kMaxBranches = 32;  // The bits of WordPattern::firsts_.

constexpr std::string_view kCategoryNames[] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

uint32_t CategoryOf(uint32_t c) {
  return static_cast<uint32_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
}

bool IsAsciiSpace(uint32_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

Status WordPatternParser::Unsupported(std::string_view what) const {
  return InvalidArgument("pre-tokenizer expression, byte {}: {}", offset_, what);
}

bool WordPatternParser::Accept(std::string_view token) {
  if (expression_.substr(offset_, token.size()) != token) return false;
  offset_ += token.size();
  return true;
}

uint32_t WordPatternParser::TakeCharacter() {
  const Utf8Char character = DecodeUtf8(expression_, offset_);
  offset_ += character.length;
  return character.code_point;
}

uint16_t WordPatternParser::Intern(CharSet set) {
  // Sorted and apart, which is what CharSet::Has searches.
  std::sort(set.ranges.begin(), set.ranges.end());
  size_t kept = 0;
  for (const auto& range : set.ranges) {
    if (kept > 0 && range.first <= set.ranges[kept - 1].second) {
      set.ranges[kept - 1].second = std::max(set.ranges[kept - 1].second, range.second);
    } else {
      set.ranges[kept++] = range;
    }
  }
  set.ranges.resize(kept);
  for (uint32_t c = 0; c < 128; ++c) {
    bool inside = (set.categories >> CategoryOf(c) & 1) || (set.white_space && IsAsciiSpace(c));
    for (const auto& [first, last] : set.ranges) inside = inside || (first <= c && c <= last);
    if (inside != set.negated) set.ascii[c / 64] |= uint64_t{1} << (c % 64);
  }
  const auto found = std::find(out_.sets_.begin(), out_.sets_.end(), set);
  if (found != out_.sets_.end()) return static_cast<uint16_t>(found - out_.sets_.begin());
  out_.sets_.push_back(std::move(set));
  return static_cast<uint16_t>(out_.sets_.size() - 1);
}

Status WordPatternParser::Parse() {
  if (FindInvalidUtf8(expression_)) return Unsupported("the expression is not UTF-8");
  KV_RETURN_IF_ERROR(ParseAlternatives(false, false, &out_.branches_));
  if (!AtEnd()) return Unsupported("a ')' without '('");
  for (const Branch& branch : out_.branches_) {
    const bool empty = std::all_of(branch.items.begin(), branch.items.end(),
                                   [](const WordPattern::Item& item) { return item.min == 0; });
    if (empty) return Unsupported("an alternative may match nothing");
  }
  return OkStatus();
}

Status WordPatternParser::ParseAlternatives(bool in_group, bool ignore_case,
                                            std::vector<Branch>* branches) {
  do {
    std::vector<Branch> sequence(1);
    KV_RETURN_IF_ERROR(ParseSequence(ignore_case, &sequence));
    branches->insert(branches->end(), sequence.begin(), sequence.end());
    if (branches->size() > kMaxBranches) return Unsupported("more than 32 alternatives");
  } while (Accept("|"));
  if (in_group && !Accept(")")) return Unsupported("expected ')'");
  return OkStatus();
}

Status WordPatternParser::ParseSequence(bool ignore_case, std::vector<Branch>* branches) {
  while (!AtEnd() && expression_[offset_] != '|' && expression_[offset_] != ')') {
    if (branches->front().ending != WordPattern::Ending::kAny || !branches->front().tails.empty()) {
      return Unsupported("something behind $, a look-ahead or (...)?");
    }
    if (expression_[offset_] == '$' || expression_.substr(offset_, 3) == "(?!") {
      KV_RETURN_IF_ERROR(ParseEnding(branches));
      continue;
    }
    if (expression_[offset_] == '(') {
      KV_RETURN_IF_ERROR(ParseGroup(branches));
      continue;
    }
    CharSet set;
    KV_RETURN_IF_ERROR(ParseSet(ignore_case, &set));
    WordPattern::Item item{Intern(std::move(set)), 1, 1};
    KV_RETURN_IF_ERROR(ParseQuantifier(&item.min, &item.max));
    for (Branch& branch : *branches) branch.items.push_back(item);
  }
  return OkStatus();
}

Status WordPatternParser::ParseEnding(std::vector<Branch>* branches) {
  WordPattern::Ending ending = WordPattern::Ending::kTextEnd;
  if (Accept("(?!\\S)")) {
    ending = WordPattern::Ending::kNoWordFollows;
  } else if (!Accept("$")) {
    return Unsupported("a look-ahead other than (?!\\S)");
  }
  for (Branch& branch : *branches) branch.ending = ending;
  return OkStatus();
}

Status WordPatternParser::ParseGroup(std::vector<Branch>* branches) {
  const bool ignore_case = Accept("(?i:");
  if (!ignore_case && !Accept("(?:")) return Unsupported("a group other than (?:...) or (?i:...)");
  std::vector<Branch> inside;
  KV_RETURN_IF_ERROR(ParseAlternatives(true, ignore_case, &inside));
  if (Accept("?")) {
    // Left out rather than repeated: a match never has to give back what stands before it.
    for (Branch& head : *branches) {
      for (const Branch& tail : inside) {
        const bool is_fixed = std::all_of(
            tail.items.begin(), tail.items.end(),
            [](const WordPattern::Item& item) { return item.min == 1 && item.max == 1; });
        if (!is_fixed) return Unsupported("repetition inside (...)?");
        head.tails.push_back(tail.items);
      }
    }
    return OkStatus();
  }
  std::vector<Branch> product;
  for (const Branch& head : *branches) {
    for (const Branch& tail : inside) {
      if (tail.ending != WordPattern::Ending::kAny) return Unsupported("$ inside a group");
      product.push_back(head);
      product.back().items.insert(product.back().items.end(), tail.items.begin(), tail.items.end());
    }
  }
  if (product.size() > kMaxBranches) return Unsupported("more than 32 alternatives");
  *branches = std::move(product);
  return OkStatus();
}

Status WordPatternParser::ParseSet(bool ignore_case, CharSet* set) {
  if (Accept("[")) return ParseClass(set);
  std::optional<uint32_t> character;
  if (expression_[offset_] == '\\') {
    KV_RETURN_IF_ERROR(ParseEscape(set, &character));
  } else if (std::string_view("?*+{^.").find(expression_[offset_]) != std::string_view::npos) {
    return Unsupported("nothing that could repeat, or an unsupported operator");
  } else {
    character = TakeCharacter();
  }
  if (!character) return OkStatus();
  set->ranges.emplace_back(*character, *character);
  if (!ignore_case) return OkStatus();
  const auto c = static_cast<utf8proc_int32_t>(*character);
  for (const utf8proc_int32_t other : {utf8proc_tolower(c), utf8proc_toupper(c)}) {
    if (other == c) continue;
    set->ranges.emplace_back(static_cast<uint32_t>(other), static_cast<uint32_t>(other));
  }
  // The one other character that folds to an ASCII letter of the expressions.
  if (*character == 's' || *character == 'S') set->ranges.emplace_back(0x17F, 0x17F);
  return OkStatus();
}

Status WordPatternParser::ParseClass(CharSet* set) {
  set->negated = Accept("^");
  while (!Accept("]")) {
    if (AtEnd()) return Unsupported("a class without ']'");
    std::optional<uint32_t> first;
    if (expression_[offset_] == '\\') {
      KV_RETURN_IF_ERROR(ParseEscape(set, &first));
      if (!first) continue;
    } else {
      first = TakeCharacter();
    }
    uint32_t last = *first;
    if (expression_.substr(offset_, 1) == "-" && expression_.substr(offset_ + 1, 1) != "]") {
      ++offset_;
      std::optional<uint32_t> end;
      if (!AtEnd() && expression_[offset_] == '\\') {
        KV_RETURN_IF_ERROR(ParseEscape(set, &end));
      } else if (!AtEnd()) {
        end = TakeCharacter();
      }
      if (!end || *end < *first) return Unsupported("a range that ends before it begins");
      last = *end;
    }
    set->ranges.emplace_back(*first, last);
  }
  return OkStatus();
}

Status WordPatternParser::ParseEscape(CharSet* set, std::optional<uint32_t>* character) {
  ++offset_;
  if (AtEnd()) return Unsupported("a '\\' at the end");
  const char c = expression_[offset_++];
  switch (c) {
    case 'r':
      *character = '\r';
      return OkStatus();
    case 'n':
      *character = '\n';
      return OkStatus();
    case 't':
      *character = '\t';
      return OkStatus();
    case 's':
      set->white_space = true;
      return OkStatus();
    case 'p':
      return ParseCategory(set);
    default:
      break;
  }
  const bool is_punctuation =
      c > ' ' && c < 0x7F && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z');
  if (!is_punctuation) return Unsupported("an unsupported escape");
  *character = static_cast<uint32_t>(c);
  return OkStatus();
}

Status WordPatternParser::ParseCategory(CharSet* set) {
  const size_t end = expression_.find('}', offset_);
  if (!Accept("{") || end == std::string_view::npos) return Unsupported("\\p without {..}");
  const std::string_view name = expression_.substr(offset_, end - offset_);
  uint32_t mask = 0;
  for (size_t i = 0; i < std::size(kCategoryNames); ++i) {
    const bool is_part = name.size() == 1 && kCategoryNames[i][0] == name[0];
    if (kCategoryNames[i] == name || is_part) mask |= uint32_t{1} << i;
  }
  if (mask == 0) return Unsupported("an unknown category");
  set->categories |= mask;
  offset_ = end + 1;
  return OkStatus();
}

Status WordPatternParser::ParseQuantifier(uint16_t* min, uint16_t* max) {
  if (Accept("?")) {
    *min = 0;
  } else if (Accept("*")) {
    *min = 0;
    *max = WordPattern::kNoLimit;
  } else if (Accept("+")) {
    *max = WordPattern::kNoLimit;
  } else if (Accept("{")) {
    KV_RETURN_IF_ERROR(ParseCount(min));
    *max = *min;
    if (Accept(",")) KV_RETURN_IF_ERROR(ParseCount(max));
    if (!Accept("}")) return Unsupported("expected '}'");
    if (*max < *min || *max == 0) return Unsupported("a repetition that cannot be");
  }
  if (!AtEnd() && std::string_view("?*+").find(expression_[offset_]) != std::string_view::npos) {
    return Unsupported("lazy and possessive repetition");
  }
  return OkStatus();
}

Status WordPatternParser::ParseCount(uint16_t* count) {
  uint32_t value = 0;
  const size_t begin = offset_;
  while (!AtEnd() && expression_[offset_] >= '0' && expression_[offset_] <= '9') {
    value = 10 * value + static_cast<uint32_t>(expression_[offset_++] - '0');
    if (value > 1000) return Unsupported("more than 1000 repetitions");
  }
  if (offset_ == begin) return Unsupported("expected a number");
  *count = static_cast<uint16_t>(value);
  return OkStatus();
}

}  // namespace kvasir
