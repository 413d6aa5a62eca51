// BpePretokenizer: cuts text into the words (with their leading space) inside which byte-level BPE
// merges. No merge crosses a cut.
//
// The rules are published as regular expressions:
//   gpt-2   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   smollm  first every \p{N} by itself, then gpt-2 on what lies between (so that there the end of
//   a
//           stretch counts as the end of the text)
// They are scanned by hand: one pass without backtracking, whatever the input, where a regular
// expression engine needs stack or match limits for a word of a megabyte. bpe_pretokenizer_test.cc
// holds the scanner against PCRE2 on the expressions above.
//
// \s is White_Space; \p{L} and \p{N} are general categories (utf8proc). A byte that is not part of
// a well-formed character counts as a character that is none of these.
//
// Thread: pure functions.
#ifndef KVASIR_TEXT_BPE_PRETOKENIZER_H_
#define KVASIR_TEXT_BPE_PRETOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvasir {

enum class PretokenizerRule : uint8_t { kGpt2, kSmollm };

// The rule that tokenizer.ggml.pre names, or nullopt.
std::optional<PretokenizerRule> FindPretokenizerRule(std::string_view name);
// "gpt-2, smollm": for messages.
std::string KnownPretokenizerRules();

// Bytes of the word that starts at `offset`, given that a word does. At least 1.
// REQUIRES: offset < text.size().
size_t NextWordLength(PretokenizerRule rule, std::string_view text, size_t offset);

}  // namespace kvasir

#endif  // KVASIR_TEXT_BPE_PRETOKENIZER_H_
