// ModelConfig: everything that the forward pass must know about a model, as plain data.
//
// What differs between architectures is a field here, so that runner and reference contain no
// architecture's name; the knowledge of one architecture sits in one architecture_<name>.cc.
// Layer data flow (pre-norm transformer, the order is fixed):
//   x = embedding[token] * embedding_scale
//   per layer: h = norm(x); q, k, v = h Wq [+ bq], h Wk [+ bk], h Wv [+ bv];
//              [q, k = norm per head]; rope(q), rope(k);
//              o = attention(q, k, v) Wo; [o = norm(o)]; x += o;
//              h = norm(x); f = (act(h Wgate) * (h Wup)) Wdown; [f = norm(f)]; x += f
//   logits = norm(x) Whead [, capped]
// where norm is RMS norm with norm_eps and [..] depends on a field. A cap turns a value s into
// cap * tanh(s / cap). How fast RoPE turns is in model/rope.h. A value; no pointers into the file.
// Thread: immutable after reading.
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
  uint32_t window = 0;       // Position p sees (p - window, p]; 0 means all before it.
  double rope_base = 0.0;    // Angle of pair i at position p: p * base^(-2i / rope_dim).
  double rope_factor = 1.0;  // At least 1: that angle is divided by it (YaRN: of slow pairs only).
};

// Which pairs a YaRN model turns slower: those that turn less than beta_slow times in the original
// context by rope_factor, those that turn more than beta_fast times not at all, in between in part.
// Source: Peng et al. 2023, arXiv:2309.00071.
struct YarnScaling {
  uint32_t original_context = 0;  // 0: not a YaRN model.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
};

struct ModelConfig {
  std::string architecture;  // "llama", "gemma3", ...
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
  RopePairing rope_pairing = RopePairing::kInterleaved;
  uint32_t rope_dim = 0;  // The first so many dimensions of a head turn; even.
  YarnScaling yarn;
  std::vector<float> rope_divisors;  // [rope_dim / 2] of the pairs' angles; empty: none.
  double rope_magnitude = 1.0;       // Cosines and sines are multiplied by it.
  Activation activation = Activation::kSilu;
  bool qk_norm = false;     // RMS norm of each head of q and k, before RoPE.
  bool post_norms = false;  // RMS norm of what attention and FFN add to x.
  bool tied_head = false;   // The head is the embedding.
  bool qkv_bias = false;
  bool fused_qkv = false;      // Wq, Wk and Wv are the rows of one matrix, in this order.
  bool fused_gate_up = false;  // Wgate and Wup are the halves of "ffn_up", in this order.
  double embedding_scale = 1.0;
  double attention_scale = 0.0;     // Multiplies q . k.
  double attention_cap = 0.0;       // Of scores, after the scale; 0: none.
  double logit_cap = 0.0;           // Of logits; 0: none.
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
//
// `context_tokens`: the longest sequence that will be computed, 0 for the file's own context. It
// changes what is read of models with one set of RoPE divisors for short contexts and one for long
// ones (Phi-3) only: up to the context of the former, the config is that of a model of that
// context.
StatusOr<ModelConfig> ReadModelConfig(const GgufFile& file, uint32_t context_tokens = 0);

// Tensors in the file that the forward pass does not read, in file order.
std::vector<std::string_view> UnusedTensors(const GgufFile& file, const ModelConfig& config);

// All fields that change what the model computes, as one line of text that is the same on every
// machine; for the root of the KV names, beside the ModelDigest.
std::string CanonicalText(const ModelConfig& config);

}  // namespace kvasir

#endif  // KVASIR_MODEL_MODEL_CONFIG_H_
