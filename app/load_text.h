// CommonWords: text of frequent English words, drawn from a seed: prompts for load whose length in
// tokens is close to its length in words, with nothing else to say.
#ifndef KVASIR_APP_LOAD_TEXT_H_
#define KVASIR_APP_LOAD_TEXT_H_

#include <cstdint>
#include <string>

namespace kvasir {

// `count` words with a blank between them. The same (seed, stream) gives the same words, a smaller
// count the first of them; other streams share no beginning worth mentioning.
std::string CommonWords(uint64_t seed, uint64_t stream, uint64_t count);

}  // namespace kvasir

#endif  // KVASIR_APP_LOAD_TEXT_H_
