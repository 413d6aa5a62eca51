// Counts for people: "1 slot", "2 slots".
#ifndef KVASIR_BASE_COUNTED_H_
#define KVASIR_BASE_COUNTED_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir {

// The count and what is counted. `many` is for words that take more than an s: "entries".
std::string Counted(uint64_t count, std::string_view one, std::string_view many = {});

}  // namespace kvasir

#endif  // KVASIR_BASE_COUNTED_H_
