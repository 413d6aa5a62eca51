// HugeBuffer: a large, zeroed, 2 MiB-aligned piece of anonymous memory that asks for huge pages.
//
// For weights, KV arenas and big scratch: streaming from 2 MiB pages reads 1.1 to 1.4 times as
// fast, since the page walks go. Pages are touched lazily by the kernel; memory is returned on
// destruction. Thread: immutable after construction; the bytes are the owner's business.
#ifndef KVASIR_BASE_HUGE_BUFFER_H_
#define KVASIR_BASE_HUGE_BUFFER_H_

#include <cstddef>
#include <span>

#include "base/status.h"

namespace kvasir {

class HugeBuffer {
 public:
  HugeBuffer() = default;
  ~HugeBuffer();
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;

  // kResourceExhausted when the address space or the overcommit limit refuses. `size` 0 is allowed.
  static StatusOr<HugeBuffer> Allocate(size_t size);

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::span<std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_size_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_HUGE_BUFFER_H_
