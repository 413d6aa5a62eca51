#include "model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/architecture.h"
#include "model/tiny_model_for_test.h"

namespace kvasir {
namespace {

using namespace std::string_literals;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<ModelConfig> Read(const std::string& bytes) {
  KV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(BytesOf(bytes)));
  return ReadModelConfig(file);
}

std::string ReadError(const std::string& bytes) {
  const auto config = Read(bytes);
  return config.ok() ? "read" : std::string(MessageOf(config.status()));
}

// A tiny model; `change` adds to its metadata and tensors first.
std::string Model(const std::string& arch, const TinyShape& shape,
                  const std::function<void(GgufWriter&)>& change) {
  GgufWriter writer;
  change(writer);
  WriteTinyConfig(writer, shape, arch);
  WriteTinyTensors(writer, shape, arch);
  return writer.Finish();
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  EXPECT_EQ(from.size(), to.size());
  return text.replace(at, from.size(), to);
}

// `bytes` with the uint32 value of `key` replaced.
std::string WithUint(std::string bytes, const std::string& key, uint32_t value) {
  const size_t at = bytes.find(key);
  EXPECT_NE(at, std::string::npos) << key;
  std::memcpy(bytes.data() + at + key.size() + 4, &value, sizeof(value));
  return bytes;
}

TEST(ModelConfig, ReadsLlama) {
  const auto config = Read(TinyModel("llama"));
  ASSERT_TRUE(config.ok()) << MessageOf(config.status());
  EXPECT_EQ(config->architecture, "llama");
  EXPECT_EQ(config->name, "tiny");
  EXPECT_EQ(config->layer_count, 2u);
  EXPECT_EQ(config->d_model, 64u);
  EXPECT_EQ(config->d_ffn, 96u);
  EXPECT_EQ(config->q_width(), 64u);
  EXPECT_EQ(config->kv_width(), 32u);
  EXPECT_EQ(config->group(), 2u);
  EXPECT_EQ(config->context_length, 128u);
  EXPECT_EQ(config->vocab_size, 40u);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-5f);
  EXPECT_EQ(config->rope_pairing, RopePairing::kInterleaved);
  EXPECT_EQ(config->activation, Activation::kSilu);
  EXPECT_FALSE(config->qk_norm);
  EXPECT_FALSE(config->post_norms);
  EXPECT_TRUE(config->tied_head);
  EXPECT_EQ(config->embedding_scale, 1.0);
  EXPECT_EQ(config->attention_scale, 0.25);
  ASSERT_EQ(config->layers.size(), 2u);
  EXPECT_EQ(config->layers[1].window, 0u);
  EXPECT_EQ(config->layers[1].rope_base, 10000.0);
}

TEST(ModelConfig, Gemma3KnowsWhatItsFilesDoNotSay) {
  const TinyShape shape = {.layers = 13};
  GgufWriter writer;
  WriteTinyConfig(writer, shape, "gemma3");
  WriteTinyTensors(writer, shape, "gemma3");
  const auto config =
      Read(Replaced(writer.Finish(), "\x06\0\0\0\0\x40\x1c\x46"s, "\x06\0\0\0\0\x24\x74\x49"s));
  ASSERT_TRUE(config.ok()) << MessageOf(config.status());
  EXPECT_EQ(config->rope_pairing, RopePairing::kHalves);
  EXPECT_EQ(config->activation, Activation::kGeluTanh);
  EXPECT_TRUE(config->qk_norm);
  EXPECT_TRUE(config->post_norms);
  EXPECT_EQ(config->embedding_scale, 8.0);
  for (uint32_t i = 0; i < 13; ++i) {
    const bool is_global = i == 5 || i == 11;
    EXPECT_EQ(config->layers[i].window, is_global ? 0u : 8u) << i;
    EXPECT_EQ(config->layers[i].rope_base, is_global ? 1e6 : 1e4) << i;
  }
}

TEST(ModelConfig, Gemma3HonoursWhatItsFileSays) {
  const auto config = Read(Model("gemma3", {.layers = 4}, [](GgufWriter& writer) {
    writer.Uint("gemma3.attention.sliding_window_pattern", 2);
    writer.Float("gemma3.rope.freq_base_swa", 500.0f);
  }));
  ASSERT_TRUE(config.ok()) << MessageOf(config.status());
  EXPECT_EQ(config->layers[0].window, 8u);
  EXPECT_EQ(config->layers[0].rope_base, 500.0);
  EXPECT_EQ(config->layers[1].window, 0u);
  EXPECT_EQ(config->layers[1].rope_base, 10000.0);
  EXPECT_EQ(config->layers[3].window, 0u);
}

TEST(ModelConfig, AHeadOfItsOwnIsNotTied) {
  const TinyShape shape;
  GgufWriter writer;
  WriteTinyConfig(writer, shape, "llama");
  WriteTinyTensors(writer, shape, "llama");
  Rng rng(2);
  writer.Tensor("output.weight", {64, 40}, 0, RandomFloats(rng, 64 * 40, 1.0f));
  writer.Tensor("something.else", {3}, 0, RandomFloats(rng, 3, 1.0f));
  const std::string bytes = writer.Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok());
  const auto config = ReadModelConfig(*file);
  ASSERT_TRUE(config.ok()) << MessageOf(config.status());
  EXPECT_FALSE(config->tied_head);
  EXPECT_THAT(UnusedTensors(*file, *config), ElementsAre("something.else"));
}

TEST(ModelConfig, RefusesOtherArchitectures) {
  EXPECT_THAT(
      ReadError(Replaced(TinyModel("llama"), "llama", "mamba")),
      HasSubstr("'general.architecture': 'mamba' is not supported, only llama, qwen2, qwen3, "
                "gemma2, gemma3, phi3"));
  EXPECT_EQ(FindArchitecture("llama2"), nullptr);
  EXPECT_EQ(FindArchitecture("gemma3"), &kGemma3);
}

TEST(ModelConfig, RefusesMissingAndImplausibleNumbers) {
  const std::string good = TinyModel("llama");
  EXPECT_THAT(ReadError(Replaced(good, "llama.block_count", "llama.block_xount")),
              HasSubstr("metadata key 'llama.block_count' is missing"));
  EXPECT_THAT(ReadError(WithUint(good, "llama.block_count", 0)), HasSubstr("0 is not within 1 to"));
  EXPECT_THAT(ReadError(WithUint(good, "llama.block_count", 5000)),
              HasSubstr("5000 is not within 1 to 1024 (at offset"));
  EXPECT_THAT(ReadError(WithUint(good, "llama.embedding_length", 0xFFFFFFFF)),
              HasSubstr("is not within"));
  EXPECT_THAT(ReadError(WithUint(good, "llama.attention.head_count_kv", 3)),
              HasSubstr("4 heads are not a multiple of 3 KV heads"));
  const TinyShape many = {.d_model = 32, .heads = 65, .kv_heads = 1, .head_dim = 32};
  EXPECT_THAT(ReadError(TinyModel("llama", many)),
              HasSubstr("65 query heads for each KV head are more than 64"));
  const std::string odd = WithUint(good, "llama.attention.key_length", 20);
  EXPECT_THAT(ReadError(odd), HasSubstr("a value length of 16 beside a key length of 20"));
  EXPECT_THAT(ReadError(WithUint(odd, "llama.attention.value_length", 20)),
              HasSubstr("a head dimension of 20 is not a multiple of 16 up to 256"));
  EXPECT_THAT(ReadError(WithUint(good, "llama.feed_forward_length", 100)),
              HasSubstr("the feed-forward length of 100 is not a multiple of 32"));
}

TEST(ModelConfig, RefusesWhatItWouldComputeWrongly) {
  const TinyShape shape;
  const auto with = [&](const std::function<void(GgufWriter&)>& change) {
    return ReadError(Model("llama", shape, change));
  };
  EXPECT_THAT(with([](GgufWriter& w) { w.String("llama.rope.scaling.type", "dynamic"); }),
              HasSubstr("'llama.rope.scaling.type': RoPE scaling 'dynamic' is not supported"));
  EXPECT_THAT(with([](GgufWriter& w) { w.String("llama.rope.scaling.type", "longrope"); }),
              HasSubstr("RoPE scaling 'longrope' is not supported"));
  EXPECT_EQ(with([](GgufWriter& w) { w.String("llama.rope.scaling.type", "none"); }), "read");
  EXPECT_THAT(with([](GgufWriter& w) { w.Uint("llama.expert_count", 8); }),
              HasSubstr("a mixture of experts"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Float("llama.final_logit_softcapping", 30.0f); }),
              HasSubstr("'llama.final_logit_softcapping'"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Float("llama.attention.scale", 0.1f); }),
              HasSubstr("'llama.attention.scale': this variant is not supported"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Bool("llama.attention.causal", false); }),
              HasSubstr("attention to later tokens"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Uint("llama.attention.key_length_swa", 8); }),
              HasSubstr("'llama.attention.key_length_swa'"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Uint("llama.rope.dimension_count", 8); }),
              HasSubstr("RoPE on 8 of 16 dimensions of a head is not supported"));
  EXPECT_THAT(
      with([](GgufWriter& w) { w.Tensor("blk.0.ffn_up.bias", {96}, 0, std::string(384, 0)); }),
      HasSubstr("tensor 'blk.0.ffn_up.bias': a bias is not supported in architecture 'llama'"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Tensor("output.bias", {40}, 0, std::string(160, 0)); }),
              HasSubstr("tensor 'output.bias': a bias"));
  EXPECT_THAT(with([](GgufWriter& w) {
                w.Tensor("blk.1.attn_q_norm.weight", {16}, 0, std::string(64, 0));
              }),
              HasSubstr("'blk.1.attn_q_norm.weight': this part of a layer is not supported"));
  EXPECT_THAT(
      with([](GgufWriter& w) { w.Tensor("rope_factors_long.weight", {8}, 0, std::string(32, 0)); }),
      HasSubstr("tensor 'rope_factors_long.weight': RoPE with a factor per dimension"));
}

TEST(ModelConfig, ChecksEveryTensor) {
  const std::string good = TinyModel("llama");
  EXPECT_THAT(ReadError(Replaced(good, "blk.1.ffn_up.weight", "blk.1.ffn_uq.weight")),
              HasSubstr("tensor 'blk.1.ffn_up.weight' of shape [64, 96] is missing"));
  // The name is followed by the dimension count and the first dimension, which becomes 32 x 2.
  const std::string q = "blk.0.attn_q.weight";
  std::string shape = good;
  const uint64_t dims[2] = {32, 128};
  std::memcpy(shape.data() + shape.find(q) + q.size() + 4, dims, sizeof(dims));
  EXPECT_THAT(
      ReadError(shape),
      HasSubstr("tensor 'blk.0.attn_q.weight': expected shape [64, 64], found [32, 128] (at "
                "offset"));
  // A norm in half precision: type 1, half the bytes.
  const std::string norm = "output_norm.weight";
  EXPECT_THAT(ReadError(Replaced(good, norm + "\x01\0\0\0\x40\0\0\0\0\0\0\0\0"s,
                                 norm + "\x01\0\0\0\x40\0\0\0\0\0\0\0\x01"s)),
              HasSubstr("tensor 'output_norm.weight': expected type F32, found F16"));
}

TEST(ModelConfig, AVocabularyOnlyFileIsNoModel) {
  GgufWriter writer;
  WriteTinyConfig(writer, {}, "llama");
  WriteTinyTokenizer(writer, {});
  EXPECT_THAT(ReadError(writer.Finish()), HasSubstr("a vocabulary but no tensors"));
}

TEST(ModelConfig, MoreTokensThanRowsIsAnError) {
  GgufWriter writer;
  WriteTinyConfig(writer, {}, "llama");
  WriteTinyTokenizer(writer, {.vocab = 41});
  WriteTinyTensors(writer, {}, "llama");
  EXPECT_THAT(ReadError(writer.Finish()), HasSubstr("40 rows for 41 tokens"));
}

TEST(ModelConfig, CanonicalTextTellsModelsApart) {
  const ModelConfig base = *Read(TinyModel("gemma3"));
  EXPECT_EQ(CanonicalText(base), CanonicalText(*Read(TinyModel("gemma3"))));
  const std::vector<std::function<void(ModelConfig&)>> changes = {
      [](ModelConfig& c) { c.layers[0].window = 9; },
      [](ModelConfig& c) { c.layers[1].rope_base = std::nextafter(1e4, 2e4); },
      [](ModelConfig& c) { c.norm_eps = std::nextafterf(c.norm_eps, 1.0f); },
      [](ModelConfig& c) { c.qk_norm = false; },
      [](ModelConfig& c) { c.post_norms = false; },
      [](ModelConfig& c) { c.tied_head = false; },
      [](ModelConfig& c) { c.activation = Activation::kSilu; },
      [](ModelConfig& c) { c.rope_pairing = RopePairing::kInterleaved; },
      [](ModelConfig& c) { c.embedding_scale = 1.0; },
      [](ModelConfig& c) { c.attention_scale *= 2.0; },
      [](ModelConfig& c) { c.head_dim = 32; },
      [](ModelConfig& c) { c.layers[1].rope_factor = 2.0; },
      [](ModelConfig& c) { c.rope_dim = 8; },
      [](ModelConfig& c) { c.rope_magnitude = std::nextafter(1.0, 2.0); },
      [](ModelConfig& c) { c.rope_divisors.assign(8, 1.0f); },
      [](ModelConfig& c) { c.yarn.original_context = 64; },
      [](ModelConfig& c) { c.yarn.beta_fast = 31.0; },
      [](ModelConfig& c) { c.yarn.beta_slow = 2.0; },
      [](ModelConfig& c) { c.attention_cap = 50.0; },
      [](ModelConfig& c) { c.logit_cap = 30.0; },
      [](ModelConfig& c) { c.qkv_bias = true; },
      [](ModelConfig& c) { c.fused_qkv = true; },
      [](ModelConfig& c) { c.fused_gate_up = true; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    ModelConfig other = base;
    changes[i](other);
    EXPECT_NE(CanonicalText(base), CanonicalText(other)) << i;
  }
}

}  // namespace
}  // namespace kvasir
