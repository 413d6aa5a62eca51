#include "base/ids.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace kvasir {
namespace {

// The whole point of strong ids: no silent conversion between them, nor from or to numbers.
static_assert(!std::is_convertible_v<TokenId, BlockId>);
static_assert(!std::is_convertible_v<BlockId, SequenceId>);
static_assert(!std::is_convertible_v<TokenId, int32_t>);
static_assert(!std::is_convertible_v<int32_t, TokenId>);
static_assert(!std::is_constructible_v<BlockId, TokenId>);

TEST(Ids, IndexGivesTheNumberWithItsWidthAndSign) {
  static_assert(std::is_same_v<decltype(Index(TokenId{1})), int32_t>);
  static_assert(std::is_same_v<decltype(Index(BlockId{1})), uint32_t>);
  EXPECT_EQ(Index(TokenId{-5}), -5);
  EXPECT_EQ(Index(kNoBlock), 0xFFFFFFFFu);
}

}  // namespace
}  // namespace kvasir
