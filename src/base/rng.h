// Rng: a small seeded generator for tests, simulations and tools; the same seed gives the same
// numbers on every machine. Not for cryptography, and not the sampler's generator (engine/sampler.h
// is counter based). Source: SplitMix64 (Steele, Lea, Flood 2014), xoshiro256** (Blackman, Vigna
// 2018).
#ifndef KVASIR_BASE_RNG_H_
#define KVASIR_BASE_RNG_H_

#include <cstdint>
#include <vector>

namespace kvasir {

// One step of SplitMix64's finaliser: a bijection whose outputs pass as random for distinct inputs.
constexpr uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class Rng {
 public:
  explicit Rng(uint64_t seed);

  uint64_t Next();
  uint64_t Below(uint64_t bound);              // Uniform in [0, bound). REQUIRES: bound > 0.
  int64_t Between(int64_t low, int64_t high);  // Uniform in [low, high]. REQUIRES: low <= high.
  double Uniform();                            // [0, 1), 53 bits.
  float Normal();                              // Mean 0, deviation 1.

 private:
  uint64_t state_[4];
};

// Seeds for a property test: `count` fixed ones, or the single one named by KVASIR_TEST_SEED.
std::vector<uint64_t> TestSeeds(int count);

}  // namespace kvasir

#endif  // KVASIR_BASE_RNG_H_
