// The reference pass on small models against a scalar computation that takes one query at a time
// and shares nothing with it but the definition in model_config.h.
#include "model/reference_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/architecture.h"
#include "model/reference_matmul.h"
#include "model/tiny_model_for_test.h"

namespace kvasir {
namespace {

using ::testing::HasSubstr;
using Vector = std::vector<double>;

class NaiveModel {
 public:
  NaiveModel(const GgufFile& file, const ModelConfig& config) : file_(file), config_(config) {}

  Vector LastLogits(const std::vector<TokenId>& tokens) {
    std::vector<std::vector<Vector>> keys(config_.layer_count);
    std::vector<std::vector<Vector>> values(config_.layer_count);
    Vector x;
    for (size_t p = 0; p < tokens.size(); ++p) {
      x = Row("token_embd.weight", static_cast<size_t>(Index(tokens[p])));
      for (double& value : x) value *= config_.embedding_scale;
      for (uint32_t i = 0; i < config_.layer_count; ++i) Layer(i, p, keys[i], values[i], x);
    }
    return Times("token_embd.weight", Norm(x, "output_norm.weight"));
  }

 private:
  Vector Row(const std::string& name, size_t row) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    Vector out;
    for (size_t c = 0; c < tensor->cols(); ++c) {
      float value;
      std::memcpy(&value, tensor->bytes.data() + (row * tensor->cols() + c) * 4, 4);
      out.push_back(value);
    }
    return out;
  }

  Vector Times(const std::string& name, const Vector& x) const {
    Vector out;
    for (size_t o = 0; o < file_.FindTensor(name)->rows(); ++o) {
      const Vector row = Row(name, o);
      double sum = 0.0;
      for (size_t c = 0; c < x.size(); ++c) sum += row[c] * x[c];
      out.push_back(sum);
    }
    return out;
  }

  Vector Norm(Vector x, const std::string& name) const {
    const Vector weight = Row(name, 0);
    double mean = 0.0;
    for (const double value : x) mean += value * value / static_cast<double>(x.size());
    for (size_t c = 0; c < x.size(); ++c) {
      x[c] *= weight[c] / std::sqrt(mean + double{config_.norm_eps});
    }
    return x;
  }

  Vector Head(const Vector& x, size_t head) const {
    return {x.begin() + static_cast<long>(head * config_.head_dim),
            x.begin() + static_cast<long>((head + 1) * config_.head_dim)};
  }

  Vector Rotated(Vector head, size_t position, double base) const {
    const size_t dim = head.size();
    Vector out(dim);
    for (size_t i = 0; i < dim / 2; ++i) {
      const bool pairs = config_.rope_pairing == RopePairing::kInterleaved;
      const size_t a = pairs ? 2 * i : i;
      const size_t b = pairs ? 2 * i + 1 : i + dim / 2;
      const double angle = static_cast<double>(position) /
                           std::pow(base, 2.0 * static_cast<double>(i) / static_cast<double>(dim));
      out[a] = head[a] * std::cos(angle) - head[b] * std::sin(angle);
      out[b] = head[a] * std::sin(angle) + head[b] * std::cos(angle);
    }
    return out;
  }

  void Layer(uint32_t i, size_t p, std::vector<Vector>& keys, std::vector<Vector>& values,
             Vector& x) {
    const LayerConfig& layer = config_.layers[i];
    const auto name = [&](const char* part) { return LayerTensorName(i, part); };
    const Vector h = Norm(x, name("attn_norm"));
    const Vector q = Times(name("attn_q"), h);
    keys.push_back({});
    for (size_t kv = 0; kv < config_.kv_head_count; ++kv) {
      Vector k = Head(Times(name("attn_k"), h), kv);
      if (config_.qk_norm) k = Norm(k, name("attn_k_norm"));
      for (const double value : Rotated(k, p, layer.rope_base)) keys[p].push_back(value);
    }
    values.push_back(Times(name("attn_v"), h));
    Vector mixed;
    for (size_t head = 0; head < config_.head_count; ++head) {
      Vector own = Head(q, head);
      if (config_.qk_norm) own = Norm(own, name("attn_q_norm"));
      const Vector o =
          Attend(layer, p, Rotated(own, p, layer.rope_base), head / config_.group(), keys, values);
      mixed.insert(mixed.end(), o.begin(), o.end());
    }
    Vector added = Times(name("attn_output"), mixed);
    if (config_.post_norms) added = Norm(added, name("post_attention_norm"));
    for (size_t c = 0; c < x.size(); ++c) x[c] += added[c];
    added = FeedForward(i, Norm(x, name("ffn_norm")));
    if (config_.post_norms) added = Norm(added, name("post_ffw_norm"));
    for (size_t c = 0; c < x.size(); ++c) x[c] += added[c];
  }

  Vector Attend(const LayerConfig& layer, size_t p, const Vector& q, size_t kv_head,
                const std::vector<Vector>& keys, const std::vector<Vector>& values) const {
    const size_t first = layer.window == 0 || p < layer.window ? 0 : p - layer.window + 1;
    Vector out(config_.head_dim);
    double total = 0.0;
    for (size_t t = first; t <= p; ++t) {
      const Vector k = Head(keys[t], kv_head);
      double score = 0.0;
      for (size_t c = 0; c < k.size(); ++c) score += q[c] * k[c];
      const double weight = std::exp(score * config_.attention_scale);
      total += weight;
      const Vector v = Head(values[t], kv_head);
      for (size_t c = 0; c < v.size(); ++c) out[c] += weight * v[c];
    }
    for (double& value : out) value /= total;
    return out;
  }

  Vector FeedForward(uint32_t i, const Vector& h) const {
    Vector gate = Times(LayerTensorName(i, "ffn_gate"), h);
    const Vector up = Times(LayerTensorName(i, "ffn_up"), h);
    for (size_t c = 0; c < gate.size(); ++c) {
      const double g = gate[c];
      const double gelu =
          0.5 * g * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (g + 0.044715 * std::pow(g, 3))));
      gate[c] = (config_.activation == Activation::kSilu ? g / (1.0 + std::exp(-g)) : gelu) * up[c];
    }
    return Times(LayerTensorName(i, "ffn_down"), gate);
  }

  const GgufFile& file_;
  const ModelConfig& config_;
};

struct Loaded {
  std::string bytes;
  GgufFile file;
  ModelConfig config;
};

Loaded Load(const std::string& arch, const TinyShape& shape) {
  std::string bytes = TinyModel(arch, shape);
  GgufFile file = *GgufFile::Parse(BytesOf(bytes));
  ModelConfig config = *ReadModelConfig(file);
  return {std::move(bytes), std::move(file), std::move(config)};
}

std::vector<TokenId> RandomTokens(Rng& rng, size_t count, uint32_t vocab) {
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < count; ++i)
    tokens.push_back(TokenId{static_cast<int32_t>(rng.Below(vocab))});
  return tokens;
}

TEST(ReferenceForward, AgreesWithOneTokenAtATime) {
  for (const char* arch : {"llama", "gemma3"}) {
    SCOPED_TRACE(arch);
    // Seven layers: one of them global under the default pattern. 21 tokens: beyond the window of
    // 8, and a last tile of 5 rows.
    const TinyShape shape = {.layers = 7, .head_dim = 16, .vocab = 33};
    const Loaded model = Load(arch, shape);
    Rng rng(7);
    const std::vector<TokenId> tokens = RandomTokens(rng, 21, shape.vocab);
    const ReferenceModel reference(model.file, model.config, 2);
    const std::vector<uint32_t> positions = {20, 0, 7, 8, 9, 15, 20};
    const auto logits = reference.Logits(tokens, positions);
    ASSERT_TRUE(logits.ok()) << MessageOf(logits.status());
    ASSERT_EQ(logits->size(), positions.size());
    for (size_t i = 0; i < positions.size(); ++i) {
      const std::vector<TokenId> prefix(tokens.begin(), tokens.begin() + positions[i] + 1);
      const Vector naive = NaiveModel(model.file, model.config).LastLogits(prefix);
      ASSERT_EQ((*logits)[i].size(), naive.size());
      for (size_t t = 0; t < naive.size(); ++t) {
        // K and V are rounded to float32 in one and not in the other.
        ASSERT_NEAR((*logits)[i][t], naive[t], 1e-4 * (1.0 + std::abs(naive[t]))) << i << " " << t;
      }
    }
  }
}

TEST(ReferenceForward, ResultsDependOnNothingElse) {
  const Loaded model = Load("gemma3", {.layers = 2});
  Rng rng(3);
  const std::vector<TokenId> tokens = RandomTokens(rng, 30, model.config.vocab_size);
  const std::vector<uint32_t> positions = {11, 29};
  const auto one = ReferenceModel(model.file, model.config, 1).Logits(tokens, positions);
  const auto three = ReferenceModel(model.file, model.config, 3).Logits(tokens, positions);
  EXPECT_EQ(*one, *three);
  // What follows a position does not change it, and neither does the company it is asked for in.
  const auto prefix = ReferenceModel(model.file, model.config, 2)
                          .Logits(std::span(tokens).first(12), std::vector<uint32_t>{11});
  EXPECT_EQ((*one)[0], (*prefix)[0]);
}

TEST(ReferenceForward, RefusesWhatIsOutside) {
  const Loaded model = Load("llama", {});
  const ReferenceModel reference(model.file, model.config, 1);
  const auto error = [&](std::vector<TokenId> tokens, std::vector<uint32_t> positions) {
    const auto logits = reference.Logits(tokens, positions);
    return logits.ok() ? "computed" : std::string(MessageOf(logits.status()));
  };
  EXPECT_THAT(error({}, {}), HasSubstr("no tokens"));
  EXPECT_THAT(error({TokenId{40}}, {0}), HasSubstr("token 40 is outside the vocabulary of 40"));
  EXPECT_THAT(error({TokenId{-1}}, {0}), HasSubstr("token -1 is outside"));
  EXPECT_THAT(error({TokenId{1}}, {1}), HasSubstr("position 1 is outside the 1 tokens"));
  EXPECT_THAT(error(std::vector<TokenId>(129, TokenId{1}), {0}),
              HasSubstr("129 tokens are more than the context of 128"));
  EXPECT_EQ(error({TokenId{1}}, {}), "computed");
}

// Every combination of a partial block of weight rows and a partial tile of activation rows.
TEST(ReferenceMatMul, AgreesWithTheDefinition) {
  Rng rng(5);
  for (const size_t rows : {1, 3, 4, 31, 32, 33, 70}) {
    for (const size_t count : {1, 7, 8, 9}) {
      const size_t cols = 1 + rng.Below(50);
      GgufWriter writer;
      writer.Tensor("w", {cols, rows}, 0, RandomFloats(rng, cols * rows, 1.0f));
      const std::string bytes = writer.Finish();
      const auto file = GgufFile::Parse(BytesOf(bytes));
      const GgufTensor& w = *file->FindTensor("w");
      TiledRows x(count, cols);
      std::vector<Vector> plain(count, Vector(cols));
      for (size_t r = 0; r < count; ++r) {
        for (double& value : plain[r]) value = rng.Normal();
        x.Set(r, plain[r]);
      }
      std::vector<Vector> out;
      ReferenceMatMul(w, x, 2, out);
      ASSERT_EQ(out.size(), count);
      for (size_t r = 0; r < count; ++r) {
        for (size_t o = 0; o < rows; ++o) {
          double sum = 0.0;
          for (size_t c = 0; c < cols; ++c) {
            float value;
            std::memcpy(&value, w.bytes.data() + (o * cols + c) * 4, 4);
            sum += plain[r][c] * double{value};
          }
          ASSERT_EQ(out[r][o], sum) << rows << " " << count << " " << cols;  // Bit for bit.
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvasir
