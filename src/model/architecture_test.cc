// What each architecture reads from a file, and what it says about files that make no sense. That
// the numbers are right is tested against the oracle (tests/golden/architecture_golden_test.cc).
#include "model/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "model/rope.h"
#include "model/tiny_model_for_test.h"

namespace kvasir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Change = std::function<void(GgufWriter&)>;

// A tiny model of any architecture; `change` adds to its metadata and tensors first.
std::string Model(const std::string& arch, const TinyShape& shape, const Change& change) {
  GgufWriter writer;
  change(writer);
  WriteTinyConfig(writer, shape, arch);
  WriteTinyTokenizer(writer, shape);
  WriteTinyTensors(writer, shape, arch);
  return writer.Finish();
}

StatusOr<ModelConfig> Read(const std::string& bytes, uint32_t context_tokens = 0) {
  KV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(BytesOf(bytes)));
  return ReadModelConfig(file, context_tokens);
}

ModelConfig ReadGood(const std::string& bytes, uint32_t context_tokens = 0) {
  auto config = Read(bytes, context_tokens);
  EXPECT_TRUE(config.ok()) << MessageOf(config.status());
  return config.ok() ? *std::move(config) : ModelConfig{};
}

std::string ErrorOf(const std::string& arch, const Change& change, const TinyShape& shape = {}) {
  const auto config = Read(Model(arch, shape, change));
  return config.ok() ? "read" : std::string(MessageOf(config.status()));
}

std::string FloatBytes(const std::vector<float>& values) {
  std::string out(values.size() * sizeof(float), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::vector<double> FrequenciesOf(const ModelConfig& config, uint32_t layer = 0) {
  std::vector<double> frequencies(config.rope_dim / 2);
  RopeFrequenciesOf(config, config.layers[layer], frequencies);
  return frequencies;
}

void Yarn(GgufWriter& w) {
  w.String("llama.rope.scaling.type", "yarn");
  w.Float("llama.rope.scaling.factor", 4.0f);
  w.Uint("llama.rope.scaling.original_context_length", 32);
}

TEST(Architecture, LinearScalingDividesEveryAngle) {
  const ModelConfig plain = ReadGood(Model("llama", {}, [](GgufWriter&) {}));
  const ModelConfig scaled = ReadGood(Model("llama", {}, [](GgufWriter& w) {
    w.String("llama.rope.scaling.type", "linear");
    w.Float("llama.rope.scaling.factor", 2.5f);
  }));
  EXPECT_EQ(scaled.rope_magnitude, 1.0);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(FrequenciesOf(scaled)[i], FrequenciesOf(plain)[i] / 2.5);
    EXPECT_NEAR(FrequenciesOf(plain)[i], std::pow(1e4, -static_cast<double>(i) / 8), 1e-15);
  }
}

TEST(Architecture, YarnKeepsFastPairsAndDividesSlowOnes) {
  const ModelConfig plain = ReadGood(Model("llama", {.head_dim = 64}, [](GgufWriter&) {}));
  const ModelConfig scaled = ReadGood(Model("llama", {.head_dim = 64}, [](GgufWriter& w) {
    w.String("llama.rope.scaling.type", "yarn");
    w.Float("llama.rope.scaling.factor", 4.0f);
    w.Uint("llama.rope.scaling.original_context_length", 4096);
  }));
  EXPECT_NEAR(scaled.rope_magnitude, 1.0 + 0.1 * std::log(4.0), 1e-15);
  // The pair that turns r times in 4096 tokens: 64 ln(4096 / (2 pi r)) / (2 ln 1e4), 10.5 for r =
  // 32 and 22.5 for r = 1. Between pair 10 and pair 23 angles are mixed.
  const std::vector<double> before = FrequenciesOf(plain);
  const std::vector<double> after = FrequenciesOf(scaled);
  for (size_t i = 0; i <= 10; ++i) EXPECT_EQ(after[i], before[i]) << i;
  for (size_t i = 11; i < 23; ++i) {
    const double divided = (static_cast<double>(i) - 10) / 13;
    EXPECT_NEAR(after[i] / before[i], divided / 4 + 1 - divided, 1e-12) << i;
  }
  for (size_t i = 23; i < 32; ++i) EXPECT_EQ(after[i], before[i] / 4) << i;
}

TEST(Architecture, YarnFactorsOfTheMagnitude) {
  const auto magnitude = [](const Change& change) {
    return ReadGood(Model("llama", {},
                          [&](GgufWriter& w) {
                            Yarn(w);
                            change(w);
                          }))
        .rope_magnitude;
  };
  const double plain = 1.0 + 0.1 * std::log(4.0);
  EXPECT_NEAR(magnitude([](GgufWriter&) {}), plain, 1e-15);
  EXPECT_NEAR(magnitude([](GgufWriter& w) { w.Float("llama.rope.scaling.attn_factor", 0.5f); }),
              0.5 * plain, 1e-15);
  // Takes the place of the formula.
  EXPECT_EQ(magnitude([](GgufWriter& w) { w.Float("llama.rope.scaling.yarn_attn_factor", 0.75f); }),
            0.75);
}

TEST(Architecture, DivisorsAreOfPairs) {
  const std::vector<float> divisors = {1, 1, 2, 3, 4, 8, 8, 8};
  const Change add = [&](GgufWriter& w) {
    w.Tensor("rope_freqs.weight", {8}, 0, FloatBytes(divisors));
  };
  const std::string bytes = Model("llama", {}, add);
  const ModelConfig config = ReadGood(bytes);
  EXPECT_EQ(config.rope_divisors, divisors);
  EXPECT_NEAR(FrequenciesOf(config)[3], std::pow(1e4, -3.0 / 8) / 3, 1e-15);
  EXPECT_THAT(UnusedTensors(*GgufFile::Parse(BytesOf(bytes)), config), ElementsAre());
  // Only where they are applied.
  EXPECT_THAT(ErrorOf("gemma2", add), HasSubstr("'rope_freqs.weight': RoPE with a factor per"));
}

TEST(Architecture, RefusesDivisorsThatAreNone) {
  const auto with = [](const std::vector<uint64_t>& dims, uint32_t type,
                       const std::vector<float>& values) {
    return ErrorOf("llama", [&](GgufWriter& w) {
      w.Tensor("rope_freqs.weight", dims, type, FloatBytes(values));
    });
  };
  EXPECT_THAT(with({4}, 0, {1, 1, 1, 1}),
              HasSubstr("tensor 'rope_freqs.weight': expected 8 float32 values, half of the 16"));
  EXPECT_THAT(with({4, 2}, 0, std::vector<float>(8, 1.0f)), HasSubstr("expected 8 float32"));
  EXPECT_THAT(with({8}, 1, std::vector<float>(4, 1.0f)), HasSubstr("expected 8 float32"));
  std::vector<float> values(8, 1.0f);
  for (const float bad : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    values[5] = bad;
    EXPECT_THAT(with({8}, 0, values), HasSubstr("of pair 5 is not a positive number"));
  }
  values[5] = 1e-30f;
  EXPECT_THAT(with({8}, 0, values), HasSubstr("too fast for a context of 128"));
}

TEST(Architecture, RefusesContradictingScaling) {
  const auto with = [](const Change& change) { return ErrorOf("llama", change); };
  EXPECT_THAT(with([](GgufWriter& w) { w.Float("llama.rope.scaling.factor", 0.0f); }),
              HasSubstr("'llama.rope.scaling.factor': 0 is not a positive number"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Float("llama.rope.scaling.factor", std::nanf("")); }),
              HasSubstr("'llama.rope.scaling.factor': nan is not a positive number"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Float("llama.rope.scaling.factor", 0.5f); }),
              HasSubstr("a factor of 0.5 is below 1"));
  EXPECT_THAT(with([](GgufWriter& w) {
                w.String("llama.rope.scaling.type", "none");
                w.Float("llama.rope.scaling.factor", 4.0f);
              }),
              HasSubstr("'llama.rope.scaling.factor': 4 beside a scaling of type 'none'"));
  EXPECT_THAT(with([](GgufWriter& w) { w.String("llama.rope.scaling.type", "linear"); }),
              HasSubstr("'llama.rope.scaling.type': 'linear' without a factor"));
  EXPECT_THAT(with([](GgufWriter& w) {
                w.Float("llama.rope.scaling.factor", 4.0f);
                w.Float("llama.rope.scale_linear", 2.0f);
              }),
              HasSubstr("'llama.rope.scale_linear': 2 beside a scaling factor of 4"));
  EXPECT_THAT(with([](GgufWriter& w) { w.Float("llama.rope.scaling.yarn_beta_fast", 8.0f); }),
              HasSubstr("'llama.rope.scaling.yarn_beta_fast': of YaRN, beside a scaling of type "
                        "'linear'"));
  EXPECT_THAT(with([](GgufWriter& w) {
                Yarn(w);
                w.Float("llama.rope.scaling.yarn_beta_fast", 0.5f);
              }),
              HasSubstr("beta_fast 0.5 is below beta_slow 1"));
  EXPECT_THAT(with([](GgufWriter& w) {
                Yarn(w);
                w.Float("llama.rope.scaling.yarn_ext_factor", 0.5f);
              }),
              HasSubstr("an extrapolation factor other than 1 is not supported"));
  EXPECT_THAT(with([](GgufWriter& w) {
                Yarn(w);
                w.Float("llama.rope.scaling.yarn_log_multiplier", 0.1f);
              }),
              HasSubstr("a multiplier of the logarithm is not supported"));
  EXPECT_THAT(with([](GgufWriter& w) {
                Yarn(w);
                w.Float("llama.rope.scaling.attn_factor", -1.0f);
              }),
              HasSubstr("'llama.rope.scaling.attn_factor': -1 is not a positive number"));
  EXPECT_THAT(with([](GgufWriter& w) {
                w.String("llama.rope.scaling.type", "yarn");
                w.Float("llama.rope.scaling.factor", 4.0f);
              }),
              HasSubstr("'llama.rope.scaling.original_context_length' is missing"));
}

TEST(Architecture, AWindowThatHidesNothingIsNone) {
  const auto window = [](uint32_t tokens) {
    return ReadGood(Model("llama", {},
                          [&](GgufWriter& w) { w.Uint("llama.attention.sliding_window", tokens); }))
        .layers[1]
        .window;
  };
  EXPECT_EQ(window(64), 64u);
  EXPECT_EQ(window(128), 0u);
  EXPECT_EQ(window(0), 0u);
  EXPECT_THAT(
      ErrorOf("phi3", [](GgufWriter& w) { w.Uint("phi3.attention.sliding_window_pattern", 2); }),
      HasSubstr("'phi3.attention.sliding_window_pattern': a window in some layers only"));
  EXPECT_THAT(ErrorOf("qwen3", [](GgufWriter& w) { w.Uint("qwen3.attention.sliding_window", 64); }),
              HasSubstr("'qwen3.attention.sliding_window': a window of 64 in this architecture"));
}

TEST(Architecture, BiasesAreOfAllLayersOrNone) {
  const auto biases = [](GgufWriter& w, uint32_t layer, uint32_t q_width) {
    const std::string blk = "blk." + std::to_string(layer) + ".attn_";
    w.Tensor(blk + "q.bias", {q_width}, 0, std::string(q_width * 4, 0));
    w.Tensor(blk + "k.bias", {32}, 0, std::string(128, 0));
    w.Tensor(blk + "v.bias", {32}, 0, std::string(128, 0));
  };
  EXPECT_EQ(ErrorOf("llama",
                    [&](GgufWriter& w) {
                      biases(w, 0, 64);
                      biases(w, 1, 64);
                    }),
            "read");
  EXPECT_THAT(ErrorOf("llama", [&](GgufWriter& w) { biases(w, 0, 64); }),
              HasSubstr("tensor 'blk.1.attn_q.bias' of shape [64] is missing"));
  EXPECT_THAT(ErrorOf("llama",
                      [&](GgufWriter& w) {
                        biases(w, 0, 32);
                        biases(w, 1, 64);
                      }),
              HasSubstr("tensor 'blk.0.attn_q.bias': expected shape [64], found [32]"));
  EXPECT_THAT(ErrorOf("qwen2", [](GgufWriter&) {}), HasSubstr("'blk.0.attn_q.bias' of shape [64]"));
  EXPECT_THAT(ErrorOf("gemma2", [&](GgufWriter& w) { biases(w, 0, 64); }),
              HasSubstr("'blk.0.attn_q.bias': a bias is not supported in architecture 'gemma2'"));
}

TEST(Architecture, Gemma2KnowsWhatItsFilesDoNotSay) {
  const ModelConfig silent =
      ReadGood(Model("gemma2", {.layers = 3, .window = 0}, [](GgufWriter&) {}));
  EXPECT_EQ(silent.attention_cap, 50.0);
  EXPECT_EQ(silent.logit_cap, 30.0);
  EXPECT_EQ(silent.attention_scale, 0.25);
  EXPECT_EQ(silent.embedding_scale, 8.0);
  EXPECT_TRUE(silent.post_norms);
  EXPECT_FALSE(silent.qk_norm);
  EXPECT_EQ(silent.layers[0].window, 4096u);
  EXPECT_EQ(silent.layers[1].window, 0u);
  EXPECT_EQ(silent.layers[2].window, 4096u);
  const ModelConfig large =
      ReadGood(Model("gemma2", {.layers = 46, .heads = 2, .window = 9},
                     [](GgufWriter& w) { w.Float("gemma2.attn_logit_softcapping", 7.0f); }));
  EXPECT_EQ(large.attention_cap, 7.0);
  EXPECT_EQ(large.layers[44].window, 9u);
  EXPECT_EQ(large.attention_scale, 1 / std::sqrt(32.0));
  for (const float bad : {0.0f, -3.0f, std::nanf("")}) {
    EXPECT_THAT(
        ErrorOf("gemma2", [&](GgufWriter& w) { w.Float("gemma2.final_logit_softcapping", bad); }),
        HasSubstr("'gemma2.final_logit_softcapping'"));
  }
  EXPECT_THAT(ErrorOf("gemma2",
                      [](GgufWriter& w) { w.Float("gemma2.attn_logit_softcapping", 16777216.0f); }),
              HasSubstr("a soft cap of 16777216 is not within"));
}

TEST(Architecture, Gemma3TakesAnyPattern) {
  const auto pattern = [](const Change& change) {
    const ModelConfig config = ReadGood(Model("gemma3", {.layers = 4}, change));
    std::string text;
    for (const LayerConfig& layer : config.layers) text += layer.window == 0 ? 'F' : 'w';
    return text;
  };
  constexpr const char* kKey = "gemma3.attention.sliding_window_pattern";
  EXPECT_EQ(pattern([](GgufWriter&) {}), "wwww");
  EXPECT_EQ(pattern([&](GgufWriter& w) { w.Uint(kKey, 2); }), "wFwF");
  EXPECT_EQ(pattern([&](GgufWriter& w) { w.Uint(kKey, 1); }), "FFFF");
  EXPECT_EQ(pattern([&](GgufWriter& w) {
              w.Numbers(kKey, GgufType::kBool, std::vector<uint8_t>{0, 1, 1, 0});
            }),
            "FwwF");
  const auto error = [&](const Change& change) { return ErrorOf("gemma3", change, {.layers = 4}); };
  EXPECT_THAT(error([&](GgufWriter& w) { w.Uint(kKey, 0); }), HasSubstr("0 is not within 1 to"));
  EXPECT_THAT(error([&](GgufWriter& w) {
                w.Numbers(kKey, GgufType::kBool, std::vector<uint8_t>{0, 1, 1});
              }),
              HasSubstr("expected a number or one bool for each of 4 layers"));
  EXPECT_THAT(error([&](GgufWriter& w) {
                w.Numbers(kKey, GgufType::kInt32, std::vector<int32_t>{0, 1, 1, 0});
              }),
              HasSubstr("expected a number or one bool for each of 4 layers"));
  EXPECT_THAT(error([](GgufWriter& w) {
                w.String("gemma3.rope.scaling.type", "yarn");
                w.Float("gemma3.rope.scaling.factor", 4.0f);
                w.Uint("gemma3.rope.scaling.original_context_length", 32);
              }),
              HasSubstr("'gemma3' with RoPE scaled other than linearly"));
}

TEST(Architecture, Gemma3ScalesLayersWithFullAttentionOnly) {
  const ModelConfig config = ReadGood(Model("gemma3", {.layers = 6}, [](GgufWriter& w) {
    w.String("gemma3.rope.scaling.type", "linear");
    w.Float("gemma3.rope.scaling.factor", 8.0f);
  }));
  EXPECT_EQ(config.layers[0].rope_factor, 1.0);
  EXPECT_EQ(config.layers[5].rope_factor, 8.0);
}

// What a Phi-3 file with long divisors says, but for `change`.
void LongRope(GgufWriter& w, uint32_t original = 32, const std::vector<float>& long_divisors = {}) {
  w.Uint("phi3.rope.scaling.original_context_length", original);
  w.Float("phi3.rope.scaling.attn_factor", 1.25f);
  w.Tensor("rope_factors_long.weight", {long_divisors.empty() ? 8 : long_divisors.size()}, 0,
           FloatBytes(long_divisors.empty() ? std::vector<float>(8, 4.0f) : long_divisors));
  w.Tensor("rope_factors_short.weight", {8}, 0, FloatBytes(std::vector<float>(8, 2.0f)));
}

TEST(Architecture, Phi3ChoosesDivisorsByTheContextItIsOpenedFor) {
  const std::string bytes = Model("phi3", {}, [](GgufWriter& w) { LongRope(w); });
  const ModelConfig whole = ReadGood(bytes);
  EXPECT_TRUE(whole.fused_qkv);
  EXPECT_TRUE(whole.fused_gate_up);
  EXPECT_EQ(whole.rope_magnitude, 1.25);
  EXPECT_EQ(whole.rope_divisors, std::vector<float>(8, 4.0f));
  EXPECT_EQ(whole.context_length, 128u);
  EXPECT_EQ(ReadGood(bytes, 33).rope_divisors, whole.rope_divisors);
  for (const uint32_t context : {1u, 32u}) {
    const ModelConfig brief = ReadGood(bytes, context);
    EXPECT_EQ(brief.rope_divisors, std::vector<float>(8, 2.0f));
    EXPECT_EQ(brief.context_length, 32u);  // Beyond it these divisors are not meant.
    EXPECT_NE(CanonicalText(brief), CanonicalText(whole));
  }
}

TEST(Architecture, Phi3RefusesHalfOfWhatItNeeds) {
  EXPECT_THAT(ErrorOf("phi3",
                      [](GgufWriter& w) {
                        w.Tensor("rope_factors_long.weight", {8}, 0, std::string(32, 1));
                      }),
              HasSubstr("tensor 'rope_factors_long.weight' without 'rope_factors_short.weight'"));
  EXPECT_THAT(ErrorOf("phi3", [](GgufWriter& w) { LongRope(w, 0); }),
              HasSubstr("original_context_length': 0 is not within 1 to the context of 128"));
  EXPECT_THAT(ErrorOf("phi3",
                      [](GgufWriter& w) {
                        LongRope(w, 32, {1, 1, 1});
                      }),
              HasSubstr("'rope_factors_long.weight': expected 8 float32 values"));
  EXPECT_THAT(ErrorOf("phi3",
                      [](GgufWriter& w) {
                        LongRope(w, 32, {1, 1, 1, std::nanf(""), 1, 1, 1, 1});
                      }),
              HasSubstr("'rope_factors_long.weight': value nan of pair 3"));
  EXPECT_THAT(ErrorOf("phi3",
                      [](GgufWriter& w) {
                        LongRope(w);
                        w.String("phi3.rope.scaling.type", "longrope");
                        w.Float("phi3.rope.scaling.factor", 4.0f);
                      }),
              HasSubstr("'phi3.rope.scaling.factor': 4 beside a scaling of type 'longrope'"));
  EXPECT_THAT(ErrorOf("phi3", [](GgufWriter& w) { w.Uint("phi3.rope.dimension_count", 7); }),
              HasSubstr("RoPE on 7 of 16 dimensions of a head"));
}

TEST(Architecture, FusedMatricesAreFoundInParts) {
  const ModelConfig config = ReadGood(Model("phi3", {}, [](GgufWriter&) {}));
  const LayerProjections at = ProjectionsOf(config, 1);
  EXPECT_EQ(at.q.name, "blk.1.attn_qkv.weight");
  EXPECT_EQ(at.k.first, 64u);
  EXPECT_EQ(at.v.first, 96u);
  EXPECT_EQ(at.v.rows, 32u);
  EXPECT_EQ(at.gate.name, "blk.1.ffn_up.weight");
  EXPECT_EQ(at.gate.first, 0u);
  EXPECT_EQ(at.up.first, 96u);
  EXPECT_EQ(at.up.rows, 96u);
}

}  // namespace
}  // namespace kvasir
