#include "base/mailbox.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace kvasir {
namespace {

TEST(Mailbox, RefusesWhenFullOrClosed) {
  Mailbox<int> box(2);
  EXPECT_TRUE(box.Push(1));
  EXPECT_TRUE(box.Push(2));
  EXPECT_FALSE(box.Push(3));
  std::vector<int> out;
  box.Drain(&out);
  EXPECT_EQ(out, (std::vector<int>{1, 2}));
  EXPECT_TRUE(box.Push(4));
  EXPECT_FALSE(box.finished());
  box.Close();
  EXPECT_TRUE(box.closed());
  EXPECT_FALSE(box.finished());
  EXPECT_FALSE(box.Push(5));
  ASSERT_TRUE(box.TryDrain(&out));
  EXPECT_EQ(out, (std::vector<int>{1, 2, 4}));
  EXPECT_TRUE(box.finished());
}

// Nothing is lost or doubled, and each sender's messages keep their order.
TEST(Mailbox, TryDrainAmongSenders) {
  constexpr int kSenders = 4, kEach = 500;
  Mailbox<int> box(64);
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&box, s] {
      for (int i = 0; i < kEach; ++i) {
        while (!box.Push(s * kEach + i)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> out;
  while (out.size() < kSenders * kEach) {
    if (!box.TryDrain(&out)) std::this_thread::yield();
  }
  for (std::thread& sender : senders) sender.join();
  std::vector<int> next(kSenders, 0);
  for (const int message : out) EXPECT_EQ(message % kEach, next[message / kEach]++);
}

}  // namespace
}  // namespace kvasir
