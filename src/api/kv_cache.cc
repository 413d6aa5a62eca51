// GET /v1/kv; POST /v1/kv/pin, /v1/kv/unpin, /v1/kv/clear: what of a key's own is cached, and to
// keep or drop it.
#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "api/handlers.h"
#include "api/kv_schema.h"
#include "base/counted.h"
#include "engine/kv_query.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

// Between two steps there is an answer; a step of seconds is not normal.
constexpr std::chrono::milliseconds kAnswerTime{10'000};

// One question on its way to the engine and back. Everything on the exchange's strand.
struct Pending {
  ApiService& service;
  const char* route;
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<HttpExchange> exchange;
  bool over = false;

  void Fail(const ApiError& error) {
    if (std::exchange(over, true)) return;
    service.ReplyError(*exchange, route, error);
  }
};

// The reply to an answer that is OK, or why there is none.
using Formatter = std::function<std::optional<ApiError>(const Pending&, const KvAnswer&, Json*)>;

void Finish(Pending& pending, const KvAnswer& answer, const Formatter& format) {
  if (pending.over) return;
  if (!answer.status.ok()) return pending.Fail(ErrorFromStatus(answer.status));
  Json json;
  const std::optional<ApiError> error = format(pending, answer, &json);
  if (error.has_value()) return pending.Fail(*error);
  pending.over = true;
  pending.service.Reply(*pending.exchange, pending.route, 200,
                        json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void Ask(std::shared_ptr<Pending> pending, KvQuestion question, Formatter format) {
  pending->exchange->OnDeadline(kAnswerTime, [weak = std::weak_ptr<Pending>(pending)] {
    if (const auto alive = weak.lock()) alive->Fail(TimedOut());
  });
  const TimeUs deadline =
      pending->model->clock->Now() + std::chrono::microseconds(kAnswerTime).count();
  auto done = [pending, format = std::move(format)](KvAnswer answer) {
    pending->exchange->Post(
        [pending, format, answer = std::move(answer)] { Finish(*pending, answer, format); });
  };
  const Status asked = pending->model->engine->Ask(std::move(question), deadline, std::move(done));
  if (!asked.ok()) pending->Fail(ErrorFromStatus(asked));
}

// nullptr having replied when the model is not there yet.
std::shared_ptr<Pending> Begin(ApiService& service, const char* route,
                               std::shared_ptr<HttpExchange> exchange) {
  std::shared_ptr<const ServedModel> model = service.model();
  if (model == nullptr) {
    service.ReplyError(*exchange, route, NotAvailable("The model is being loaded"));
    return nullptr;
  }
  return std::make_shared<Pending>(Pending{service, route, std::move(model), std::move(exchange)});
}

// Whose key it is; it was checked before the handler ran.
uint32_t TenantOf(const Pending& pending) {
  return pending.service.TenantOf(pending.exchange->request()).value_or(0);
}

// The name of everything that the asking key may see.
BlockHash RootFor(const Pending& pending, const std::string& cache_salt) {
  return pending.model->root(pending.service.SaltOf(TenantOf(pending), cache_salt));
}

// The tokens that a prompt in a request stands for; longer than any context they are cut.
std::optional<ApiError> TokensOf(const Pending& pending, KvPrefixRequest& request,
                                 std::vector<TokenId>* out) {
  const ServedModel& model = *pending.model;
  if (request.chat.has_value()) {
    RenderedPrompt rendered;
    std::optional<ApiError> error =
        RenderPrompt(model, *request.chat, pending.service.LocalTime(), &rendered);
    if (!error.has_value()) error = CheckTextLength(model, rendered.text, 1, "messages");
    if (error.has_value()) return error;
    *out = model.text->tokenizer().EncodeSegments(rendered.Views());
  } else if (request.prompt.has_value() && !request.prompt->is_tokens) {
    const std::optional<ApiError> error = CheckTextLength(model, request.prompt->text, 1, "prompt");
    if (error.has_value()) return error;
    EncodeOptions options;
    options.parse_special = request.parse_special;
    *out = model.text->tokenizer().Encode(request.prompt->text, options);
  } else if (request.prompt.has_value()) {
    *out = std::move(request.prompt->tokens);
  }
  out->resize(std::min<size_t>(out->size(), model.context_tokens));
  if (out->empty() && !request.hash.has_value()) return BadField("prompt", "The prompt is empty");
  return std::nullopt;
}

ApiError Refused(int status, const char* code, std::string message) {
  ApiError error;
  error.status = status;
  error.code = code;
  error.message = std::move(message);
  return error;
}

Json UsageJson(const KvUsage& usage) {
  Json json;
  json["total_bytes"] = usage.total;
  json["reserved_bytes"] = usage.reserved;
  json["used_bytes"] = usage.used;
  json["wasted_bytes"] = usage.wasted();
  json["idle_bytes"] = usage.idle;
  json["pinned_bytes"] = usage.pinned;
  json["largest_free_bytes"] = usage.largest_free;
  return json;
}

Json EntryJson(const Pending& pending, const KvAnswer& answer, size_t index) {
  const KvCachedEntry& entry = answer.entries[index];
  Json json;
  json["hash"] = ToHex(entry.hash);
  json["parent"] = ToHex(entry.parent);
  json["depth"] = entry.depth;
  json["tokens"] = entry.tokens;
  json["bytes"] = entry.bytes;
  json["uses"] = entry.uses;
  json["last_used_at"] = pending.service.UnixTimeOf(entry.last_use, answer.now);
  json["idle_s"] = static_cast<double>(std::max<TimeUs>(0, answer.now - entry.last_use)) / 1e6;
  json["in_use"] = entry.busy;
  json["pinned"] = entry.pinned;
  if (entry.pinned_until != 0) {
    json["pin_expires_at"] = pending.service.UnixTimeOf(entry.pinned_until, answer.now);
  }
  if (index < answer.tokens.size()) {
    const std::vector<TokenId>& tokens = answer.tokens[index];
    json["text"] = RepairUtf8(pending.model->text->tokenizer().Decode(tokens, {.special = true}));
  }
  return json;
}

std::optional<ApiError> FormatList(const Pending& pending, const KvAnswer& answer, Json* out) {
  Json& json = *out;
  json["object"] = "list";
  json["data"] = Json::array();
  for (size_t i = 0; i < answer.entries.size(); ++i) {
    json["data"].push_back(EntryJson(pending, answer, i));
  }
  json["next_cursor"] = nullptr;
  if (answer.next.has_value()) json["next_cursor"] = FormatKvCursor(*answer.next);
  json["usage"] = UsageJson(pending.model->engine->snapshot().kv_usage);
  return std::nullopt;
}

std::optional<ApiError> FormatPin(const Pending& pending, const KvAnswer& answer, Json* out) {
  const KvPin& pin = answer.pin;
  switch (pin.outcome) {
    case KvPinOutcome::kPinned:
      break;
    case KvPinOutcome::kNotCached:
      return Refused(404, "not_cached",
                     "Nothing of it is cached: send a request with this prompt first, then pin it");
    case KvPinOutcome::kOverLimit:
      return Refused(409, "pin_limit",
                     fmt::format("Your pins may keep {} together, half of what pins of "
                                 "other keys leave; this one has {}. Unpin something first",
                                 Counted(pin.limit, "block"), pin.blocks));
    case KvPinOutcome::kTooMany:
      return Refused(409, "too_many_pins", "You have too many pins already; unpin one first");
    case KvPinOutcome::kUnsupported:
      return Refused(400, "unsupported",
                     "This server keeps no pins: they are single blocks of a prompt, which only "
                     "--kv-strategy paged has");
  }
  Json& json = *out;
  json["object"] = "kv.pin";
  json["hash"] = ToHex(pin.hash);
  json["tokens"] = pin.tokens;
  json["blocks"] = pin.blocks;
  json["expires_at"] = pending.service.UnixTimeOf(answer.pinned_until, answer.now);
  json["ttl_s"] = static_cast<double>(answer.pinned_until - answer.now) / 1e6;
  return std::nullopt;
}

std::optional<ApiError> FormatUnpin(const Pending&, const KvAnswer& answer, Json* out) {
  if (!answer.unpinned.has_value()) return Refused(404, "not_pinned", "There is no such pin");
  (*out)["object"] = "kv.unpin";
  (*out)["hash"] = ToHex(*answer.unpinned);
  return std::nullopt;
}

std::optional<ApiError> FormatClear(const Pending&, const KvAnswer& answer, Json* out) {
  (*out)["object"] = "kv.clear";
  (*out)["blocks"] = answer.cleared_blocks;
  return std::nullopt;
}

// What both pin and unpin read: false having replied.
bool ReadPrefix(Pending& pending, KvPrefixRequest* request, std::vector<TokenId>* tokens) {
  std::optional<ApiError> error =
      ParseKvPrefixRequest(pending.exchange->TakeBody(), pending.model->schema_context(), request);
  if (!error.has_value()) error = pending.service.CheckModelName(request->model);
  if (!error.has_value()) error = TokensOf(pending, *request, tokens);
  if (error.has_value()) pending.Fail(*error);
  return !error.has_value();
}

}  // namespace

void HandleKvList(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  const std::shared_ptr<Pending> pending = Begin(service, "/v1/kv", std::move(exchange));
  if (pending == nullptr) return;
  KvListRequest request;
  const std::optional<ApiError> error =
      ParseKvListRequest(pending->exchange->request().query, &request);
  if (error.has_value()) return pending->Fail(*error);
  Ask(pending,
      KvListQuery{RootFor(*pending, request.cache_salt), request.from, request.limit,
                  service.options().kv_show_text},
      FormatList);
}

void HandleKvPin(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  const std::shared_ptr<Pending> pending = Begin(service, "/v1/kv/pin", std::move(exchange));
  if (pending == nullptr) return;
  KvPrefixRequest request;
  KvPinQuery query;
  if (!ReadPrefix(*pending, &request, &query.tokens)) return;
  query.root = RootFor(*pending, request.cache_salt);
  query.hash = request.hash;
  query.ttl_us = request.ttl_us;
  query.owner = TenantOf(*pending);
  Ask(pending, std::move(query), FormatPin);
}

void HandleKvUnpin(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  const std::shared_ptr<Pending> pending = Begin(service, "/v1/kv/unpin", std::move(exchange));
  if (pending == nullptr) return;
  KvPrefixRequest request;
  std::vector<TokenId> tokens;
  if (!ReadPrefix(*pending, &request, &tokens)) return;
  KvUnpinQuery query;
  query.root = RootFor(*pending, request.cache_salt);
  query.hash = request.hash;
  query.names = HashBlocks(query.root, tokens, pending->model->block_tokens);
  query.tokens = std::move(tokens);
  Ask(pending, std::move(query), FormatUnpin);
}

void HandleKvClear(ApiService& service, std::shared_ptr<HttpExchange> exchange) {
  const std::shared_ptr<Pending> pending = Begin(service, "/v1/kv/clear", std::move(exchange));
  if (pending == nullptr) return;
  std::string model, cache_salt;
  std::optional<ApiError> error =
      ParseKvClearRequest(pending->exchange->request().body, &model, &cache_salt);
  if (!error.has_value()) error = service.CheckModelName(model);
  if (error.has_value()) return pending->Fail(*error);
  Ask(pending, KvClearQuery{RootFor(*pending, cache_salt)}, FormatClear);
}

}  // namespace kvasir
