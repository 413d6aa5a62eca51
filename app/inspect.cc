// kvasir inspect: what is in a model file.
#include <string>

#include "command.h"
#include "engine/text_model.h"
#include "io/mapped_parts.h"
#include "model/gguf_file.h"
#include "model/model_report.h"
#include "model_path.h"
#include "output.h"
#include "text/chat_template.h"

namespace kvasir {
namespace {

class InspectCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"inspect"}; }
  std::string description() const override {
    return "Show what is in a model file, and what of it this build can use";
  }

  void Register(Options& options) override {
    AddModelPath(options, &path_, &models_dir_);
    options.AddFlag("--json", &json_, "Print one JSON object");
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(FetchModel(&path_, models_dir_));
    KV_ASSIGN_OR_RETURN(const MappedParts file, MappedParts::Open(path_));
    const StatusOr<ModelReport> report = Report(file);
    if (!report.ok()) return WithPrefix(report.status(), path_);
    PrintOut("{}", json_ ? RenderJson(*report) + "\n" : RenderText(*report));
    const std::string& problem =
        report->model_problem.empty() ? report->tokenizer_problem : report->model_problem;
    if (problem.empty()) return kExitOk;
    PrintError("kvasir: {}: this build cannot use it: {}\n", path_, problem);
    return kExitFailure;
  }

 private:
  static StatusOr<ModelReport> Report(const MappedParts& file) {
    KV_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::ParseParts(file.parts()));
    KV_ASSIGN_OR_RETURN(ModelReport report, BuildModelReport(gguf));
    if (report.tokenizer.has_value()) {
      const auto text = TextModel::Load(gguf);
      if (!text.ok()) report.tokenizer_problem = MessageOf(text.status());
    }
    if (report.chat_template.has_value()) {
      const auto parsed = ChatTemplate::Parse(*report.chat_template);
      if (parsed.ok()) {
        report.tool_arguments = NameOf(parsed->tool_argument_form());
      } else {
        report.template_problem = MessageOf(parsed.status());
      }
    }
    return report;
  }

  std::string path_;
  std::string models_dir_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace kvasir
