// What those who drive sequences do to get a draft for one: the scheduler for many, Generation for
// its own.
#ifndef KVASIR_ENGINE_PROPOSE_DRAFT_H_
#define KVASIR_ENGINE_PROPOSE_DRAFT_H_

#include <memory>

#include "engine/drafter.h"
#include "engine/sequence.h"
#include "kv/kv_cache.h"

namespace kvasir {

// Guesses what follows the known tokens of a sequence that is open in `kv` as `id`; false: no idea,
// or no use because at most one more token may come. Makes the drafter when it is absent: the only
// allocation.
bool ProposeDraft(const Sequence& sequence, const KvCache& kv, SequenceId id,
                  std::unique_ptr<Drafter>* drafter, Draft* draft);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PROPOSE_DRAFT_H_
