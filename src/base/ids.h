// Strong ids: a TokenId is not a BlockId. Each is an enum class over its number; Index() gives the
// number back where a container needs it.
#ifndef KVASIR_BASE_IDS_H_
#define KVASIR_BASE_IDS_H_

#include <cstdint>
#include <type_traits>

namespace kvasir {

// A token of the model's vocabulary. Signed width of the file formats; valid ids are 0..vocab-1.
enum class TokenId : int32_t {};

// A KV block of one group's arena; only meaningful together with its group.
enum class BlockId : uint32_t {};
inline constexpr BlockId kNoBlock = BlockId{0xFFFFFFFFu};

// A running sequence of one KvCache.
enum class SequenceId : uint32_t {};

template <typename Id>
requires std::is_enum_v<Id>
constexpr std::underlying_type_t<Id> Index(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace kvasir

#endif  // KVASIR_BASE_IDS_H_
