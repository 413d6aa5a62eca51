// Any template with any messages: Parse and Render must return, within their limits, a prompt whose
// segments cover its text, or an error that says something.
//
// The input is the template, then, after the first zero byte, the messages as JSON.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = std::min(input.find('\0'), input.size());
  const auto parsed = kvasir::ChatTemplate::Parse(std::string(input.substr(0, split)));
  if (!parsed.ok()) {
    KV_CHECK(!kvasir::MessageOf(parsed.status()).empty());
    return 0;
  }
  kvasir::ChatInput chat;
  chat.messages_json = split < input.size() ? std::string(input.substr(split + 1)) : "";
  if (chat.messages_json.empty()) {
    chat.messages_json = R"([{"role": "user", "content": "a <|b|> c"}])";
  }
  chat.tools_json = R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  chat.variables_json = R"({"s": "x,y", "n": 3, "f": 1.5, "l": [2, 1], "d": {"k": [null, true]}})";
  chat.bos_token = "<s>";
  chat.eos_token = "</s>";
  chat.now = kvasir::ParseIsoTime("2026-01-02T03:04:05").value();
  // Small, so that the fuzzer's own limits of time and memory never judge first.
  kvasir::ChatTemplateLimits limits;
  limits.steps = 200'000;
  limits.value_bytes = 32 << 20;
  limits.output_bytes = 1 << 20;
  const auto prompt = parsed->Render(chat, limits);
  if (!prompt.ok()) {
    KV_CHECK(!kvasir::MessageOf(prompt.status()).empty());
    return 0;
  }
  size_t at = 0;
  for (const auto& segment : prompt->segments) {
    KV_CHECK_EQ(segment.begin, at);
    KV_CHECK_GT(segment.end, at);
    at = segment.end;
  }
  KV_CHECK_EQ(at, prompt->text.size());
  return 0;
}
