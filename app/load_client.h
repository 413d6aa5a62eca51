// LoadClient: asks one OpenAI-compatible server, streaming, and notes when what arrived.
//
// Knows the protocol only as far as every such server speaks it; what only some report (usage,
// cached tokens) is taken when it is there.
// Thread: one at a time; Cancel alone may be called beside Ask.
// Source: the OpenAI API reference (streaming, usage); llama.cpp's server README (timings).
#ifndef KVASIR_APP_LOAD_CLIENT_H_
#define KVASIR_APP_LOAD_CLIENT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/http_client.h"

namespace kvasir {

struct LoadTarget {
  HttpUrl url;  // Its path does not end in /v1.
  std::string model;
  std::string api_key;  // Empty: none is sent.
  bool chat = true;     // /v1/chat/completions; else /v1/completions.
  bool ignore_eos = false;
  double timeout_s = 300.0;  // Of one request, to its last byte.
};

// One request and what came of it. Times are seconds after the start of the load (its round).
struct LoadRecord {
  double intended_s = 0.0;  // When it should have been sent: latency counts from here.
  double end_s = 0.0;
  std::vector<double> piece_s;  // Arrival of each piece of text; one token each, as a rule.
  bool has_usage = false;       // The server counted: prompt_tokens is known then.
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;  // The server's count, else the number of pieces.
  bool has_cached = false;
  uint64_t cached_tokens = 0;
  std::string error;    // What kind: "connect", "HTTP 503", ...; empty: it was answered.
  std::string message;  // Of the error, in the server's or the system's words, shortened.

  bool ok() const { return error.empty(); }
};

struct LoadMessage {
  bool from_user = true;
  std::string text;
};

class LoadClient {
 public:
  explicit LoadClient(const LoadTarget& target);

  // Asks for at most `output_tokens` after `messages` and returns when the answer is over, however
  // it ended. `epoch_s` is the start of the load on NowSeconds' clock. `answer` gets the text.
  // A request that Cancel ended has the error kCancelledError.
  LoadRecord Ask(const std::vector<LoadMessage>& messages, uint32_t output_tokens, double epoch_s,
                 double intended_s, std::string* answer);

  void Cancel() { http_.Cancel(); }

  static constexpr std::string_view kCancelledError = "cancelled";

 private:
  std::string Body(const std::vector<LoadMessage>& messages, uint32_t output_tokens) const;

  const LoadTarget target_;
  HttpClient http_;
};

// What a server says about itself before any load. Errors are kUnavailable, whatever went wrong.
// The first model of GET /v1/models.
StatusOr<std::string> AskModelName(const LoadTarget& target);

// Tokens that POST /tokenize (of llama-server, vLLM or Kvasir) makes of `text`.
StatusOr<uint64_t> AskTokenCount(const LoadTarget& target, const std::string& text);

}  // namespace kvasir

#endif  // KVASIR_APP_LOAD_CLIENT_H_
