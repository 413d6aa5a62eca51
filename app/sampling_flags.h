// SamplingFlags: the sampling options of run and chat as command line options.
#ifndef KVASIR_APP_SAMPLING_FLAGS_H_
#define KVASIR_APP_SAMPLING_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/sampling_options.h"
#include "options.h"

namespace kvasir {

struct SamplingFlags {
  float temperature = 0.0f;
  uint32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repeat_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::vector<std::string> logit_bias;
  std::optional<uint64_t> seed;  // Absent: a random one.
  std::vector<std::string> stops;

  // `temperature` and the others hold the command's defaults when this is called.
  void Register(Options& options);

  // Validated; draws a seed when none was given and one is needed.
  StatusOr<SamplingOptions> ToSamplingOptions(uint32_t vocab_size) const;
};

}  // namespace kvasir

#endif  // KVASIR_APP_SAMPLING_FLAGS_H_
