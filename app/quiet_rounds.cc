#include "quiet_rounds.h"

#include <emmintrin.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "terminal.h"

namespace kvasir {
namespace {

constexpr int kProbeBytes = 8192;   // Within any first-level cache, beside what the loop needs.
constexpr int kProbePasses = 1000;  // About 0.1 ms.
constexpr int kFirstProbes = 50;
constexpr double kQuietShare = 0.95;

std::atomic<int64_t> sink{0};

void LoadLoop() {
  alignas(64) unsigned char bytes[kProbeBytes];
  std::fill(std::begin(bytes), std::end(bytes), static_cast<unsigned char>(1));
  __m128i sums[8] = {};
  for (int pass = 0; pass < kProbePasses; ++pass) {
    for (int at = 0; at < kProbeBytes; at += 128) {
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        const __m128i* from = reinterpret_cast<const __m128i*>(bytes + at + 16 * i);
        sums[i] = _mm_xor_si128(sums[i], _mm_load_si128(from));
      }
    }
    asm volatile("" : : "r"(bytes) : "memory");  // Each pass loads anew.
  }
#pragma GCC unroll 8
  for (int i = 1; i < 8; ++i) sums[0] = _mm_xor_si128(sums[0], sums[i]);
  sink.fetch_xor(_mm_cvtsi128_si64(sums[0]), std::memory_order_relaxed);
}

}  // namespace

QuietRounds::QuietRounds(WorkerTeam& team, int repeats, bool undisturbed)
    : team_(team), repeats_(repeats), undisturbed_(undisturbed) {
  for (int i = 0; i < kFirstProbes; ++i) IsQuiet();
}

double QuietRounds::ProbeSeconds() {
  std::vector<double> seconds(static_cast<size_t>(team_.worker_count()));
  team_.Run([&](int worker) {
    team_.Barrier();
    const double start = NowSeconds();
    LoadLoop();
    seconds[static_cast<size_t>(worker)] = NowSeconds() - start;
  });
  return *std::max_element(seconds.begin(), seconds.end());
}

bool QuietRounds::IsQuiet() {
  if (!undisturbed_) return true;
  const double seconds = ProbeSeconds();
  best_probe_s_ = std::min(best_probe_s_, seconds);
  return seconds * kQuietShare <= best_probe_s_;
}

}  // namespace kvasir
