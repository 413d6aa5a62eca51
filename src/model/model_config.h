// ModelConfig: everything that the forward pass must know about a model, as plain data.
//
// What differs between architectures is a field here, so that runner and reference contain no
// architecture's name; the knowledge of one architecture sits in one architecture_<name>.cc.
// Layer data flow (pre-norm transformer, the order is fixed):
//   x = embedding[token] * embedding_scale
//   per layer: h = norm(x); q, k, v = h Wq, h Wk, h Wv; [q, k = norm per head]; rope(q), rope(k);
//              o = attention(q, k, v) Wo; [o = norm(o)]; x += o;
//              h = norm(x); f = (act(h Wgate) * (h Wup)) Wdown; [f = norm(f)]; x += f
//   logits = norm(x) Whead
// where norm is RMS norm with norm_eps and [..] depends on a field. A value; no pointers into the
// file. Thread: immutable after reading.
#ifndef KVASIR_MODEL_MODEL_CONFIG_H_
#define KVASIR_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/row_ops.h"
#include "model/gguf_file.h"

namespace kvasir {

struct LayerConfig {
  uint32_t window = 0;     // Position p sees (p - window, p]; 0 means all before it.
  double rope_base = 0.0;  // Angle of pair i at position p: p * base^(-2i / head_dim).
};

struct ModelConfig {
  std::string architecture;  // "llama", "gemma3".
  std::string name;          // general.name, for people; may be empty.
  uint32_t layer_count = 0;
  uint32_t d_model = 0;  // A multiple of 32, as are d_ffn and head_count * head_dim.
  uint32_t d_ffn = 0;
  uint32_t head_count = 0;  // A multiple of kv_head_count.
  uint32_t kv_head_count = 0;
  uint32_t head_dim = 0;        // Of q, k and v; a multiple of 16, at most 256.
  uint32_t context_length = 0;  // Tokens the model was trained for.
  uint32_t vocab_size = 0;      // Rows of the embedding; token ids are below it.
  float norm_eps = 0.0f;
  RopePairing rope_pairing = RopePairing::kInterleaved;  // Rotates the whole head.
  Activation activation = Activation::kSilu;
  bool qk_norm = false;     // RMS norm of each head of q and k, before RoPE.
  bool post_norms = false;  // RMS norm of what attention and FFN add to x.
  bool tied_head = false;   // The head is the embedding.
  double embedding_scale = 1.0;
  double attention_scale = 0.0;     // Multiplies q . k.
  std::vector<LayerConfig> layers;  // [layer_count]

  uint32_t q_width() const { return head_count * head_dim; }
  uint32_t kv_width() const { return kv_head_count * head_dim; }
  uint32_t group() const { return head_count / kv_head_count; }  // Query heads a KV head.
};

// Limits of what is accepted; larger numbers are taken for damage. Products of any two fit 64 bit,
// and a matrix's rows and columns fit 32 bit.
inline constexpr uint32_t kMaxLayers = 1024;
inline constexpr uint32_t kMaxWidth = 1u << 17;  // d_model, d_ffn, head_count * head_dim.
inline constexpr uint32_t kMaxContext = 1u << 24;
inline constexpr uint32_t kMaxVocab = 1u << 22;

// The configuration of a whole model: metadata read by its architecture's rules, checked for
// plausibility, and every tensor that the forward pass needs found with the right shape and a
// usable type (vectors float32). Tensors beyond those are allowed. kUnimplemented for architectures
// and variants of them that this build does not compute; kInvalidArgument for anything
// inconsistent. A vocabulary-only file fails here, and only here.
StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file);

// Tensors in the file that the forward pass does not read, in file order.
std::vector<std::string_view> UnusedTensors(const GgufFile& file, const ModelConfig& config);

// All fields that change what the model computes, as one line of text that is the same on every
// machine; for the root of the KV names, beside the ModelDigest.
std::string CanonicalText(const ModelConfig& config);

}  // namespace kvasir

#endif  // KVASIR_MODEL_MODEL_CONFIG_H_
