// kvasir perplexity: how well a model foretells given texts, and what a KV type costs of that.
#include "engine/perplexity.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/counted.h"
#include "command.h"
#include "model_flags.h"
#include "model_path.h"
#include "option_values.h"
#include "output.h"
#include "terminal.h"
#include "text/utf8.h"
#include "text_input.h"

namespace kvasir {
namespace {

constexpr uint32_t kDefaultWindow = 512;
// Rows of a step, and of logits held at once: 64 of Gemma's are 67 MB, for each KV type.
constexpr uint32_t kRows = 256;
constexpr uint32_t kLogitsRows = 64;

// A runner and a cache of one KV type over weights that somebody else holds.
struct OwnedSubject {
  std::unique_ptr<CpuModelRunner> runner;
  std::unique_ptr<KvCache> kv;
};

struct Text {
  std::string name;
  std::vector<TokenId> tokens;  // Without BOS.
};

class PerplexityCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"perplexity"}; }
  std::string description() const override {
    return "Measure a model's perplexity on texts, and what a KV type changes";
  }

  void Register(Options& options) override {
    flags_.context_tokens = kDefaultWindow;
    flags_.least_context = kMinPerplexityWindow;
    flags_.context_help = "Tokens of a window; each is scored with at least half as many before it";
    flags_.Register(options);
    options.Add("-f,--file", &files_, "Texts in UTF-8; - is standard input")
        .Type("FILE")
        .ManyValues()
        .CommandLineOnly()
        .Required();
    options.AddFlag("--json", &json_, "Print one JSON object");
  }

  StatusOr<int> Run() override {
    std::vector<std::string> contents;
    for (const std::string& file : files_) {
      KV_ASSIGN_OR_RETURN(std::string content, ReadText(file));
      if (content.empty()) return InvalidArgument("{}: is empty", InputName(file));
      KV_RETURN_IF_ERROR(WithPrefix(ValidateUtf8(content), InputName(file)));
      contents.push_back(std::move(content));
    }
    OpenNeeds needs;
    needs.max_rows = kRows;
    needs.max_logits_rows = kLogitsRows;
    KV_RETURN_IF_ERROR(FetchModel(&flags_.path, flags_.models_dir));
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags_, needs));
    LoadedModel& model = *opened.model;
    KV_ASSIGN_OR_RETURN(const std::vector<Text> texts, Tokenize(model.text(), contents));

    // The first subject is what the others are compared with.
    std::vector<PerplexityMeter::Subject> subjects;
    OwnedSubject base;
    if (model.kv().layout().types != KvTypes{}) {
      KV_ASSIGN_OR_RETURN(base, MakeSubject(model, KvTypes{}));
      subjects.push_back({base.runner.get(), base.kv.get()});
    }
    subjects.push_back({&model.runner(), &model.kv()});
    PerplexityMeter meter(std::move(subjects), model.team());
    CatchInterrupts();
    const double start = NowSeconds();
    const Status status = ScoreAll(texts, model.text().tokenizer(), &meter);
    if (status.code() == StatusCode::kCancelled) return kExitInterrupted;
    KV_RETURN_IF_ERROR(status);
    Print(meter.scores(), model.kv().layout(), NowSeconds() - start);
    return kExitOk;
  }

 private:
  StatusOr<std::vector<Text>> Tokenize(const TextModel& model,
                                       const std::vector<std::string>& contents) const {
    std::vector<Text> texts;
    EncodeOptions options;
    options.add_bos = false;  // Every window gets its own.
    for (size_t i = 0; i < contents.size(); ++i) {
      Text text{InputName(files_[i]), model.tokenizer().Encode(contents[i], options)};
      // Nothing foretells the first token where there is no BOS; a spread needs two.
      const size_t least = model.tokenizer().adds_bos() ? 2 : 3;
      if (text.tokens.size() < least) {
        return InvalidArgument("{}: is too short: {}, at least {} are needed", text.name,
                               Counted(text.tokens.size(), "token"), least);
      }
      texts.push_back(std::move(text));
    }
    return texts;
  }

  // The same model and window with KV of another type, on the same weights and threads.
  StatusOr<OwnedSubject> MakeSubject(LoadedModel& model, KvTypes types) const {
    OwnedSubject subject;
    KV_ASSIGN_OR_RETURN(
        subject.runner,
        CpuModelRunner::Create(model.config(), model.weights(), model.kv().layout().block_tokens,
                               model.runner().limits(), model.team(), types));
    KvCache::Options options;
    options.layout = subject.runner->kv_layout();
    const uint32_t block_tokens = options.layout.block_tokens;
    options.block_counts.assign(options.layout.group_count(),
                                (model.context_tokens() + block_tokens - 1) / block_tokens + 1);
    options.max_sequences = 1;
    options.max_sequence_tokens = model.context_tokens();
    KV_ASSIGN_OR_RETURN(subject.kv, KvCache::Create(options));
    return subject;
  }

  Status ScoreAll(const std::vector<Text>& texts, const Tokenizer& tokenizer,
                  PerplexityMeter* meter) const {
    size_t total = 0;
    for (const Text& text : texts) total += text.tokens.size();
    const std::optional<TokenId> bos = tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
    ProgressBar bar("scoring");
    size_t before = 0;
    for (const Text& text : texts) {
      const Status status =
          meter->Score(text.tokens, bos, flags_.context_tokens, [&](size_t scored) {
            bar.Update(static_cast<double>(before + scored) / static_cast<double>(total));
            return !Interrupted().load();
          });
      if (!status.ok()) return WithPrefix(status, text.name);
      before += text.tokens.size();
    }
    return OkStatus();
  }

  void Print(const std::vector<PerplexityScores>& all, const KvLayout& layout,
             double seconds) const {
    const PerplexityScores& base = all.front();
    const PerplexityScores& scores = all.back();
    const bool compared = all.size() > 1;  // Otherwise it is f16 itself that was measured.
    const double kl = compared ? scores.kl.mean() : 0.0;
    const double top1 = compared ? scores.top1_agreement() : 1.0;
    const double speed = static_cast<double>(scores.nll.count()) / seconds;
    const std::string type = KvTypesName(layout.types);
    if (!json_) {
      PrintOut(
          "perplexity {:.4f} +- {:.4f} over {} tokens ({} KV, {} bytes a token, {:.0f} tokens/s)\n",
          scores.perplexity(), scores.standard_error(), scores.nll.count(), type,
          layout.bytes_per_token(), speed);
      if (!compared) return;
      PrintOut("against f16 ({:.4f}): {:+.3f} % +- {:.3f} %, KL {:.3g}, same best token {:.2f} %\n",
               base.perplexity(), (scores.ratio() - 1) * 100, scores.ratio_standard_error() * 100,
               kl, top1 * 100);
      return;
    }
    nlohmann::ordered_json json;
    json["perplexity"] = scores.perplexity();
    json["stderr"] = scores.standard_error();
    json["tokens"] = scores.nll.count();
    json["kl_vs_f16"] = kl;
    json["kl_stderr"] = scores.kl.standard_error();
    json["top1_vs_f16"] = top1;
    json["ppl_ratio_vs_f16"] = compared ? scores.ratio() : 1.0;
    json["ratio_stderr"] = scores.ratio_standard_error();
    json["perplexity_f16"] = base.perplexity();
    json["model"] = flags_.path;
    json["kv_type"] = type;
    json["kv_bytes_per_token"] = layout.bytes_per_token();
    json["ctx"] = flags_.context_tokens;
    json["files"] = files_;
    json["seconds"] = seconds;
    json["tokens_per_s"] = speed;
    PrintOut("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  ModelFlags flags_;
  std::vector<std::string> files_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakePerplexityCommand() { return std::make_unique<PerplexityCommand>(); }

}  // namespace kvasir
