// SmallVocabulary: two hand-made vocabularies, for tests and the fuzz target: small enough to
// reason about, with every kind of token and merges that overlap and compete.
#ifndef KVASIR_TEXT_SMALL_VOCABULARY_H_
#define KVASIR_TEXT_SMALL_VOCABULARY_H_

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/bpe_bytes.h"
#include "text/tokenizer.h"

namespace kvasir {

class SmallVocabulary {
 public:
  SmallVocabulary() = default;
  SmallVocabulary(SmallVocabulary&&) = default;  // Moving keeps the strings where they are.

  // Appends a token and returns its id.
  int32_t Add(std::string text, TokenKind kind, float score = 0.0f) {
    strings_.push_back(std::move(text));
    source_.tokens.push_back(strings_.back());
    source_.types.push_back(static_cast<int32_t>(kind));
    source_.scores.push_back(score);
    return static_cast<int32_t>(source_.tokens.size()) - 1;
  }
  // Appends "left right" to the merges and its result to the tokens.
  void AddMerge(const std::string& left, const std::string& right) {
    strings_.push_back(left + " " + right);
    source_.merges.push_back(strings_.back());
    Add(left + right, TokenKind::kNormal);
  }
  VocabularySource& source() { return source_; }
  const VocabularySource& source() const { return source_; }

  std::unique_ptr<Tokenizer> Create() const {
    StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(source_);
    KV_CHECK(tokenizer.ok());
    return std::move(tokenizer).value();
  }

 private:
  std::deque<std::string> strings_;  // A deque: growing it moves no string.
  VocabularySource source_;
};

// All 256 bytes, 40 merges or so, three control tokens, two user-defined ones.
inline SmallVocabulary SmallBpeVocabulary(std::string pre = "smollm") {
  SmallVocabulary v;
  v.source().model = "gpt2";
  v.source().pre = std::move(pre);
  v.source().eos = v.Add("<|endoftext|>", TokenKind::kControl);
  v.source().bos = v.Add("<|im_start|>", TokenKind::kControl);
  v.source().eot = v.Add("<|im_end|>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    v.Add(BpeTextOfByte(static_cast<uint8_t>(byte)), TokenKind::kNormal);
  }
  const std::string space = BpeTextOfByte(' ');
  const std::string line = BpeTextOfByte('\n');
  for (const auto& [left, right] :
       std::vector<std::pair<std::string, std::string>>{{"l", "l"},
                                                        {"h", "e"},
                                                        {"he", "ll"},
                                                        {"hell", "o"},
                                                        {space, "w"},
                                                        {"o", "r"},
                                                        {space + "w", "or"},
                                                        {"l", "d"},
                                                        {"or", "ld"},
                                                        {space + "wor", "ld"},
                                                        {"a", "a"},
                                                        {"aa", "a"},
                                                        {"aa", "aa"},
                                                        {"aaa", "aaa"},
                                                        {"a", "b"},
                                                        {"b", "a"},
                                                        {"ab", "ab"},
                                                        {"b", "aa"},
                                                        {"aa", "b"},
                                                        {space, space},
                                                        {space + space, space + space},
                                                        {line, line},
                                                        {"<", "|"},
                                                        {"i", "m"},
                                                        {"im", "_"},
                                                        {"<|", "im_"},
                                                        {"|", ">"},
                                                        {"e", "n"},
                                                        {"en", "d"},
                                                        {"im_", "end"},
                                                        {"!", "!"},
                                                        {"!!", "!"},
                                                        {space, "a"},
                                                        {space + "a", "b"},
                                                        {"'", "s"}}) {
    v.AddMerge(left, right);
  }
  // A character of four bytes that merges in two steps, and another that shares its first half.
  const std::string f0 = BpeTextOfByte(0xF0), x9f = BpeTextOfByte(0x9F), x8e = BpeTextOfByte(0x8E),
                    x89 = BpeTextOfByte(0x89);
  v.AddMerge(f0, x9f);
  v.AddMerge(x8e, x89);
  v.AddMerge(f0 + x9f, x8e + x89);
  v.Add("<tool>", TokenKind::kUserDefined);
  v.Add("  \t", TokenKind::kUserDefined);
  v.source().scores.clear();
  return v;
}

// Byte tokens, letters, words with competing scores, controls and user-defined tokens.
inline SmallVocabulary SmallSpmVocabulary(bool add_space_prefix = false) {
  SmallVocabulary v;
  v.source().model = "llama";
  v.source().unk = v.Add("<unk>", TokenKind::kUnknown);
  v.source().bos = v.Add("<s>", TokenKind::kControl);
  v.source().eos = v.Add("</s>", TokenKind::kControl);
  v.Add("<start_of_turn>", TokenKind::kControl);
  v.Add("<end_of_turn>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    v.Add(fmt::format("<0x{:02X}>", byte), TokenKind::kByte);
  }
  const std::string space = "\xE2\x96\x81";
  float score = 0.0f;
  for (const std::string& word : std::vector<std::string>{"he",
                                                          "ll",
                                                          "hell",
                                                          "hello",
                                                          space + "w",
                                                          "or",
                                                          space + "wor",
                                                          "ld",
                                                          space + "world",
                                                          "aa",
                                                          "aaaa",
                                                          "aaa",
                                                          "ab",
                                                          "ba",
                                                          "aab",
                                                          "abab",
                                                          space + "a",
                                                          space + "ab",
                                                          "in",
                                                          "ing",
                                                          "\xC3\xA9t",
                                                          "\xC3\xA9t\xC3\xA9",
                                                          ">" + space,
                                                          ">" + space + "<",
                                                          "<s",
                                                          "s>",
                                                          "end",
                                                          "_of",
                                                          "\xE6\x97\xA5\xE6\x9C\xAC"}) {
    v.Add(word, TokenKind::kNormal, score -= 1.0f);
  }
  v.Add(space, TokenKind::kNormal, score -= 1.0f);
  for (char c = 'a'; c <= 'z'; ++c) v.Add(std::string(1, c), TokenKind::kNormal, score -= 1.0f);
  for (const char c : std::string_view("<>_/,.!")) {
    v.Add(std::string(1, c), TokenKind::kNormal, score -= 1.0f);
  }
  for (const char* c : {"\xC3\xA9", "\xE6\x97\xA5", "\xE6\x9C\xAC"}) {
    v.Add(c, TokenKind::kNormal, score -= 1.0f);
  }
  for (const char* text : {"\n", "\n\n", "\n\n\n", "  ", "   ", "<tool>"}) {
    v.Add(text, TokenKind::kUserDefined, -1000.0f);
  }
  v.source().add_bos = true;
  v.source().add_space_prefix = add_space_prefix;
  return v;
}

}  // namespace kvasir

#endif  // KVASIR_TEXT_SMALL_VOCABULARY_H_
