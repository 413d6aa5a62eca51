// The two real models and their golden data, for tests that run the whole forward pass.
//
// Models are looked for in KVASIR_MODELS_DIR (default ~/.cache/kvasir/models). A missing one skips
// the test, or fails it when KVASIR_REQUIRE_MODELS is set, as `./dev test` does.
#ifndef KVASIR_TESTS_GOLDEN_GOLDEN_MODEL_H_
#define KVASIR_TESTS_GOLDEN_GOLDEN_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/huge_buffer.h"
#include "base/worker_team.h"
#include "io/mapped_file.h"
#include "model/cpu_model_runner.h"
#include "model/gguf_file.h"
#include "model/model_config.h"
#include "model/weights.h"

namespace kvasir {

inline constexpr const char* kSmolLm2 = "SmolLM2-135M-Instruct.Q4_1.gguf";
inline constexpr const char* kGemma3 = "gemma-3-270m-q4_k_m.gguf";

// The model's path, or nullopt after having skipped or failed the running test.
std::optional<std::string> GoldenModelPath(const std::string& file_name);

struct GoldenModel {
  MappedFile file;
  GgufFile gguf;
  ModelConfig config;
  Weights weights;
};

// Loads a model; aborts the test program when the file is there but does not load. Loaded once and
// kept.
const GoldenModel& LoadGoldenModel(const std::string& path);

struct GoldenPosition {
  uint32_t position;
  double logsumexp;
  std::vector<uint32_t> ids;
  std::vector<double> logits;
};

struct GoldenRow {
  std::string label;
  std::string text;
  std::vector<TokenId> tokens;
  double nll_sum;
  std::vector<GoldenPosition> positions;  // 256 largest logits at some positions.
  std::vector<GoldenPosition> every;      // 32 largest logits at each position.
};

std::vector<GoldenRow> LoadGoldenRows(const std::string& model_file_name);

// A dense KV store for one sequence, without any cache policy: blocks of its own in every group.
class PlainKv {
 public:
  PlainKv(const KvLayout& layout, uint32_t token_count);

  std::array<std::span<std::byte* const>, kMaxKvGroups> blocks() const;
  // For a step whose first token is at `start`, all tokens before having been computed here.
  KvTail tail(uint32_t start) const;

  // The stored KV of tokens [begin, end) in an order that does not depend on the block size: per
  // group, layer, head and token, K then V. REQUIRES: `end` tokens were computed.
  std::vector<float> Gather(uint32_t begin, uint32_t end) const;

 private:
  KvLayout layout_;
  std::vector<HugeBuffer> buffers_;
  std::vector<std::vector<std::byte*>> addresses_;
  std::vector<HugeBuffer> tails_;  // By group, if keys are staged.
};

// Runs `tokens` from position 0 in steps of `chunk` and shows the logits of every position in
// [logits_from, tokens.size()) to `visit`.
using LogitsVisitor = std::function<void(uint32_t position, std::span<const float> logits)>;
void RunInChunks(ModelRunner& runner, const PlainKv& kv, const std::vector<TokenId>& tokens,
                 uint32_t chunk, uint32_t logits_from, const LogitsVisitor& visit);

}  // namespace kvasir

#endif  // KVASIR_TESTS_GOLDEN_GOLDEN_MODEL_H_
