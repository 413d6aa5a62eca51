#include "engine/propose_draft.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {

bool ProposeDraft(const Sequence& sequence, const KvCache& kv, SequenceId id,
                  std::unique_ptr<Drafter>* drafter, Draft* draft) {
  KV_CHECK(!sequence.finished());
  draft->count = 0;
  // A step adds a token of its own: guesses beyond the last one that may come are of no use.
  const uint32_t most = std::min({sequence.room() - 1, kMaxDraftTokens, kv.most_guessed_rows(id)});
  if (most == 0) return false;
  if (*drafter == nullptr) *drafter = std::make_unique<Drafter>(sequence.max_tokens());
  const std::span<const TokenId> known = sequence.known();
  (*drafter)->Update(known);
  if ((*drafter)->wants_cached()) {
    std::array<TokenId, kMaxDraftTokens> cached;
    const uint32_t count = kv.Continuation(id, known.subspan(kv.computed(id)), cached);
    (*drafter)->OfferCached(std::span<const TokenId>(cached).first(count));
  }
  (*drafter)->Propose(known, most, draft);
  return draft->count > 0;
}

}  // namespace kvasir
