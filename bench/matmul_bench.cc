// Matrix products per instruction set, format and number of rows, against the roofs of this machine
// measured in the same run: the peak of the int8 dot product, and one core's read bandwidth.
//
//   matmul_bench [--benchmark_filter=avx512/Q4_1] [other flags of Google Benchmark]
//
// Columns: GMAC/s is multiply-adds, GB/s the packed weight bytes read; "peak" is GMAC/s over the
// dot product's peak (of the same instruction set; absent for scalar). A name is isa/format/rows x
// cols/m; "cold" walks over many copies of the matrix, more than the caches hold, as decoding does.
#include <benchmark/benchmark.h>
#include <time.h>
// GCC 12 takes the deliberately undefined registers inside its own headers for a mistake.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/huge_buffer.h"
#include "base/rng.h"
#include "kernels/isa.h"
#include "kernels/matmul.h"

namespace kvasir {
namespace {

// Processor time of this thread: what neighbours take away does not count.
double Seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// vpdpbusd on registers: 64 multiply-adds each, enough chains to hide the latency.
__attribute__((target("avx512f,avx512vnni"))) double PeakAvx512() {
  constexpr int kChains = 16;
  constexpr int kRounds = 2'000'000;
  __m512i sum[kChains];
  for (__m512i& s : sum) s = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(5);
  const double start = Seconds();
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (int j = 0; j < kChains; ++j) sum[j] = _mm512_dpbusd_epi32(sum[j], a, b);
    asm volatile("" : "+v"(a));
  }
  const double seconds = Seconds() - start;
  for (const __m512i& s : sum)
    benchmark::DoNotOptimize(_mm_cvtsi128_si32(_mm512_castsi512_si128(s)));
  return 64.0 * kChains * kRounds / seconds / 1e9;
}

// vpmaddubsw: 32 multiply-adds, before any widening of their 16-bit sums.
__attribute__((target("avx2"))) double PeakAvx2() {
  constexpr int kChains = 8;
  constexpr int kRounds = 2'000'000;
  __m256i sum[kChains];
  for (__m256i& s : sum) s = _mm256_set1_epi8(1);
  const __m256i b = _mm256_set1_epi8(5);
  const double start = Seconds();
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 8
    for (int j = 0; j < kChains; ++j) sum[j] = _mm256_maddubs_epi16(sum[j], b);
  }
  const double seconds = Seconds() - start;
  for (const __m256i& s : sum)
    benchmark::DoNotOptimize(_mm_cvtsi128_si32(_mm256_castsi256_si128(s)));
  return 32.0 * kChains * kRounds / seconds / 1e9;
}

double Peak(Isa isa) {
  static const std::vector<Isa> supported = SupportedIsas();
  static const double avx512 = supported.back() == Isa::kAvx512 ? PeakAvx512() : 0;
  static const double avx2 = supported.size() > 1 ? PeakAvx2() : 0;
  return isa == Isa::kAvx512 ? avx512 : isa == Isa::kAvx2 ? avx2 : 0;
}

struct Case {
  Isa isa;
  WeightFormat format;
  uint32_t out_rows;
  uint32_t cols;
  uint32_t rows;
  bool cold;
};

constexpr size_t kColdBytes = size_t{512} << 20;

std::vector<std::byte> RandomFile(WeightFormat format, uint32_t out_rows, uint32_t cols) {
  Rng rng(1);
  std::vector<std::byte> file(out_rows * FileRowBytes(format, cols));
  if (format == WeightFormat::kF32) {
    for (size_t i = 0; i < file.size(); i += 4) {
      const float value = rng.Normal();
      std::memcpy(&file[i], &value, 4);
    }
    return file;
  }
  // 0x3B keeps every half, wherever it lies, between 0 and 1: no infinities and few subnormals.
  for (std::byte& b : file) b = static_cast<std::byte>(rng.Below(256) & 0x3B);
  return file;
}

void RunMatMul(benchmark::State& state, const Case& c) {
  SetActiveIsa(c.isa);
  const std::vector<std::byte> file = RandomFile(c.format, c.out_rows, c.cols);
  PackedMatrix matrix{c.format, c.out_rows, c.cols, nullptr};
  const size_t bytes = matrix.panel_count() * PackedPanelBytes(c.format, c.cols);
  const size_t copies = c.cold ? kColdBytes / bytes : 1;
  HugeBuffer weights = HugeBuffer::Allocate(bytes * copies).value();
  PackPanels(c.format, file, c.out_rows, c.cols, 0, matrix.panel_count(),
             weights.bytes().first(bytes));
  for (size_t i = 1; i < copies; ++i)
    std::memcpy(weights.data() + i * bytes, weights.data(), bytes);

  Rng rng(2);
  std::vector<float> x(size_t{c.rows} * c.cols);
  for (float& v : x) v = rng.Normal();
  HugeBuffer quantized = HugeBuffer::Allocate(ActivationBytes(c.rows, c.cols)).value();
  const Activations activations{c.rows, c.cols, x.data(), quantized.data()};
  for (uint32_t r = 0; r < c.rows; ++r) {
    QuantizeRow({x.data() + size_t{r} * c.cols, c.cols}, r, activations);
  }
  std::vector<float> out(size_t{c.rows} * c.out_rows);

  size_t copy = 0;
  double seconds = 0;
  for (auto _ : state) {
    matrix.bytes = weights.data() + copy * bytes;
    copy = copy + 1 < copies ? copy + 1 : 0;
    const double start = Seconds();
    MatMulPanels(matrix, activations, 0, matrix.panel_count(), Store::kAssign, out.data(),
                 c.out_rows);
    seconds += Seconds() - start;
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  const double gmac = runs * c.out_rows * c.cols * c.rows / seconds / 1e9;
  state.counters["GMAC/s"] = gmac;
  state.counters["GB/s"] = runs * static_cast<double>(bytes) / seconds / 1e9;
  if (Peak(c.isa) > 0) state.counters["peak"] = gmac / Peak(c.isa);
}

void RunQuantize(benchmark::State& state, Isa isa, uint32_t cols) {
  SetActiveIsa(isa);
  Rng rng(3);
  std::vector<float> x(cols);
  for (float& v : x) v = rng.Normal();
  HugeBuffer quantized = HugeBuffer::Allocate(ActivationBytes(8, cols)).value();
  const Activations activations{8, cols, nullptr, quantized.data()};
  uint32_t row = 0;
  for (auto _ : state) {
    QuantizeRow(x, row, activations);
    row = (row + 1) % 8;
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * cols);
}

void RunPack(benchmark::State& state, WeightFormat format) {
  const std::vector<std::byte> file = RandomFile(format, 256, 2048);
  std::vector<std::byte> packed(16 * PackedPanelBytes(format, 2048));
  for (auto _ : state) {
    PackPanels(format, file, 256, 2048, 0, 16, packed);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * file.size()));
}

void RegisterMatMul(const Case& c) {
  const std::string name = std::string(IsaName(c.isa)) + "/" +
                           std::string(TraitsOf(c.format).name) + "/" + std::to_string(c.out_rows) +
                           "x" + std::to_string(c.cols) + "/m" + std::to_string(c.rows) +
                           (c.cold ? "/cold" : "");
  benchmark::RegisterBenchmark(name.c_str(), [c](benchmark::State& s) {
    RunMatMul(s, c);
  })->MinTime(0.1);
}

void RegisterAll() {
  for (const Isa isa : SupportedIsas()) {
    for (int f = 0; f < kWeightFormatCount; ++f) {
      const WeightFormat format = static_cast<WeightFormat>(f);
      // Widths of the supported models: 576 and 640 unless the format's blocks are of 256.
      const uint32_t cols = TraitsOf(format).block_values == 256 ? 2048 : 576;
      const uint32_t out_rows = cols == 2048 ? 640 : 1536;
      for (const uint32_t m : {1u, 4u, 8u, 64u, 512u}) {
        if (isa == Isa::kScalar && m > 8) continue;
        RegisterMatMul({isa, format, out_rows, cols, m, false});
      }
      if (isa != Isa::kScalar) {
        for (const uint32_t m : {1u, 8u}) RegisterMatMul({isa, format, out_rows, cols, m, true});
      }
    }
    const std::string name = "quantize/" + std::string(IsaName(isa));
    benchmark::RegisterBenchmark(name.c_str(),
                                 [isa](benchmark::State& s) { RunQuantize(s, isa, 576); });
  }
  for (int f = 0; f < kWeightFormatCount; ++f) {
    const WeightFormat format = static_cast<WeightFormat>(f);
    const std::string name = "pack/" + std::string(TraitsOf(format).name);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [format](benchmark::State& s) { RunPack(s, format); });
  }
}

// One core reading 512 MiB in huge pages, 8 bytes at a time in independent sums.
double ReadGigabytesPerSecond() {
  const HugeBuffer buffer = HugeBuffer::Allocate(kColdBytes).value();
  std::memset(buffer.data(), 1, buffer.size());
  const uint64_t* words = reinterpret_cast<const uint64_t*>(buffer.data());
  const size_t count = buffer.size() / 8;
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    uint64_t sums[8] = {};
    const double start = Seconds();
    for (size_t i = 0; i < count; i += 8) {
      for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
    }
    const double rate = static_cast<double>(buffer.size()) / (Seconds() - start) / 1e9;
    for (uint64_t& s : sums) benchmark::DoNotOptimize(s);
    if (rate > best) best = rate;
  }
  return best;
}

int Main(int argc, char** argv) {
  benchmark::AddCustomContext("peak int8 avx512", std::to_string(Peak(Isa::kAvx512)) + " GMAC/s");
  benchmark::AddCustomContext("peak int8 avx2", std::to_string(Peak(Isa::kAvx2)) + " GMAC/s");
  benchmark::AddCustomContext("read, one core", std::to_string(ReadGigabytesPerSecond()) + " GB/s");
  RegisterAll();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Main(argc, argv); }
