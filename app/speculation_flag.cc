#include "speculation_flag.h"

#include "base/check.h"

namespace kvasir {
namespace {

std::string SpeculationProblem(const std::string& text) {
  const bool known = text == "off" || text == "ngram" || text == "auto";
  return known ? std::string() : "'" + text + "' is unknown; use off, ngram or auto";
}

}  // namespace

void SpeculationFlag::Register(Options& options) {
  options
      .Add("--speculate", &name,
           "Guess repeated text and verify it in one step: off, ngram (always) or auto (where it "
           "pays); the text is the same")
      .Type("off|ngram|auto")
      .Check(SpeculationProblem)
      .ShowDefault()
      .Group("Speculation");
}

Speculation SpeculationFlag::value() const {
  if (name == "off") return Speculation::kOff;
  if (name == "ngram") return Speculation::kNgram;
  KV_CHECK(name == "auto");  // The option's check has seen to that.
  return Speculation::kAuto;
}

OpenNeeds SpeculationFlag::Needs() const {
  OpenNeeds needs;
  if (value() != Speculation::kOff) needs.max_logits_rows = 1 + kMaxDraftTokens;
  return needs;
}

}  // namespace kvasir
