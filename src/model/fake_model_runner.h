// FakeModelRunner: a ModelRunner without a model, for tests and simulations of what stands above
// one.
//
// The KV of a token is a digest of the exact tokens up to it, computed from the digest that is
// *read back* from the block of the token before; the logits are a function of all digests that
// attention could see, read back likewise. So a stale, foreign, overwritten or missing block
// changes the reply, and a reply that equals Logits() of the same tokens proves that every block
// held what it should.
//
// Two KV groups (full attention, and a window), each one layer with one head of 16 channels.
// Thread: as ModelRunner.
#ifndef KVASIR_MODEL_FAKE_MODEL_RUNNER_H_
#define KVASIR_MODEL_FAKE_MODEL_RUNNER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_runner.h"

namespace kvasir {

class FakeModelRunner : public ModelRunner {
 public:
  struct Options {
    uint32_t vocab_size = 64;
    uint32_t context_length = 1024;
    uint32_t window = 24;
    uint32_t block_tokens = 16;
    StepLimits limits;
  };
  explicit FakeModelRunner(const Options& options);

  const ModelConfig& config() const override { return config_; }
  const KvLayout& kv_layout() const override { return layout_; }
  const StepLimits& limits() const override { return limits_; }
  void Run(const Batch& batch) override;
  std::span<const float> logits(uint32_t row) const override;

  // The logits after `tokens`, from the definition, without any KV.
  std::vector<float> Logits(std::span<const TokenId> tokens) const;

  uint64_t rows_computed() const { return rows_computed_; }

 private:
  void FillLogits(uint64_t digest, std::span<float> row) const;

  ModelConfig config_;
  KvLayout layout_;
  StepLimits limits_;
  std::vector<float> logits_;
  uint64_t rows_computed_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_FAKE_MODEL_RUNNER_H_
