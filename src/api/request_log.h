// RequestRecord: everything about one finished request on one log line, as key=value pairs or as a
// JSON object. No text of prompts unless the operator asked for it.
#ifndef KVASIR_API_REQUEST_LOG_H_
#define KVASIR_API_REQUEST_LOG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "engine/generate_request.h"

namespace kvasir {

// Of a request that generates.
struct GenerationRecord {
  std::string model;
  std::string user;
  uint32_t tenant = 0;
  bool stream = false;
  uint32_t choices = 0;
  int32_t priority = 0;
  RequestSummary summary;  // Summed over the prompts of the request; of times, the longest.
  std::string finish;      // The choices' reasons: "stop", "length,stop".
  std::string prompt;      // Only when prompts are logged.
};

struct RequestRecord {
  std::string request_id;
  std::string peer;
  std::string method;
  std::string path;
  int status = 0;  // 499: the client left before its reply was complete.
  double total_ms = 0;
  std::optional<GenerationRecord> generation;
  std::string error;  // Its message; empty: none.
};

// One line without its line break. Values that need it are quoted, line breaks escaped.
std::string FormatRecord(const RequestRecord& record, bool json);

}  // namespace kvasir

#endif  // KVASIR_API_REQUEST_LOG_H_
