// kvasir template: the prompt that a chat template makes of messages.
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "chat_prompt.h"
#include "command.h"
#include "engine/text_model.h"
#include "io/mapped_parts.h"
#include "model/gguf_file.h"
#include "model_path.h"
#include "output.h"
#include "text_input.h"

namespace kvasir {
namespace {

std::string TimeProblem(const std::string& text) {
  const StatusOr<std::tm> time = ParseIsoTime(text);
  return time.ok() ? std::string() : std::string(MessageOf(time.status()));
}

class TemplateCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"template"}; }
  std::string description() const override {
    return "Print the prompt that a chat template makes of messages";
  }

  void Register(Options& options) override {
    AddModelPath(options, &path_, &models_dir_);
    options.Add("--messages", &messages_path_, "JSON array of messages; - is stdin")
        .Type("FILE")
        .Required();
    options.Add("--tools", &tools_path_, "JSON array of tools").Type("FILE");
    options.Add("--template", &template_path_, "Use this Jinja template, not the model's")
        .Type("FILE");
    options.Add("--now", &now_, "What strftime_now sees, as 2026-01-02T03:04:05 (default: now)")
        .Type("TIME")
        .Check(TimeProblem);
    options.AddFlag("--no-generation-prompt", &no_generation_prompt_,
                    "Do not open the next assistant message");
  }

  StatusOr<int> Run() override {
    if (messages_path_ == "-" && tools_path_ == "-") {
      return InvalidArgument("template: --messages and --tools cannot both be standard input");
    }
    ChatInput input;
    KV_ASSIGN_OR_RETURN(input.messages_json, ReadText(messages_path_));
    if (!tools_path_.empty()) {
      KV_ASSIGN_OR_RETURN(input.tools_json, ReadText(tools_path_));
      if (input.tools_json.empty()) {
        return InvalidArgument("{}: is empty; without tools leave --tools away",
                               InputName(tools_path_));
      }
    }
    KV_RETURN_IF_ERROR(FetchModel(&path_, models_dir_));
    KV_ASSIGN_OR_RETURN(const MappedParts file, MappedParts::Open(path_));
    KV_ASSIGN_OR_RETURN(const std::unique_ptr<TextModel> text, LoadText(file));
    StatusOr<ChatTemplate> parsed = LoadChatTemplate(*text, template_path_);
    if (!parsed.ok()) {
      return template_path_.empty() ? WithPrefix(parsed.status(), path_) : parsed.status();
    }
    input.add_generation_prompt = !no_generation_prompt_;
    input.bos_token = text->bos_text();
    input.eos_token = text->eos_text();
    input.now = LocalTimeNow();
    if (!now_.empty()) {
      KV_ASSIGN_OR_RETURN(input.now, ParseIsoTime(now_));
    }
    const StatusOr<RenderedPrompt> prompt = parsed->Render(input);
    if (!prompt.ok()) return TemplateProblem(prompt.status(), SourceOf(prompt.status()));
    Write(stdout, prompt->text);
    return kExitOk;
  }

 private:
  StatusOr<std::unique_ptr<TextModel>> LoadText(const MappedParts& file) const {
    const StatusOr<GgufFile> gguf = GgufFile::ParseParts(file.parts());
    if (!gguf.ok()) return WithPrefix(gguf.status(), path_);
    StatusOr<std::unique_ptr<TextModel>> text = TextModel::Load(*gguf);
    if (!text.ok()) return WithPrefix(text.status(), path_);
    return text;
  }

  // The file that an error of Render is about.
  std::string SourceOf(const Status& status) const {
    const std::string_view message = MessageOf(status);
    if (message.rfind("messages", 0) == 0) return InputName(messages_path_);
    if (message.rfind("tools", 0) == 0) return InputName(tools_path_);
    return template_path_.empty() ? path_ : InputName(template_path_);
  }

  std::string path_;
  std::string models_dir_;
  std::string messages_path_;
  std::string tools_path_;
  std::string template_path_;
  std::string now_;
  bool no_generation_prompt_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTemplateCommand() { return std::make_unique<TemplateCommand>(); }

}  // namespace kvasir
