// Small random models in memory, for tests: complete files of a few kilobytes, of any architecture
// (qwen2 but for its biases).
#ifndef KVASIR_MODEL_TINY_MODEL_FOR_TEST_H_
#define KVASIR_MODEL_TINY_MODEL_FOR_TEST_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/gguf_writer_for_test.h"

namespace kvasir {

// The shape of a small model.
struct TinyShape {
  uint32_t layers = 2;
  uint32_t d_model = 64;
  uint32_t d_ffn = 96;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 16;
  uint32_t vocab = 40;
  uint32_t context = 128;
  uint32_t window = 8;   // Of Gemma's local layers; 0: the file does not say.
  bool q8_head = false;  // The tied head is Q8_0, not F32.
};

// `count` floats of deviation `scale`, as the bytes of an F32 tensor.
inline std::string RandomFloats(Rng& rng, size_t count, float scale) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    const float value = rng.Normal() * scale;
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    out.append(bytes, sizeof(value));
  }
  return out;
}

// `count` values in Q8_0 blocks of one scale, uniform in [-0.25, 0.25].
inline std::string RandomQ8Blocks(Rng& rng, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    if (i % 32 == 0) out.append("\0\x18", 2);  // The half 2^-9.
    out.push_back(static_cast<char>(rng.Between(-127, 127)));
  }
  return out;
}

inline void WriteTinyTokenizer(GgufWriter& writer, const TinyShape& shape) {
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<int32_t> types;
  for (uint32_t i = 0; i < shape.vocab; ++i) {
    tokens.push_back(i < 3 ? "<" + std::to_string(i) + ">" : std::string(1 + i % 3, 'a' + i % 26));
    tokens.back() += std::to_string(i);
    scores.push_back(-static_cast<float>(i));
    types.push_back(i < 3 ? 3 : 1);
  }
  writer.String("tokenizer.ggml.model", "llama");
  writer.String("tokenizer.ggml.pre", "default");
  writer.Strings("tokenizer.ggml.tokens", tokens);
  writer.Numbers("tokenizer.ggml.scores", GgufType::kFloat32, scores);
  writer.Numbers("tokenizer.ggml.token_type", GgufType::kInt32, types);
  writer.Uint("tokenizer.ggml.bos_token_id", 1);
  writer.Uint("tokenizer.ggml.eos_token_id", 2);
  writer.Bool("tokenizer.ggml.add_bos_token", true);
  writer.String("tokenizer.chat_template", "{{ messages }}");
}

inline void WriteTinyConfig(GgufWriter& writer, const TinyShape& shape, const std::string& arch) {
  writer.String("general.architecture", arch);
  writer.String("general.name", "tiny");
  writer.Uint(arch + ".block_count", shape.layers);
  writer.Uint(arch + ".context_length", shape.context);
  writer.Uint(arch + ".embedding_length", shape.d_model);
  writer.Uint(arch + ".feed_forward_length", shape.d_ffn);
  writer.Uint(arch + ".attention.head_count", shape.heads);
  writer.Uint(arch + ".attention.head_count_kv", shape.kv_heads);
  writer.Uint(arch + ".attention.key_length", shape.head_dim);
  writer.Uint(arch + ".attention.value_length", shape.head_dim);
  writer.Float(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  writer.Float(arch + ".rope.freq_base", 10000.0f);
  if ((arch == "gemma2" || arch == "gemma3") && shape.window != 0) {
    writer.Uint(arch + ".attention.sliding_window", shape.window);
  }
}

// Every tensor of a model of this shape, with random values.
inline void WriteTinyTensors(GgufWriter& writer, const TinyShape& shape, const std::string& arch,
                             uint64_t seed = 1) {
  Rng rng(seed);
  const uint64_t d = shape.d_model;
  const uint64_t q = uint64_t{shape.heads} * shape.head_dim;
  const uint64_t kv = uint64_t{shape.kv_heads} * shape.head_dim;
  const auto matrix = [&](const std::string& name, uint64_t cols, uint64_t rows) {
    writer.Tensor(name, {cols, rows}, 0, RandomFloats(rng, cols * rows, 0.2f));
  };
  const auto vector = [&](const std::string& name, uint64_t cols) {
    writer.Tensor(name, {cols}, 0, RandomFloats(rng, cols, 1.0f));
  };
  if (shape.q8_head) {
    writer.Tensor("token_embd.weight", {d, shape.vocab}, 8, RandomQ8Blocks(rng, d * shape.vocab));
  } else {
    matrix("token_embd.weight", d, shape.vocab);
  }
  for (uint32_t i = 0; i < shape.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + ".";
    vector(blk + "attn_norm.weight", d);
    const bool fused = arch == "phi3";
    if (fused) {
      matrix(blk + "attn_qkv.weight", d, q + 2 * kv);
    } else {
      matrix(blk + "attn_q.weight", d, q);
      matrix(blk + "attn_k.weight", d, kv);
      matrix(blk + "attn_v.weight", d, kv);
    }
    matrix(blk + "attn_output.weight", q, d);
    vector(blk + "ffn_norm.weight", d);
    if (!fused) matrix(blk + "ffn_gate.weight", d, shape.d_ffn);
    matrix(blk + "ffn_up.weight", d, fused ? 2 * shape.d_ffn : shape.d_ffn);
    matrix(blk + "ffn_down.weight", shape.d_ffn, d);
    if (arch == "gemma3" || arch == "qwen3") {
      vector(blk + "attn_q_norm.weight", shape.head_dim);
      vector(blk + "attn_k_norm.weight", shape.head_dim);
    }
    if (arch != "gemma3" && arch != "gemma2") continue;
    vector(blk + "post_attention_norm.weight", d);
    vector(blk + "post_ffw_norm.weight", d);
  }
  vector("output_norm.weight", d);
}

inline std::string TinyModel(const std::string& arch = "llama", const TinyShape& shape = {}) {
  GgufWriter writer;
  WriteTinyConfig(writer, shape, arch);
  WriteTinyTokenizer(writer, shape);
  WriteTinyTensors(writer, shape, arch);
  return writer.Finish();
}

}  // namespace kvasir

#endif  // KVASIR_MODEL_TINY_MODEL_FOR_TEST_H_
