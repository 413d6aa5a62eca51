// CounterRandom: the sampler's random numbers, a pure function of (key, counter) without state.
//
// A generator with state would tie a sequence's draws to the order in which sequences are stepped;
// here the draw of a token depends on its seed and its position only, so the same seed gives the
// same text whatever the batch, after preemption and after a restart.
//
// Philox-4x32 with 10 rounds: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as
// 1, 2, 3", SC 2011. Its published known answers are in the test. Thread: pure functions.
#ifndef KVASIR_ENGINE_COUNTER_RANDOM_H_
#define KVASIR_ENGINE_COUNTER_RANDOM_H_

#include <array>
#include <cstdint>

namespace kvasir {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Uniform in [0, 1) with 53 bits: the draw for the token at `position` under `seed`.
double UniformAt(uint64_t seed, uint64_t position);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_COUNTER_RANDOM_H_
