#include "base/huge_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace kvasir {
namespace {

TEST(HugeBuffer, IsAlignedZeroedAndWritableToItsLastByte) {
  for (const size_t size : {size_t{1}, size_t{4096}, (size_t{2} << 20) - 1, size_t{2} << 20,
                            (size_t{2} << 20) + 1, size_t{5} << 20}) {
    StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(size);
    ASSERT_TRUE(buffer.ok()) << size;
    ASSERT_EQ(buffer->size(), size);
    ASSERT_EQ(buffer->bytes().size(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (size_t{2} << 20), 0u) << size;
    EXPECT_EQ(buffer->bytes().front(), std::byte{0});
    EXPECT_EQ(buffer->bytes().back(), std::byte{0});
    buffer->bytes().front() = std::byte{1};
    buffer->bytes().back() = std::byte{2};
  }
}

TEST(HugeBuffer, EmptyIsAllowed) {
  StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_TRUE(buffer->bytes().empty());
}

TEST(HugeBuffer, MoveCarriesTheBytes) {
  StatusOr<HugeBuffer> made = HugeBuffer::Allocate(100);
  ASSERT_TRUE(made.ok());
  made->data()[99] = std::byte{42};
  HugeBuffer moved = std::move(*made);
  EXPECT_EQ(moved.bytes().back(), std::byte{42});
  HugeBuffer assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.size(), 100u);
  EXPECT_EQ(assigned.bytes().back(), std::byte{42});
}

TEST(HugeBuffer, AbsurdSizesAreRefusedByName) {
  for (const size_t size : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 4096, size_t{1} << 60}) {
    const StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(size);
    ASSERT_FALSE(buffer.ok()) << size;
    EXPECT_EQ(buffer.status().code(), StatusCode::kResourceExhausted);
    EXPECT_NE(MessageOf(buffer.status()).find(std::to_string(size)), std::string_view::npos);
  }
}

}  // namespace
}  // namespace kvasir
