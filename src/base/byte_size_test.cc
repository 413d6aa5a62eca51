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

TEST(ByteSize, ShownIsNeverMoreThanItIs) {
  constexpr uint64_t kM = 1u << 20;
  EXPECT_EQ(ShownBytes(0), "0 bytes");
  EXPECT_EQ(ShownBytes(1), "1 byte");
  EXPECT_EQ(ShownBytes(1023), "1023 bytes");
  EXPECT_EQ(ShownBytes(1024), "1 KiB");
  EXPECT_EQ(ShownBytes(1024 + 512), "1.5 KiB");
  EXPECT_EQ(ShownBytes(737280), "720 KiB");
  EXPECT_EQ(ShownBytes(kM - 1), "1023 KiB");
  EXPECT_EQ(ShownBytes(kM), "1 MiB");
  EXPECT_EQ(ShownBytes(2 * kM - 1), "1.9 MiB");
  EXPECT_EQ(ShownBytes(181 * kM + kM / 2), "181 MiB");
  EXPECT_EQ(ShownBytes(UINT64_MAX), "17592186044415 MiB");
}

}  // namespace
}  // namespace kvasir
