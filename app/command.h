// Command: one subcommand of the program: which options it has and what it does.
//
// Its options are members that Register binds; Run reads them. An object is registered and run at
// most once. Exit codes (docs/CLI.md): 0 done, 1 the machine failed us, 2 bad input or usage, 130
// stopped by Ctrl-C.
#ifndef KVASIR_APP_COMMAND_H_
#define KVASIR_APP_COMMAND_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "options.h"

namespace kvasir {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInterrupted = 130;

class Command {
 public:
  virtual ~Command() = default;

  // How it is called: {"run"}, {"bench", "model"}.
  virtual std::vector<std::string> path() const = 0;
  virtual std::string description() const = 0;
  virtual void Register(Options& options) = 0;

  // The exit code, having printed what there is to say; or an error for the caller to print on one
  // line. kInvalidArgument, kNotFound and kUnimplemented become exit code 2, the rest 1.
  virtual StatusOr<int> Run() = 0;
};

std::unique_ptr<Command> MakeRunCommand();
std::unique_ptr<Command> MakeChatCommand();
std::unique_ptr<Command> MakeServeCommand();
std::unique_ptr<Command> MakePullCommand();
std::unique_ptr<Command> MakeBenchModelCommand();
std::unique_ptr<Command> MakeBenchKernelsCommand();
std::unique_ptr<Command> MakeBenchServeCommand();
std::unique_ptr<Command> MakeBenchEvictCommand();
std::unique_ptr<Command> MakeBenchStrategiesCommand();
std::unique_ptr<Command> MakeInspectCommand();
std::unique_ptr<Command> MakeLogitsCommand();
std::unique_ptr<Command> MakePerplexityCommand();
std::unique_ptr<Command> MakeQuantizeCommand();
std::unique_ptr<Command> MakeTemplateCommand();
std::unique_ptr<Command> MakeTokenizeCommand();
std::unique_ptr<Command> MakeDetokenizeCommand();

// One of each, in the order in which help lists them.
std::vector<std::unique_ptr<Command>> MakeCommands();

}  // namespace kvasir

#endif  // KVASIR_APP_COMMAND_H_
