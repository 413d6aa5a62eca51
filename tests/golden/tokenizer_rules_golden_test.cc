// Every pre-tokenizer and the space rules of SentencePiece against the published libraries: small
// vocabularies, many texts, exactly the ids that `tokenizers` and `sentencepiece` give. Written by
// tools/make_tokenizer_golden.py.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/rng.h"
#include "text/bpe_bytes.h"
#include "text/random_text.h"
#include "text/tokenizer.h"

namespace kvasir {
namespace {

using Json = nlohmann::json;

const Json& Golden() {
  static const Json* const kGolden = [] {
    std::ifstream stream(KVASIR_GOLDEN_DIR "/tokenizer-rules.json");
    return new Json(Json::parse(stream));
  }();
  return *kGolden;
}

// Owns the strings that a VocabularySource only looks at.
struct OwnedSource {
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  VocabularySource source;

  StatusOr<std::unique_ptr<Tokenizer>> Create() {
    source.tokens.assign(tokens.begin(), tokens.end());
    source.merges.assign(merges.begin(), merges.end());
    return Tokenizer::Create(source);
  }
};

OwnedSource ByteLevelSource(const Json& rule, const std::string& pre) {
  OwnedSource out;
  out.source.model = "gpt2";
  out.source.pre = pre;
  for (int byte = 0; byte < 256; ++byte) {
    out.tokens.push_back(BpeTextOfByte(static_cast<uint8_t>(byte)));
  }
  out.merges = rule["merges"].get<std::vector<std::string>>();
  std::set<std::string> seen(out.tokens.begin(), out.tokens.end());
  for (const std::string& merge : out.merges) {
    std::string token = merge;
    token.erase(token.find(' '), 1);
    if (seen.insert(token).second) out.tokens.push_back(token);
  }
  for (const std::string token : rule["extra"]) out.tokens.push_back(token);
  return out;
}

OwnedSource SentencePieceSource(const Json& rule) {
  OwnedSource out;
  out.source.model = "llama";
  out.tokens = rule["pieces"].get<std::vector<std::string>>();
  out.source.scores = rule["scores"].get<std::vector<float>>();
  for (const char kind : rule["kinds"].get<std::string>()) out.source.types.push_back(kind - '0');
  out.source.unk = 0;
  out.source.add_bos = false;
  out.source.add_space_prefix = rule["add_space_prefix"].get<bool>();
  out.source.remove_extra_whitespaces = rule["remove_extra_whitespaces"].get<bool>();
  return out;
}

struct Count {
  size_t equal = 0;
  size_t all = 0;
};

// Tokens in front of the first difference count as equal.
Count Compare(const Tokenizer& tokenizer, const Json& texts, const Json& ids,
              const std::string& name) {
  Count count;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string text = texts[i];
    const auto expected = ids[i].get<std::vector<int32_t>>();
    std::vector<int32_t> got;
    for (const TokenId id : tokenizer.Encode(text, {.add_bos = false})) got.push_back(Index(id));
    EXPECT_EQ(got, expected) << name << ": " << text;
    count.all += expected.size();
    for (size_t k = 0; k < std::min(got.size(), expected.size()) && got[k] == expected[k]; ++k) {
      ++count.equal;
    }
  }
  return count;
}

TEST(TokenizerRules, ByteLevelIdsEqualTheTokenizersLibrary) {
  Count total;
  for (const Json& rule : Golden()["byte_level"]) {
    std::vector<std::string> names = rule["also"].get<std::vector<std::string>>();
    names.push_back(rule["pre"]);
    for (const std::string& name : names) {
      const auto tokenizer = ByteLevelSource(rule, name).Create();
      ASSERT_TRUE(tokenizer.ok()) << name << ": " << MessageOf(tokenizer.status());
      const Count count = Compare(**tokenizer, Golden()["texts"], rule["ids"], name);
      total.equal += count.equal;
      total.all += count.all;
    }
  }
  std::printf("byte-level tokens equal: %zu of %zu\n", total.equal, total.all);
  EXPECT_GT(total.all, 100'000u);
}

TEST(TokenizerRules, SentencePieceIdsEqualTheLibrary) {
  Count total;
  for (const Json& rule : Golden()["sentence_piece"]) {
    const auto tokenizer = SentencePieceSource(rule).Create();
    ASSERT_TRUE(tokenizer.ok()) << rule["name"] << ": " << MessageOf(tokenizer.status());
    const Count count = Compare(**tokenizer, Golden()["spm_texts"], rule["ids"], rule["name"]);
    total.equal += count.equal;
    total.all += count.all;
  }
  std::printf("SentencePiece tokens equal: %zu of %zu\n", total.equal, total.all);
  EXPECT_GT(total.all, 20'000u);
}

TEST(TokenizerRules, DecodeUndoesEncode) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const Json& rule : Golden()["byte_level"]) {
    tokenizers.push_back(ByteLevelSource(rule, rule["pre"]).Create().value());
    ASSERT_TRUE(tokenizers.back()->encodes_all_bytes());
  }
  for (const Json& rule : Golden()["sentence_piece"]) {
    auto tokenizer = SentencePieceSource(rule).Create().value();
    if (tokenizer->encodes_all_bytes()) tokenizers.push_back(std::move(tokenizer));
  }
  ASSERT_GE(tokenizers.size(), 16u);
  for (const uint64_t seed : TestSeeds(200)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    const std::string text = RandomText(&rng, 30);
    for (const auto& tokenizer : tokenizers) {
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    }
  }
  for (const std::string text : Golden()["texts"]) {
    for (const auto& tokenizer : tokenizers) {
      ASSERT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
    }
  }
}

}  // namespace
}  // namespace kvasir
