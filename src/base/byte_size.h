// Sizes of memory for people: in messages that say which size to give, and how large one is.
#ifndef KVASIR_BASE_BYTE_SIZE_H_
#define KVASIR_BASE_BYTE_SIZE_H_

#include <cstdint>
#include <string>

namespace kvasir {

// The least whole K (or, from 64 MiB, M; powers of 1024) that is no less than `bytes`: "720K",
// "180M". What options of a size read.
std::string SizeForAtLeast(uint64_t bytes);

// How much that is, never more than it is: "720 KiB", "1.4 MiB", "181 MiB"; below 1 KiB "12 bytes".
std::string ShownBytes(uint64_t bytes);

}  // namespace kvasir

#endif  // KVASIR_BASE_BYTE_SIZE_H_
