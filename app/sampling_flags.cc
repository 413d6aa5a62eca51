#include "sampling_flags.h"

#include <algorithm>
#include <random>
#include <string>

#include "option_values.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

// SamplingOptions begins a message with the name of a field; here they are options.
Status AboutOption(const Status& status) {
  if (status.ok()) return status;
  const std::string message(MessageOf(status));
  const size_t end = std::min(message.find(' '), message.size());
  std::string name = message.substr(0, end);
  if (name == "temperature") name = "temp";
  if (name == "repetition_penalty") name = "repeat-penalty";
  std::replace(name.begin(), name.end(), '_', '-');
  return MakeStatus(status.code(), "--" + name + message.substr(end));
}

}  // namespace

void SamplingFlags::Register(Options& options) {
  const auto number = [&options](const char* name, auto* value, const char* description) {
    options.Add(name, value, description).ShowDefault().Group("Sampling");
  };
  number("--temp,--temperature", &temperature, "Temperature; 0 takes the most probable token");
  number("--top-k", &top_k, "Keep the K most probable tokens; 0 keeps all");
  number("--top-p", &top_p, "Keep the smallest set with this share of the probability");
  number("--min-p", &min_p, "Keep tokens this probable relative to the best");
  number("--repeat-penalty", &repeat_penalty, "Divide the logits of seen tokens; 1 is off");
  number("--presence-penalty", &presence_penalty, "Subtract once from generated tokens");
  number("--frequency-penalty", &frequency_penalty, "Subtract per time a token was generated");
  options.Add("--logit-bias", &logit_bias, "Add BIAS to a token's logit; repeatable")
      .Type("TOKEN:BIAS")
      .Check(LogitBiasProblem)
      .Group("Sampling");
  options.Add("--seed", &seed, "Seed of the draws; the same seed gives the same text")
      .Type("N")
      .Group("Sampling");
  options.Add("--stop", &stops, "End the answer before this text; repeatable")
      .Type("TEXT")
      .Group("Sampling");
}

StatusOr<SamplingOptions> SamplingFlags::ToSamplingOptions(uint32_t vocab_size) const {
  SamplingOptions options;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  options.min_p = min_p;
  options.repetition_penalty = repeat_penalty;
  options.presence_penalty = presence_penalty;
  options.frequency_penalty = frequency_penalty;
  for (const std::string& text : logit_bias) {
    KV_ASSIGN_OR_RETURN(const auto bias, ParseLogitBias(text));
    options.logit_bias.push_back(bias);
  }
  if (seed.has_value()) {
    options.seed = *seed;
  } else {
    std::random_device device;
    options.seed = (uint64_t{device()} << 32) | device();
  }
  for (const std::string& stop : stops) {
    if (stop.empty()) return InvalidArgument("--stop must not be empty");
    KV_RETURN_IF_ERROR(WithPrefix(ValidateUtf8(stop), "--stop"));
  }
  KV_RETURN_IF_ERROR(AboutOption(options.Validate(vocab_size)));
  return options;
}

}  // namespace kvasir
