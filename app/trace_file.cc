#include "trace_file.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "text_input.h"

namespace kvasir {
namespace {

// What is wrong with the ids; they go to `ids`.
Status ReadIds(std::string_view line, std::vector<TokenId>* ids) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return InvalidArgument("not JSON");
  if (!json.is_object()) return InvalidArgument("must be an object, is {}", json.type_name());
  const auto member = json.find("hash_ids");
  if (member == json.end()) return InvalidArgument("has no \"hash_ids\"");
  if (!member->is_array()) {
    return InvalidArgument("\"hash_ids\" must be an array, is {}", member->type_name());
  }
  ids->clear();
  for (const nlohmann::json& id : *member) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return InvalidArgument("hash_ids[{}] must be an integer from 0 to {}", ids->size(),
                             INT32_MAX);
    }
    ids->push_back(TokenId{id.get<int32_t>()});
  }
  return OkStatus();
}

}  // namespace

StatusOr<RequestTrace> ReadTraceFile(const std::string& path) {
  KV_ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  RequestTrace trace;
  std::vector<TokenId> ids;
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Status status = ReadIds(line, &ids);
    if (!status.ok()) return WithPrefix(status, fmt::format("{}:{}", InputName(path), number));
    trace.Add(ids);
  }
  if (trace.block_count() == 0) {
    return InvalidArgument("{}: no request with a block in it", InputName(path));
  }
  return trace;
}

}  // namespace kvasir
