// Transcripts: commands to a Scheduler and what it decided, as text that people review.
//
// A file in testdata/ is stanzas of commands, `----`, the expected output and an empty line. `./dev
// test
// --rewrite` (KVASIR_REWRITE=1) writes what came out instead of comparing. Commands:
//   setup  batch=4 rows=64 logits=16 blocks=32 chunk=0 target_ms=80 ageing_ms=5000 queue=16
//          wait_ms=0 speculate=off stretch=3 took_ms=0  (comes first; took_ms is what the scheduler
//          is told that each step took, 0: nothing that teaches it)
//   submit NAME prompt=a*40,bcd new=2 priority=0 tenant=0 n=1 deadline_ms=- says=abc stop=x eos=0
//          Prompts are runs of letters and words. The model says what `says` says, then something
//          that follows from all tokens before; | in it is the token that ends the text, which
//          counts with eos=1. salt=1: another tenant's cache.
//   cancel NAME | sleep MS | step [COUNT]: a step takes 10 ms
// In a plan, a[40,41)+xyz is row 40 with three drafts after it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/letters_for_test.h"
#include "engine/scheduler.h"
#include "model/fake_model_runner.h"

namespace kvasir {
namespace {

constexpr uint32_t kVocab = kLettersVocab;
constexpr TimeUs kStepUs = 10'000;

using Arguments = std::map<std::string, std::string>;

class Transcript {
 public:
  std::string Execute(const std::string& line) {
    std::istringstream words(line);
    std::string verb, word, name;
    words >> verb;
    Arguments arguments;
    while (words >> word) {
      const size_t equals = word.find('=');
      if (equals == std::string::npos) {
        name = word;
      } else {
        arguments[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
    if (verb == "setup") return SetUp(arguments);
    if (verb == "submit") return Submit(name, arguments);
    if (verb == "cancel") {
      scheduler_->Cancel(ids_.at(name));
      return "";
    }
    if (verb == "sleep") {
      now_ += std::stoll(name) * 1000;
      return "";
    }
    if (verb == "step") {
      std::string out;
      const int count = name.empty() ? 1 : std::stoi(name);
      for (int i = 0; i < count; ++i) out += Step();
      return out;
    }
    return fmt::format("unknown command '{}'\n", verb);
  }

 private:
  static int64_t Number(const Arguments& arguments, const char* key, int64_t otherwise) {
    const auto found = arguments.find(key);
    return found == arguments.end() ? otherwise : std::stoll(found->second);
  }

  std::string SetUp(const Arguments& arguments) {
    SchedulerOptions options;
    options.max_batch = static_cast<uint32_t>(Number(arguments, "batch", 4));
    options.max_batch_tokens = static_cast<uint32_t>(Number(arguments, "rows", 64));
    options.max_logits_rows = static_cast<uint32_t>(Number(arguments, "logits", 16));
    options.max_queue = static_cast<uint32_t>(Number(arguments, "queue", 16));
    options.prefill_chunk = static_cast<uint32_t>(Number(arguments, "chunk", 0));
    options.step_target_us = Number(arguments, "target_ms", 80) * 1000;
    options.step_stretch = static_cast<uint32_t>(Number(arguments, "stretch", 3));
    options.ageing_us = Number(arguments, "ageing_ms", 5000) * 1000;
    options.prefill_ageing_us = Number(arguments, "prefill_ageing_ms", 1000) * 1000;
    options.batch_wait_us = Number(arguments, "wait_ms", 0) * 1000;
    took_us_ = Number(arguments, "took_ms", 0) * 1000;
    const auto speculate = arguments.find("speculate");
    if (speculate != arguments.end()) {
      options.speculate = speculate->second == "auto" ? Speculation::kAuto : Speculation::kNgram;
    }
    FakeModelRunner::Options fake;
    fake.vocab_size = kVocab;
    fake.window = 64;
    fake.limits = {options.max_batch_tokens, options.max_batch, options.max_logits_rows};
    runner_ = std::make_unique<FakeModelRunner>(fake);
    KvCache::Options kv;
    kv.layout = runner_->kv_layout();
    kv.max_sequences = options.max_batch;
    kv.max_sequence_tokens = 512;
    const auto blocks = static_cast<uint32_t>(Number(arguments, "blocks", 32));
    kv.block_counts = {blocks, blocks};
    auto cache = KvCache::Create(kv);
    EXPECT_TRUE(cache.ok());
    cache_ = std::move(cache).value();
    // One row is predicted to take 1 ms, whatever its depth; 10 ms a step never teach otherwise
    // here.
    scheduler_ = std::make_unique<Scheduler>(options, CostModel::Options{1000, 0, 1}, *cache_,
                                             *tokenizer_, kVocab);
    return "";
  }

  std::string Submit(const std::string& name, const Arguments& arguments) {
    GenerateRequest request;
    request.id = RequestId{next_id_++};
    request.prompt = Tokens(arguments.at("prompt"));
    if (arguments.contains("says")) says_[request.id] = Tokens(arguments.at("says"));
    request.root.bytes[0] = static_cast<uint8_t>(Number(arguments, "salt", 0));
    request.hashes = HashBlocks(request.root, request.prompt, cache_->layout().block_tokens);
    request.options.max_new_tokens = static_cast<uint32_t>(Number(arguments, "new", 2));
    request.options.ignore_eos = Number(arguments, "eos", 0) == 0;
    if (arguments.contains("stop")) request.options.stops = {arguments.at("stop")};
    request.priority = static_cast<int32_t>(Number(arguments, "priority", 0));
    request.tenant = static_cast<uint32_t>(Number(arguments, "tenant", 0));
    request.choice_count = static_cast<uint32_t>(Number(arguments, "n", 1));
    request.prompt_logprobs = Number(arguments, "echo", 0) != 0;
    if (arguments.contains("with")) request.group = ids_.at(arguments.at("with"));
    request.group_sequences = static_cast<uint32_t>(Number(arguments, "together", 0));
    const int64_t deadline_ms = Number(arguments, "deadline_ms", -1);
    if (deadline_ms >= 0) request.deadline = now_ + deadline_ms * 1000;
    ids_[name] = request.id;
    names_[request.id] = name;
    const Status status = scheduler_->Submit(std::move(request), now_);
    return status.ok() ? "" : fmt::format("refused {}: {}\n", name, MessageOf(status));
  }

  // "a*3,bc" is aaabc; | is the token that ends a text.
  static std::vector<TokenId> Tokens(const std::string& text) {
    std::vector<TokenId> tokens;
    std::istringstream runs(text);
    std::string run;
    while (std::getline(runs, run, ',')) {
      const bool repeated = run.size() > 2 && run[1] == '*';
      const std::string letters =
          repeated ? std::string(static_cast<size_t>(std::stoi(run.substr(2))), run[0]) : run;
      for (const char letter : letters)
        tokens.push_back(TokenId{letter == '|' ? 26 : letter - 'a'});
    }
    return tokens;
  }

  static std::string Text(std::span<const TokenId> tokens) {
    std::string text;
    for (const TokenId token : tokens) {
      text.push_back(Index(token) == 26 ? '|' : static_cast<char>('a' + Index(token)));
    }
    return text;
  }

  // What the model answers at this row: the script, if the text has followed it so far.
  TokenId Answer(const PlannedSample& sample) {
    const std::span<const float> logits = runner_->logits(sample.logits_row);
    SamplerScratch scratch(kVocab);
    const auto script = says_.find(sample.request);
    if (script != says_.end()) {
      const std::span<const TokenId> generated = sample.sequence->generated();
      std::vector<TokenId> said(generated.begin(), generated.end());
      said.insert(said.end(), sample.ahead.begin(), sample.ahead.end());
      const std::vector<TokenId>& says = script->second;
      if (said.size() < says.size() && std::equal(said.begin(), said.end(), says.begin())) {
        std::vector<float> scripted(logits.begin(), logits.end());
        scripted[static_cast<size_t>(Index(says[said.size()]))] = 100.0f;
        return sample.sequence->Choose(scripted, scratch, sample.ahead);
      }
    }
    return sample.sequence->Choose(logits, scratch, sample.ahead);
  }

  std::string NameOf(RequestId id, uint32_t choice) const {
    return choice == 0 ? names_.at(id) : fmt::format("{}/{}", names_.at(id), choice);
  }

  std::string Ends(const StepOutcome& outcome) const {
    static constexpr const char* kEnds[] = {"finished", "cancelled", "timed out", "shut down"};
    std::string out;
    for (const RequestEnded& ended : outcome.ended) {
      out += fmt::format(" | {} {} cached={} preempted={}", names_.at(ended.request),
                         kEnds[static_cast<int>(ended.summary.end)], ended.summary.cached_tokens,
                         ended.summary.preemptions);
      if (ended.summary.draft_tokens == 0) continue;
      out += fmt::format(" generated={} drafts={} right={}", ended.summary.generated_tokens,
                         ended.summary.draft_tokens, ended.summary.accepted_draft_tokens);
    }
    return out;
  }

  std::string Step() {
    StepOutcome outcome;
    const SchedulerCounters before = scheduler_->counters();
    const StepPlan& plan = scheduler_->Plan(now_, &outcome);
    std::string out = "plan   ";
    for (size_t i = 0; i < plan.batch.sequences.size(); ++i) {
      const BatchSequence& sequence = plan.batch.sequences[i];
      const size_t drafts = plan.draft_rows == 0 ? 0 : sequence.tokens.size() - 1;
      out += fmt::format(" {}[{},{})", NameOf(plan.members[i].request, plan.members[i].choice),
                         sequence.start, sequence.start + sequence.tokens.size() - drafts);
      if (drafts > 0) out += "+" + Text(sequence.tokens.last(drafts));
    }
    if (plan.batch.sequences.empty()) out += " nothing";
    out += Ends(outcome);
    const uint64_t preempted = scheduler_->counters().preemptions - before.preemptions;
    if (preempted > 0) out += fmt::format(" | preempted {}", preempted);
    out += fmt::format(" | running {} waiting {}\n", scheduler_->counters().running,
                       scheduler_->counters().waiting);
    now_ += kStepUs;
    if (plan.batch.sequences.empty()) return out;
    runner_->Run(plan.batch);
    std::vector<SampledToken> tokens, scores(plan.scores.size());
    for (const PlannedSample& sample : plan.samples) tokens.push_back({Answer(sample), {}});
    StepOutcome committed;
    scheduler_->Commit(tokens, scores, now_, took_us_, &committed);
    scheduler_->CheckInvariants();
    out += "commit ";
    for (const RequestEvent& event : committed.events) {
      if (event.event.of_prompt) continue;
      out += fmt::format(" {}+={}", NameOf(event.request, event.event.choice), event.event.text);
    }
    return out + Ends(committed) + "\n";
  }

  std::unique_ptr<Tokenizer> tokenizer_ = Letters();
  TimeUs took_us_ = 0;
  std::unique_ptr<FakeModelRunner> runner_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  TimeUs now_ = 0;
  uint64_t next_id_ = 1;
  std::map<std::string, RequestId> ids_;
  std::map<RequestId, std::string> names_;
  std::map<RequestId, std::vector<TokenId>> says_;
};

// The file with every stanza's output replaced by what the scheduler says.
std::string Replay(const std::string& source) {
  Transcript transcript;
  std::string out, pending, line;
  bool in_output = false;
  std::istringstream lines(source);
  while (std::getline(lines, line)) {
    if (line == "----") {
      out += "----\n" + pending;
      pending.clear();
      in_output = true;
    } else if (line.empty()) {
      out += "\n";
      in_output = false;
    } else if (!in_output) {
      out += line + "\n";
      if (line[0] != '#') pending += transcript.Execute(line);
    }
  }
  return out;
}

TEST(SchedulerTranscript, SaysWhatTheFilesSay) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(KVASIR_TESTDATA_DIR)) {
    if (entry.path().extension() != ".txt") continue;
    ++files;
    SCOPED_TRACE(entry.path().filename().string());
    std::stringstream source;
    source << std::ifstream(entry.path()).rdbuf();
    const std::string replayed = Replay(source.str());
    if (std::getenv("KVASIR_REWRITE") != nullptr) {
      std::ofstream(entry.path()) << replayed;
    } else {
      EXPECT_EQ(replayed, source.str());
    }
  }
  EXPECT_GE(files, 8);
}

}  // namespace
}  // namespace kvasir
