// Weights: a model's tensors, repacked once at load into the layouts that the kernels read.
//
// The repacked bytes live in one huge-page buffer, in the order in which a forward pass streams
// them. The file's own pages are not needed afterwards: `release` is told of each part as soon as
// it is repacked, so that the peak of resident memory stays near the size of one copy. Thread:
// immutable after Load.
#ifndef KVASIR_MODEL_WEIGHTS_H_
#define KVASIR_MODEL_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "kernels/head_sketch.h"
#include "kernels/matmul.h"
#include "model/gguf_file.h"
#include "model/model_config.h"
#include "model/model_digest.h"

namespace kvasir {

struct LayerWeights {
  std::span<const float> attn_norm;       // [d_model]
  std::span<const float> q_norm;          // [head_dim], empty when the model has none
  std::span<const float> k_norm;          // [head_dim], likewise
  std::span<const float> post_attn_norm;  // [d_model], likewise
  std::span<const float> q_bias;          // [heads * head_dim], likewise
  std::span<const float> k_bias;          // [kv_heads * head_dim], likewise
  std::span<const float> v_bias;          // [kv_heads * head_dim], likewise
  std::span<const float> ffn_norm;        // [d_model]
  std::span<const float> post_ffn_norm;   // [d_model], likewise
  // q, k, v and gate, up may be parts of one matrix: rows that begin at a panel's border.
  PackedMatrix q;            // [heads * head_dim, d_model]
  PackedMatrix k;            // [kv_heads * head_dim, d_model]
  PackedMatrix v;            // [kv_heads * head_dim, d_model]
  PackedMatrix attn_output;  // [d_model, heads * head_dim]
  PackedMatrix gate;         // [d_ffn, d_model]
  PackedMatrix up;           // [d_ffn, d_model]
  PackedMatrix down;         // [d_model, d_ffn]
};

struct WeightsLoadOptions {
  // Called on the loading thread with parts of the file that are not needed any more. May be empty.
  std::function<void(std::span<const std::byte>)> release;
  // Called on the loading thread with the share of bytes done, in [0, 1]. May be empty.
  std::function<void(double)> progress;
  // Also build the head's sketch (kernels/head_sketch.h) where the head has the form for it.
  bool head_sketch = false;
};

class Weights {
 public:
  // REQUIRES: `config` came from ReadModelConfig(file), which has checked names, shapes and types.
  // kResourceExhausted when the memory cannot be had.
  static StatusOr<Weights> Load(const GgufFile& file, const ModelConfig& config, WorkerTeam& team,
                                const WeightsLoadOptions& options);

  Weights(Weights&&) = default;
  Weights& operator=(Weights&&) = default;

  const std::vector<LayerWeights>& layers() const { return layers_; }
  const PackedMatrix& token_embedding() const { return token_embedding_; }  // [vocab, d_model]
  const PackedMatrix& head() const { return head_; }  // token_embedding() itself when tied
  std::span<const float> output_norm() const { return output_norm_; }
  // Null when it was not asked for or the head does not suit.
  const HeadSketch* head_sketch() const { return head_sketch_ ? &*head_sketch_ : nullptr; }
  size_t packed_bytes() const { return buffer_.size(); }

  // What one decode step of one sequence streams: all matrices of the layers and the head.
  size_t step_bytes() const { return step_bytes_; }
  // Multiply-accumulates of a token in the layers' matrices, and in the head.
  uint64_t layer_macs() const { return layer_macs_; }
  uint64_t head_macs() const { return uint64_t{head_.rows} * head_.cols; }

  // The model's identity (model_digest.h), computed while the bytes passed by.
  const Digest& digest() const { return digest_; }

 private:
  friend class WeightsLoader;
  Weights() = default;

  HugeBuffer buffer_;
  std::vector<LayerWeights> layers_;
  PackedMatrix token_embedding_;
  PackedMatrix head_;
  std::span<const float> output_norm_;
  std::optional<HeadSketch> head_sketch_;
  size_t step_bytes_ = 0;
  uint64_t layer_macs_ = 0;
  Digest digest_{};
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_WEIGHTS_H_
