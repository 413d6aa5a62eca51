#include "engine/token_stream.h"

#include <utility>

namespace kvasir {

template <typename Change>
void TokenStream::Push(Change&& change) {
  bool was_empty;
  {
    MutexLock lock(mutex_);
    was_empty = pending_.empty();
    change(pending_);
  }
  if (was_empty && waker_) waker_();
}

void TokenStream::PushAccepted() {
  Push([](Batch& batch) { batch.accepted = true; });
}

void TokenStream::PushRejected(Status status) {
  Push([&](Batch& batch) { batch.rejected = std::move(status); });
}

void TokenStream::PushEvent(TokenEvent event) {
  Push([&](Batch& batch) { batch.events.push_back(std::move(event)); });
}

void TokenStream::PushEnd(const RequestSummary& summary) {
  Push([&](Batch& batch) { batch.end = summary; });
}

TokenStream::Batch TokenStream::Take() {
  MutexLock lock(mutex_);
  return std::exchange(pending_, Batch{});
}

}  // namespace kvasir
