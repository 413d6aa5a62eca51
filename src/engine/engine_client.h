// EngineClient: how request handlers reach the engine: submit and cancel, from any thread.
#ifndef KVASIR_ENGINE_ENGINE_CLIENT_H_
#define KVASIR_ENGINE_ENGINE_CLIENT_H_

#include <atomic>
#include <functional>
#include <memory>

#include "base/status.h"
#include "engine/engine_loop.h"
#include "engine/generate_request.h"
#include "engine/token_stream.h"

namespace kvasir {

class EngineClient {
 public:
  explicit EngineClient(EngineLoop& loop) : loop_(loop) {}  // The loop must outlive it.

  struct Submitted {
    RequestId id{};
    std::shared_ptr<TokenStream> stream;
  };

  // Sends a request (its id is given here) to the engine. Whether it is taken comes as the stream's
  // first word. kResourceExhausted when the mailbox is full, kUnavailable when the engine stops.
  StatusOr<Submitted> Submit(GenerateRequest request, std::function<void()> waker);

  // Ends a request within one step; its stream still gets its end. Ids that are over are ignored.
  // A full mailbox is waited for: a cancel must not be lost.
  void Cancel(RequestId id);

  // Asks about the cache. `done` gets the answer on the engine thread, where it may only post it
  // on, at the latest soon after `deadline` (on the engine's clock) or the end of the engine. When
  // OK is not returned it is not called: kResourceExhausted and kUnavailable as for Submit.
  Status Ask(KvQuestion question, TimeUs deadline, std::function<void(KvAnswer)> done);

  EngineSnapshot snapshot() const { return loop_.snapshot(); }

 private:
  Status Refusal() const;  // Why the mailbox took nothing.

  EngineLoop& loop_;
  std::atomic<uint64_t> next_id_{1};
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_CLIENT_H_
