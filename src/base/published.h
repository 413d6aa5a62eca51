// Published: a value that one thread renews and any thread reads, where neither ever waits for the
// other to be scheduled.
//
// The writer never waits at all: it stores and goes on, however many read and wherever they were
// stopped. A reader copies, and copies again if the writer came in between, so that what it gets is
// one whole value of the writer's, not a mixture. For values of some kilobytes that are written
// thousands of times a second at most: a writer that never pauses could keep readers copying.
// Thread: Publish from one thread at a time, Read from any.
// Source: Boehm, "Can seqlocks get along with programming language memory models?", MSPC 2012; its
// variant whose data words carry the ordering, since thread sanitizers do not know fences.
#ifndef KVASIR_BASE_PUBLISHED_H_
#define KVASIR_BASE_PUBLISHED_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <type_traits>

namespace kvasir {

template <typename Value>
class Published {
  static_assert(std::is_trivially_copyable_v<Value>, "copied word by word");

 public:
  explicit Published(const Value& value = Value()) { Publish(value); }
  Published(const Published&) = delete;
  Published& operator=(const Published&) = delete;

  void Publish(const Value& value) {
    std::array<uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof(Value));
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    // Who sees one of these words sees the odd version too.
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
    version_.store(version + 2, std::memory_order_release);
  }

  Value Read() const {
    std::array<uint64_t, kWords> words;
    while (true) {
      const uint64_t version = version_.load(std::memory_order_acquire);
      if (version % 2 == 0) {
        for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
        if (version_.load(std::memory_order_relaxed) == version) break;
      }
      std::this_thread::yield();  // The writer may have been stopped amid a value.
    }
    Value value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof(Value));
    return value;
  }

 private:
  static constexpr size_t kWords = (sizeof(Value) + 7) / 8;

  std::atomic<uint64_t> version_{0};  // Odd while words_ are being written.
  std::array<std::atomic<uint64_t>, kWords> words_{};
};

}  // namespace kvasir

#endif  // KVASIR_BASE_PUBLISHED_H_
