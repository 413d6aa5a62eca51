#include "kv/cache_replay.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/ranked_policies.h"

namespace kvasir {

void RequestTrace::Add(std::span<const TokenId> ids) {
  uint64_t before = 0;  // Block before + 1.
  BlockHash parent{};
  for (const TokenId id : ids) {
    KV_CHECK_GE(Index(id), 0);
    const uint64_t key = before << 32 | static_cast<uint32_t>(Index(id));
    const auto [it, is_new] = known_.emplace(key, block_count());
    if (is_new) {
      ids_.push_back(id);
      hashes_.push_back(ChildHash(parent, std::span(&id, 1)));
    }
    blocks_.push_back(it->second);
    before = uint64_t{it->second} + 1;
    parent = hashes_[it->second];
  }
  ends_.push_back(blocks_.size());
  longest_ = std::max(longest_, static_cast<uint32_t>(ids.size()));
}

std::span<const uint32_t> RequestTrace::request(size_t index) const {
  KV_CHECK_LT(index, ends_.size());
  return std::span(blocks_).subspan(begin(index), ends_[index] - begin(index));
}

// Belady's rule among leaves: the one wanted again last goes first.
class CacheReplay::ForesightPolicy final : public RankedPolicy {
 public:
  explicit ForesightPolicy(uint32_t item_count) : RankedPolicy(item_count), next_(item_count, 0) {}
  // Before Rest: the reference at which the item is wanted again.
  void Foresee(uint32_t item, uint64_t reference) { next_[item] = reference; }

 private:
  uint64_t Rank(uint32_t item) const override { return UINT64_MAX - next_[item]; }
  std::vector<uint64_t> next_;
};

namespace {

uint32_t CapacityOf(const RequestTrace& trace, const ReplayOptions& options) {
  KV_CHECK_GT(options.capacity, 0u);
  KV_CHECK_GT(trace.block_count(), 0u);
  return static_cast<uint32_t>(std::min<uint64_t>(options.capacity, trace.block_count()));
}

PrefixTree::Options TreeOptions(uint32_t capacity) {
  PrefixTree::Options options;
  options.block_tokens = 1;
  options.block_counts = {capacity};
  return options;
}

std::unique_ptr<EvictionPolicy> PolicyOf(const RequestTrace& trace, const ReplayOptions& replay) {
  EvictionOptions options;
  options.evict = *replay.evict;
  options.item_count = CapacityOf(trace, replay);
  options.max_path = trace.longest();
  options.depth_cost = replay.depth_cost;
  return MakeEvictionPolicy(options);
}

std::vector<uint64_t> NextUses(const RequestTrace& trace) {
  std::vector<uint64_t> next(trace.reference_count());
  std::vector<uint64_t> last(trace.block_count(), UINT64_MAX);
  for (size_t i = trace.request_count(); i > 0; --i) {
    const std::span<const uint32_t> request = trace.request(i - 1);
    for (size_t d = request.size(); d > 0; --d) {
      const size_t reference = trace.begin(i - 1) + d - 1;
      next[reference] = std::exchange(last[request[d - 1]], reference);
    }
  }
  return next;
}

}  // namespace

CacheReplay::CacheReplay(const RequestTrace& trace, const ReplayOptions& options)
    : trace_(trace),
      options_(options),
      capacity_(CapacityOf(trace, options)),
      tree_(TreeOptions(capacity_), [&]() -> std::unique_ptr<EvictionPolicy> {
        if (options.evict.has_value()) return PolicyOf(trace, options);
        auto foresight = std::make_unique<ForesightPolicy>(CapacityOf(trace, options));
        foresight_ = foresight.get();
        return foresight;
      }()) {
  root_ = tree_.AcquireRoot(BlockHash{});
  for (uint32_t i = capacity_; i > 0; --i) free_.push_back(BlockId{i - 1});
  if (foresight_ != nullptr) next_use_ = NextUses(trace);
  path_.reserve(trace.longest());
}

CacheReplay::~CacheReplay() = default;

double CacheReplay::progress() const {
  return static_cast<double>(trace_.begin(next_)) /
         static_cast<double>(std::max<size_t>(1, trace_.reference_count()));
}

double CacheReplay::Cost(size_t depth) const {
  return 1.0 + static_cast<double>(depth) * options_.depth_cost;
}

// nullopt: all that is left is the request's own.
std::optional<BlockId> CacheReplay::TakeBlock() {
  if (free_.empty()) {
    const std::optional<NodeId> victim = tree_.Victim(0);
    if (!victim.has_value()) return std::nullopt;
    free_.push_back(tree_.block(*victim, 0));
    tree_.NoteEviction(*victim);
    tree_.Erase(*victim);
    KvEviction report;
    report.ruling = options_.evict.value_or(KvEvict::kLru);
    tree_.policy().Report(&report);
    ++result_.eviction.evictions[static_cast<size_t>(report.ruling)];
  }
  const BlockId block = free_.back();
  free_.pop_back();
  return block;
}

void CacheReplay::Step() {
  const std::span<const uint32_t> request = trace_.request(next_);
  path_.clear();
  wanted_.clear();
  NodeId tail = root_;
  for (size_t depth = 0; depth < request.size(); ++depth) {
    const TokenId id = trace_.id(request[depth]);
    const auto node = tree_.FindChild(tail, trace_.hash(request[depth]), std::span(&id, 1));
    if (!node.has_value()) break;
    tree_.NoteUse(*node);
    tree_.MarkBusy(*node, 0);
    tail = *node;
    path_.push_back(tail);
    result_.saved += Cost(depth);
  }
  result_.hits += path_.size();
  for (size_t depth = path_.size(); depth < request.size(); ++depth) {
    const std::optional<BlockId> block = TakeBlock();
    if (!block.has_value()) break;
    const TokenId id = trace_.id(request[depth]);
    tail =
        tree_.Insert(tail, trace_.hash(request[depth]), std::span(&id, 1), std::span(&*block, 1));
    path_.push_back(tail);
  }
  for (size_t depth = path_.size(); depth > 0; --depth) {
    const NodeId node = path_[depth - 1];
    if (foresight_ != nullptr) {
      foresight_->Foresee(Index(tree_.block(node, 0)), next_use_[trace_.begin(next_) + depth - 1]);
    }
    tree_.MarkIdle(node, 0, ++stamp_);
  }
  for (size_t depth = 0; depth < request.size(); ++depth) {
    result_.cost += Cost(depth);
    PolicyBlock block{0, static_cast<uint32_t>(depth), 1};
    std::copy_n(trace_.hash(request[depth]).bytes.begin(), sizeof(block.name),
                reinterpret_cast<uint8_t*>(&block.name));
    wanted_.push_back(block);
  }
  result_.references += request.size();
  if (tree_.policy().wants_requests()) {
    tree_.policy().Requested(wanted_, static_cast<uint32_t>(wanted_.size()));
  }
  ++next_;
}

ReplayResult CacheReplay::result() const {
  ReplayResult result = result_;
  result.eviction.policy = options_.evict.value_or(KvEvict::kLru);
  result.eviction.ruling = result.eviction.policy;
  tree_.policy().Report(&result.eviction);
  return result;
}

}  // namespace kvasir
