#include "engine/engine_client.h"

#include <chrono>
#include <thread>
#include <utility>

namespace kvasir {

StatusOr<EngineClient::Submitted> EngineClient::Submit(GenerateRequest request,
                                                       std::function<void()> waker) {
  Submitted submitted;
  submitted.id = request.id = RequestId{next_id_.fetch_add(1, std::memory_order_relaxed)};
  submitted.stream = std::make_shared<TokenStream>(std::move(waker));
  if (!loop_.mailbox().Push(SubmitCommand{std::move(request), submitted.stream})) return Refusal();
  return submitted;
}

Status EngineClient::Ask(KvQuestion question, TimeUs deadline, std::function<void(KvAnswer)> done) {
  KvQuery query{std::move(question), deadline, std::move(done)};
  return loop_.mailbox().Push(std::move(query)) ? OkStatus() : Refusal();
}

Status EngineClient::Refusal() const {
  if (loop_.mailbox().closed()) {
    return MakeStatus(StatusCode::kUnavailable, "the server is shutting down");
  }
  return ResourceExhausted("the engine has too many commands waiting; try again later");
}

void EngineClient::Cancel(RequestId id) {
  while (!loop_.mailbox().Push(CancelCommand{id}) && !loop_.mailbox().closed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace kvasir
