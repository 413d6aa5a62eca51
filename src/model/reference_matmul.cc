#include "model/reference_matmul.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "kernels/weight_format.h"

namespace kvasir {
namespace {

constexpr size_t kLanes = kReferenceLanes;
constexpr size_t kTileRows = 4;
// Weight rows dequantized at a time: 32 rows of 2,048 doubles stay in a core's second-level cache.
constexpr size_t kBlockRows = 32;

using Lanes = double __attribute__((vector_size(kReferenceLanes * sizeof(double))));

#if defined(__x86_64__)
#define TILE_NAME TileAvx512
#define TILE_TARGET __attribute__((target("avx512f")))
#include "model/reference_tile.inl"
#undef TILE_NAME
#undef TILE_TARGET

#define TILE_NAME TileAvx2
#define TILE_TARGET __attribute__((target("avx2")))
#include "model/reference_tile.inl"
#undef TILE_NAME
#undef TILE_TARGET
#endif

#define TILE_NAME TilePortable
#define TILE_TARGET
#include "model/reference_tile.inl"
#undef TILE_NAME
#undef TILE_TARGET

using TileFunction = void (*)(const double*, size_t, size_t, const double*, size_t, double*);

TileFunction ChooseTile() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return TileAvx512;
  if (__builtin_cpu_supports("avx2")) return TileAvx2;
#endif
  return TilePortable;
}

}  // namespace

void TiledRows::Set(size_t row, std::span<const double> values) {
  KV_CHECK_LT(row, rows_);
  KV_CHECK_EQ(values.size(), cols_);
  double* lane = values_.data() + row / kLanes * kLanes * cols_ + row % kLanes;
  for (size_t k = 0; k < cols_; ++k) lane[k * kLanes] = values[k];
}

void ReferenceTile(const double* w, size_t w_stride, size_t w_rows, const double* x, size_t depth,
                   double* out) {
  static const TileFunction tile = ChooseTile();
  for (size_t o = 0; o < w_rows; o += kTileRows) {
    tile(w + o * w_stride, w_stride, std::min(kTileRows, w_rows - o), x, depth, out + o * kLanes);
  }
}

void ForEachOnThreads(size_t count, int threads, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < std::min(count, static_cast<size_t>(threads)); ++t) {
    try {
      others.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // The system grants no more; those that run share the work.
    }
  }
  work();
  for (std::thread& thread : others) thread.join();
}

void ReferenceMatMul(const GgufTensor& w, const TiledRows& x, int threads,
                     std::vector<std::vector<double>>& out) {
  const size_t rows = w.rows();
  const size_t cols = w.cols();
  KV_CHECK_EQ(cols, x.cols());
  out.resize(x.rows());
  for (std::vector<double>& row : out) row.resize(rows);
  const size_t row_bytes = w.bytes.size() / rows;
  ForEachOnThreads((rows + kBlockRows - 1) / kBlockRows, threads, [&](size_t block) {
    const size_t begin = block * kBlockRows;
    const size_t count = std::min(kBlockRows, rows - begin);
    std::vector<float> row(cols);
    std::vector<double> weights;
    weights.reserve(count * cols);
    for (size_t o = 0; o < count; ++o) {
      DequantizeRow(w.format, w.bytes.subspan((begin + o) * row_bytes, row_bytes), row);
      weights.insert(weights.end(), row.begin(), row.end());
    }
    std::vector<double> sums(count * kLanes);
    for (size_t t = 0; t < x.tile_count(); ++t) {
      ReferenceTile(weights.data(), cols, count, x.tile(t), cols, sums.data());
      const size_t lanes = std::min(kLanes, x.rows() - t * kLanes);
      for (size_t r = 0; r < lanes; ++r) {
        double* to = out[t * kLanes + r].data() + begin;
        for (size_t o = 0; o < count; ++o) to[o] = sums[o * kLanes + r];
      }
    }
  });
}

}  // namespace kvasir
