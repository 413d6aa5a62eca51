#include "model/model_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/tiny_model_for_test.h"

namespace kvasir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

StatusOr<ModelReport> Report(const std::string& bytes) {
  KV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(BytesOf(bytes)));
  return BuildModelReport(file);
}

ModelConfig Config(uint32_t layers, uint32_t kv_heads, uint32_t head_dim) {
  ModelConfig config;
  config.layer_count = layers;
  config.kv_head_count = kv_heads;
  config.head_dim = head_dim;
  config.layers.resize(layers);
  return config;
}

TEST(ModelReport, KvBytesPerToken) {
  const ModelConfig smollm2 = Config(30, 3, 64);
  EXPECT_EQ(KvBytesPerToken(smollm2, KvStorage::kF16), 23040u);
  EXPECT_EQ(KvBytesPerToken(smollm2, KvStorage::kInt8), 11880u);
  EXPECT_EQ(KvBytesPerToken(smollm2, KvStorage::kInt4), 7560u);
  EXPECT_EQ(WindowKvBytesPerToken(smollm2, KvStorage::kF16), 0u);
  ModelConfig gemma = Config(18, 1, 256);
  for (uint32_t i = 0; i < 18; ++i) gemma.layers[i].window = i % 6 == 5 ? 0 : 512;
  EXPECT_EQ(KvBytesPerToken(gemma, KvStorage::kF16), 18432u);
  EXPECT_EQ(WindowKvBytesPerToken(gemma, KvStorage::kF16), 15360u);
  EXPECT_EQ(KvBytesPerToken(gemma, KvStorage::kInt8), 18u * 2 * (256 + 4 * 2));
}

TEST(ModelReport, TextOfAModel) {
  const auto report = Report(TinyModel("gemma3"));
  ASSERT_TRUE(report.ok()) << MessageOf(report.status());
  const std::string text = RenderText(*report);
  EXPECT_THAT(text, HasSubstr("architecture      gemma3\n"));
  EXPECT_THAT(text, HasSubstr("heads             4 of 16, KV heads 2\n"));
  EXPECT_THAT(text, HasSubstr("window of 8, RoPE base 10000 (halves)"));
  EXPECT_THAT(text, HasSubstr("KV f16            256 bytes a token, 256 of them in layers with"));
  EXPECT_THAT(text, HasSubstr("special tokens    bos 1, eos 2, eot none"));
  EXPECT_THAT(text, HasSubstr("{{ messages }}\n"));
}

TEST(ModelReport, JsonOfAModel) {
  const std::string bytes = TinyModel("llama");
  const auto report = Report(bytes);
  ASSERT_TRUE(report.ok()) << MessageOf(report.status());
  const nlohmann::json json = nlohmann::json::parse(RenderJson(*report));
  EXPECT_EQ(json["architecture"], "llama");
  EXPECT_EQ(json["file_bytes"], bytes.size());
  EXPECT_EQ(json["tensor_count"], 20);
  EXPECT_EQ(json["tensor_types"]["F32"]["bytes"], json["tensor_bytes"]);
  EXPECT_EQ(json["parameter_count"].get<uint64_t>() * 4, json["tensor_bytes"].get<uint64_t>());
  EXPECT_EQ(json["config"]["layers"].size(), 2u);
  EXPECT_EQ(json["config"]["rope_pairing"], "interleaved");
  EXPECT_EQ(json["kv_bytes_per_token"]["f16"], 256);
  EXPECT_EQ(json["tokenizer"]["token_count"], 40);
  EXPECT_EQ(json["tokenizer"]["control_count"], 3);
  EXPECT_EQ(json["tokenizer"]["add_eos"], nullptr);
  EXPECT_EQ(json["chat_template"], "{{ messages }}");
}

TEST(ModelReport, AVocabularyOnlyFileHasNoConfig) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  WriteTinyTokenizer(writer, {});
  const auto report = Report(writer.Finish());
  ASSERT_TRUE(report.ok()) << MessageOf(report.status());
  EXPECT_FALSE(report->config.has_value());
  EXPECT_THAT(RenderText(*report), HasSubstr("none: a vocabulary-only file"));
  const nlohmann::json json = nlohmann::json::parse(RenderJson(*report));
  EXPECT_EQ(json["config"], nullptr);
  EXPECT_EQ(json["kv_bytes_per_token"], nullptr);
  EXPECT_EQ(json["tokenizer"]["model"], "llama");
}

TEST(ModelReport, HostileNamesCannotDriveATerminal) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.String("general.name", "\x1b]0;owned\x07\xff");
  writer.String("tokenizer.ggml.model", "a\nb");
  writer.Strings("tokenizer.ggml.tokens", {"x"});
  writer.String("tokenizer.chat_template", "one\ntwo\x1b[2J\xc2\x9bz\xc3\xa9");
  const auto report = Report(writer.Finish());
  ASSERT_TRUE(report.ok()) << MessageOf(report.status());
  const std::string text = RenderText(*report);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, HasSubstr("\\x1b]0;owned\\x07"));
  EXPECT_THAT(text, HasSubstr("a\\x0ab"));
  EXPECT_THAT(text, HasSubstr("one\ntwo\\x1b[2J\\xc2\\x9bz\xc3\xa9\n"));
  EXPECT_FALSE(nlohmann::json::parse(RenderJson(*report)).is_discarded());
}

TEST(ModelReport, SaysWhatIsSupportedAndWhyNot) {
  const auto good = Report(TinyModel("gemma2"));
  EXPECT_TRUE(good->is_runnable());
  EXPECT_THAT(RenderText(*good), HasSubstr("usable: model     yes\n"));
  std::string bytes = TinyModel("llama");
  bytes.replace(bytes.find("llama"), 5, "mamba");
  auto report = Report(bytes);
  ASSERT_TRUE(report.ok()) << MessageOf(report.status());
  EXPECT_FALSE(report->is_runnable());
  EXPECT_FALSE(report->config.has_value());
  EXPECT_THAT(RenderText(*report), Not(HasSubstr("tool arguments")));
  EXPECT_EQ(nlohmann::json::parse(RenderJson(*report))["tool_arguments"], nullptr);
  report->tool_arguments = "JSON text";
  report->tokenizer_problem = "pre-tokenizer 'x' is unknown";
  const std::string text = RenderText(*report);
  EXPECT_THAT(text,
              HasSubstr("usable: model     no: metadata key 'general.architecture': 'mamba'"));
  EXPECT_THAT(text, HasSubstr("usable: tokenizer no: pre-tokenizer 'x' is unknown\n"));
  EXPECT_THAT(text, HasSubstr("tool arguments    JSON text\n"));
  EXPECT_THAT(text,
              HasSubstr("F32             20 tensors"));  // What is there is shown all the same.
  const nlohmann::json json = nlohmann::json::parse(RenderJson(*report));
  EXPECT_EQ(json["config"], nullptr);
  EXPECT_EQ(json["tool_arguments"], "JSON text");
  EXPECT_EQ(json["support"]["runnable"], false);
  EXPECT_EQ(json["support"]["model"]["supported"], false);
  EXPECT_THAT(json["support"]["model"]["problem"].get<std::string>(), HasSubstr("'mamba'"));
  EXPECT_EQ(json["support"]["chat_template"]["supported"], true);
  EXPECT_EQ(json["support"]["chat_template"]["problem"], nullptr);
}

TEST(ModelReport, ShowsHowAModelTurns) {
  GgufWriter writer;
  writer.Uint("phi3.rope.dimension_count", 12);
  writer.String("phi3.rope.scaling.type", "yarn");
  writer.Float("phi3.rope.scaling.factor", 4.0f);
  writer.Uint("phi3.rope.scaling.original_context_length", 32);
  WriteTinyConfig(writer, {}, "phi3");
  WriteTinyTokenizer(writer, {});
  WriteTinyTensors(writer, {}, "phi3");
  const auto report = Report(writer.Finish());
  ASSERT_TRUE(report.ok()) << MessageOf(report.status());
  EXPECT_THAT(RenderText(*report), HasSubstr("(halves), of 12 dimensions, YaRN factor 4 of a "
                                             "context of 32, times 1.13863"));
  EXPECT_EQ(nlohmann::json::parse(RenderJson(*report))["config"]["rope_dim"], 12);
  EXPECT_THAT(RenderText(*Report(TinyModel("gemma2"))),
              HasSubstr("soft caps         scores 50, logits 30 (0: none)\n"));
}

}  // namespace
}  // namespace kvasir
