#include "base/huge_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

namespace kvasir {
namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
}  // namespace

HugeBuffer::~HugeBuffer() {
  if (mapped_size_ != 0) ::munmap(data_, mapped_size_);
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept { *this = std::move(other); }

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_size_, other.mapped_size_);
  return *this;
}

StatusOr<HugeBuffer> HugeBuffer::Allocate(size_t size) {
  HugeBuffer buffer;
  if (size == 0) return buffer;
  const size_t rounded = (size + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  // One page more than asked, so that a 2 MiB boundary lies inside; the ends are given back.
  const size_t asked = rounded + kHugePageBytes;
  void* base = size > SIZE_MAX / 2 ? MAP_FAILED
                                   : ::mmap(nullptr, asked, PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return ResourceExhausted("cannot map {} bytes of memory: {}", size, std::strerror(errno));
  }
  const uintptr_t start = reinterpret_cast<uintptr_t>(base);
  const uintptr_t aligned = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  if (aligned > start) ::munmap(base, aligned - start);
  const uintptr_t end = aligned + rounded;
  if (start + asked > end) ::munmap(reinterpret_cast<void*>(end), start + asked - end);
  ::madvise(reinterpret_cast<void*>(aligned), rounded, MADV_HUGEPAGE);  // Advice: may be refused.
  buffer.data_ = reinterpret_cast<std::byte*>(aligned);
  buffer.size_ = size;
  buffer.mapped_size_ = rounded;
  return buffer;
}

}  // namespace kvasir
