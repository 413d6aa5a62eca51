// TokenStream: what the engine has to say about one request, from the engine thread to its handler.
//
// Exactly one of: a rejection, or an acceptance followed by events and one end. The stream holds as
// many events as the request may generate, so a handler that does not read stalls nobody. Thread:
// Push* on the engine thread; Take on the handler's; the waker is called on the engine thread after
// a push that found the stream empty, and must only hand over to the handler's thread.
#ifndef KVASIR_ENGINE_TOKEN_STREAM_H_
#define KVASIR_ENGINE_TOKEN_STREAM_H_

#include <functional>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "engine/generate_request.h"

namespace kvasir {

class TokenStream {
 public:
  explicit TokenStream(std::function<void()> waker) : waker_(std::move(waker)) {}

  void PushAccepted() KV_EXCLUDES(mutex_);
  void PushRejected(Status status) KV_EXCLUDES(mutex_);
  void PushEvent(TokenEvent event) KV_EXCLUDES(mutex_);
  void PushEnd(const RequestSummary& summary) KV_EXCLUDES(mutex_);

  // What has come since the last Take, in order.
  struct Batch {
    bool accepted = false;
    std::optional<Status> rejected;
    std::vector<TokenEvent> events;
    std::optional<RequestSummary> end;  // After all events.

    bool empty() const { return !accepted && !rejected && events.empty() && !end; }
  };
  Batch Take() KV_EXCLUDES(mutex_);

 private:
  template <typename Change>
  void Push(Change&& change) KV_EXCLUDES(mutex_);

  const std::function<void()> waker_;
  Mutex mutex_;
  Batch pending_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_TOKEN_STREAM_H_
