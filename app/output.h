// Output: formatted text on standard output and standard error, without exceptions.
//
// fmt::print throws when a write fails (a full disk, a reader that left). Here a failure is left in
// the stream's error flag: main() reports that of standard output at the end, OutputFailed() tells
// who wants to stop earlier, and that of standard error has nobody to be told to.
// Thread: any; the text of one call stays together.
#ifndef KVASIR_APP_OUTPUT_H_
#define KVASIR_APP_OUTPUT_H_

#include <cstdio>
#include <string_view>
#include <utility>

#include "base/status.h"  // fmt: third-party headers come through base/ only.

namespace kvasir {

// `text` as it is, in one write.
void Write(std::FILE* file, std::string_view text);

// True once a write to standard output has failed.
bool OutputFailed();

template <typename... Args>
void PrintOut(fmt::format_string<Args...> format, Args&&... args) {
  Write(stdout, fmt::format(format, std::forward<Args>(args)...));
}

// What went to standard output before comes before it.
template <typename... Args>
void PrintError(fmt::format_string<Args...> format, Args&&... args) {
  std::fflush(stdout);
  Write(stderr, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace kvasir

#endif  // KVASIR_APP_OUTPUT_H_
