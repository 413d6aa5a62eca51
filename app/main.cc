// The kvasir program: finds the command, runs it, prints its error on one line.
#include <fcntl.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "command_line.h"
#include "output.h"

namespace kvasir {
namespace {

int ExitCodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kUnimplemented:
    case StatusCode::kOutOfRange:
    case StatusCode::kPermissionDenied:
      return kExitUsage;
    case StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailure;
  }
}

int Fail(const Status& status) {
  std::string message(MessageOf(status));
  // The contract is one line, whatever a library put into its text.
  for (char& c : message) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  PrintError("kvasir: {}\n", message);
  return ExitCodeOf(status);
}

// The number of a standard stream that is closed would go to the next file or socket, and what we
// print would go there: a server's log into a client's connection. In its place comes something
// that cannot be written (or read), so that printing fails as before.
void OccupyStandardStreams() {
  for (const int stream : {0, 1, 2}) {
    if (::fcntl(stream, F_GETFD) != -1) continue;
    // Gets the lowest free number, which is `stream`. What fails here fails again when it matters.
    (void)::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
  }
}

int Main(const std::vector<std::string>& args) {
  StatusOr<ParsedCommandLine> parsed = ParseCommandLine(args);
  if (!parsed.ok()) return Fail(parsed.status());
  if (parsed->command == nullptr) Write(stdout, parsed->text);
  const StatusOr<int> exit_code =
      parsed->command == nullptr ? StatusOr<int>(kExitOk) : parsed->command->Run();
  if (!exit_code.ok()) return Fail(exit_code.status());
  if (std::fflush(stdout) != 0 || OutputFailed()) {
    return Fail(Internal("standard output could not be written"));
  }
  return *exit_code;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  kvasir::OccupyStandardStreams();
  return kvasir::Main(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
