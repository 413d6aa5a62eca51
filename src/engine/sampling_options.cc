#include "engine/sampling_options.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

// `low_open` excludes the lower end. NaN fails every comparison and so is refused too.
Status CheckRange(const char* name, float value, float low, bool low_open, float high) {
  const bool above = low_open ? value > low : value >= low;
  if (above && value <= high) return OkStatus();
  return InvalidArgument("{} is {}, must be in {}{}, {}]", name, value, low_open ? '(' : '[', low,
                         high);
}

Status CheckBias(const std::vector<std::pair<TokenId, float>>& bias, uint32_t vocab_size) {
  std::vector<TokenId> ids;
  ids.reserve(bias.size());
  for (const auto& [id, value] : bias) {
    if (Index(id) < 0 || static_cast<uint32_t>(Index(id)) >= vocab_size) {
      return InvalidArgument("logit_bias names token {}, the vocabulary has 0 to {}", Index(id),
                             vocab_size - 1);
    }
    if (std::isnan(value) || value == INFINITY) {
      return InvalidArgument("logit_bias of token {} is {}, must be a number or -inf", Index(id),
                             value);
    }
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice != ids.end()) return InvalidArgument("logit_bias names token {} twice", Index(*twice));
  return OkStatus();
}

}  // namespace

Status SamplingOptions::Validate(uint32_t vocab_size) const {
  KV_RETURN_IF_ERROR(CheckRange("temperature", temperature, 0.0f, false, 100.0f));
  KV_RETURN_IF_ERROR(CheckRange("top_p", top_p, 0.0f, true, 1.0f));
  KV_RETURN_IF_ERROR(CheckRange("min_p", min_p, 0.0f, false, 1.0f));
  KV_RETURN_IF_ERROR(CheckRange("repetition_penalty", repetition_penalty, 0.0f, true, 100.0f));
  KV_RETURN_IF_ERROR(CheckRange("presence_penalty", presence_penalty, -2.0f, false, 2.0f));
  KV_RETURN_IF_ERROR(CheckRange("frequency_penalty", frequency_penalty, -2.0f, false, 2.0f));
  return CheckBias(logit_bias, vocab_size);
}

}  // namespace kvasir
