// The engine thread among others: many clients submit, cancel and read at once, and each gets its
// own answer.
#include "engine/engine_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "engine/engine_client.h"
#include "engine/letters_for_test.h"
#include "model/fake_model_runner.h"

namespace kvasir {
namespace {

constexpr uint32_t kVocab = kLettersVocab;

class EngineLoopTest : public ::testing::Test {
 protected:
  EngineLoopTest() {
    EngineLoop::Options options;
    options.scheduler.max_batch = 8;
    options.scheduler.max_batch_tokens = 64;
    options.scheduler.max_logits_rows = 8;
    options.scheduler.max_queue = 64;
    FakeModelRunner::Options fake;
    fake.vocab_size = kVocab;
    fake.limits = {64, 8, 8};
    runner_ = std::make_unique<FakeModelRunner>(fake);
    KvCache::Options kv;
    kv.layout = runner_->kv_layout();
    kv.block_counts = {48, 48};
    kv.max_sequences = 8;
    kv.max_sequence_tokens = 512;
    cache_ = std::move(KvCache::Create(kv)).value();
    loop_ = std::make_unique<EngineLoop>(options, *runner_, *cache_, *tokenizer_, clock_);
    client_ = std::make_unique<EngineClient>(*loop_);
  }

  GenerateRequest Request(uint64_t seed) const {
    Rng rng(seed);
    GenerateRequest request;
    const int64_t length = rng.Between(1, 100);
    for (int64_t i = 0; i < length; ++i) {
      request.prompt.push_back(TokenId{static_cast<int32_t>(i < 40 ? 3 : rng.Below(26))});
    }
    request.hashes = HashBlocks(request.root, request.prompt, 16);
    request.options.max_new_tokens = static_cast<uint32_t>(rng.Between(1, 20));
    request.options.ignore_eos = true;
    return request;
  }

  std::string Alone(const GenerateRequest& request) const {
    auto sequence =
        std::move(Sequence::Create(*tokenizer_, kVocab, 512, request.prompt, request.options))
            .value();
    SamplerScratch scratch(kVocab);
    std::string text;
    while (!sequence->finished()) {
      const std::vector<float> logits = runner_->Logits(sequence->known());
      text += sequence->Append(sequence->Choose(logits, scratch));
    }
    return text;
  }

  // Polls, as a handler would that was woken up; gives up after half a minute.
  struct Answer {
    bool rejected = false;
    std::string text;
    std::optional<RequestSummary> end;
  };
  static Answer Await(TokenStream& stream) {
    Answer answer;
    for (int i = 0; i < 30'000 && !answer.end && !answer.rejected; ++i) {
      const TokenStream::Batch batch = stream.Take();
      answer.rejected = batch.rejected.has_value();
      for (const TokenEvent& event : batch.events) answer.text += event.text;
      answer.end = batch.end;
      if (batch.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return answer;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = Letters();
  SteadyClock clock_;
  std::unique_ptr<FakeModelRunner> runner_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<EngineClient> client_;
};

TEST_F(EngineLoopTest, ManyClientsEachGetTheirOwnAnswer) {
  std::thread engine([&] { loop_->Run(); });
  std::atomic<int> finished{0}, cancelled{0}, refused{0};
  std::vector<std::thread> clients;
  for (uint64_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (uint64_t i = 0; i < 10; ++i) {
        const GenerateRequest request = Request(c * 100 + i);
        auto submitted = client_->Submit(request, [] {});
        ASSERT_TRUE(submitted.ok());
        const bool hang_up = i % 4 == 3;
        if (hang_up) client_->Cancel(submitted->id);
        const Answer answer = Await(*submitted->stream);
        ASSERT_TRUE(answer.end.has_value() || answer.rejected);
        if (answer.rejected) {
          ++refused;
        } else if (answer.end->end == RequestEnd::kFinished) {
          ++finished;
          EXPECT_EQ(answer.text, Alone(request));
        } else {
          EXPECT_TRUE(hang_up);
          ++cancelled;
        }
        client_->snapshot();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(finished + cancelled + refused, 80);
  EXPECT_GE(finished, 60);
  EXPECT_EQ(client_->snapshot().scheduler.finished, static_cast<uint64_t>(finished.load()));
  loop_->Stop(/*drain=*/true);
  engine.join();
  cache_->CheckInvariants();
  EXPECT_EQ(cache_->open_sequences(), 0u);
}

// Snapshots are whole and never go back, however many read them, and answers stay right.
TEST_F(EngineLoopTest, EightReadersDuringLoad) {
  std::thread engine([&] { loop_->Run(); });
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> reads{0}, answers{0}, refusals{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 8; ++r) {
    readers.emplace_back([&] {
      uint64_t steps = 0;
      while (!stop.load()) {
        const EngineSnapshot now = client_->snapshot();
        EXPECT_GE(now.scheduler.steps, steps);
        EXPECT_EQ(now.scheduler.steps, now.scheduler.step_rows.steps);
        EXPECT_LE(now.kv_usage.used, now.kv_usage.reserved);
        EXPECT_LE(now.kv_usage.reserved, now.kv_usage.total);
        steps = now.scheduler.steps;
        ++reads;
        if (reads % 8 != 0) continue;
        KvListQuery list{GenerateRequest().root, {}, 20, true};
        auto answered = std::make_shared<std::atomic<bool>>(false);
        const Status asked = client_->Ask(list, kNever, [&, answered](KvAnswer answer) {
          EXPECT_TRUE(answer.status.ok() || answer.status.code() == StatusCode::kResourceExhausted);
          ++answers;
          answered->store(true);
        });
        if (!asked.ok()) ++refusals;
        for (int i = 0; asked.ok() && i < 20'000 && !answered->load(); ++i) {
          std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
      }
    });
  }
  for (uint64_t i = 0; i < 40; ++i) {
    const GenerateRequest request = Request(i);
    auto submitted = client_->Submit(request, [] {});
    ASSERT_TRUE(submitted.ok());
    const Answer answer = Await(*submitted->stream);
    ASSERT_TRUE(answer.end.has_value());
    EXPECT_EQ(answer.text, Alone(request));
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  loop_->Stop(/*drain=*/true);
  engine.join();
  EXPECT_GT(reads.load(), 100u);
  EXPECT_GT(answers.load(), 10u);
  EXPECT_EQ(refusals.load(), 0u);
  cache_->CheckInvariants();
}

// Every question gets one answer, also one that comes too late or when the engine is ending.
TEST_F(EngineLoopTest, QuestionsAreAnsweredOnce) {
  std::vector<StatusCode> codes;
  const auto note = [&](KvAnswer answer) { codes.push_back(answer.status.code()); };
  ASSERT_TRUE(client_->Ask(KvListQuery{{}, {}, 1, false}, clock_.Now() - 1, note).ok());
  ASSERT_TRUE(client_->Ask(KvListQuery{{}, {}, 1, false}, kNever, note).ok());
  ASSERT_TRUE(client_->Ask(KvUnpinQuery{{}, BlockHash(), {}, {}}, kNever, note).ok());
  while (loop_->RunOnce()) {
  }
  EXPECT_EQ(codes, (std::vector<StatusCode>{StatusCode::kDeadlineExceeded, StatusCode::kOk,
                                            StatusCode::kOk}));
  codes.clear();
  ASSERT_TRUE(client_->Ask(KvClearQuery{}, kNever, note).ok());
  loop_->Stop(/*drain=*/false);
  loop_->Run();
  EXPECT_EQ(codes.size(), 1u);
  EXPECT_EQ(client_->Ask(KvClearQuery{}, kNever, note).code(), StatusCode::kUnavailable);
  EXPECT_EQ(codes.size(), 1u);
}

TEST_F(EngineLoopTest, TooManyQuestionsAreRefused) {
  int answered = 0, refused = 0;
  for (int i = 0; i < 300; ++i) {
    const Status asked =
        client_->Ask(KvListQuery{{}, {}, 1, false}, kNever,
                     [&](const KvAnswer& answer) { answer.status.ok() ? ++answered : ++refused; });
    ASSERT_TRUE(asked.ok());
  }
  loop_->RunOnce();
  // A turn answers few, whatever waits.
  EXPECT_EQ(answered, static_cast<int>(KvDesk::kPagesPerTurn));
  EXPECT_EQ(refused, 300 - 256);
  while (loop_->RunOnce()) {
  }
  EXPECT_EQ(answered, 256);
}

TEST_F(EngineLoopTest, DrainFinishesWhatRunsAndRefusesNewWork) {
  GenerateRequest request = Request(1);
  request.options.max_new_tokens = 200;
  auto running = client_->Submit(request, [] {});
  ASSERT_TRUE(running.ok());
  std::thread engine([&] { loop_->Run(); });
  loop_->Stop(/*drain=*/true);
  const auto late = client_->Submit(Request(2), [] {});
  EXPECT_EQ(late.status().code(), StatusCode::kUnavailable);
  engine.join();
  const Answer answer = Await(*running->stream);
  ASSERT_TRUE(answer.end.has_value());
  EXPECT_EQ(answer.end->end, RequestEnd::kFinished);
  EXPECT_EQ(answer.text, Alone(request));
}

TEST_F(EngineLoopTest, StopNowEndsEverythingOnce) {
  std::vector<EngineClient::Submitted> submitted;
  for (uint64_t i = 0; i < 20; ++i) {
    GenerateRequest request = Request(i);
    request.options.max_new_tokens = 300;
    auto one = client_->Submit(std::move(request), [] {});
    ASSERT_TRUE(one.ok());
    submitted.push_back(*one);
  }
  std::thread engine([&] { loop_->Run(); });
  loop_->Stop(/*drain=*/false);
  engine.join();
  for (const EngineClient::Submitted& one : submitted) {
    const Answer answer = Await(*one.stream);
    ASSERT_TRUE(answer.end.has_value());
    EXPECT_EQ(answer.end->end, RequestEnd::kShutDown);
  }
}

// Who has the last event of a request in hand finds no trace of it in the gauges.
TEST_F(EngineLoopTest, GaugesAreRightWhenTheEndIsTold) {
  GenerateRequest request = Request(4);
  request.options.max_new_tokens = 3;
  auto submitted = client_->Submit(std::move(request), [] {});
  ASSERT_TRUE(submitted.ok());
  bool ended = false;
  while (!ended) {
    loop_->RunOnce();
    ended = submitted->stream->Take().end.has_value();
    EXPECT_EQ(client_->snapshot().scheduler.running, ended ? 0u : 1u);
  }
}

// The waker is called when there is something new, and not once for each event of an unread stream.
TEST_F(EngineLoopTest, WakerIsCalledWhenTheStreamWasEmpty) {
  int wakes = 0;
  GenerateRequest request = Request(3);
  request.options.max_new_tokens = 10;
  auto submitted = client_->Submit(std::move(request), [&] { ++wakes; });
  ASSERT_TRUE(submitted.ok());
  for (int i = 0; i < 50; ++i) loop_->RunOnce();
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(client_->snapshot().scheduler.running, 0u);
  const TokenStream::Batch batch = submitted->stream->Take();
  EXPECT_TRUE(batch.accepted);
  EXPECT_EQ(batch.events.size(), 10u);
  EXPECT_TRUE(batch.end.has_value());
}

}  // namespace
}  // namespace kvasir
