#include "base/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace kvasir::check_internal {

void Fail(const char* file, int line, const char* text, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s%s\n", file, line, text,
               values.empty() ? "" : " (", values.c_str(), values.empty() ? "" : ")");
  std::fflush(stderr);
  std::abort();
}

std::string ToText(long long value) { return fmt::format("{}", value); }
std::string ToText(unsigned long long value) { return fmt::format("{}", value); }
std::string ToText(double value) { return fmt::format("{}", value); }
std::string ToText(const void* value) { return fmt::format("{}", value); }

}  // namespace kvasir::check_internal
