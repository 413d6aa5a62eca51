// kvasir run: one prompt, one answer.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "answer.h"
#include "chat_prompt.h"
#include "command.h"
#include "model_flags.h"
#include "model_path.h"
#include "option_values.h"
#include "output.h"
#include "sampling_flags.h"
#include "speculation_flag.h"
#include "terminal.h"
#include "text/utf8.h"
#include "text_input.h"

namespace kvasir {
namespace {

class RunCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"run"}; }
  std::string description() const override { return "Answer one prompt and exit"; }

  void Register(Options& options) override {
    flags_.Register(options);
    const auto prompt_option = [&options](const char* name, std::optional<std::string>* value,
                                          const char* type, const char* description) {
      return options.Add(name, value, description)
          .Type(type)
          .CommandLineOnly()
          .Group("Prompt (exactly one)");
    };
    prompt_option("-p,--prompt", &prompt_, "TEXT", "The prompt");
    prompt_option("-f,--file", &prompt_file_, "FILE", "Read the prompt from a file; - is stdin");
    prompt_option("--prompt-tokens", &prompt_tokens_, "IDS",
                  "The prompt as token ids, such as 1,2,3; used as they are")
        .Check(TokenIdsProblem);
    options.Add("--system", &system_, "System message for the chat template")
        .Type("TEXT")
        .Group("Prompt");
    options.AddFlag("--raw", &raw_, "Continue the text as it is, without the chat template")
        .Group("Prompt");
    options.Add("--chat-template", &template_path_, "Use this Jinja template, not the model's")
        .Type("FILE")
        .Group("Prompt");
    options
        .Add("-n,--max-tokens", &max_tokens_,
             "Generate at most N tokens (default: what the context has room for)")
        .Type("N")
        .Range(1u, kMaxContext);
    options.AddFlag("--ignore-eos", &ignore_eos_, "Go on after tokens that end the answer");
    options.AddFlag("--json", &json_, "Print one JSON object at the end instead of streaming");
    speculate_.Register(options);
    sampling_.Register(options);
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(ReadPrompt());
    KV_RETURN_IF_ERROR(FetchModel(&flags_.path, flags_.models_dir));
    const double start = NowSeconds();
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags_, speculate_.Needs()));
    LoadedModel& model = *opened.model;
    load_s_ = NowSeconds() - start;

    SequenceOptions options;
    KV_ASSIGN_OR_RETURN(options.sampling, sampling_.ToSamplingOptions(model.config().vocab_size));
    if (max_tokens_.has_value()) options.max_new_tokens = *max_tokens_;
    options.stops = sampling_.stops;
    options.ignore_eos = ignore_eos_;
    KV_ASSIGN_OR_RETURN(std::vector<TokenId> prompt, EncodePrompt(model.text()));

    CatchInterrupts();
    KV_ASSIGN_OR_RETURN(
        const Answer answer,
        GenerateAnswer(model, std::move(prompt), options, speculate_.value(), [this](auto text) {
          if (json_) return;
          Write(stdout, text);
          std::fflush(stdout);
          if (OutputFailed()) Interrupted().store(true);  // For nobody.
        }));
    if (OutputFailed()) return Internal("standard output could not be written");
    if (json_) {
      PrintJson(answer, options.sampling.seed);
    } else {
      PrintOut("\n");
      const std::string full = FullContextNote(model, answer, options.max_new_tokens);
      PrintError("{}{}{}\n", answer.Summary(), full.empty() ? "" : ", cut: ", full);
    }
    return answer.finish == FinishReason::kCancelled ? kExitInterrupted : kExitOk;
  }

 private:
  // Checks and loads what can be judged without the model, so that mistakes do not wait for it.
  Status ReadPrompt() {
    const int given =
        int{prompt_.has_value()} + int{prompt_file_.has_value()} + int{prompt_tokens_.has_value()};
    if (given != 1) {
      return InvalidArgument("run: give {} of -p TEXT, -f FILE and --prompt-tokens IDS",
                             given == 0 ? "one" : "only one");
    }
    if (prompt_tokens_.has_value()) {
      if (!system_.empty()) return InvalidArgument("run: --system does not go with token ids");
      if (!template_path_.empty()) {
        return InvalidArgument("run: --chat-template does not go with token ids");
      }
      return OkStatus();
    }
    std::string source = "-p";
    if (prompt_file_.has_value()) {
      source = InputName(*prompt_file_);
      KV_ASSIGN_OR_RETURN(prompt_, ReadText(*prompt_file_));
    }
    if (prompt_->empty()) return InvalidArgument("{}: the prompt is empty", source);
    if (raw_ && !system_.empty()) return InvalidArgument("run: --system does not go with --raw");
    if (raw_ && !template_path_.empty()) {
      return InvalidArgument("run: --chat-template does not go with --raw");
    }
    KV_RETURN_IF_ERROR(WithPrefix(ValidateUtf8(*prompt_), source));
    return WithPrefix(ValidateUtf8(system_), "--system");
  }

  StatusOr<std::vector<TokenId>> EncodePrompt(const TextModel& text) const {
    if (prompt_tokens_.has_value()) return ParseTokenIds(*prompt_tokens_);
    const bool has_template = text.chat_template().has_value() || !template_path_.empty();
    if (raw_ || !has_template) {
      if (!system_.empty()) {
        return InvalidArgument("{}: has no chat template, which --system needs", flags_.path);
      }
      return text.tokenizer().Encode(*prompt_);
    }
    KV_ASSIGN_OR_RETURN(const ChatPrompt chat, ChatPrompt::Create(text, template_path_));
    std::vector<ChatMessage> messages;
    if (!system_.empty()) messages.push_back({"system", system_});
    messages.push_back({"user", *prompt_});
    return chat.Encode(messages);
  }

  void PrintJson(const Answer& answer, uint64_t seed) const {
    nlohmann::ordered_json json;
    json["text"] = answer.text;
    json["tokens"] = nlohmann::ordered_json::array();
    for (const TokenId token : answer.tokens) json["tokens"].push_back(Index(token));
    json["prompt_tokens"] = answer.prompt_tokens;
    json["cached_tokens"] = answer.cached_tokens;
    json["draft_tokens"] = answer.draft_tokens;
    json["accepted_draft_tokens"] = answer.accepted_draft_tokens;
    json["finish_reason"] = std::string(NameOf(answer.finish));
    json["seed"] = seed;
    json["timings"] = {{"load_ms", load_s_ * 1e3},
                       {"prompt_ms", answer.prompt_s * 1e3},
                       {"decode_ms", answer.decode_s * 1e3},
                       {"prompt_tok_s", answer.prompt_tok_s()},
                       {"decode_tok_s", answer.decode_tok_s()}};
    PrintOut("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

  ModelFlags flags_;
  SpeculationFlag speculate_;
  SamplingFlags sampling_;
  std::optional<std::string> prompt_;
  std::optional<std::string> prompt_file_;
  std::optional<std::string> prompt_tokens_;
  std::string system_;
  std::string template_path_;
  std::optional<uint32_t> max_tokens_;
  bool raw_ = false;
  bool ignore_eos_ = false;
  bool json_ = false;
  double load_s_ = 0.0;
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace kvasir
