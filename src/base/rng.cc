#include "base/rng.h"

#include <cmath>
#include <cstdlib>

#include "base/check.h"

namespace kvasir {
namespace {
constexpr uint64_t RotateLeft(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }
}  // namespace

Rng::Rng(uint64_t seed) {
  for (uint64_t& word : state_) word = Mix64(seed++);
}

uint64_t Rng::Next() {
  const uint64_t result = RotateLeft(state_[1] * 5, 7) * 9;
  const uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = RotateLeft(state_[3], 45);
  return result;
}

uint64_t Rng::Below(uint64_t bound) {
  KV_CHECK_GT(bound, 0u);
  // Rejection keeps it exactly uniform.
  const uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  uint64_t value = Next();
  while (value >= limit) value = Next();
  return value % bound;
}

int64_t Rng::Between(int64_t low, int64_t high) {
  KV_CHECK_LE(low, high);
  return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
}

double Rng::Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

float Rng::Normal() {
  const double u = 1.0 - Uniform();
  const double v = Uniform();
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

std::vector<uint64_t> TestSeeds(int count) {
  if (const char* fixed = std::getenv("KVASIR_TEST_SEED")) {
    return {std::strtoull(fixed, nullptr, 10)};
  }
  std::vector<uint64_t> seeds;
  for (int i = 0; i < count; ++i) seeds.push_back(static_cast<uint64_t>(i) + 1);
  return seeds;
}

}  // namespace kvasir
