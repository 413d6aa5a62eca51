// Status: how bad input, I/O and peers' trouble travel; our own bugs go through base/check.h
// instead.
//
// Abseil's vocabulary, plus constructors that format. A message names what was wrong, where, and
// what to do, in one line without a trailing full stop: callers prefix it with a file name or a
// flag. Expected outcomes (a miss, an exhausted pool) are std::optional or an enum class, not a
// Status.
#ifndef KVASIR_BASE_STATUS_H_
#define KVASIR_BASE_STATUS_H_

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvasir {

using absl::OkStatus;
using absl::Status;
using absl::StatusCode;
template <typename T>
using StatusOr = absl::StatusOr<T>;

// Builds a Status from a code and a finished message. Debian's absl::string_view is not
// std::string_view, so code elsewhere never calls absl's constructors.
Status MakeStatus(StatusCode code, std::string_view message);

// The message of `status` as a std type; empty for OK. Lives as long as `status`.
std::string_view MessageOf(const Status& status);

// The same code with "<prefix>: " put in front of the message. OK stays OK.
Status WithPrefix(const Status& status, std::string_view prefix);

// Input that is wrong whatever the state of the system: files, flags, requests.
template <typename... Args>
Status InvalidArgument(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...));
}

// A named thing that does not exist.
template <typename... Args>
Status NotFound(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kNotFound, fmt::format(format, std::forward<Args>(args)...));
}

// Well-formed input that asks for something this build does not do.
template <typename... Args>
Status Unimplemented(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kUnimplemented, fmt::format(format, std::forward<Args>(args)...));
}

// The machine refused: memory, disk, descriptors, a limit.
template <typename... Args>
Status ResourceExhausted(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kResourceExhausted,
                    fmt::format(format, std::forward<Args>(args)...));
}

// An operating-system call failed; `format` names the call and the object, errno's text follows.
template <typename... Args>
Status Internal(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(StatusCode::kInternal, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace kvasir

#define KV_CONCAT_INNER(a, b) a##b
#define KV_CONCAT(a, b) KV_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` is not OK.
#define KV_RETURN_IF_ERROR(expression)          \
  do {                                          \
    ::kvasir::Status kv_status_ = (expression); \
    if (!kv_status_.ok()) return kv_status_;    \
  } while (false)

// KV_ASSIGN_OR_RETURN(auto x, F()): x = the value, or return the error.
#define KV_ASSIGN_OR_RETURN(target, expression) \
  KV_ASSIGN_OR_RETURN_INNER(KV_CONCAT(kv_statusor_, __LINE__), target, expression)
#define KV_ASSIGN_OR_RETURN_INNER(statusor, target, expression) \
  auto statusor = (expression);                                 \
  if (!statusor.ok()) return statusor.status();                 \
  target = std::move(statusor).value()

#endif  // KVASIR_BASE_STATUS_H_
