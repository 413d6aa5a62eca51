#include "base/counted.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(Counted(0, "slot"), "0 slots");
  EXPECT_EQ(Counted(1, "slot"), "1 slot");
  EXPECT_EQ(Counted(2, "slot"), "2 slots");
  EXPECT_EQ(Counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(Counted(21, "entry", "entries"), "21 entries");
  EXPECT_EQ(Counted(UINT64_MAX, "byte"), "18446744073709551615 bytes");
}

}  // namespace
}  // namespace kvasir
