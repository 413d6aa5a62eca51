// Attention of one chunk over V, the same source for every instruction set. Included inside an
// anonymous namespace, after vec16_math.inl and the three constants
//   kTileCols    vectors of 16 columns in one register tile (1, 2 or 4)
//   kExpVectors  exponentials that go side by side (1, 2 or 4)
//   kDirectRows  up to this many rows read half precision straight into the tile; more rows share a
//                panel converted to float once.
//
// Both products are C[row][16 columns] += A[row][depth] * B[depth][16 columns], one chain of fused
// multiply-adds per element in order of depth: for the scores the columns are tokens and the depth
// is head_dim, for P*V the columns are head_dim and the depth is tokens. Where a chain is cut
// (panel or tile borders) its sum rests in memory as float, so no blocking below can change a
// result.

constexpr int kTileRows = 6;
constexpr int kPanelCols = 64;   // Panel: [kPanelDepth][kPanelCols] floats, 16 KiB: a third of the
constexpr int kPanelDepth = 64;  // first-level cache, so that it stays while rows stream past it.

inline int Smaller(int a, int b) { return a < b ? a : b; }
inline int Larger(int a, int b) { return a > b ? a : b; }

// Where a tile finds B. The depth comes in runs: From<kCols>(k) is what lies from depth k on, up to
// End(k) at most; its At(i, c) is column vector c at depth k + i. Fetch(i, c) is called for every
// kFetchStep-th i and kFetchCols-th c: as often as something new is worth fetching.
struct Panel {
  const float* first;  // At depth `base`.
  int base;
  static constexpr int kFetchStep = 2, kFetchCols = 8;
  static int End(int) { return AttentionJob::kTokens; }
  struct Run {
    const float* first;
    V At(int i, int c) const { return Load(first + i * kPanelCols + c * 16); }
    void Fetch(int, int) const {}
  };
  template <int kCols>
  Run From(int k) const {
    return {first + (k - base) * kPanelCols};
  }
};
// The two below fetch ahead, into the second-level cache: units lie scattered in memory, where the
// hardware's own prefetcher loses the track at each, and a pass over a chunk takes about as long as
// the next one's bytes. While keys are in use their values come, while values are in use the keys
// of the next chunk or of the next job. A cache line holds 32 halves.
struct KUnits {
  const uint16_t* const* unit;
  const uint16_t* const* next;  // As many units to fetch meanwhile.
  static constexpr int kFetchStep = 2, kFetchCols = 1;
  static int End(int) { return AttentionJob::kTokens; }
  template <int kCols>
  struct Run {
    const uint16_t* unit[kCols];
    const uint16_t* next[kCols];
    V At(int i, int c) const { return LoadHalf(unit[c] + i * 16); }
    void Fetch(int i, int c) const { __builtin_prefetch(next[c] + i * 16, 0, 2); }
  };
  template <int kCols>
  Run<kCols> From(int k) const {
    Run<kCols> run;
    for (int c = 0; c < kCols; ++c) {
      run.unit[c] = unit[c] + k * 16;
      run.next[c] = next[c] + k * 16;
    }
    return run;
  }
};
// Tokens of the chunk, across its units.
struct VUnits {
  const uint16_t* const* unit;   // By unit of the chunk.
  const uint16_t* const* after;  // Likewise, to fetch meanwhile; null: nothing.
  int head_dim;
  int col;
  static constexpr int kFetchStep = 1, kFetchCols = 2;
  static int End(int k) { return (k / 16 + 1) * 16; }
  struct Run {
    const uint16_t* first;
    const uint16_t* next;
    int head_dim;
    V At(int i, int c) const { return LoadHalf(first + i * head_dim + c * 16); }
    void Fetch(int i, int c) const { __builtin_prefetch(next + i * head_dim + c * 16, 0, 2); }
  };
  template <int kCols>
  Run From(int k) const {
    const int at = k % 16 * head_dim + col;
    const uint16_t* first = unit[k / 16] + at;
    const uint16_t* next = after[k / 16];
    return {first, next != nullptr ? next + at : first, head_dim};
  }
};

// Either of them, leaving what it converts in a panel for the rows that come after: conversion
// costs next to nothing beside the multiplications of a whole tile.
template <typename Source>
struct Filling {
  Source source;
  float* panel;  // Of depth `base`, the tile's first column.
  int base;
  static constexpr int kFetchStep = Source::kFetchStep, kFetchCols = Source::kFetchCols;
  static int End(int k) { return Source::End(k); }
  template <typename FromRun>
  struct Run {
    FromRun from;
    float* panel;
    V At(int i, int c) const {
      const V v = from.At(i, c);
      Store(panel + i * kPanelCols + c * 16, v);
      return v;
    }
    void Fetch(int i, int c) const { from.Fetch(i, c); }
  };
  template <typename FromRun>
  static Run<FromRun> MakeRun(FromRun from, float* to) {
    return {from, to};
  }
  template <int kCols>
  auto From(int k) const {
    const auto from = source.template From<kCols>(k);
    return MakeRun(from, panel + (k - base) * kPanelCols);
  }
};

// C = A * B over depth [begin, end) when fresh, else C += A * B. Not inlined: every caller shares
// one copy of the loop.
template <int kRows, int kCols, typename Source>
__attribute__((noinline)) void Tile(const float* const* a, Source b, int begin, int end, float* c,
                                    int c_stride, bool fresh) {
  V sum[kRows][kCols];
  if (fresh) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) sum[r][j] = Zero();
    }
  } else {
    const float* from = c;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r, from += c_stride) {
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) sum[r][j] = Load(from + j * 16);
    }
  }
  const float* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) row[r] = a[r];
  for (int k = begin; k < end;) {
    const auto run = b.template From<kCols>(k);
    const int count = Smaller(Source::End(k), end) - k;
    const auto step = [&](int i, bool first) {
      V column[kCols];
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) {
        column[j] = run.At(i, j);
        if ((first || Source::kFetchStep == 1) && j % Source::kFetchCols == 0) run.Fetch(i, j);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const V scalar = Set1(row[r][k + i]);
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) sum[r][j] = Fma(scalar, column[j], sum[r][j]);
      }
    };
    int i = 0;
    for (; i + 2 <= count; i += 2) {
      step(i, true);
      step(i + 1, false);
    }
    if (i < count) step(i, true);
    k += count;
  }
  float* to = c;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r, to += c_stride) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) Store(to + j * 16, sum[r][j]);
  }
}

template <int kCols, typename Source>
inline void TileOfRows(int rows, const float* const* a, Source b, int begin, int end, float* c,
                       int c_stride, bool fresh) {
  switch (rows) {
    case 1:
      return Tile<1, kCols>(a, b, begin, end, c, c_stride, fresh);
    case 2:
      return Tile<2, kCols>(a, b, begin, end, c, c_stride, fresh);
    case 3:
      return Tile<3, kCols>(a, b, begin, end, c, c_stride, fresh);
    case 4:
      return Tile<4, kCols>(a, b, begin, end, c, c_stride, fresh);
    case 5:
      return Tile<5, kCols>(a, b, begin, end, c, c_stride, fresh);
    default:
      return Tile<6, kCols>(a, b, begin, end, c, c_stride, fresh);
  }
}

// `vectors` columns of 16 in tiles of nearly equal width; source(j) is B from vector j on. A narrow
// tile has too few chains to hide the latency of its additions.
template <typename MakeSource>
inline void Tiles(int vectors, int rows, const float* const* a, MakeSource source, int begin,
                  int end, float* c, int c_stride, bool fresh) {
  for (int j = 0, left = (vectors + kTileCols - 1) / kTileCols; left > 0; --left) {
    const int width = (vectors - j + left - 1) / left;
    float* to = c + j * 16;
    if constexpr (kTileCols >= 4) {
      if (width == 4) TileOfRows<4>(rows, a, source(j), begin, end, to, c_stride, fresh);
      if (width == 3) TileOfRows<3>(rows, a, source(j), begin, end, to, c_stride, fresh);
    }
    if constexpr (kTileCols >= 2) {
      if (width == 2) TileOfRows<2>(rows, a, source(j), begin, end, to, c_stride, fresh);
    }
    if (width == 1) TileOfRows<1>(rows, a, source(j), begin, end, to, c_stride, fresh);
    j += width;
  }
}

// A run of rows that go through one tile, and the tokens of a segment that any and that all of them
// see.
struct RowBlock {
  int first, rows;
  int begin, end;                // Seen by some row: within this.
  int common_begin, common_end;  // Seen by every row: this (empty when equal).
  bool fresh;                    // The common tokens are the first of all that the rows see.
};

struct Work {
  // The buffers stay uninitialised.
  explicit Work(const AttentionJob& the_job)
      : job(the_job),
        scale(the_job.cap > 0.0f ? 1.0f : the_job.scale),
        one_segment(the_job.segments == 1 && the_job.segment[0].rows == the_job.rows) {}

  const AttentionJob& job;
  const float scale;       // Of what stands in p: capped scores are scaled already.
  const bool one_segment;  // Of all rows.
  RowBlock block[AttentionJob::kRows];
  int blocks = 0;
  const AttentionJob::Segment* planned = nullptr;  // The segment that `block` is about.
  const float* p_row[AttentionJob::kRows];
  // Scores, then weights p, of each row.
  alignas(64) float p[AttentionJob::kRows * AttentionJob::kTokens];
  alignas(64) float panel[kPanelDepth * kPanelCols];
  // Of quantized units (attention_quantized.inl): coefficients and, by row and group of channels,
  // their unit, its inverse and where integer sums start.
  alignas(64) uint8_t coef[AttentionJob::kRows * 2 * kCoefSpan];
  alignas(64) int32_t sums[AttentionJob::kRows * 64];
  float unit[AttentionJob::kRows][4];
  float inverse[AttentionJob::kRows][4];
  int32_t start[AttentionJob::kRows][4];
  float offset[AttentionJob::kRows];
};

inline float* PRow(Work& work, int row) { return work.p + row * AttentionJob::kTokens; }

// Cuts a segment's rows into blocks of nearly equal size, so that no tile is left with a single
// row.
void PlanRows(Work& work, const AttentionJob::Segment& segment) {
  if (work.planned == &segment) return;
  work.planned = &segment;
  const AttentionJob& job = work.job;
  const int from = segment.first_unit * 16;
  const int to = from + segment.units * 16;
  work.blocks = (segment.rows + kTileRows - 1) / kTileRows;
  int last = segment.first_row;
  for (int b = 0; b < work.blocks; ++b) {
    const int first = last;
    last += (segment.first_row + segment.rows - first) / (work.blocks - b);
    RowBlock block = {first, last - first, to, from, from, to, false};
    for (int r = first; r < last; ++r) {
      const int begin = Larger(job.begin[r], from);
      const int end = Smaller(job.end[r], to);
      if (begin < end) {
        block.begin = Smaller(block.begin, begin);
        block.end = Larger(block.end, end);
      }
      block.common_begin = Larger(block.common_begin, begin);
      block.common_end = Smaller(block.common_end, end);
    }
    if (block.common_end <= block.common_begin) {
      block.common_begin = block.common_end = to;  // All of it is a left edge.
    } else {
      block.fresh = work.one_segment && block.begin == block.common_begin;
    }
    work.block[b] = block;
  }
}

// Scores of the units of a segment that a block's rows see, before the scale.
void ScoresDirect(Work& work, const AttentionJob::Segment& segment, const RowBlock& block) {
  const AttentionJob& job = work.job;
  const int first = block.begin / 16;
  const int last = (block.end + 15) / 16;
  if (first >= last) return;
  const uint16_t* const* const k = segment.k + (first - segment.first_unit);
  const uint16_t* const* const v = segment.v + (first - segment.first_unit);
  Tiles(
      last - first, block.rows, job.q + block.first,
      [&](int j) {
        return KUnits{k + j, v + j};
      },
      0, job.head_dim, PRow(work, block.first) + first * 16, AttentionJob::kTokens, true);
}

void ScoresByPanel(Work& work, const AttentionJob::Segment& segment) {
  const AttentionJob& job = work.job;
  constexpr int kPanelUnits = kPanelCols / 16;
  const int end = segment.first_unit + segment.units;
  for (int first = segment.first_unit; first < end; first += kPanelUnits) {
    const int last = Smaller(first + kPanelUnits, end);
    const uint16_t* const* const k = segment.k + (first - segment.first_unit);
    const uint16_t* const* const v = segment.v + (first - segment.first_unit);
    for (int begin = 0; begin < job.head_dim; begin += kPanelDepth) {
      const int stop = Smaller(begin + kPanelDepth, job.head_dim);
      bool filled = false;
      for (int b = work.blocks - 1; b >= 0; --b) {
        const RowBlock& block = work.block[b];
        if (block.end <= first * 16 || block.begin >= last * 16) continue;
        float* const to = PRow(work, block.first) + first * 16;
        if (filled) {
          Tiles(
              last - first, block.rows, job.q + block.first,
              [&](int j) {
                return Panel{work.panel + j * 16, begin};
              },
              begin, stop, to, AttentionJob::kTokens, begin == 0);
        } else {
          Tiles(
              last - first, block.rows, job.q + block.first,
              [&](int j) {
                return Filling<KUnits>{{k + j, v + j}, work.panel + j * 16, begin};
              },
              begin, stop, to, AttentionJob::kTokens, begin == 0);
        }
        filled = true;
      }
    }
  }
}

void Scores(Work& work, const AttentionJob::Segment& segment) {
  PlanRows(work, segment);
  if (segment.rows > kDirectRows) return ScoresByPanel(work, segment);
  for (int b = 0; b < work.blocks; ++b) ScoresDirect(work, segment, work.block[b]);
}

#include "kernels/attention_cap.inl"

// The largest score that each row sees, scaled, into job.max; the scale is positive, so it moves
// out of the maximum. What a row may not see is replaced before it is looked at, and the loops
// cover the row's own units only, whatever else the tile holds. Of equal zeros and of NaNs it does
// not matter which is taken, so the order is free.
void FindMaxima(Work& work) {
  const AttentionJob& job = work.job;
  const V lowest = Set1(-__builtin_inff());
  for (int row = 0; row < job.rows; ++row) {
    const int begin = job.begin[row];
    const int end = job.end[row];
    if (begin >= end) {
      job.max[row] = -__builtin_inff();
      continue;
    }
    float* p = PRow(work, row);
    const auto hide = [&](int t) {
      const Mask seen = Lanes(Larger(begin - t, 0), Smaller(end - t, 16));
      Store(p + t, Select(seen, Load(p + t), lowest));
    };
    int t = begin / 16 * 16;
    if (t < begin) hide(t);
    if (end % 16 != 0) hide(end / 16 * 16);
    V max[2] = {lowest, lowest};
    for (; t + 32 <= end; t += 32) {
      max[0] = Max(Load(p + t), max[0]);
      max[1] = Max(Load(p + t + 16), max[1]);
    }
    for (; t < end; t += 16) max[0] = Max(Load(p + t), max[0]);
    job.max[row] = MaxLanes(Max(max[0], max[1])) * work.scale;
  }
}

// Scores of one row into weights e^(scale s - max), with their sum; kExpVectors at once, since one
// exponential is a long chain.
void Soften(Work& work, int row) {
  const AttentionJob& job = work.job;
  const int begin = job.begin[row];
  const int end = job.end[row];
  if (begin >= end) {
    job.sum[row] = 0;
    return;
  }
  float* p = PRow(work, row);
  const V scale = Set1(work.scale);
  const float top = job.max[row];
  const V shift = Set1(-top);
  V sum = Zero();
  int t = begin / 16 * 16;
  // Rounding may leave a score above the maximum by half a unit in its last place, which is too
  // little to overflow here.
  if (top < 0x1p29f && top > -0x1p29f) {
    for (; t + 16 * kExpVectors <= end; t += 16 * kExpVectors) {
      V x[kExpVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kExpVectors; ++j) x[j] = Fma(Load(p + t + j * 16), scale, shift);
      ExpBounded(x);
#pragma GCC unroll 4
      for (int j = 0; j < kExpVectors; ++j) {
        Store(p + t + j * 16, x[j]);
        sum = Add(sum, x[j]);
      }
    }
  }
  for (; t < end; t += 16) {
    const V e = Exp(Fma(Load(p + t), scale, shift));
    Store(p + t, e);
    sum = Add(sum, e);
  }
  job.sum[row] = SumLanes(sum);
}

// What to fetch while V unit `unit` is in use: a unit of the next job's keys, else nothing new.
inline const uint16_t* FetchBeside(const AttentionJob& job, const AttentionJob::Segment& segment,
                                   int unit) {
  const uint16_t* after = job.after[unit];
  return after != nullptr ? after : segment.v[unit - segment.first_unit];
}

// o[row] = (when fresh, else +=) sum over tokens [begin, end) of p * v, reading half precision.
void ValuesDirect(Work& work, const AttentionJob::Segment& segment, int first_row, int rows,
                  int begin, int end, bool fresh) {
  if (begin >= end) return;
  const AttentionJob& job = work.job;
  Tiles(
      job.head_dim / 16, rows, work.p_row + first_row,
      [&](int j) {
        return VUnits{segment.v - segment.first_unit, job.after, job.head_dim, j * 16};
      },
      begin, end, job.o + first_row * job.head_dim, job.head_dim, fresh);
}

// Tokens [begin, end), `vectors` columns from col on, into the panel.
void FillValues(Work& work, const VUnits& source, int begin, int end, int vectors) {
  for (int i = begin; i < end; ++i) {
    const VUnits::Run run = source.From<1>(i);
    for (int j = 0; j < vectors; ++j) {
      run.Fetch(0, j);
      Store(work.panel + (i - begin) * kPanelCols + j * 16, run.At(0, j));
    }
  }
}

// One panel of values, tokens [t, stop), for every block.
void ValuesOfPanel(Work& work, const AttentionJob::Segment& segment, int t, int stop, int col) {
  const AttentionJob& job = work.job;
  const int vectors = Smaller(kPanelCols, job.head_dim - col) / 16;
  const auto source = [&](int j) {
    return VUnits{segment.v - segment.first_unit, job.after, job.head_dim, col + j * 16};
  };
  const auto multiply = [&](const RowBlock& block, int from, int to, auto make_source) {
    Tiles(vectors, block.rows, work.p_row + block.first, make_source, from, to,
          job.o + block.first * job.head_dim + col, job.head_dim,
          block.fresh && from == block.common_begin);
  };
  int filler = work.blocks - 1;
  while (filler >= 0 &&
         (work.block[filler].common_begin > t || work.block[filler].common_end < stop)) {
    --filler;
  }
  if (filler < 0) {
    FillValues(work, source(0), t, stop, vectors);
  } else {
    multiply(work.block[filler], t, stop, [&](int j) {
      return Filling<VUnits>{source(j), work.panel + j * 16, t};
    });
  }
  for (int b = 0; b < work.blocks; ++b) {
    const RowBlock& block = work.block[b];
    const int from = Larger(t, block.common_begin);
    const int to = Smaller(stop, block.common_end);
    if (b == filler || from >= to) continue;
    multiply(block, from, to, [&](int j) { return Panel{work.panel + j * 16, t}; });
  }
}

void ValuesByPanel(Work& work, const AttentionJob::Segment& segment) {
  int begin = AttentionJob::kTokens;
  int end = 0;
  for (int b = 0; b < work.blocks; ++b) {
    if (work.block[b].common_begin == work.block[b].common_end) continue;
    begin = Smaller(begin, work.block[b].common_begin);
    end = Larger(end, work.block[b].common_end);
  }
  for (int col = 0; col < work.job.head_dim; col += kPanelCols) {
    for (int t = begin; t < end; t += kPanelDepth) {
      ValuesOfPanel(work, segment, t, Smaller(t + kPanelDepth, end), col);
    }
  }
}

// Tokens that only some rows of a block see are taken row by row, never as p = 0: 0 * infinity is
// not 0, and even 0 * 1 + -0 is not -0. Each row still meets its tokens in ascending order.
void WeightedValues(Work& work, const AttentionJob::Segment& segment) {
  const AttentionJob& job = work.job;
  const int from = segment.first_unit * 16;
  const int to = from + segment.units * 16;
  PlanRows(work, segment);
  for (int b = 0; b < work.blocks; ++b) {
    const RowBlock& block = work.block[b];
    if (!block.fresh) {
      for (int r = block.first; r < block.first + block.rows; ++r) {
        ValuesDirect(work, segment, r, 1, Larger(job.begin[r], from),
                     Smaller(job.end[r], block.common_begin), false);
      }
    }
    if (segment.rows <= kDirectRows) {
      ValuesDirect(work, segment, block.first, block.rows, block.common_begin, block.common_end,
                   block.fresh);
    }
  }
  if (segment.rows > kDirectRows) ValuesByPanel(work, segment);
  for (int b = 0; b < work.blocks; ++b) {
    const RowBlock& block = work.block[b];
    for (int r = block.first; r < block.first + block.rows; ++r) {
      ValuesDirect(work, segment, r, 1, Larger(block.common_end, from), Smaller(job.end[r], to),
                   false);
    }
  }
}

// Zeroes what WeightedValues adds to rather than writes.
void ClearOutputs(Work& work) {
  const AttentionJob& job = work.job;
  const auto clear = [&](int first, int rows) {
    float* const o = job.o + first * job.head_dim;
    for (int i = 0; i < rows * job.head_dim; i += 16) Store(o + i, Zero());
  };
  if (!work.one_segment) return clear(0, job.rows);
  PlanRows(work, job.segment[0]);
  for (int b = 0; b < work.blocks; ++b) {
    const RowBlock& block = work.block[b];
    if (!block.fresh) clear(block.first, block.rows);
  }
}

#include "kernels/attention_fetch.inl"
#include "kernels/attention_quantized.inl"

void Chunk(const AttentionJob& job) {
  Work work(job);
  FetchAhead(job, 0);
  for (int r = 0; r < job.rows; ++r) work.p_row[r] = PRow(work, r);
  for (int r = 0; r < job.rows; ++r) {
    if (job.k_type == StoredType::kInt8) RoundQuery(work, r);
    if (job.k_type == StoredType::kInt4) MeasureQuery(work, r);
  }
  for (int i = 0; i < job.segments; ++i) {
    const AttentionJob::Segment& segment = job.segment[i];
    if (job.k_type == StoredType::kF16 || segment.own) {
      Scores(work, segment);
    } else if (job.k_type == StoredType::kInt8) {
      ScoresInt8(work, segment);
    } else {
      ScoresInt4(work, segment);
    }
  }
  CapScores(work);
  FetchAhead(job, 1);
  FindMaxima(work);
  for (int r = 0; r < job.rows; ++r) {
    if (r < 3) FetchAhead(job, 2 + r);
    job.v_type == StoredType::kF16 ? Soften(work, r) : SoftenRounded(work, r);
  }
  if (job.v_type == StoredType::kInt8) return ValuesInt<false>(work);
  if (job.v_type == StoredType::kInt4) return ValuesInt<true>(work);
  FetchAhead(job, 5);
  ClearOutputs(work);
  for (int i = 0; i < job.segments; ++i) WeightedValues(work, job.segment[i]);
}

void Merge(size_t head_dim, const float* next_o, float next_max, float next_sum, float* o,
           float* max, float* sum) {
  const float lowest = -__builtin_inff();
  if (next_max == lowest && next_sum == 0.0f) return;
  const bool take_next = *max == lowest && *sum == 0.0f;
  const float top = take_next || next_max > *max ? next_max : *max;
  const V keep = Exp(Set1(*max - top));
  const V gain = Exp(Set1(next_max - top));
  for (size_t i = 0; i < head_dim; i += 16) {
    const V next = Load(next_o + i);
    Store(o + i, take_next ? next : Fma(next, gain, Mul(Load(o + i), keep)));
  }
  float joined[16];
  Store(joined, Fma(Set1(next_sum), gain, Mul(Set1(*sum), keep)));
  *sum = take_next ? next_sum : joined[0];
  *max = top;
}

void Divide(size_t head_dim, const float* o, float sum, float* out) {
  const V by = Set1(sum);
  for (size_t i = 0; i < head_dim; i += 16) Store(out + i, Div(Load(o + i), by));
}

constexpr AttentionTable kTable = {.chunk = Chunk, .merge = Merge, .divide = Divide};
