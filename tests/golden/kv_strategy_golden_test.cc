// The KV strategy changes no answer: a mixed load on the real models in so little KV memory that
// requests queue and make way gives, under each strategy, the tokens, the text and, bit for bit,
// the log-probabilities that each request has alone in a large cache.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine_client.h"
#include "engine/loaded_model.h"
#include "tests/golden/golden_model.h"

namespace kvasir {
namespace {

constexpr uint32_t kContext = 640;
constexpr uint32_t kBlocks = 80;  // 1,280 tokens: two static slots.

constexpr const char* kRules =
    "You are the assistant of a public library. Answer in one short paragraph, name the shelf when "
    "you know it, and never promise that a book is there. The library opens at nine in the morning "
    "and closes at six in the evening; on Sundays it stays closed. Readers may borrow ten books "
    "for four weeks and prolong twice. ";

struct Question {
  std::string prompt;
  uint32_t max_tokens = 24;
  bool length_given = true;
  int32_t priority = 0;
  uint32_t choice_count = 1;
  float temperature = 0.0f;
  uint32_t after_steps = 0;  // Comes when so many steps were made since the one before.
};

std::vector<Question> Questions() {
  const std::string rules = kRules;
  std::string story;
  for (int i = 0; i < 6; ++i) {
    story += fmt::format(
        "Chapter {}. On the morning of day {} the ship left the harbour with {} barrels of salt "
        "and a crew that had not slept. The captain counted the barrels again, wrote the number "
        "into the book, and ordered the course to the north. ",
        i + 1, 3 * i + 2, 17 * i + 40);
  }
  std::vector<Question> all;
  all.push_back({story + "The captain", 40, false, 2});
  all.push_back({rules + "When do you open on Monday?", 24, true, 2});
  all.push_back({rules + "May I keep a book for two months?", 30, false, 1, 3, 0.8f});
  all.push_back({rules + rules + "Where are the books about birds?", 20, true, 0, 1, 0.0f, 3});
  all.push_back({story + story.substr(0, story.size() / 3), 24, false, 0, 1, 0.0f, 2});
  all.push_back({"1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8", 60, false, 1});
  all.push_back({rules + "When do you open on Monday? At nine. And on Sunday?", 24, true, 0});
  all.push_back({"Once upon a time there was a", 40, false, 0, 2, 1.0f, 2});
  all.push_back({story, 16, true, -1, 1, 0.0f, 6});
  return all;
}

struct Reply {
  std::vector<std::vector<TokenId>> tokens;  // By choice.
  std::vector<std::string> text;
  std::vector<std::vector<float>> log_probs;
  RequestEnd end = RequestEnd::kShutDown;
};

std::vector<Reply> Run(LoadedModel& model, KvCache& kv, bool together, Speculation speculate,
                       SchedulerCounters* counters) {
  SteadyClock clock;
  EngineLoop::Options options;
  options.scheduler.max_batch = together ? 6 : 1;
  options.scheduler.max_batch_tokens = 128;
  options.scheduler.max_logits_rows = 32;
  options.scheduler.speculate = speculate;
  EngineLoop loop(options, model.runner(), kv, model.text().tokenizer(), clock);
  EngineClient client(loop);
  std::vector<EngineClient::Submitted> submitted;
  for (const Question& question : Questions()) {
    for (uint32_t i = 0; together && i < question.after_steps; ++i) loop.RunOnce();
    GenerateRequest request;
    request.prompt = model.text().tokenizer().Encode(question.prompt);
    request.root = model.Root("");
    request.hashes = HashBlocks(request.root, request.prompt, kv.layout().block_tokens);
    request.options.max_new_tokens = question.max_tokens;
    request.options.sampling.temperature = question.temperature;
    request.options.sampling.seed = 11;
    request.length_given = question.length_given;
    request.priority = question.priority;
    request.choice_count = question.choice_count;
    request.want_logprobs = true;
    request.top_logprobs = 3;
    auto sent = client.Submit(std::move(request), [] {});
    KV_CHECK(sent.ok());
    submitted.push_back(*std::move(sent));
    if (!together) {
      while (loop.RunOnce()) {
      }
    }
  }
  while (loop.RunOnce()) {
  }
  kv.CheckInvariants();
  *counters = loop.snapshot().scheduler;
  std::vector<Reply> replies;
  for (const EngineClient::Submitted& one : submitted) {
    const TokenStream::Batch batch = one.stream->Take();
    Reply& reply = replies.emplace_back();
    KV_CHECK(batch.end.has_value());
    reply.end = batch.end->end;
    for (const TokenEvent& event : batch.events) {
      if (reply.tokens.size() <= event.choice) {
        reply.tokens.resize(event.choice + 1);
        reply.text.resize(event.choice + 1);
        reply.log_probs.resize(event.choice + 1);
      }
      reply.tokens[event.choice].push_back(event.token);
      reply.text[event.choice] += event.text;
      reply.log_probs[event.choice].push_back(event.logprobs.log_prob);
      for (const TokenLogProb& best : event.logprobs.top) {
        reply.log_probs[event.choice].push_back(static_cast<float>(Index(best.token)));
        reply.log_probs[event.choice].push_back(best.log_prob);
      }
    }
  }
  return replies;
}

void ExpectTheSameAnswers(const char* file_name, KvType type) {
  const std::optional<std::string> path = GoldenModelPath(file_name);
  if (!path.has_value()) return;
  auto file = MappedFile::Open(*path);
  ASSERT_TRUE(file.ok());
  LoadedModelOptions options;
  options.thread_count = 2;
  options.context_tokens = kContext;
  options.kv_types = {type, type};
  options.max_sequences = 6;
  options.limits = {128, 6, 32};
  auto model = LoadedModel::Load(file->bytes(), options);
  ASSERT_TRUE(model.ok());
  SchedulerCounters counters;
  const std::vector<Reply> alone =
      Run(**model, (*model)->kv(), /*together=*/false, Speculation::kOff, &counters);
  for (const KvStrategy strategy : AllKvStrategies()) {
    SCOPED_TRACE(std::string(KvStrategyName(strategy)));
    KvCache::Options kv_options;
    kv_options.strategy = strategy;
    kv_options.layout = (*model)->kv().layout();
    kv_options.block_counts.assign(kv_options.layout.group_count(), kBlocks);
    kv_options.max_sequences = 6;
    kv_options.max_sequence_tokens = kContext;
    auto kv = KvCache::Create(kv_options);
    ASSERT_TRUE(kv.ok()) << MessageOf(kv.status());
    const std::vector<Reply> replies =
        Run(**model, **kv, /*together=*/true, Speculation::kNgram, &counters);
    for (size_t i = 0; i < alone.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(replies[i].end, RequestEnd::kFinished) << "failed because another one ran";
      EXPECT_EQ(replies[i].tokens, alone[i].tokens);
      EXPECT_EQ(replies[i].text, alone[i].text);
      EXPECT_EQ(replies[i].log_probs, alone[i].log_probs);  // Equal floats are equal bits here.
    }
    const KvCounters& used = (*kv)->counters();
    fmt::print("{:8} preemptions {} waits {} hit tokens {} copies {} moves {} evictions {}\n",
               KvStrategyName(strategy), counters.preemptions, counters.dedupe_waits,
               used.hit_tokens, used.copies, used.moves, used.evictions[0]);
    EXPECT_GT(counters.preemptions, 0u) << "nobody made way: that proves little";
    EXPECT_GT(used.hit_tokens, 0u);
  }
}

TEST(KvStrategyGolden, SmolLm2AnswersTheSame) { ExpectTheSameAnswers(kSmolLm2, KvType::kF16); }
TEST(KvStrategyGolden, Gemma3AnswersTheSame) { ExpectTheSameAnswers(kGemma3, KvType::kF16); }

// Keys wait in tails, and only whole blocks are reused.
TEST(KvStrategyGolden, Gemma3AnswersTheSameWithInt4) {
  ExpectTheSameAnswers(kGemma3, KvType::kInt4);
}

}  // namespace
}  // namespace kvasir
