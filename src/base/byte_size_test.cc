#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(ByteSize, IsRoundedUpAndShort) {
  EXPECT_EQ(SizeForAtLeast(0), "0K");
  EXPECT_EQ(SizeForAtLeast(1), "1K");
  EXPECT_EQ(SizeForAtLeast(1024), "1K");
  EXPECT_EQ(SizeForAtLeast(1025), "2K");
  EXPECT_EQ(SizeForAtLeast((64u << 20) - 1), "65536K");
  EXPECT_EQ(SizeForAtLeast(64u << 20), "64M");
  EXPECT_EQ(SizeForAtLeast((64u << 20) + 1), "65M");
  EXPECT_EQ(SizeForAtLeast(UINT64_MAX), "17592186044416M");
}

}  // namespace
}  // namespace kvasir
