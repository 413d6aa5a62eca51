// Letters: a tokenizer of the letters a to z and an end token, for tests whose prompts people read.
//
// Token i < 26 is the letter 'a' + i; token 26 is the control token <|im_end|>, which ends
// generation. Thread: as Tokenizer.
#ifndef KVASIR_ENGINE_LETTERS_FOR_TEST_H_
#define KVASIR_ENGINE_LETTERS_FOR_TEST_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "text/tokenizer.h"

namespace kvasir {

inline constexpr uint32_t kLettersVocab = 27;

inline std::unique_ptr<Tokenizer> Letters() {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  VocabularySource source;
  source.model = "gpt2";
  source.pre = "gpt-2";
  for (size_t i = 0; i < kLetters.size(); ++i) source.tokens.push_back(kLetters.substr(i, 1));
  source.tokens.push_back("<|im_end|>");
  source.types.assign(kLettersVocab, 1);
  source.types.back() = 3;
  source.eos = 26;
  auto tokenizer = Tokenizer::Create(source);
  KV_CHECK(tokenizer.ok());
  return std::move(tokenizer).value();
}

}  // namespace kvasir

#endif  // KVASIR_ENGINE_LETTERS_FOR_TEST_H_
