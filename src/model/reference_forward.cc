#include "model/reference_forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/check.h"
#include "kernels/weight_format.h"
#include "model/architecture.h"
#include "model/reference_matmul.h"
#include "model/rope.h"

namespace kvasir {
namespace {

using Rows = std::vector<std::vector<double>>;  // [positions][width]

TiledRows Tiled(const Rows& rows) {
  TiledRows out(rows.size(), rows[0].size());
  for (size_t r = 0; r < rows.size(); ++r) out.Set(r, rows[r]);
  return out;
}

void RmsNormInPlace(std::span<double> x, std::span<const float> weight, double eps) {
  double total = 0.0;
  for (const double value : x) total += value * value;
  const double root = std::sqrt(total / static_cast<double>(x.size()) + eps);
  for (size_t c = 0; c < x.size(); ++c) x[c] = x[c] / root * weight[c];
}

// Of the dimensions that turn: two for each of `frequencies`.
void RopeInPlace(std::span<double> head, size_t position, std::span<const double> frequencies,
                 double magnitude, RopePairing pairing) {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * frequencies[i];
    const double cosine = std::cos(angle) * magnitude;
    const double sine = std::sin(angle) * magnitude;
    const bool interleaved = pairing == RopePairing::kInterleaved;
    double& a = head[interleaved ? 2 * i : i];
    double& b = head[interleaved ? 2 * i + 1 : i + half];
    const double old_a = a;
    a = old_a * cosine - b * sine;
    b = old_a * sine + b * cosine;
  }
}

double Capped(double value, double cap) {
  return cap == 0.0 ? value : cap * std::tanh(value / cap);
}

double Activate(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1.0 + std::exp(-x));
  const double inner = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1.0 + std::tanh(inner));
}

void AddTo(Rows& x, const Rows& y) {
  for (size_t r = 0; r < x.size(); ++r) {
    for (size_t c = 0; c < x[r].size(); ++c) x[r][c] += y[r][c];
  }
}

}  // namespace

// One computation of a token list: x after each layer, for all positions at once.
class ReferenceModel::Pass {
 public:
  Pass(const ReferenceModel& model, std::span<const TokenId> tokens)
      : file_(*model.file_), config_(model.config_), threads_(model.thread_count_) {
    const GgufTensor& embedding = Tensor("token_embd.weight");
    const size_t row_bytes = embedding.bytes.size() / embedding.rows();
    std::vector<float> row(config_.d_model);
    for (const TokenId token : tokens) {
      DequantizeRow(
          embedding.format,
          embedding.bytes.subspan(static_cast<size_t>(Index(token)) * row_bytes, row_bytes), row);
      std::vector<double>& x = x_.emplace_back(row.begin(), row.end());
      for (double& value : x) value *= config_.embedding_scale;
    }
  }

  void RunLayer(uint32_t layer) {
    Rows added = Attention(layer);
    if (config_.post_norms) Normalize(added, LayerTensorName(layer, "post_attention_norm"));
    AddTo(x_, added);
    added = FeedForward(layer);
    if (config_.post_norms) Normalize(added, LayerTensorName(layer, "post_ffw_norm"));
    AddTo(x_, added);
  }

  Rows Logits(std::span<const uint32_t> positions) const {
    Rows rows;
    for (const uint32_t position : positions) rows.push_back(x_[position]);
    Normalize(rows, "output_norm.weight");
    const GgufTensor& head = Tensor(config_.tied_head ? "token_embd.weight" : "output.weight");
    Rows logits;
    ReferenceMatMul(head, Tiled(rows), threads_, logits);
    for (std::vector<double>& row : logits) {
      for (double& logit : row) logit = Capped(logit, config_.logit_cap);
    }
    return logits;
  }

 private:
  const GgufTensor& Tensor(const std::string& name) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    KV_CHECK(tensor != nullptr);  // ReadModelConfig has seen it.
    return *tensor;
  }

  std::vector<float> Vector(const std::string& name) const {
    const GgufTensor& tensor = Tensor(name);
    std::vector<float> values(tensor.cols());
    DequantizeRow(tensor.format, tensor.bytes, values);
    return values;
  }

  void Normalize(Rows& rows, const std::string& weight_name) const {
    const std::vector<float> weight = Vector(weight_name);
    for (std::vector<double>& row : rows) RmsNormInPlace(row, weight, config_.norm_eps);
  }

  Rows Times(const TiledRows& x, const std::string& weight_name) const {
    return Times(x, TensorRows{weight_name, 0, static_cast<uint32_t>(Tensor(weight_name).rows())});
  }

  Rows Times(const TiledRows& x, const TensorRows& at) const {
    GgufTensor part = Tensor(at.name);
    const size_t row_bytes = part.bytes.size() / part.rows();
    part.bytes = part.bytes.subspan(at.first * row_bytes, at.rows * row_bytes);
    part.dims[1] = at.rows;
    part.dims[2] = part.dims[3] = 1;
    Rows out;
    ReferenceMatMul(part, x, threads_, out);
    return out;
  }

  void AddBias(Rows& rows, uint32_t layer, std::string_view part) const {
    if (!config_.qkv_bias) return;
    const std::vector<float> bias = Vector(LayerBiasName(layer, part));
    for (std::vector<double>& row : rows) {
      for (size_t c = 0; c < row.size(); ++c) row[c] += bias[c];
    }
  }

  // Norm per head where the model has one, then RoPE, on q [heads] or k [kv_heads].
  void FinishHeads(Rows& rows, uint32_t layer, std::string_view norm_part) const {
    std::vector<float> norm;
    if (config_.qk_norm) norm = Vector(LayerTensorName(layer, norm_part));
    std::vector<double> frequencies(config_.rope_dim / 2);
    RopeFrequenciesOf(config_, config_.layers[layer], frequencies);
    ForEachOnThreads(rows.size(), threads_, [&](size_t position) {
      for (size_t at = 0; at < rows[position].size(); at += config_.head_dim) {
        const std::span<double> head = std::span(rows[position]).subspan(at, config_.head_dim);
        if (config_.qk_norm) RmsNormInPlace(head, norm, config_.norm_eps);
        RopeInPlace(head, position, frequencies, config_.rope_magnitude, config_.rope_pairing);
      }
    });
  }

  Rows Attention(uint32_t layer) const {
    Rows h = x_;
    Normalize(h, LayerTensorName(layer, "attn_norm"));
    const TiledRows tiled = Tiled(h);
    const LayerProjections at = ProjectionsOf(config_, layer);
    Rows q = Times(tiled, at.q);
    Rows k = Times(tiled, at.k);
    Rows v = Times(tiled, at.v);
    AddBias(q, layer, "attn_q");
    AddBias(k, layer, "attn_k");
    AddBias(v, layer, "attn_v");
    FinishHeads(q, layer, "attn_q_norm");
    FinishHeads(k, layer, "attn_k_norm");
    Rows mixed(x_.size(), std::vector<double>(config_.q_width()));
    for (uint32_t kv_head = 0; kv_head < config_.kv_head_count; ++kv_head) {
      MixKvHead(layer, kv_head, q, k, v, mixed);
    }
    return Times(Tiled(mixed), LayerTensorName(layer, "attn_output"));
  }

  // Attention of all query heads that share `kv_head`. K and V are rounded to float32 here: K as
  // [positions][head_dim], V transposed, so that both products are the one tile.
  void MixKvHead(uint32_t layer, uint32_t kv_head, const Rows& q, const Rows& k, const Rows& v,
                 Rows& mixed) const {
    const size_t count = x_.size();
    const size_t dim = config_.head_dim;
    const size_t from = kv_head * dim;
    std::vector<double> keys(count * dim);
    std::vector<double> values(dim * count);
    for (size_t p = 0; p < count; ++p) {
      for (size_t c = 0; c < dim; ++c) {
        keys[p * dim + c] = static_cast<float>(k[p][from + c]);
        values[c * count + p] = static_cast<float>(v[p][from + c]);
      }
    }
    const size_t tiles = (count + kReferenceLanes - 1) / kReferenceLanes;
    ForEachOnThreads(tiles * config_.group(), threads_, [&](size_t unit) {
      const size_t head = kv_head * config_.group() + unit / tiles;
      MixTile(config_.layers[layer].window, unit % tiles, head, q, keys, values, mixed);
    });
  }

  // Eight consecutive query positions of one head against all positions that any of them sees.
  void MixTile(uint32_t window, size_t tile, size_t head, const Rows& q,
               const std::vector<double>& keys, const std::vector<double>& values,
               Rows& mixed) const {
    const size_t count = x_.size();
    const size_t dim = config_.head_dim;
    const size_t first = tile * kReferenceLanes;
    const size_t lanes = std::min(kReferenceLanes, count - first);
    const size_t begin = window == 0 || first + 1 < window ? 0 : first + 1 - window;
    const size_t seen = first + lanes - begin;
    TiledRows queries(lanes, dim);
    for (size_t r = 0; r < lanes; ++r) {
      queries.Set(r, std::span(q[first + r]).subspan(head * dim, dim));
    }
    std::vector<double> scores(seen * kReferenceLanes);
    ReferenceTile(keys.data() + begin * dim, dim, seen, queries.tile(0), dim, scores.data());
    for (size_t r = 0; r < lanes; ++r) SoftmaxLane(window, first + r, begin, r, scores);
    std::vector<double> sums(dim * kReferenceLanes);
    ReferenceTile(values.data() + begin, count, dim, scores.data(), seen, sums.data());
    for (size_t r = 0; r < lanes; ++r) {
      for (size_t c = 0; c < dim; ++c) {
        mixed[first + r][head * dim + c] = sums[c * kReferenceLanes + r];
      }
    }
  }

  // Scores of one query, lane `lane` of [seen][8], to probabilities; what it does not see to 0.
  // Score i belongs to position begin + i.
  void SoftmaxLane(uint32_t window, size_t position, size_t begin, size_t lane,
                   std::vector<double>& scores) const {
    const size_t seen = scores.size() / kReferenceLanes;
    double max = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < seen; ++i) {
      double& score = scores[i * kReferenceLanes + lane];
      const size_t other = begin + i;
      const bool visible = other <= position && (window == 0 || position - other < window);
      score = visible ? Capped(score * config_.attention_scale, config_.attention_cap)
                      : -std::numeric_limits<double>::infinity();
      max = std::max(max, score);
    }
    double sum = 0.0;
    for (size_t i = 0; i < seen; ++i) {
      double& score = scores[i * kReferenceLanes + lane];
      score = std::exp(score - max);
      sum += score;
    }
    for (size_t i = 0; i < seen; ++i) scores[i * kReferenceLanes + lane] /= sum;
  }

  Rows FeedForward(uint32_t layer) const {
    Rows h = x_;
    Normalize(h, LayerTensorName(layer, "ffn_norm"));
    const TiledRows tiled = Tiled(h);
    const LayerProjections at = ProjectionsOf(config_, layer);
    Rows gate = Times(tiled, at.gate);
    const Rows up = Times(tiled, at.up);
    ForEachOnThreads(gate.size(), threads_, [&](size_t r) {
      for (size_t c = 0; c < gate[r].size(); ++c) {
        gate[r][c] = Activate(config_.activation, gate[r][c]) * up[r][c];
      }
    });
    return Times(Tiled(gate), LayerTensorName(layer, "ffn_down"));
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  const int threads_;
  Rows x_;  // [tokens][d_model], the residual stream.
};

ReferenceModel::ReferenceModel(const GgufFile& file, ModelConfig config, int thread_count)
    : file_(&file), config_(std::move(config)), thread_count_(thread_count) {
  KV_CHECK_GE(thread_count, 1);
}

StatusOr<std::vector<std::vector<double>>> ReferenceModel::Logits(
    std::span<const TokenId> tokens, std::span<const uint32_t> positions) const {
  if (tokens.empty()) return InvalidArgument("no tokens to compute");
  if (tokens.size() > config_.context_length) {
    return InvalidArgument("{} tokens are more than the context of {}", tokens.size(),
                           config_.context_length);
  }
  for (const TokenId token : tokens) {
    if (Index(token) < 0 || static_cast<uint32_t>(Index(token)) >= config_.vocab_size) {
      return InvalidArgument("token {} is outside the vocabulary of {}", Index(token),
                             config_.vocab_size);
    }
  }
  for (const uint32_t position : positions) {
    if (position >= tokens.size()) {
      return InvalidArgument("position {} is outside the {} tokens", position, tokens.size());
    }
  }
  if (positions.empty()) return std::vector<std::vector<double>>();
  // No position sees what comes after it.
  Pass pass(*this, tokens.first(*std::max_element(positions.begin(), positions.end()) + 1));
  for (uint32_t layer = 0; layer < config_.layer_count; ++layer) pass.RunLayer(layer);
  return pass.Logits(positions);
}

}  // namespace kvasir
