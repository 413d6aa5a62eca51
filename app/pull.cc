// kvasir pull: a model file from the network into the models folder.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "command.h"
#include "model_path.h"
#include "output.h"

namespace kvasir {
namespace {

class PullCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"pull"}; }
  std::string description() const override {
    return "Fetch a model file from a URL, resuming what was cut off";
  }

  void Register(Options& options) override {
    options.Add("URL,--url", &options_.url, "http://, https:// or hf:OWNER/REPO[@REVISION]/FILE")
        .Type("URL")
        .Required()
        .CommandLineOnly();
    options.Add("--sha256", &options_.sha256, "What the file's SHA-256 must be")
        .Type("HEX")
        .CommandLineOnly();
    options.Add("--name", &options_.name, "Call the file this (default: as the URL or server does)")
        .Type("FILE")
        .CommandLineOnly();
    AddModelsDir(options, &models_dir_);
    options.AddFlag("--force", &options_.force, "Fetch and replace a file that is there already");
    options.AddFlag("--quiet", &quiet_, "No progress, only errors");
    options.Add("--retries", &retries_, "Attempts after one without a new byte")
        .Type("N")
        .Range(0, 1000)
        .ShowDefault();
    options.Add("--timeout", &timeout_s_, "Longest silence of the server")
        .Type("SECONDS")
        .Range(1, 3600)
        .ShowDefault();
  }

  StatusOr<int> Run() override {
    options_.folder = ModelsFolder(models_dir_);
    options_.plan.retries = static_cast<int>(retries_);
    options_.idle_timeout = std::chrono::seconds(timeout_s_);
    options_.connect_timeout = std::min(options_.connect_timeout, options_.idle_timeout);
    KV_ASSIGN_OR_RETURN(const DownloadResult result, PullModel(options_, quiet_));
    PrintOut("{}\n", result.path);
    return kExitOk;
  }

 private:
  DownloadOptions options_;
  std::string models_dir_;
  bool quiet_ = false;
  uint32_t retries_ = 5;
  uint32_t timeout_s_ = 60;
};

}  // namespace

std::unique_ptr<Command> MakePullCommand() { return std::make_unique<PullCommand>(); }

}  // namespace kvasir
