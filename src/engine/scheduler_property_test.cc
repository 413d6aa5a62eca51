// Random schedules on a model whose replies prove that every KV block held what it should:
// arrivals, cancels, deadlines, priorities, tenants, several choices, pools so small that
// preemption is common; texts that repeat themselves and others, with drafts and without.
//
// Checked: every request ends exactly once; what finished has the text that it would have had
// alone, without drafts; every row's logits, wrong guesses' too, are those of the tokens before it;
// the cache never holds what no request said; at the end nothing runs, waits or holds a block;
// nobody waits for ever.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

#include "base/rng.h"
#include "engine/scheduler.h"
#include "model/fake_model_runner.h"

namespace kvasir {
namespace {

constexpr uint32_t kVocab = 40;  // 36 letters and control tokens; a small alphabet shares prefixes.

std::unique_ptr<Tokenizer> MakeTokenizer() {
  static std::vector<std::string> texts = [] {
    std::vector<std::string> all;
    for (char c = 'a'; c <= 'z'; ++c) all.push_back(std::string(1, c));
    for (char c = '0'; c <= '9'; ++c) all.push_back(std::string(1, c));
    for (const char* control : {"<|im_end|>", "<|c1|>", "<|c2|>", "<|c3|>"}) all.push_back(control);
    return all;
  }();
  VocabularySource source;
  source.model = "gpt2";
  source.pre = "gpt-2";
  for (const std::string& text : texts) source.tokens.push_back(text);
  source.types.assign(kVocab, 1);
  for (size_t i = 36; i < kVocab; ++i) source.types[i] = 3;
  source.eos = 36;
  auto tokenizer = Tokenizer::Create(source);
  EXPECT_TRUE(tokenizer.ok()) << MessageOf(tokenizer.status());
  return std::move(tokenizer).value();
}

struct Result {
  std::map<uint32_t, std::string> text;  // By choice.
  std::map<uint32_t, FinishReason> finish;
  std::map<uint32_t, std::vector<TokenId>> tokens;
  std::vector<TokenId> scored;  // Prompt tokens whose log-probabilities came.
  std::optional<RequestSummary> summary;
};

class Harness {
 public:
  Harness(KvStrategy strategy, uint64_t seed, const Tokenizer& tokenizer)
      : rng_(seed), tokenizer_(tokenizer) {
    FakeModelRunner::Options fake;
    fake.vocab_size = kVocab;
    fake.context_length = 256;
    fake.window = static_cast<uint32_t>(rng_.Between(5, 40));
    options_.max_batch = static_cast<uint32_t>(rng_.Between(1, 6));
    options_.max_batch_tokens = options_.max_batch + static_cast<uint32_t>(rng_.Between(0, 64));
    options_.max_logits_rows = options_.max_batch + static_cast<uint32_t>(rng_.Between(0, 4));
    options_.max_queue = static_cast<uint32_t>(rng_.Between(1, 30));
    options_.prefill_chunk = rng_.Below(2) == 0 ? 0 : static_cast<uint32_t>(rng_.Between(1, 40));
    options_.step_target_us = rng_.Between(1, 20'000);
    options_.step_stretch = static_cast<uint32_t>(rng_.Below(6));
    options_.adapt = rng_.Below(2) == 0;
    options_.ageing_us = rng_.Between(10'000, 1'000'000);
    options_.batch_wait_us = rng_.Below(4) == 0 ? 5'000 : 0;
    const uint64_t kind = rng_.Below(3);
    options_.speculate = kind == 0   ? Speculation::kOff
                         : kind == 1 ? Speculation::kNgram
                                     : Speculation::kAuto;
    if (rng_.Below(2) == 0) options_.max_logits_rows += 40;
    repetition_ = static_cast<float>(rng_.Below(3)) * 4.0f;
    fake.limits = {options_.max_batch_tokens, options_.max_batch, options_.max_logits_rows};
    runner_ = std::make_unique<FakeModelRunner>(fake);
    KvCache::Options kv;
    kv.strategy = strategy;
    kv.layout = runner_->kv_layout();
    kv.max_sequences = options_.max_batch;
    kv.max_sequence_tokens = 256;
    // Group 0 from one long sequence upwards; the window group as tight as it may be.
    const uint32_t most = 18 + static_cast<uint32_t>(rng_.Below(40));
    kv.block_counts = {most, most};
    auto cache = KvCache::Create(kv);
    EXPECT_TRUE(cache.ok()) << MessageOf(cache.status());
    cache_ = std::move(cache).value();
    scheduler_ = std::make_unique<Scheduler>(options_, CostModel::Options{1e6, 1e4, 1e4}, *cache_,
                                             tokenizer_, kVocab);
  }

  void Run(int actions) {
    for (int i = 0; i < actions && !::testing::Test::HasFatalFailure(); ++i) {
      const uint64_t what = rng_.Below(10);
      if (what < 4) {
        SubmitRandom();
      } else if (what == 4 && !live_.empty()) {
        CancelRandom();
      } else {
        Step();
      }
    }
    // Everything accepted must come to its end within a bounded number of steps.
    for (int i = 0; i < 20'000 && !scheduler_->idle(); ++i) Step();
    ASSERT_TRUE(scheduler_->idle()) << "requests never end";
    CheckResults();
  }

  const SchedulerCounters& counters() const { return scheduler_->counters(); }
  const KvCounters& kv_counters() const { return cache_->counters(); }
  uint64_t largest_only_samples() const { return largest_only_samples_; }

 private:
  void SubmitRandom() {
    GenerateRequest request;
    request.id = RequestId{next_id_++};
    // Prompts are cut from a few families, so that many share prefixes of all lengths.
    Rng family(1000 + rng_.Below(3));
    const int64_t length = rng_.Between(1, 120);
    const int64_t shared = rng_.Between(0, length);
    for (int64_t i = 0; i < length; ++i) {
      const uint64_t token = i < shared ? family.Below(4) : rng_.Below(36);
      request.prompt.push_back(TokenId{static_cast<int32_t>(token)});
    }
    request.root.bytes[0] = static_cast<uint8_t>(rng_.Below(2));
    request.hashes = HashBlocks(request.root, request.prompt, cache_->layout().block_tokens);
    request.tenant = static_cast<uint32_t>(rng_.Below(3));
    request.priority = static_cast<int32_t>(rng_.Between(-2, 2));
    request.length_given = rng_.Below(3) != 0;
    request.choice_count = rng_.Below(4) == 0 ? static_cast<uint32_t>(rng_.Between(2, 4)) : 1;
    request.options.max_new_tokens = static_cast<uint32_t>(rng_.Between(1, 40));
    request.options.ignore_eos = rng_.Below(3) == 0;
    request.options.sampling.temperature = rng_.Below(2) == 0 ? 0.0f : 1.0f;
    request.options.sampling.seed = rng_.Below(5);
    if (rng_.Below(3) == 0) request.options.stops = {std::string(1, 'a' + rng_.Below(26))};
    if (rng_.Below(4) == 0) {
      request.options.sampling.repetition_penalty = 1.2f;
      request.options.sampling.presence_penalty = 0.1f;
      request.options.sampling.frequency_penalty = 0.05f;
    }
    if (rng_.Below(4) == 0) request.options.min_new_tokens = request.options.max_new_tokens / 2;
    if (rng_.Below(6) == 0) request.deadline = now_ + rng_.Between(1'000, 200'000);
    request.prompt_logprobs = rng_.Below(8) == 0;
    request.want_logprobs = rng_.Below(8) == 0;
    const RequestId id = request.id;
    const GenerateRequest copy = request;
    const Status status = scheduler_->Submit(std::move(request), now_);
    scheduler_->CheckInvariants();
    if (!status.ok()) {
      const bool ever = copy.choice_count <= options_.max_queue + options_.max_batch;
      ASSERT_EQ(status.code(), ever ? StatusCode::kResourceExhausted : StatusCode::kInvalidArgument)
          << MessageOf(status);
      return;
    }
    live_.push_back(id);
    requests_.emplace(id, copy);
    results_[id] = Result{};
  }

  void CancelRandom() { scheduler_->Cancel(live_[rng_.Below(live_.size())]); }

  void Step() {
    StepOutcome outcome;
    const StepPlan& plan = scheduler_->Plan(now_, &outcome);
    ASSERT_LE(plan.batch.row_count(), options_.max_batch_tokens);
    ASSERT_EQ(plan.batch.row_count(), plan.decode_rows + plan.draft_rows + plan.prefill_rows);
    ASSERT_TRUE(plan.draft_rows == 0 || plan.prefill_rows == 0) << "drafts before prompts";
    ASSERT_TRUE(plan.draft_rows == 0 || options_.speculate != Speculation::kOff);
    if (plan.decode_rows > 0 && options_.prefill_chunk > 0) {
      ASSERT_LE(plan.prefill_rows, options_.prefill_chunk) << "the chunk rule is broken";
    }
    Take(outcome);
    outcome.Clear();
    if (plan.batch.sequences.empty()) {
      const TimeUs wake = scheduler_->NextWakeUp();
      ASSERT_TRUE(scheduler_->idle() || wake != kNever) << "work, but nothing to do";
      now_ = wake == kNever ? now_ + 1'000 : std::max(now_ + 1, wake);
      return;
    }
    runner_->Run(plan.batch);
    std::vector<SampledToken> tokens, scores(plan.scores.size());
    SamplerScratch scratch(kVocab);
    const std::vector<bool> largest_only = RowsOfTheLargestOnly(plan.batch);
    for (const PlannedSample& sample : plan.samples) {
      std::vector<TokenId> before(sample.sequence->known().begin(), sample.sequence->known().end());
      before.insert(before.end(), sample.ahead.begin(), sample.ahead.end());
      const std::span<const float> logits = runner_->logits(sample.logits_row);
      ASSERT_TRUE(std::equal(logits.begin(), logits.end(), runner_->Logits(before).begin()))
          << "a wrong KV was read";
      std::vector<float> row = Repetitive(logits, before);
      if (largest_only[sample.logits_row]) {
        ASSERT_FALSE(sample.want_logprobs);
        LeaveTheLargestOnly(row);
        ++largest_only_samples_;
      }
      // Whether the guess was right must not matter here: Commit sorts that out.
      tokens.push_back({sample.sequence->Choose(row, scratch, sample.ahead), {}});
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      ASSERT_FALSE(largest_only[plan.scores[i].logits_row]);
      scores[i].token = plan.scores[i].next;
    }
    const TimeUs elapsed = rng_.Between(100, 5'000);
    now_ += elapsed;
    scheduler_->Commit(tokens, scores, now_, elapsed, &outcome);
    Take(outcome);
    scheduler_->CheckInvariants();
    if (rng_.Below(8) == 0) cache_->CheckInvariants();
  }

  void Take(const StepOutcome& outcome) {
    for (const RequestEvent& event : outcome.events) {
      Result& result = results_.at(event.request);
      ASSERT_FALSE(result.summary.has_value()) << "an event after the end";
      if (event.event.of_prompt) {
        result.scored.push_back(event.event.token);
        continue;
      }
      result.text[event.event.choice] += event.event.text;
      result.tokens[event.event.choice].push_back(event.event.token);
      if (event.event.finish != FinishReason::kNone) {
        ASSERT_TRUE(result.finish.emplace(event.event.choice, event.event.finish).second);
      }
    }
    for (const RequestEnded& ended : outcome.ended) {
      Result& result = results_.at(ended.request);
      ASSERT_FALSE(result.summary.has_value()) << "a second end";
      result.summary = ended.summary;
      live_.erase(std::find(live_.begin(), live_.end(), ended.request));
    }
  }

  void CheckResults() {
    for (const auto& [id, request] : requests_) {
      SCOPED_TRACE(fmt::format("request {}", static_cast<uint64_t>(id)));
      const Result& result = results_.at(id);
      ASSERT_TRUE(result.summary.has_value());
      if (result.summary->end != RequestEnd::kFinished) continue;
      ASSERT_EQ(result.finish.size(), request.choice_count);
      size_t generated = 0;
      if (request.prompt_logprobs) {
        // Every prompt token but the first, each once and in order, preempted or not.
        EXPECT_EQ(result.scored,
                  std::vector<TokenId>(request.prompt.begin() + 1, request.prompt.end()));
      } else {
        EXPECT_TRUE(result.scored.empty());
      }
      for (uint32_t choice = 0; choice < request.choice_count; ++choice) {
        const Result alone = Alone(request, choice);
        EXPECT_EQ(result.text.at(choice), alone.text.at(0)) << "choice " << choice;
        EXPECT_EQ(result.tokens.at(choice), alone.tokens.at(0)) << "choice " << choice;
        EXPECT_EQ(result.finish.at(choice), alone.finish.at(0));
        generated += alone.tokens.at(0).size();
      }
      EXPECT_EQ(result.summary->generated_tokens, generated);
      EXPECT_LE(result.summary->accepted_draft_tokens, result.summary->draft_tokens);
      EXPECT_LE(result.summary->accepted_draft_tokens, generated);
    }
    cache_->CheckInvariants();
    EXPECT_EQ(cache_->open_sequences(), 0u);
    for (uint32_t group = 0; group < 2; ++group) {
      EXPECT_EQ(cache_->free_blocks(group) + cache_->idle_blocks(group), cache_->block_count(group))
          << "blocks leaked in group " << group;
    }
  }

  // Logits of a text that goes in circles, more or less: after each token one other is likely.
  std::vector<float> Repetitive(std::span<const float> logits,
                                std::span<const TokenId> before) const {
    std::vector<float> row(logits.begin(), logits.end());
    row[static_cast<size_t>(Index(before.back()) * 5 + 3) % 12] += repetition_;
    return row;
  }

  // By logits row: whether nothing but its largest may be read.
  static std::vector<bool> RowsOfTheLargestOnly(const Batch& batch) {
    std::vector<bool> rows;
    for (const BatchSequence& sequence : batch.sequences) {
      rows.insert(rows.end(), sequence.tokens.size() - sequence.logits_begin,
                  sequence.arg_max_only);
    }
    return rows;
  }

  // As a runner may that was asked for no more: whatever reads the others goes wrong.
  static void LeaveTheLargestOnly(std::span<float> row) {
    const auto largest = std::max_element(row.begin(), row.end());
    for (auto it = row.begin(); it != row.end(); ++it) {
      if (it != largest) *it = *largest - 0.5f;
    }
  }

  Result Alone(const GenerateRequest& request, uint32_t choice) {
    Result result;
    SequenceOptions options = request.options;
    options.sampling.choice = choice;
    auto sequence = Sequence::Create(tokenizer_, kVocab, 256, request.prompt, options);
    EXPECT_TRUE(sequence.ok());
    SamplerScratch scratch(kVocab);
    while (!(*sequence)->finished()) {
      const std::span<const TokenId> known = (*sequence)->known();
      const TokenId token = (*sequence)->Choose(Repetitive(runner_->Logits(known), known), scratch);
      result.text[0].append((*sequence)->Append(token));
      result.tokens[0].push_back(token);
    }
    result.finish[0] = (*sequence)->finish_reason();
    return result;
  }

  Rng rng_;
  const Tokenizer& tokenizer_;
  SchedulerOptions options_;
  float repetition_ = 0.0f;  // What the likely token's logit has on top of up to 4.
  std::unique_ptr<FakeModelRunner> runner_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  TimeUs now_ = 1'000'000;
  uint64_t next_id_ = 1;
  uint64_t largest_only_samples_ = 0;
  std::vector<RequestId> live_;
  std::map<RequestId, GenerateRequest> requests_;
  std::map<RequestId, Result> results_;
};

class SchedulerProperty : public ::testing::TestWithParam<KvStrategy> {};

TEST_P(SchedulerProperty, EveryRequestEndsOnceWithItsOwnText) {
  const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer();
  SchedulerCounters total;
  uint64_t copies = 0, moves = 0;
  uint64_t largest_only_samples = 0;
  const bool paged = GetParam() == KvStrategy::kPaged;
#ifdef __SANITIZE_THREAD__
  const uint32_t seeds = paged ? 250 : 100;  // One thread, ten times as slow.
#else
  const uint32_t seeds = paged ? 1000 : 300;
#endif
  for (const uint64_t seed : TestSeeds(seeds)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Harness harness(GetParam(), seed, *tokenizer);
    harness.Run(150);
    if (HasFailure()) return;
    const SchedulerCounters& one = harness.counters();
    for (const auto field : {&SchedulerCounters::finished, &SchedulerCounters::cancelled,
                             &SchedulerCounters::timed_out, &SchedulerCounters::preemptions,
                             &SchedulerCounters::dedupe_waits, &SchedulerCounters::refused,
                             &SchedulerCounters::cached_tokens, &SchedulerCounters::draft_tokens,
                             &SchedulerCounters::accepted_draft_tokens}) {
      total.*field += one.*field;
    }
    copies += harness.kv_counters().copies;
    moves += harness.kv_counters().moves;
    largest_only_samples += harness.largest_only_samples();
  }
  if (std::getenv("KVASIR_TEST_SEED") != nullptr) return;
  fmt::print("preemptions {} waits {} cached {} copies {} moves {}\n", total.preemptions,
             total.dedupe_waits, total.cached_tokens, copies, moves);
  // Schedules that never come into trouble would prove little.
  const bool shares = paged || GetParam() == KvStrategy::kShared;
  const bool moves_regions =
      GetParam() == KvStrategy::kDynamic || GetParam() == KvStrategy::kShared;
  EXPECT_GT(total.finished, 10u * seeds);
  EXPECT_GT(total.cancelled, seeds);
  EXPECT_GT(total.timed_out, seeds / 10);
  EXPECT_GT(total.preemptions, seeds);
  EXPECT_TRUE(shares ? total.dedupe_waits > seeds : total.dedupe_waits == 0);
  EXPECT_GT(total.refused, seeds / 10);
  EXPECT_GT(total.cached_tokens, 10u * seeds);
  EXPECT_GT(total.draft_tokens, 10u * seeds);
  EXPECT_GT(total.accepted_draft_tokens, 10u * seeds);
  EXPECT_GT(total.draft_tokens - total.accepted_draft_tokens, 10u * seeds);
  EXPECT_GT(copies, seeds);
  EXPECT_TRUE(moves_regions ? moves > seeds : moves == 0);
  EXPECT_GT(largest_only_samples, 10u * seeds);
}

INSTANTIATE_TEST_SUITE_P(Strategies, SchedulerProperty, ::testing::ValuesIn(AllKvStrategies()),
                         [](const auto& param) {
                           return std::string(KvStrategyName(param.param));
                         });

}  // namespace
}  // namespace kvasir
