// SpeculationFlag: --speculate, of the commands that generate.
#ifndef KVASIR_APP_SPECULATION_FLAG_H_
#define KVASIR_APP_SPECULATION_FLAG_H_

#include <string>

#include "engine/drafter.h"
#include "model_flags.h"
#include "options.h"

namespace kvasir {

struct SpeculationFlag {
  std::string name = "auto";

  void Register(Options& options);
  Speculation value() const;
  // What one sequence needs: with speculation, logits of the guesses' rows too.
  OpenNeeds Needs() const;
};

}  // namespace kvasir

#endif  // KVASIR_APP_SPECULATION_FLAG_H_
