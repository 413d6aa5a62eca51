// KvStrategy: the ways to keep KV in memory that one can choose between, and the table that makes
// them: a fifth one is a file of its own and a line in kv_strategy.cc.
#ifndef KVASIR_KV_KV_STRATEGY_H_
#define KVASIR_KV_KV_STRATEGY_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kvasir {

enum class KvStrategy : uint8_t {
  kStatic,   // One contiguous region of the longest sequence for each slot.
  kDynamic,  // Contiguous regions of the length needed, from one pool.
  kShared,   // Dynamic, and running sequences share their common prefixes.
  kPaged,    // Blocks anywhere, a prefix tree over all of them.
};

std::string_view KvStrategyName(KvStrategy strategy);
std::optional<KvStrategy> KvStrategyFromName(std::string_view name);
std::vector<KvStrategy> AllKvStrategies();  // In the order of the table.

}  // namespace kvasir

#endif  // KVASIR_KV_KV_STRATEGY_H_
