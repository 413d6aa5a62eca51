#include "api/openai_reply.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

// What OpenAI writes for a probability of zero; JSON has no infinity.
constexpr double kLowestLogProb = -9999.0;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

double LogProbNumber(float log_prob) {
  return std::isfinite(log_prob) ? std::max<double>(log_prob, kLowestLogProb) : kLowestLogProb;
}

std::string TokenName(const ReplyStyle& style, TokenId id) {
  if (style.tokens_as_ids) return fmt::format("token_id:{}", Index(id));
  return RepairUtf8(style.tokenizer->TokenBytes(id));
}

size_t Characters(std::string_view bytes) {
  // Every byte but those that continue a character.
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

Json ChatToken(const ReplyStyle& style, TokenId id, float log_prob) {
  Json token;
  token["token"] = TokenName(style, id);
  token["logprob"] = LogProbNumber(log_prob);
  Json bytes = Json::array();
  for (const char c : style.tokenizer->TokenBytes(id)) bytes.push_back(static_cast<uint8_t>(c));
  token["bytes"] = std::move(bytes);
  return token;
}

Json ChatLogProbs(const ReplyStyle& style, const ChoicePiece& piece) {
  Json content = Json::array();
  for (const ScoredToken& scored : piece.tokens) {
    if (!scored.report.has_value()) continue;
    Json token = ChatToken(style, scored.token, scored.report->log_prob);
    Json top = Json::array();
    for (const TokenLogProb& other : scored.report->top) {
      top.push_back(ChatToken(style, other.token, other.log_prob));
    }
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  Json logprobs;
  logprobs["content"] = std::move(content);
  logprobs["refusal"] = nullptr;
  return logprobs;
}

Json TopOf(const ReplyStyle& style, const ScoredToken& scored) {
  Json top = Json::object();
  // Different tokens may have the same name; the better one counts.
  const auto add = [&](TokenId id, float log_prob) {
    const std::string name = TokenName(style, id);
    if (!top.contains(name)) top[name] = LogProbNumber(log_prob);
  };
  for (const TokenLogProb& other : scored.report->top) add(other.token, other.log_prob);
  add(scored.token, scored.report->log_prob);
  return top;
}

Json CompletionLogProbs(const ReplyStyle& style, const ChoicePiece& piece) {
  Json logprobs;
  logprobs["text_offset"] = Json::array();
  logprobs["token_logprobs"] = Json::array();
  logprobs["tokens"] = Json::array();
  logprobs["top_logprobs"] = Json::array();
  size_t offset = piece.first_offset;
  for (const ScoredToken& scored : piece.tokens) {
    logprobs["text_offset"].push_back(offset);
    logprobs["tokens"].push_back(TokenName(style, scored.token));
    if (scored.report.has_value()) {
      logprobs["token_logprobs"].push_back(LogProbNumber(scored.report->log_prob));
      logprobs["top_logprobs"].push_back(TopOf(style, scored));
    } else {
      logprobs["token_logprobs"].push_back(nullptr);
      logprobs["top_logprobs"].push_back(nullptr);
    }
    if (!scored.silent) offset += Characters(style.tokenizer->TokenBytes(scored.token));
  }
  return logprobs;
}

// With "choices" still to fill.
Json Head(const ReplyStyle& style, const char* object) {
  Json json;
  json["id"] = style.id;
  json["object"] = object;
  json["created"] = style.created;
  json["model"] = style.model;
  json["system_fingerprint"] = style.fingerprint;
  json["choices"] = Json::array();
  return json;
}

Json ChunkHead(const ReplyStyle& style) {
  Json json = Head(style, style.chat ? "chat.completion.chunk" : "text_completion");
  if (style.usage_in_stream) json["usage"] = nullptr;
  return json;
}

void SetLogProbsAndFinish(const ReplyStyle& style, const ChoicePiece& piece, Json* choice) {
  Json& logprobs = (*choice)["logprobs"];
  if (style.logprobs) {
    logprobs = style.chat ? ChatLogProbs(style, piece) : CompletionLogProbs(style, piece);
  }
  Json& finish = (*choice)["finish_reason"];
  if (piece.finish != FinishReason::kNone) finish = std::string(NameOf(piece.finish));
}

Json UsageJson(const UsageCounts& usage) {
  Json json;
  json["prompt_tokens"] = usage.prompt_tokens;
  json["completion_tokens"] = usage.completion_tokens;
  json["total_tokens"] = usage.prompt_tokens + usage.completion_tokens;
  json["prompt_tokens_details"] = {{"cached_tokens", usage.cached_tokens}};
  return json;
}

double Rounded(double ms) { return std::round(ms * 1000.0) / 1000.0; }

Json ExplanationJson(const Explanation& explanation) {
  Json json;
  json["cached_tokens"] = {{"memory", explanation.cached_tokens}};
  json["diverged_at"] = nullptr;
  if (explanation.diverged_at.has_value()) {
    const Divergence& divergence = *explanation.diverged_at;
    json["diverged_at"] = {{"prompt", divergence.prompt},
                           {"token", divergence.token},
                           {"text_before", divergence.before},
                           {"text_after", divergence.after},
                           {"retokenized", divergence.retokenized}};
  }
  json["draft_tokens"] = {{"proposed", explanation.draft_tokens},
                          {"accepted", explanation.accepted_draft_tokens}};
  json["queue_ms"] = Rounded(explanation.queue_ms);
  json["prefill_ms"] = Rounded(explanation.prefill_ms);
  json["decode_ms"] = Rounded(explanation.decode_ms);
  return json;
}

}  // namespace

std::string FormatReply(const ReplyStyle& style, const std::vector<ChoicePiece>& choices,
                        const UsageCounts& usage, const std::optional<Explanation>& explanation) {
  // Written choice by choice: as a tree, log-probabilities take ten times the room of their text.
  std::string text = Dump(Head(style, style.chat ? "chat.completion" : "text_completion"));
  constexpr std::string_view kNoChoices = "]}";
  KV_CHECK(text.ends_with(kNoChoices));  // "choices" is the last member, and empty.
  text.resize(text.size() - kNoChoices.size());
  for (const ChoicePiece& piece : choices) {
    Json choice;
    choice["index"] = piece.index;
    if (style.chat) {
      choice["message"] = {{"role", "assistant"}, {"content", piece.text}, {"refusal", nullptr}};
    } else {
      choice["text"] = piece.text;
    }
    SetLogProbsAndFinish(style, piece, &choice);
    if (&piece != &choices.front()) text += ',';
    text += Dump(choice);
  }
  text += "],\"usage\":" + Dump(UsageJson(usage));
  if (explanation.has_value()) text += ",\"kvasir\":" + Dump(ExplanationJson(*explanation));
  return text + '}';
}

std::string FormatRoleChunk(const ReplyStyle& style, uint32_t index) {
  Json json = ChunkHead(style);
  Json choice;
  choice["index"] = index;
  choice["delta"] = {{"role", "assistant"}, {"content", ""}};
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = nullptr;
  json["choices"].push_back(std::move(choice));
  return Dump(json);
}

std::string FormatChunk(const ReplyStyle& style, const ChoicePiece& piece) {
  Json json = ChunkHead(style);
  Json choice;
  choice["index"] = piece.index;
  if (style.chat) {
    choice["delta"] = Json::object();
    if (!piece.text.empty()) choice["delta"]["content"] = piece.text;
  } else {
    choice["text"] = piece.text;
  }
  if (style.logprobs && piece.tokens.empty()) {
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = nullptr;
    if (piece.finish != FinishReason::kNone) {
      choice["finish_reason"] = std::string(NameOf(piece.finish));
    }
  } else {
    SetLogProbsAndFinish(style, piece, &choice);
  }
  json["choices"].push_back(std::move(choice));
  return Dump(json);
}

std::string FormatClosingChunk(const ReplyStyle& style, const std::optional<UsageCounts>& usage,
                               const std::optional<Explanation>& explanation) {
  Json json = ChunkHead(style);
  if (usage.has_value()) json["usage"] = UsageJson(*usage);
  if (explanation.has_value()) json["kvasir"] = ExplanationJson(*explanation);
  return Dump(json);
}

size_t CharactersOf(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens) {
  size_t characters = 0;
  for (const ScoredToken& scored : tokens) {
    if (!scored.silent) characters += Characters(tokenizer.TokenBytes(scored.token));
  }
  return characters;
}

}  // namespace kvasir
