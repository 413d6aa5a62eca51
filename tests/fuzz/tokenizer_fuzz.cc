// Any bytes, cut into trusted and untrusted pieces, through both kinds of tokenizer: the round trip
// is exact, no control token comes from untrusted bytes, the stream of pieces equals the whole
// text, and a stop matcher over it agrees with a plain search.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/small_vocabulary.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

// The input: bytes 0xF8 to 0xFB (never part of UTF-8) cut it; their lowest bit is the trust of what
// follows. Everything else is text.
struct Prompt {
  std::string text;
  std::vector<TextSegment> segments;
  std::vector<bool> trusted;  // Per byte of text.
};

Prompt ParsePrompt(std::string_view input) {
  Prompt prompt;
  prompt.text.reserve(input.size());  // The segments' views must not move.
  bool trust = false;
  size_t begin = 0;
  const auto cut = [&] {
    const std::string_view piece = std::string_view(prompt.text).substr(begin);
    prompt.segments.push_back({piece, trust});
    prompt.trusted.insert(prompt.trusted.end(), piece.size(), trust);
    begin = prompt.text.size();
  };
  for (const char c : input) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte >= 0xF8 && byte <= 0xFB) {
      cut();
      trust = (byte & 1) != 0;
    } else {
      prompt.text.push_back(c);
    }
  }
  cut();
  return prompt;
}

void CheckSegments(const Tokenizer& tokenizer, const Prompt& prompt) {
  const std::vector<TokenId> tokens = tokenizer.EncodeSegments(prompt.segments, /*add_bos=*/false);
  KV_CHECK(tokenizer.Decode(tokens, {.special = true}) == prompt.text);
  if (tokenizer.adds_space_prefix()) return;
  size_t offset = 0;
  for (const TokenId id : tokens) {
    const size_t length = tokenizer.TokenBytes(id).size();
    for (size_t i = 0; i < length && tokenizer.IsControl(id); ++i) {
      KV_CHECK(prompt.trusted[offset + i]);
    }
    offset += length;
  }
  KV_CHECK_EQ(offset, prompt.text.size());
}

void CheckStream(const Tokenizer& tokenizer, const std::string& text) {
  const std::vector<TokenId> tokens = tokenizer.Encode(text);
  KV_CHECK(tokenizer.Decode(tokens) == text);
  const std::vector<std::string> stops = {"END", "\n\n", "aab", "<|im_end|>"};
  StatusOr<StopMatcher> matcher = StopMatcher::Create(stops);
  KV_CHECK(matcher.ok());
  Detokenizer detokenizer(&tokenizer, {.starts_text = true});
  std::string whole;
  std::string shown;
  const auto take = [&](std::string_view piece) {
    KV_CHECK(!FindInvalidUtf8(piece));
    whole += piece;
    shown += matcher->Feed(piece).emit;
  };
  for (const TokenId id : tokens) take(detokenizer.Append(id));
  take(detokenizer.Finish());
  shown += matcher->Flush();
  KV_CHECK(whole == RepairUtf8(text));

  // None of these stop strings lies inside another one, so the first to begin is the first to end.
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, whole.find(stop));
  KV_CHECK(shown == whole.substr(0, first));
}

}  // namespace
}  // namespace kvasir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kvasir::Tokenizer;
  static const std::vector<std::unique_ptr<Tokenizer>>* const kTokenizers = [] {
    auto* all = new std::vector<std::unique_ptr<Tokenizer>>;
    all->push_back(kvasir::SmallBpeVocabulary("smollm").Create());
    for (const char* pre : {"gpt-2", "default", "llama-bpe", "qwen2", "gpt-4o", "tekken", "falcon",
                            "deepseek-llm", "deepseek-coder", "deepseek-v3", "viking"}) {
      all->push_back(kvasir::SmallBpeVocabulary(pre).Create());
    }
    all->push_back(kvasir::SmallSpmVocabulary(false).Create());
    all->push_back(kvasir::SmallSpmVocabulary(true).Create());
    return all;
  }();
  if (size > 1 << 16) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const kvasir::Prompt prompt = kvasir::ParsePrompt(input);
  for (const auto& tokenizer : *kTokenizers) {
    kvasir::CheckSegments(*tokenizer, prompt);
    kvasir::CheckStream(*tokenizer, std::string(input));
  }
  return 0;
}
