// Speculation changes no answer: the engine on the real models, with drafts never, always and where
// they pay, gives the same tokens, the same text and, bit for bit, the same log-probabilities.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine_client.h"
#include "engine/generation.h"
#include "engine/loaded_model.h"
#include "tests/golden/golden_model.h"

namespace kvasir {
namespace {

constexpr const char* kMinutes =
    "The committee met on Tuesday to review the proposal for the new harbour bridge. Members heard "
    "from three engineers, two residents, and a representative of the port authority. The first "
    "engineer described the foundations, which would be driven forty metres into the clay below "
    "the river bed. The second presented the results of the wind tunnel tests, and said that the "
    "deck would stay stable in gusts of up to one hundred and ninety kilometres per hour. The "
    "third "
    "spoke about costs: the bridge would need 412 million euros over six years, of which 150 "
    "million would come from the regional fund. ";

struct Question {
  std::string prompt;
  SequenceOptions options;
  uint32_t choice_count = 1;
};

std::vector<Question> Questions() {
  const std::string minutes = kMinutes;
  std::vector<Question> questions;
  const auto ask = [&](const std::string& prompt, uint32_t max_tokens) -> Question& {
    Question& question = questions.emplace_back();
    question.prompt = prompt;
    question.options.max_new_tokens = max_tokens;
    return question;
  };
  // Deeper than Gemma's window.
  ask(minutes + "\n\n" + minutes + "\n\n" + minutes + "\n\n" + minutes + "\n\nThe committee met",
      80);
  ask("for (int i = 0; i < 10; ++i) {\n  total += a[i];\n}\nfor (int j = 0; j < 20; ++j) {\n  "
      "total +=",
      60);
  ask("Once upon a time there was a", 50).options.sampling.temperature = 1.0f;
  Question& penalized = ask(minutes + "\n\n" + minutes + "\n\nThe", 60);
  penalized.options.sampling.repetition_penalty = 1.05f;
  penalized.options.sampling.frequency_penalty = 0.1f;
  penalized.options.sampling.presence_penalty = 0.1f;
  Question& several = ask(minutes + "\n\n" + minutes + "\n\nThe committee", 50);
  several.choice_count = 3;
  several.options.sampling.temperature = 0.6f;
  several.options.sampling.top_p = 0.95f;
  several.options.sampling.seed = 5;
  Question& stopped = ask(minutes + "\n\n" + minutes + "\n\nThe committee met", 80);
  stopped.options.stops = {"three engineers"};
  stopped.options.min_new_tokens = 4;
  ask("1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8 9 10 1 2", 100).options.ignore_eos = true;
  return questions;
}

struct Reply {
  std::vector<std::vector<TokenId>> tokens;  // By choice.
  std::vector<std::string> text;
  std::vector<std::vector<float>> log_probs;  // Of each token, and of the five best after it.
  std::vector<FinishReason> finish;
  RequestSummary summary;
};

std::vector<Reply> Run(LoadedModel& model, Speculation speculate, bool together) {
  SteadyClock clock;
  EngineLoop::Options options;
  options.scheduler.max_batch = together ? 6 : 1;
  options.scheduler.max_batch_tokens = 256;
  options.scheduler.max_logits_rows = 32;
  options.scheduler.speculate = speculate;
  EngineLoop loop(options, model.runner(), model.kv(), model.text().tokenizer(), clock);
  EngineClient client(loop);
  std::vector<EngineClient::Submitted> submitted;
  for (const Question& question : Questions()) {
    GenerateRequest request;
    request.prompt = model.text().tokenizer().Encode(question.prompt);
    request.root = model.Root("");
    request.hashes = HashBlocks(request.root, request.prompt, model.kv().layout().block_tokens);
    request.options = question.options;
    request.choice_count = question.choice_count;
    request.want_logprobs = true;
    request.top_logprobs = 5;
    auto sent = client.Submit(std::move(request), [] {});
    KV_CHECK(sent.ok());
    submitted.push_back(*std::move(sent));
  }
  while (loop.RunOnce()) {
  }
  model.kv().CheckInvariants();
  std::vector<Reply> replies;
  for (const EngineClient::Submitted& one : submitted) {
    const TokenStream::Batch batch = one.stream->Take();
    Reply& reply = replies.emplace_back();
    KV_CHECK(batch.end.has_value());
    reply.summary = *batch.end;
    for (const TokenEvent& event : batch.events) {
      if (reply.tokens.size() <= event.choice) {
        reply.tokens.resize(event.choice + 1);
        reply.text.resize(event.choice + 1);
        reply.log_probs.resize(event.choice + 1);
        reply.finish.resize(event.choice + 1);
      }
      reply.tokens[event.choice].push_back(event.token);
      reply.text[event.choice] += event.text;
      reply.finish[event.choice] = event.finish;
      reply.log_probs[event.choice].push_back(event.logprobs.log_prob);
      for (const TokenLogProb& best : event.logprobs.top) {
        reply.log_probs[event.choice].push_back(static_cast<float>(Index(best.token)));
        reply.log_probs[event.choice].push_back(best.log_prob);
      }
    }
  }
  return replies;
}

std::unique_ptr<LoadedModel> Load(const MappedFile& file) {
  LoadedModelOptions options;
  options.thread_count = 2;
  options.context_tokens = 1024;
  options.max_sequences = 6;
  options.limits = {256, 6, 32};
  auto model = LoadedModel::Load(file.bytes(), options);
  KV_CHECK(model.ok());
  return std::move(model).value();
}

void ExpectTheSameAnswers(const char* file_name) {
  const std::optional<std::string> path = GoldenModelPath(file_name);
  if (!path.has_value()) return;
  auto file = MappedFile::Open(*path);
  ASSERT_TRUE(file.ok());
  const std::unique_ptr<LoadedModel> model = Load(*file);
  const std::vector<Reply> plain = Run(*model, Speculation::kOff, /*together=*/false);
  for (const Speculation speculate : {Speculation::kNgram, Speculation::kAuto}) {
    for (const bool together : {false, true}) {
      for (const bool cached : {false, true}) {  // The second time the answers are in the cache.
        if (!together && cached) continue;
        SCOPED_TRACE(testing::Message() << "speculation " << static_cast<int>(speculate)
                                        << " together " << together << " cached " << cached);
        if (!cached) model->kv().EvictAll();
        const std::vector<Reply> replies = Run(*model, speculate, together);
        uint32_t proposed = 0, accepted = 0;
        for (size_t i = 0; i < plain.size(); ++i) {
          SCOPED_TRACE(i);
          EXPECT_EQ(replies[i].tokens, plain[i].tokens);
          EXPECT_EQ(replies[i].text, plain[i].text);
          EXPECT_EQ(replies[i].finish, plain[i].finish);
          // Equal floats are equal bits here: none is zero or NaN.
          EXPECT_EQ(replies[i].log_probs, plain[i].log_probs);
          EXPECT_EQ(replies[i].summary.generated_tokens, plain[i].summary.generated_tokens);
          proposed += replies[i].summary.draft_tokens;
          accepted += replies[i].summary.accepted_draft_tokens;
        }
        if (speculate == Speculation::kNgram) {
          EXPECT_GT(accepted, 100u);
          EXPECT_LT(accepted, proposed) << "no guess was wrong: that proves little";
        }
      }
    }
  }
}

TEST(Speculation, SmolLm2AnswersTheSame) { ExpectTheSameAnswers(kSmolLm2); }
TEST(Speculation, Gemma3AnswersTheSame) { ExpectTheSameAnswers(kGemma3); }

// What `kvasir run` and `kvasir chat` use.
TEST(Speculation, OneGenerationAnswersTheSame) {
  const std::optional<std::string> path = GoldenModelPath(kSmolLm2);
  if (!path.has_value()) return;
  auto file = MappedFile::Open(*path);
  ASSERT_TRUE(file.ok());
  const std::unique_ptr<LoadedModel> model = Load(*file);
  for (const Question& question : Questions()) {
    SCOPED_TRACE(question.prompt.substr(question.prompt.size() - 20));
    std::map<Speculation, std::string> texts;
    std::map<Speculation, std::vector<TokenId>> tokens;
    for (const Speculation speculate :
         {Speculation::kOff, Speculation::kNgram, Speculation::kAuto}) {
      auto generation = Generation::Start(*model, model->text().tokenizer().Encode(question.prompt),
                                          question.options, speculate);
      ASSERT_TRUE(generation.ok());
      while (!(*generation)->finished()) {
        const StatusOr<std::string_view> text = (*generation)->Step();
        ASSERT_TRUE(text.ok());
        texts[speculate] += *text;
      }
      const std::span<const TokenId> generated = (*generation)->sequence().generated();
      tokens[speculate].assign(generated.begin(), generated.end());
      EXPECT_EQ(texts[speculate], texts[Speculation::kOff]);
      EXPECT_EQ(tokens[speculate], tokens[Speculation::kOff]);
      EXPECT_LE((*generation)->accepted_draft_tokens(), (*generation)->draft_tokens());
      if (speculate == Speculation::kOff) {
        EXPECT_EQ((*generation)->draft_tokens(), 0u);
      }
      generation->reset();
      model->kv().CheckInvariants();
      model->kv().EvictAll();
    }
  }
}

}  // namespace
}  // namespace kvasir
