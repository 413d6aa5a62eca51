#include "base/published.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace kvasir {
namespace {

struct Odd {  // Not a whole number of words.
  std::array<uint64_t, 40> numbers{};
  uint8_t last = 0;
};

Odd Filled(uint64_t number) {
  Odd odd;
  odd.numbers.fill(number);
  odd.last = static_cast<uint8_t>(number);
  return odd;
}

TEST(Published, BeginsWithAValue) {
  EXPECT_EQ(Published<int>(7).Read(), 7);
  EXPECT_EQ(Published<Odd>().Read().numbers[39], 0u);
  Published<Odd> value;
  value.Publish(Filled(300));
  EXPECT_EQ(value.Read().numbers[0], 300u);
  EXPECT_EQ(value.Read().last, 300 % 256);
}

// Each read is one whole value, and no older than the one before.
TEST(Published, ManyReadersSeeWholeValuesInOrder) {
  Published<Odd> value(Filled(0));
  std::atomic<bool> stop{false};
  std::atomic<int> started{0};
  std::atomic<uint64_t> torn{0}, backwards{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 8; ++r) {
    readers.emplace_back([&] {
      uint64_t last = 0;
      ++started;
      while (!stop.load()) {
        const Odd odd = value.Read();
        for (const uint64_t number : odd.numbers) torn += number != odd.numbers[0];
        torn += odd.last != static_cast<uint8_t>(odd.numbers[0]);
        backwards += odd.numbers[0] < last;
        last = odd.numbers[0];
      }
    });
  }
  while (started.load() < 8) std::this_thread::yield();
  for (uint64_t i = 1; i <= 2000; ++i) {
    value.Publish(Filled(i));
    if (i % 64 == 0) std::this_thread::yield();
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn.load(), 0u);
  EXPECT_EQ(backwards.load(), 0u);
  EXPECT_EQ(value.Read().numbers[7], 2000u);
}

}  // namespace
}  // namespace kvasir
