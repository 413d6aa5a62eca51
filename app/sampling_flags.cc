#include "sampling_flags.h"

#include <CLI/CLI.hpp>
#include <random>

#include "option_values.h"

namespace kvasir {

void SamplingFlags::Register(CLI::App& app) {
  const auto number = [&app](const char* name, auto* value, const char* description) {
    app.add_option(name, *value, description)->capture_default_str()->group("Sampling");
  };
  number("--temp,--temperature", &temperature, "Temperature; 0 takes the most probable token");
  number("--top-k", &top_k, "Keep the K most probable tokens; 0 keeps all");
  number("--top-p", &top_p, "Keep the smallest set with this share of the probability");
  number("--min-p", &min_p, "Keep tokens this probable relative to the best");
  number("--repeat-penalty", &repeat_penalty, "Divide the logits of seen tokens; 1 is off");
  number("--presence-penalty", &presence_penalty, "Subtract once from generated tokens");
  number("--frequency-penalty", &frequency_penalty, "Subtract per time a token was generated");
  app.add_option("--logit-bias", logit_bias, "Add BIAS to a token's logit; repeatable")
      ->type_name("TOKEN:BIAS")
      ->check(LogitBiasProblem)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Sampling");
  app.add_option("--seed", seed, "Seed of the draws; the same seed gives the same text")
      ->type_name("N")
      ->group("Sampling");
  app.add_option("--stop", stops, "End the answer before this text; repeatable")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Sampling");
}

StatusOr<SamplingOptions> SamplingFlags::Options(uint32_t vocab_size) const {
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
  }
  KV_RETURN_IF_ERROR(options.Validate(vocab_size));
  return options;
}

}  // namespace kvasir
