#include "model/tokenizer_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/tiny_model_for_test.h"

namespace kvasir {
namespace {

using ::testing::HasSubstr;

std::string ReadError(const GgufWriter& writer) {
  const std::string bytes = writer.Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  if (!file.ok()) return std::string(MessageOf(file.status()));
  const auto fields = ReadTokenizerFields(*file);
  return fields.ok() ? "read" : std::string(MessageOf(fields.status()));
}

GgufWriter Minimal() {
  GgufWriter writer;
  writer.String("tokenizer.ggml.model", "gpt2");
  writer.Strings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  return writer;
}

TEST(TokenizerFields, ReadsAVocabularyOnlyFile) {
  GgufWriter writer;
  WriteTinyTokenizer(writer, {.vocab = 30});
  const std::string bytes = writer.Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << MessageOf(file.status());
  const auto fields = ReadTokenizerFields(*file);
  ASSERT_TRUE(fields.ok()) << MessageOf(fields.status());
  EXPECT_EQ(fields->model, "llama");
  EXPECT_EQ(fields->pre, "default");
  EXPECT_EQ(fields->tokens.size(), 30u);
  EXPECT_EQ(*fields->tokens.begin(), "<0>0");
  EXPECT_EQ(fields->scores.Float(4), -4.0);
  EXPECT_EQ(fields->types.Int(2), 3);
  EXPECT_EQ(fields->types.Int(3), 1);
  EXPECT_TRUE(fields->merges.empty());
  EXPECT_EQ(fields->bos_id, 1u);
  EXPECT_EQ(fields->eos_id, 2u);
  EXPECT_EQ(fields->unknown_id, std::nullopt);
  EXPECT_EQ(fields->add_bos, true);
  EXPECT_EQ(fields->add_eos, std::nullopt);
  EXPECT_EQ(fields->chat_template, "{{ messages }}");
}

TEST(TokenizerFields, OptionalPartsMayBeAbsent) {
  const std::string bytes = Minimal().Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  const auto fields = ReadTokenizerFields(*file);
  ASSERT_TRUE(fields.ok()) << MessageOf(fields.status());
  EXPECT_EQ(fields->pre, "");
  EXPECT_TRUE(fields->scores.empty());
  EXPECT_EQ(fields->chat_template, std::nullopt);
}

TEST(TokenizerFields, AnIdOfAllOnesMeansNone) {
  GgufWriter writer = Minimal();
  writer.Uint("tokenizer.ggml.padding_token_id", 0xFFFFFFFF);
  const std::string bytes = writer.Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  const auto fields = ReadTokenizerFields(*file);
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(fields->padding_id, std::nullopt);
}

TEST(TokenizerFields, PartsThatDoNotFitAreErrors) {
  EXPECT_THAT(ReadError(GgufWriter()), HasSubstr("'tokenizer.ggml.model' is missing"));
  {
    GgufWriter writer;
    writer.String("tokenizer.ggml.model", "gpt2");
    EXPECT_THAT(ReadError(writer), HasSubstr("'tokenizer.ggml.tokens': 0 tokens"));
  }
  {
    GgufWriter writer = Minimal();
    writer.Numbers<float>("tokenizer.ggml.scores", GgufType::kFloat32, {1.0f, 2.0f});
    EXPECT_THAT(ReadError(writer), HasSubstr("'tokenizer.ggml.scores': 2 values for 3 tokens"));
  }
  {
    GgufWriter writer = Minimal();
    writer.Numbers<float>("tokenizer.ggml.token_type", GgufType::kFloat32, {1.0f, 2.0f, 3.0f});
    EXPECT_THAT(ReadError(writer), HasSubstr("expected integers, found type float32"));
  }
  {
    GgufWriter writer = Minimal();
    writer.Uint("tokenizer.ggml.eos_token_id", 3);
    EXPECT_THAT(ReadError(writer), HasSubstr("token 3 is outside the vocabulary of 3 (at offset"));
  }
  {
    GgufWriter writer = Minimal();
    writer.Uint("tokenizer.ggml.add_bos_token", 1);
    EXPECT_THAT(ReadError(writer), HasSubstr("'tokenizer.ggml.add_bos_token': expected a bool"));
  }
  {
    GgufWriter writer = Minimal();
    writer.Uint("tokenizer.chat_template", 1);
    EXPECT_THAT(ReadError(writer), HasSubstr("'tokenizer.chat_template': expected a string"));
  }
}

}  // namespace
}  // namespace kvasir
