// ModelFlags: the options of every command that computes with a model, and opening it as they say.
#ifndef KVASIR_APP_MODEL_FLAGS_H_
#define KVASIR_APP_MODEL_FLAGS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/cost_model.h"
#include "engine/loaded_model.h"
#include "io/mapped_parts.h"
#include "options.h"

namespace kvasir {

struct ModelFlags {
  std::string path;  // A URL until FetchModel.
  std::string models_dir;
  int threads = 0;  // 0: all usable cores.
  std::string isa;  // Empty: the best this CPU has.
  uint32_t context_tokens = 0;
  uint32_t least_context = 1;
  const char* context_help = "Longest sequence in tokens (default: the model's)";
  std::string kv_memory;
  std::string kv_type = "f16";
  std::string kv_evict;  // Empty: gdsf, or adaptive with serve's --kv-adapt.
  std::string kv_strategy = "paged";
  bool head_sketch = false;

  void Register(Options& options);
};

// A model and the file it was read from.
struct OpenedModel {
  MappedParts file;
  std::unique_ptr<LoadedModel> model;
};

// What a command needs beyond one sequence of the context's length.
struct OpenNeeds {
  uint32_t max_sequences = 1;
  uint32_t max_logits_rows = 1;
  uint32_t max_rows = StepLimits().max_rows;  // Of one step.
  uint32_t context_tokens = 0;                // At least; 0: what flags and model say.
  std::string context_advice;                 // What to change when those cannot be had.
};

// Refuses `flag` with the value `text` when that much memory is more than this machine has: the
// system would grant it now, and kill the program when it is used.
Status CheckMachineHolds(const char* flag, const std::string& text, uint64_t bytes);

// Maps and loads the model, with a progress bar on a terminal's standard error when that takes over
// a second. Errors are prefixed with the file's name.
StatusOr<OpenedModel> OpenModel(const ModelFlags& flags, const OpenNeeds& needs);

// What computing with the model costs, for who plans steps.
CostModel::Options CostOf(const LoadedModel& model);

// Applies --isa and --threads without a model; the number of threads.
StatusOr<int> ApplyMachineFlags(const ModelFlags& flags);

}  // namespace kvasir

#endif  // KVASIR_APP_MODEL_FLAGS_H_
