// Speed of paged attention and of the row operations, per instruction set. Attention reports GMAC/s
// (both products, visible tokens only) and its share of the float peak of that instruction set,
// which BM_FmaPeak measures in the same run.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/attention.h"
#include "kernels/isa.h"
#include "kernels/logits_row.h"
#include "kernels/row_ops.h"

namespace kvasir {
namespace {

// Twelve independent chains of fused multiply-adds: enough for two units of latency four. Vector
// extensions, so that neither intrinsics nor the loads of a real kernel come into it.
template <int kLanes>
struct Chains {
  typedef float Vector __attribute__((vector_size(kLanes * 4)));
};
#define KVASIR_FMA_PEAK(name, target_text, lanes)                                               \
  __attribute__((target(target_text), optimize("fp-contract=fast"), noinline)) float name(      \
      int64_t steps, float factor) {                                                            \
    using Vector = Chains<lanes>::Vector;                                                       \
    Vector f = factor - Vector{};                                                               \
    Vector a = f, b = f, c = f, d = f, e = f, g = f, h = f, i = f, j = f, k = f, l = f, m = f;  \
    for (int64_t s = 0; s < steps; ++s) {                                                       \
      a = a * f + f, b = b * f + f, c = c * f + f, d = d * f + f, e = e * f + f, g = g * f + f; \
      h = h * f + f, i = i * f + f, j = j * f + f, k = k * f + f, l = l * f + f, m = m * f + f; \
      asm volatile("" : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(g));                  \
      asm volatile("" : "+v"(h), "+v"(i), "+v"(j), "+v"(k), "+v"(l), "+v"(m));                  \
    }                                                                                           \
    const Vector sum = a + b + c + d + e + g + h + i + j + k + l + m;                           \
    return sum[0];                                                                              \
  }
#if defined(__GNUC__) && !defined(__clang__)
KVASIR_FMA_PEAK(FmaPeakAvx512, "avx512f,fma", 16)
KVASIR_FMA_PEAK(FmaPeakAvx2, "avx2,fma", 8)

void BM_FmaPeak(benchmark::State& state, Isa isa) {
  const int64_t steps = 100000;
  const int lanes = isa == Isa::kAvx512 ? 16 : 8;
  for (auto _ : state) {
    benchmark::DoNotOptimize(isa == Isa::kAvx512 ? FmaPeakAvx512(steps, 0.5f)
                                                 : FmaPeakAvx2(steps, 0.5f));
  }
  state.counters["GMAC/s"] = benchmark::Counter(
      12e-9 * lanes * static_cast<double>(steps * state.iterations()), benchmark::Counter::kIsRate);
}
#endif

struct Workload {
  const char* name;
  uint32_t head_dim, group, row_count, context;  // Rows end at position context - 1.
};

constexpr Workload kWorkloads[] = {
    {"decode R=3 hd=64 ctx=1024", 64, 3, 1, 1024},
    {"decode R=4 hd=256 ctx=4096", 256, 4, 1, 4096},
    {"decode R=4 hd=256 ctx=512", 256, 4, 1, 512},
    {"decode R=3 hd=64 ctx=8192", 64, 3, 1, 8192},
    {"prefill R=12 hd=64 ctx=1024", 64, 3, 4, 1024},
    {"prefill R=24 hd=64 ctx=1024", 64, 3, 8, 1024},
    {"prefill R=63 hd=64 ctx=512", 64, 3, 21, 512},
    {"prefill R=63 hd=64 ctx=1024", 64, 3, 21, 1024},
    {"prefill R=16 hd=256 ctx=1024", 256, 4, 4, 1024},
    {"prefill R=64 hd=256 ctx=1024", 256, 4, 16, 1024},
};

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

void BM_Attend(benchmark::State& state, Isa isa, const Workload& load) {
  SetActiveIsa(isa);
  constexpr uint32_t kBlockTokens = 16;
  Rng rng(1);
  const size_t plane = size_t{kBlockTokens} * load.head_dim * sizeof(uint16_t);
  const uint32_t block_count = load.context / kBlockTokens;
  const std::unique_ptr<std::byte, FreeDeleter> arena(
      static_cast<std::byte*>(std::aligned_alloc(4096, 2 * plane * block_count)));
  std::vector<const std::byte*> blocks;
  std::vector<float> row(load.head_dim);
  for (uint32_t b = 0; b < block_count; ++b) {
    std::byte* block = arena.get() + 2 * plane * b;
    for (uint32_t slot = 0; slot < kBlockTokens; ++slot) {
      for (float& x : row) x = rng.Normal();
      WriteKv(row, row, block, 0, plane, slot);
    }
    blocks.push_back(block);
  }
  const size_t stride = size_t{load.group} * load.head_dim;
  std::vector<float> q(stride * load.row_count), out(q.size());
  for (float& x : q) x = rng.Normal();
  std::vector<AttentionRow> rows;
  std::vector<const float*> q_rows;
  std::vector<float*> out_rows;
  for (uint32_t i = 0; i < load.row_count; ++i) {
    rows.push_back(
        {load.context - load.row_count + i, 0, i == 0 ? 0 : kWholeSequence, blocks.data()});
    q_rows.push_back(q.data() + i * stride);
    out_rows.push_back(out.data() + i * stride);
  }
  AttentionTile tile;
  tile.rows = rows.data();
  tile.q = q_rows.data();
  tile.row_count = load.row_count;
  tile.group = load.group;
  tile.head_dim = load.head_dim;
  tile.scale = 1 / std::sqrt(static_cast<float>(load.head_dim));
  tile.block_tokens = kBlockTokens;
  tile.v_offset = plane;
  const size_t floats = AttendScratchFloats(load.row_count, load.group, load.head_dim);
  const std::unique_ptr<float, FreeDeleter> scratch(
      static_cast<float*>(std::aligned_alloc(64, (floats * sizeof(float) + 63) / 64 * 64)));
  for (auto _ : state) {
    Attend(tile, scratch.get(), out_rows.data());
    benchmark::DoNotOptimize(out.data());
    benchmark::ClobberMemory();
  }
  const double tokens = load.context - (load.row_count - 1) / 2.0;  // Seen by the average row.
  state.counters["GMAC/s"] = benchmark::Counter(
      2e-9 * tokens * static_cast<double>(stride * load.row_count * state.iterations()),
      benchmark::Counter::kIsRate);
}

void BM_TopK(benchmark::State& state, Isa isa, size_t size) {
  SetActiveIsa(isa);
  Rng rng(1);
  std::vector<float> x(size);
  for (float& v : x) v = rng.Normal();
  std::vector<uint32_t> scratch(size), out(40);
  for (auto _ : state) benchmark::DoNotOptimize(TopK(x, 40, scratch, out));
}

void BM_ArgMax(benchmark::State& state, Isa isa, size_t size) {
  SetActiveIsa(isa);
  Rng rng(1);
  std::vector<float> x(size);
  for (float& v : x) v = rng.Normal();
  for (auto _ : state) benchmark::DoNotOptimize(ArgMax(x));
}

void BM_LogSumExp(benchmark::State& state, Isa isa, size_t size) {
  SetActiveIsa(isa);
  Rng rng(1);
  std::vector<float> x(size);
  for (float& v : x) v = rng.Normal();
  for (auto _ : state) benchmark::DoNotOptimize(LogSumExp(x));
}

void BM_RmsNorm(benchmark::State& state, Isa isa, size_t size) {
  SetActiveIsa(isa);
  std::vector<float> x(size, 1.5f), weight(size, 2.0f), out(size);
  for (auto _ : state) {
    RmsNorm(x, weight, 1e-5f, out);
    benchmark::ClobberMemory();
  }
}

void BM_Gate(benchmark::State& state, Isa isa, Activation activation, size_t size) {
  SetActiveIsa(isa);
  std::vector<float> gate(size, 1.5f), up(size, 2.0f), out(size);
  for (auto _ : state) {
    GatedActivation(activation, gate, up, out);
    benchmark::ClobberMemory();
  }
}

const bool kRegistered = [] {
  using benchmark::RegisterBenchmark;
  for (const Isa isa : SupportedIsas()) {
    const std::string suffix = " " + std::string(IsaName(isa));
    const auto name = [&](const char* what) { return what + suffix; };
#if defined(__GNUC__) && !defined(__clang__)
    if (isa != Isa::kScalar) RegisterBenchmark(name("fma peak").c_str(), BM_FmaPeak, isa);
#endif
    for (const Workload& load : kWorkloads) {
      RegisterBenchmark(name(load.name).c_str(), BM_Attend, isa, load);
    }
    RegisterBenchmark(name("top-40 of 262144").c_str(), BM_TopK, isa, size_t{262144});
    RegisterBenchmark(name("top-40 of 49152").c_str(), BM_TopK, isa, size_t{49152});
    RegisterBenchmark(name("argmax of 262144").c_str(), BM_ArgMax, isa, size_t{262144});
    RegisterBenchmark(name("logsumexp of 262144").c_str(), BM_LogSumExp, isa, size_t{262144});
    RegisterBenchmark(name("rmsnorm 576").c_str(), BM_RmsNorm, isa, size_t{576});
    RegisterBenchmark(name("silu gate 1536").c_str(), BM_Gate, isa, Activation::kSilu,
                      size_t{1536});
    RegisterBenchmark(name("gelu gate 2048").c_str(), BM_Gate, isa, Activation::kGeluTanh,
                      size_t{2048});
  }
  return true;
}();

}  // namespace
}  // namespace kvasir

BENCHMARK_MAIN();
