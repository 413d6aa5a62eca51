#include "machine_limits.h"

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/huge_buffer.h"
#include "kernels/isa.h"
#include "terminal.h"

namespace kvasir {
namespace {

constexpr int kRounds = 5;
constexpr double kLeastSeconds = 0.1;  // So that workers that began on one core have left it.
constexpr uint32_t kSliceBytes = 1u << 20;
constexpr int kChains = 16;  // Independent sums: 10 just hide a latency of 5 at 2 a cycle, if
                             // nothing is ever late, and measured a sixth too little.
constexpr int kInnerLoops = 250000;  // About 2 ms a round.

// What a loop computed goes here, so that the compiler cannot drop it.
std::atomic<uint64_t> sink{0};

uint64_t ReadSlice(const std::byte* bytes) {
  __m128i sums[8] = {};
  for (uint32_t at = 0; at < kSliceBytes; at += 128) {
#pragma GCC unroll 16
    for (int i = 0; i < 8; ++i) {
      const __m128i* from = reinterpret_cast<const __m128i*>(bytes + at + 16 * i);
      sums[i] = _mm_xor_si128(sums[i], _mm_load_si128(from));
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < 8; ++i) sums[0] = _mm_xor_si128(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(sums[0]));
}

// Each loop returns a value that depends on all its work; MACs a call are lanes * kChains *
// kInnerLoops. Unrolled on purpose: -O2 alone keeps the sums in memory and would measure that.
__attribute__((target("avx512f,avx512bw,avx512vnni"))) uint64_t Int8LoopAvx512() {
  __m512i sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_epi32(i);
  const __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  for (int loop = 0; loop < kInnerLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
      asm volatile("" : "+v"(sums[i]));
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_epi32(sums[0], sums[i]);
  alignas(64) uint64_t lanes[8];
  _mm512_store_si512(lanes, sums[0]);
  return lanes[0];
}

__attribute__((target("avx2"))) uint64_t Int8LoopAvx2() {
  __m256i sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_epi32(i);
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int loop = 0; loop < kInnerLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(a));  // Or the product would be computed once.
      const __m256i pairs = _mm256_maddubs_epi16(a, b);
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pairs, ones));
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_epi32(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm256_castsi256_si128(sums[0])));
}

__attribute__((target("avx512f"))) uint64_t FloatLoopAvx512() {
  __m512 sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 a = _mm512_set1_ps(0.5f);
  for (int loop = 0; loop < kInnerLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_fmadd_ps(sums[i], a, a);
      asm volatile("" : "+v"(sums[i]));
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm512_add_ps(sums[0], sums[i]);
  // Through memory: g++ 12 warns about the intrinsic that takes the low lanes.
  alignas(64) float lanes[16];
  _mm512_store_ps(lanes, sums[0]);
  return static_cast<uint64_t>(lanes[0]);
}

__attribute__((target("avx2,fma"))) uint64_t FloatLoopAvx2() {
  __m256 sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.5f);
  for (int loop = 0; loop < kInnerLoops; ++loop) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_fmadd_ps(sums[i], a, a);
      asm volatile("" : "+x"(sums[i]));
    }
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) sums[0] = _mm256_add_ps(sums[0], sums[i]);
  return static_cast<uint64_t>(_mm_cvtss_f32(_mm256_castps256_ps128(sums[0])));
}

struct MultiplyLoop {
  uint64_t (*run)();  // Null: the instruction set has none.
  int lanes;
};

MultiplyLoop Int8Loop() {
  switch (ActiveIsa()) {
    case Isa::kAvx512:
      return {Int8LoopAvx512, 64};
    case Isa::kAvx2:
      return {Int8LoopAvx2, 32};
    case Isa::kScalar:
      break;
  }
  return {nullptr, 0};
}

MultiplyLoop Fp32Loop() {
  switch (ActiveIsa()) {
    case Isa::kAvx512:
      return {FloatLoopAvx512, 16};
    case Isa::kAvx2:
      return {FloatLoopAvx2, 8};
    case Isa::kScalar:
      break;
  }
  return {nullptr, 0};
}

// 10^9 multiply-accumulates a second of all workers running `loop` once, each in its own time: the
// slower one does not keep the other waiting, as it would not if they shared out a product.
double Round(WorkerTeam& team, const MultiplyLoop& loop) {
  if (loop.run == nullptr) return 0.0;
  std::vector<double> seconds(static_cast<size_t>(team.worker_count()));
  team.Run([&](int worker) {
    const double start = NowSeconds();
    sink.fetch_xor(loop.run(), std::memory_order_relaxed);
    seconds[static_cast<size_t>(worker)] = NowSeconds() - start;
  });
  double rate = 0.0;
  for (const double s : seconds) rate += 1e-9 * loop.lanes * kChains * kInnerLoops / s;
  return rate;
}

double BestRound(WorkerTeam& team, const MultiplyLoop& loop) {
  double best = 0.0;
  const double begin = NowSeconds();
  for (int round = 0; round < kRounds || NowSeconds() - begin < kLeastSeconds; ++round) {
    best = std::max(best, Round(team, loop));
  }
  return best;
}

StatusOr<double> ReadRate(WorkerTeam& team, size_t wanted_bytes) {
  const uint32_t slices = static_cast<uint32_t>(wanted_bytes / kSliceBytes + 1);
  const size_t bytes = size_t{slices} * kSliceBytes;
  KV_ASSIGN_OR_RETURN(const HugeBuffer buffer, HugeBuffer::Allocate(bytes));
  // Untouched pages all read the one zero page.
  std::memset(buffer.data(), 1, buffer.size());
  double best_seconds = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const double start = NowSeconds();
    team.Run([&](int) {
      team.For(slices, 4, [&](uint32_t begin, uint32_t end) {
        uint64_t sum = 0;
        for (uint32_t slice = begin; slice < end; ++slice) {
          sum ^= ReadSlice(buffer.data() + size_t{slice} * kSliceBytes);
        }
        sink.fetch_xor(sum, std::memory_order_relaxed);
      });
    });
    best_seconds = std::min(best_seconds, NowSeconds() - start);
  }
  return static_cast<double>(bytes) / best_seconds * 1e-9;
}

}  // namespace

double MeasureInt8Round(WorkerTeam& team) { return Round(team, Int8Loop()); }
double MeasureFp32Round(WorkerTeam& team) { return Round(team, Fp32Loop()); }

StatusOr<MachineLimits> MeasureMachineLimits(WorkerTeam& team, size_t read_bytes) {
  MachineLimits limits;
  KV_ASSIGN_OR_RETURN(limits.read_gb_s, ReadRate(team, read_bytes));
  limits.int8_gmac_s = BestRound(team, Int8Loop());
  limits.fp32_gmac_s = BestRound(team, Fp32Loop());
  return limits;
}

}  // namespace kvasir
