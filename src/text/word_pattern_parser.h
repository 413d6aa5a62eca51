// WordPatternParser: reads the expression of a WordPattern.
//
// Internal to word_pattern*.cc. One use per expression.
#ifndef KVASIR_TEXT_WORD_PATTERN_PARSER_H_
#define KVASIR_TEXT_WORD_PATTERN_PARSER_H_

#include <optional>
#include <string_view>
#include <vector>

#include "text/word_pattern.h"

namespace kvasir {

class WordPatternParser {
 public:
  WordPatternParser(std::string_view expression, WordPattern* out)
      : expression_(expression), out_(*out) {}

  Status Parse();

 private:
  using Branch = WordPattern::Branch;
  using CharSet = WordPattern::CharSet;

  // Alternatives up to `)` (inside a group) or the end.
  Status ParseAlternatives(bool in_group, bool ignore_case, std::vector<Branch>* branches);
  Status ParseSequence(bool ignore_case, std::vector<Branch>* branches);
  // A group behind what `branches` hold: each is continued by each alternative.
  Status ParseGroup(std::vector<Branch>* branches);
  Status ParseEnding(std::vector<Branch>* branches);
  Status ParseSet(bool ignore_case, CharSet* set);
  Status ParseClass(CharSet* set);
  Status ParseEscape(CharSet* set, std::optional<uint32_t>* character);
  Status ParseCategory(CharSet* set);
  Status ParseQuantifier(uint16_t* min, uint16_t* max);
  Status ParseCount(uint16_t* count);

  Status Unsupported(std::string_view what) const;
  bool AtEnd() const { return offset_ >= expression_.size(); }
  bool Accept(std::string_view token);
  uint32_t TakeCharacter();
  uint16_t Intern(CharSet set);

  std::string_view expression_;
  size_t offset_ = 0;
  WordPattern& out_;
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_WORD_PATTERN_PARSER_H_
