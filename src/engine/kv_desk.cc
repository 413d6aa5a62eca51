#include "engine/kv_desk.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace kvasir {
namespace {

void Refuse(KvQuery query, Status status) {
  KvAnswer answer;
  answer.status = std::move(status);
  query.done(std::move(answer));
}

}  // namespace

void KvDesk::Take(KvQuery query) {
  if (waiting_.size() >= capacity_) {
    return Refuse(std::move(query), ResourceExhausted("too many questions about the cache wait"));
  }
  Waiting& waiting = waiting_.emplace_back();
  waiting.query = std::move(query);
  if (const auto* list = std::get_if<KvListQuery>(&waiting.query.question)) {
    waiting.answer.next = list->from;
  }
}

void KvDesk::Work(TimeUs now) {
  for (uint32_t pages = 0; pages < kPagesPerTurn && !waiting_.empty(); ++pages) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    if (now >= waiting.query.deadline) {
      Refuse(std::move(waiting.query),
             MakeStatus(StatusCode::kDeadlineExceeded, "the engine did not come to it in time"));
      continue;
    }
    if (!Page(waiting, now)) {
      waiting_.push_back(std::move(waiting));
      continue;
    }
    waiting.answer.now = now;
    waiting.query.done(std::move(waiting.answer));
  }
}

void KvDesk::Close() {
  while (!waiting_.empty()) {
    Waiting waiting = std::move(waiting_.front());
    waiting_.pop_front();
    Refuse(std::move(waiting.query),
           MakeStatus(StatusCode::kUnavailable, "the server is shutting down"));
  }
}

bool KvDesk::Page(Waiting& waiting, TimeUs now) {
  if (const auto* list = std::get_if<KvListQuery>(&waiting.query.question)) {
    return List(*list, &waiting.answer);
  }
  if (auto* pin = std::get_if<KvPinQuery>(&waiting.query.question)) {
    waiting.answer.pinned_until = now + pin->ttl_us;
    Pin(*pin, &waiting.answer);
  } else if (const auto* unpin = std::get_if<KvUnpinQuery>(&waiting.query.question)) {
    return Unpin(*unpin, waiting);
  } else {
    const KvCleared cleared = kv_.ClearCached(std::get<KvClearQuery>(waiting.query.question).root,
                                              waiting.from, kClearBlocks);
    waiting.answer.cleared_blocks += cleared.blocks;
    if (!cleared.next.has_value()) return true;
    waiting.from = *cleared.next;
    return false;
  }
  return true;
}

bool KvDesk::List(const KvListQuery& query, KvAnswer* answer) {
  const size_t before = answer->entries.size();
  const size_t room = std::min<size_t>(query.limit - before, kPageEntries);
  answer->entries.resize(before + room);
  const KvPage page =
      kv_.ListCached(query.root, *answer->next, std::span(answer->entries).subspan(before));
  answer->entries.resize(before + page.count);
  answer->next = page.next;
  if (query.with_tokens) {
    for (size_t i = before; i < answer->entries.size(); ++i) {
      std::vector<TokenId>& tokens = answer->tokens.emplace_back();
      tokens.resize(std::min(answer->entries[i].tokens, kShownTokens));
      tokens.resize(kv_.CachedTokens(query.root, answer->entries[i].hash, tokens));
    }
  }
  return !page.next.has_value() || answer->entries.size() >= query.limit;
}

void KvDesk::Pin(const KvPinQuery& query, KvAnswer* answer) {
  const KvPinTerms terms(answer->pinned_until, query.owner);
  answer->pin = query.hash.has_value() ? kv_.PinCached(query.root, *query.hash, terms)
                                       : kv_.PinCached(query.root, query.tokens, terms);
}

// A pin may end inside a block that goes on with other tokens, so that its name cannot be computed
// from the prompt: the pins that there are get looked at.
bool KvDesk::Unpin(const KvUnpinQuery& query, Waiting& waiting) {
  std::optional<BlockHash>& found = waiting.answer.unpinned;
  if (query.hash.has_value()) {
    if (kv_.UnpinCached(query.root, *query.hash)) found = query.hash;
    return true;
  }
  std::array<KvCachedEntry, kPageEntries> entries;
  const KvPage page = kv_.ListCached(query.root, waiting.from, entries);
  for (uint32_t i = 0; i < page.count; ++i) {
    const KvCachedEntry& entry = entries[i];
    if (entry.pinned_until == 0 || (found.has_value() && entry.depth <= waiting.depth)) continue;
    if (!LiesOn(query, entry)) continue;
    found = entry.hash;
    waiting.depth = entry.depth;
  }
  if (page.next.has_value()) {
    waiting.from = *page.next;
    return false;
  }
  // It may have ended while others were looked at.
  if (found.has_value() && !kv_.UnpinCached(query.root, *found)) found.reset();
  return true;
}

// Whether the entry holds tokens of the query's, and none but those as far as they go.
bool KvDesk::LiesOn(const KvUnpinQuery& query, const KvCachedEntry& entry) const {
  if (entry.depth >= query.tokens.size()) return false;
  const size_t before = entry.depth / kv_.layout().block_tokens;
  if (entry.parent != (before == 0 ? query.root : query.names[before - 1])) return false;
  const std::span<const TokenId> wanted = std::span(query.tokens).subspan(entry.depth);
  std::vector<TokenId> tokens(std::min<size_t>(wanted.size(), entry.tokens));
  tokens.resize(kv_.CachedTokens(query.root, entry.hash, tokens));
  return !tokens.empty() && std::equal(tokens.begin(), tokens.end(), wanted.begin());
}

}  // namespace kvasir
