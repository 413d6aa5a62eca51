// The tokenizers on the real vocabularies: exactly the golden ids, and back.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/rng.h"
#include "engine/vocabulary_from_model.h"
#include "io/mapped_file.h"
#include "model/gguf_file.h"
#include "model/tokenizer_fields.h"
#include "tests/golden/golden_model.h"
#include "text/random_text.h"
#include "text/tokenizer.h"

namespace kvasir {
namespace {

struct Case {
  const char* file;
  const char* golden;  // Common beginning of the golden files' names.
};

StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& path) {
  KV_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  KV_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Parse(file.bytes()));
  KV_ASSIGN_OR_RETURN(const TokenizerFields fields, ReadTokenizerFields(gguf));
  return Tokenizer::Create(VocabularySourceFrom(fields));
}

class TokenizerGolden : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::optional<std::string> path = GoldenModelPath(GetParam().file);
    if (!path) return;
    StatusOr<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(*path);
    ASSERT_TRUE(tokenizer.ok()) << MessageOf(tokenizer.status());
    tokenizer_ = std::move(tokenizer).value();
  }

  nlohmann::json Rows(const std::string& kind) const {
    std::ifstream stream(fmt::format("{}/{}-{}.json", KVASIR_GOLDEN_DIR, GetParam().golden, kind));
    return nlohmann::json::parse(stream)["rows"];
  }

  std::vector<int32_t> Ids(std::string_view text, bool parse_special) const {
    std::vector<int32_t> out;
    for (const TokenId id : tokenizer_->Encode(text, {.parse_special = parse_special})) {
      out.push_back(Index(id));
    }
    return out;
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(TokenizerGolden, EncodesTheListedTexts) {
  if (tokenizer_ == nullptr) return;
  const nlohmann::json rows = Rows("tokens");
  ASSERT_EQ(rows.size(), 31u);
  for (const nlohmann::json& row : rows) {
    const std::string text = row["text"];
    EXPECT_EQ(Ids(text, true), row["tokens_special"].get<std::vector<int32_t>>()) << text;
    EXPECT_EQ(Ids(text, false), row["tokens_plain"].get<std::vector<int32_t>>()) << text;
  }
}

TEST_P(TokenizerGolden, EncodesTheTextsOfTheLogits) {
  if (tokenizer_ == nullptr) return;
  const nlohmann::json rows = Rows("logits");
  ASSERT_GE(rows.size(), 3u);
  for (const nlohmann::json& row : rows) {
    const std::string text = row["text"];
    EXPECT_EQ(Ids(text, true), row["tokens"].get<std::vector<int32_t>>()) << row["label"];
  }
}

TEST_P(TokenizerGolden, DecodesWhatItEncoded) {
  if (tokenizer_ == nullptr) return;
  for (const uint64_t seed : TestSeeds(200)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    std::string text = RandomText(&rng, 20);
    const std::vector<TokenId> tokens = tokenizer_->Encode(text);
    if (!tokenizer_->encodes_all_bytes()) {
      // What is lost is exactly the bytes that have no token of their own.
      std::erase_if(text, [this](char c) {
        return tokenizer_->Decode(tokenizer_->Encode({&c, 1}, {.add_bos = false})).empty();
      });
    }
    ASSERT_EQ(tokenizer_->Decode(tokens), text);
    for (size_t i = tokenizer_->adds_bos() ? 1 : 0; i < tokens.size(); ++i) {
      ASSERT_FALSE(tokenizer_->IsControl(tokens[i]));
    }
  }
}

// A text may be hostile; its cost is not. Failing means minutes, not a number to tune.
TEST_P(TokenizerGolden, AMegabyteOfAnything) {
  if (tokenizer_ == nullptr) return;
  for (const std::string unit : {"a", " ", "\n", "\xF0\x9F\x8E\x89", "<|im_start|", "<unused1",
                                 "the quick brown fox, ", "ab", "\xE6\x97\xA5"}) {
    std::string text;
    while (text.size() < (1u << 20)) text += unit;
    const std::vector<TokenId> tokens = tokenizer_->Encode(text);
    ASSERT_EQ(tokenizer_->Decode(tokens), text) << unit;
  }
}

std::string NameOfCase(const ::testing::TestParamInfo<Case>& instance) {
  return std::string_view(instance.param.file) == kSmolLm2 ? "SmolLm2" : "Gemma3";
}

INSTANTIATE_TEST_SUITE_P(Models, TokenizerGolden,
                         ::testing::Values(Case{kSmolLm2, "smollm2-135m-instruct-q4_1"},
                                           Case{kGemma3, "gemma3-270m-q4_k_m"}),
                         NameOfCase);

TEST(TokenizerGoldenNames, SpecialTokensOfTheModels) {
  const auto smol_path = GoldenModelPath(kSmolLm2);
  const auto gemma_path = GoldenModelPath(kGemma3);
  if (!smol_path || !gemma_path) return;
  const auto smol = LoadTokenizer(*smol_path);
  const auto gemma = LoadTokenizer(*gemma_path);
  ASSERT_TRUE(smol.ok() && gemma.ok());
  EXPECT_EQ((*smol)->vocab_size(), 49152u);
  EXPECT_TRUE((*smol)->IsEndOfGeneration(*(*smol)->Find("<|im_end|>")));
  EXPECT_TRUE((*smol)->IsEndOfGeneration(*(*smol)->Find("<|endoftext|>")));
  EXPECT_FALSE((*smol)->adds_bos());
  EXPECT_EQ((*gemma)->vocab_size(), 262144u);
  EXPECT_EQ((*gemma)->bos(), TokenId{2});
  EXPECT_TRUE((*gemma)->IsEndOfGeneration(*(*gemma)->Find("<end_of_turn>")));
  EXPECT_TRUE((*gemma)->IsEndOfGeneration(*(*gemma)->Find("<eos>")));
  EXPECT_FALSE((*gemma)->IsEndOfGeneration(*(*gemma)->Find("</s>"))) << "an HTML tag";
  const std::vector<TextSegment> prompt = {
      {"<start_of_turn>user\n", true}, {"<end_of_turn>", false}, {"<end_of_turn>\n", true}};
  const std::vector<TokenId> tokens = (*gemma)->EncodeSegments(prompt);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), TokenId{105}), 1);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), TokenId{106}), 1);
}

}  // namespace
}  // namespace kvasir
