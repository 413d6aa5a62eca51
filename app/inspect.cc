// kvasir inspect: what is in a model file.
#include <string>

#include "command.h"
#include "io/mapped_file.h"
#include "model/gguf_file.h"
#include "model/model_report.h"
#include "model_path.h"
#include "output.h"

namespace kvasir {
namespace {

class InspectCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"inspect"}; }
  std::string description() const override {
    return "Show what is in a model file: architecture, shapes, types, tokenizer, KV bytes";
  }

  void Register(Options& options) override {
    AddModelPath(options, &path_);
    options.AddFlag("--json", &json_, "Print one JSON object");
  }

  StatusOr<int> Run() override {
    KV_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path_));
    const StatusOr<ModelReport> report = Report(file);
    if (!report.ok()) return WithPrefix(report.status(), path_);
    PrintOut("{}", json_ ? RenderJson(*report) + "\n" : RenderText(*report));
    return kExitOk;
  }

 private:
  static StatusOr<ModelReport> Report(const MappedFile& file) {
    KV_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::Parse(file.bytes()));
    return BuildModelReport(gguf);
  }

  std::string path_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace kvasir
