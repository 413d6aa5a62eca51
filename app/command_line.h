// CommandLine: from argv, the environment and the configuration file to one command, ready to run.
//
// A value comes from the first of: the command line, KVASIR_<OPTION> in the environment, the
// configuration file, the default. Values from file and environment are judged by the same checks
// as flags, and a message about one names the line or variable it came from.
#ifndef KVASIR_APP_COMMAND_LINE_H_
#define KVASIR_APP_COMMAND_LINE_H_

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "command.h"

namespace kvasir {

struct ParsedCommandLine {
  std::unique_ptr<Command> command;  // nullptr: help or version, which `text` is.
  std::string text;
};

// `args` without the program's name. kInvalidArgument or kNotFound: bad usage, one line.
StatusOr<ParsedCommandLine> ParseCommandLine(const std::vector<std::string>& args);

}  // namespace kvasir

#endif  // KVASIR_APP_COMMAND_LINE_H_
