#include "command.h"

namespace kvasir {

std::vector<std::unique_ptr<Command>> MakeCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(MakeRunCommand());
  commands.push_back(MakeChatCommand());
  commands.push_back(MakeServeCommand());
  commands.push_back(MakePullCommand());
  commands.push_back(MakeBenchModelCommand());
  commands.push_back(MakeBenchKernelsCommand());
  commands.push_back(MakeBenchServeCommand());
  commands.push_back(MakeBenchEvictCommand());
  commands.push_back(MakeBenchStrategiesCommand());
  commands.push_back(MakeInspectCommand());
  commands.push_back(MakeLogitsCommand());
  commands.push_back(MakePerplexityCommand());
  commands.push_back(MakeQuantizeCommand());
  commands.push_back(MakeTemplateCommand());
  commands.push_back(MakeTokenizeCommand());
  commands.push_back(MakeDetokenizeCommand());
  return commands;
}

}  // namespace kvasir
