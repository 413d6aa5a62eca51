#include "base/status.h"

namespace kvasir {

Status MakeStatus(StatusCode code, std::string_view message) {
  return Status(code, absl::string_view(message.data(), message.size()));
}

std::string_view MessageOf(const Status& status) {
  const absl::string_view message = status.message();
  return {message.data(), message.size()};
}

Status WithPrefix(const Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return MakeStatus(status.code(), fmt::format("{}: {}", prefix, MessageOf(status)));
}

}  // namespace kvasir
