#include "base/check.h"

#include <gtest/gtest.h>

#include "base/ids.h"

namespace kvasir {
namespace {

TEST(CheckDeathTest, NamesFileConditionAndValues) {
  const int tokens = 3;
  EXPECT_DEATH(KV_CHECK(tokens == 4), "base/check_test\\.cc:[0-9]+: check failed: tokens == 4\n");
  EXPECT_DEATH(KV_CHECK_EQ(tokens, 4), "check failed: tokens == 4 \\(3 vs 4\\)");
  EXPECT_DEATH(KV_CHECK_LT(2.5, 1.5), "\\(2\\.5 vs 1\\.5\\)");
  EXPECT_DEATH(KV_CHECK_EQ(BlockId{7}, kNoBlock), "\\(7 vs 4294967295\\)");
}

TEST(CheckDeathTest, EachComparisonFailsOnItsOwnSide) {
  const uint32_t two = 2;
  EXPECT_DEATH(KV_CHECK_NE(two, 2u), "check failed");
  EXPECT_DEATH(KV_CHECK_LT(two, 2u), "check failed");
  EXPECT_DEATH(KV_CHECK_LE(two, 1u), "check failed");
  EXPECT_DEATH(KV_CHECK_GT(two, 2u), "check failed");
  EXPECT_DEATH(KV_CHECK_GE(two, 3u), "check failed");
  KV_CHECK_NE(two, 3u);
  KV_CHECK_LT(two, 3u);
  KV_CHECK_LE(two, 2u);
  KV_CHECK_GT(two, 1u);
  KV_CHECK_GE(two, 2u);
}

TEST(Check, EvaluatesOperandsOnceAndNestsInIfElse) {
  int a = 0, b = 0;
  if (a == 0)
    KV_CHECK_EQ(++a, 1);
  else
    KV_CHECK_EQ(++b, 1);
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, 0);
}

}  // namespace
}  // namespace kvasir
