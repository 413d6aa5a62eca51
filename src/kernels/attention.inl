// Attention of one chunk over V, the same source for every instruction set. Included inside an
// anonymous namespace, after vec16_math.inl and the two constants
//   kTileCols    vectors of 16 columns in one register tile (1, 2 or 4)
//   kDirectRows  up to this many rows read half precision straight into the tile; more rows share a
//                panel converted to float once.
//
// Both products are C[row][16 columns] += A[row][depth] * B[depth][16 columns], one chain of fused
// multiply-adds per element in order of depth: for the scores the columns are tokens and the depth
// is head_dim, for P*V the columns are head_dim and the depth is tokens. Where a chain is cut
// (panel or tile borders) its sum rests in memory as float, so no blocking below can change a
// result.

constexpr int kTileRows = 6;
constexpr int kPanelCols = 64;    // Panel: [kPanelDepth][kPanelCols] floats,
constexpr int kPanelDepth = 128;  // 32 KiB: the first-level cache.

// Where a tile finds B. At(depth, column vector).
struct Panel {
  const float* first;
  V At(int k, int c) const { return Load(first + k * kPanelCols + c * 16); }
};
// The two below fetch ahead, into the second-level cache: units lie scattered in memory, where the
// hardware's own prefetcher loses the track at each, and a pass over a chunk takes about as long as
// the next one's bytes. While keys are in use their values come, while values are in use the keys
// of the next chunk or of the next job.
struct KUnits {
  const uint16_t* const* unit;
  const uint16_t* const* next;  // As many units to fetch meanwhile.
  V At(int k, int c) const {
    __builtin_prefetch(next[c] + k * 16, 0, 2);
    return LoadHalf(unit[c] + k * 16);
  }
};
struct VTokens {
  const uint16_t* first;
  const uint16_t* next;
  int head_dim;
  V At(int k, int c) const {
    __builtin_prefetch(next + k * head_dim + c * 16, 0, 2);
    return LoadHalf(first + k * head_dim + c * 16);
  }
};

// C = A * B when fresh, else C += A * B. Not inlined: every caller shares one copy of the loop.
template <int kRows, int kCols, typename Source>
__attribute__((noinline)) void Tile(const float* const* a, int a_offset, Source b, int depth,
                                    float* c, int c_stride, bool fresh) {
  V sum[kRows][kCols];
  const float* row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    row[r] = a[r] + a_offset;
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      sum[r][j] = fresh ? Zero() : Load(c + r * c_stride + j * 16);
    }
  }
  for (int k = 0; k < depth; ++k) {
    V column[kCols];
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) column[j] = b.At(k, j);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V scalar = Set1(row[r][k]);
#pragma GCC unroll 4
      for (int j = 0; j < kCols; ++j) sum[r][j] = Fma(scalar, column[j], sum[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) Store(c + r * c_stride + j * 16, sum[r][j]);
  }
}

template <int kCols, typename Source>
inline void TileOfRows(int rows, const float* const* a, int a_offset, Source b, int depth, float* c,
                       int c_stride, bool fresh) {
  switch (rows) {
    case 1:
      return Tile<1, kCols>(a, a_offset, b, depth, c, c_stride, fresh);
    case 2:
      return Tile<2, kCols>(a, a_offset, b, depth, c, c_stride, fresh);
    case 3:
      return Tile<3, kCols>(a, a_offset, b, depth, c, c_stride, fresh);
    case 4:
      return Tile<4, kCols>(a, a_offset, b, depth, c, c_stride, fresh);
    case 5:
      return Tile<5, kCols>(a, a_offset, b, depth, c, c_stride, fresh);
    default:
      return Tile<6, kCols>(a, a_offset, b, depth, c, c_stride, fresh);
  }
}

// `vectors` columns of 16 in as few tiles as kTileCols allows; source(j) is B from vector j on.
template <typename MakeSource>
inline void Tiles(int vectors, int rows, const float* const* a, int a_offset, MakeSource source,
                  int depth, float* c, int c_stride, bool fresh) {
  int j = 0;
  if constexpr (kTileCols >= 4) {
    for (; j + 4 <= vectors; j += 4) {
      TileOfRows<4>(rows, a, a_offset, source(j), depth, c + j * 16, c_stride, fresh);
    }
  }
  if constexpr (kTileCols >= 2) {
    for (; j + 2 <= vectors; j += 2) {
      TileOfRows<2>(rows, a, a_offset, source(j), depth, c + j * 16, c_stride, fresh);
    }
  }
  for (; j < vectors; ++j) {
    TileOfRows<1>(rows, a, a_offset, source(j), depth, c + j * 16, c_stride, fresh);
  }
}

inline int Smaller(int a, int b) { return a < b ? a : b; }
inline int Larger(int a, int b) { return a > b ? a : b; }

// A run of rows that go through one tile, and the tokens of a segment that any and that all of them
// see.
struct RowBlock {
  int first, rows;
  int begin, end;                // Seen by some row: within this.
  int common_begin, common_end;  // Seen by every row: this (empty when equal).
};

struct Work {
  explicit Work(const AttentionJob& the_job) : job(the_job) {}  // The buffers stay uninitialised.

  const AttentionJob& job;
  RowBlock block[AttentionJob::kRows];
  int blocks = 0;
  const float* p_row[AttentionJob::kRows];
  // Scores, then weights p, of each row.
  alignas(64) float p[AttentionJob::kRows * AttentionJob::kTokens];
  alignas(64) float panel[kPanelDepth * kPanelCols];
};

inline float* PRow(Work& work, int row) { return work.p + row * AttentionJob::kTokens; }

// Cuts a segment's rows into blocks of nearly equal size, so that no tile is left with a single
// row.
void PlanRows(Work& work, const AttentionJob::Segment& segment) {
  const AttentionJob& job = work.job;
  const int from = segment.first_unit * 16;
  const int to = from + segment.units * 16;
  work.blocks = (segment.rows + kTileRows - 1) / kTileRows;
  for (int b = 0; b < work.blocks; ++b) {
    const int first = segment.first_row + segment.rows * b / work.blocks;
    const int last = segment.first_row + segment.rows * (b + 1) / work.blocks;
    RowBlock block = {first, last - first, to, from, from, to};
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
      last - first, block.rows, job.q + block.first, 0,
      [&](int j) {
        return KUnits{k + j, v + j};
      },
      job.head_dim, PRow(work, block.first) + first * 16, AttentionJob::kTokens, true);
}

void ScoresByPanel(Work& work, const AttentionJob::Segment& segment) {
  const AttentionJob& job = work.job;
  constexpr int kPanelUnits = kPanelCols / 16;
  const int end = segment.first_unit + segment.units;
  for (int first = segment.first_unit; first < end; first += kPanelUnits) {
    const int last = Smaller(first + kPanelUnits, end);
    for (int begin = 0; begin < job.head_dim; begin += kPanelDepth) {
      const int depth = Smaller(kPanelDepth, job.head_dim - begin);
      for (int u = first; u < last; ++u) {
        const uint16_t* unit = segment.k[u - segment.first_unit] + begin * 16;
        float* to = work.panel + (u - first) * 16;
        const uint16_t* values = segment.v[u - segment.first_unit] + begin * 16;
        for (int d = 0; d < depth; ++d) {
          __builtin_prefetch(values + d * 16, 0, 2);
          Store(to + d * kPanelCols, LoadHalf(unit + d * 16));
        }
      }
      for (int b = 0; b < work.blocks; ++b) {
        const RowBlock& block = work.block[b];
        if (block.end <= first * 16 || block.begin >= last * 16) continue;
        Tiles(
            last - first, block.rows, job.q + block.first, begin,
            [&](int j) { return Panel{work.panel + j * 16}; }, depth,
            PRow(work, block.first) + first * 16, AttentionJob::kTokens, begin == 0);
      }
    }
  }
}

void Scores(Work& work, const AttentionJob::Segment& segment) {
  PlanRows(work, segment);
  if (segment.rows > kDirectRows) return ScoresByPanel(work, segment);
  for (int b = 0; b < work.blocks; ++b) ScoresDirect(work, segment, work.block[b]);
}

// Scores of one row into weights e^(scale s - max), with max and sum. What the row may not see is
// replaced before it is looked at, and the loops cover the row's own units only, whatever else the
// tile holds. The scale is positive, so it moves out of the maximum.
void Soften(Work& work, int row) {
  const AttentionJob& job = work.job;
  const int begin = job.begin[row];
  const int end = job.end[row];
  const float lowest = -__builtin_inff();
  if (begin >= end) {
    job.max[row] = lowest;
    job.sum[row] = 0;
    return;
  }
  float* p = PRow(work, row);
  const int first = begin / 16 * 16;
  const auto hide = [&](int t) {
    const Mask seen = Lanes(Larger(begin - t, 0), Smaller(end - t, 16));
    Store(p + t, Select(seen, Load(p + t), Set1(lowest)));
  };
  hide(first);
  hide((end - 1) / 16 * 16);
  V max = Set1(lowest);
  for (int t = first; t < end; t += 16) max = Max(Load(p + t), max);
  const V scale = Set1(job.scale);
  const float top = MaxLanes(max) * job.scale;
  const V shift = Set1(-top);
  V sum = Zero();
  for (int t = first; t < end; t += 16) {
    const V e = Exp(Fma(Load(p + t), scale, shift));
    Store(p + t, e);
    sum = Add(sum, e);
  }
  job.max[row] = top;
  job.sum[row] = SumLanes(sum);
}

// What to fetch while V unit `unit` is in use: a unit of the next job's keys, else nothing new.
inline const uint16_t* FetchBeside(const AttentionJob& job, const AttentionJob::Segment& segment,
                                   int unit) {
  const uint16_t* after = job.after[unit];
  return after != nullptr ? after : segment.v[unit - segment.first_unit];
}

// o[row] += sum over tokens [begin, end) of p * v, reading half precision.
void ValuesDirect(Work& work, const AttentionJob::Segment& segment, int first_row, int rows,
                  int begin, int end) {
  const AttentionJob& job = work.job;
  for (int t = begin; t < end;) {
    const int unit = t / 16;
    const int stop = Smaller((unit + 1) * 16, end);
    const uint16_t* from = segment.v[unit - segment.first_unit] + (t % 16) * job.head_dim;
    const uint16_t* next = FetchBeside(job, segment, unit) + (t % 16) * job.head_dim;
    Tiles(
        job.head_dim / 16, rows, work.p_row + first_row, t,
        [&](int j) {
          return VTokens{from + j * 16, next + j * 16, job.head_dim};
        },
        stop - t, job.o + first_row * job.head_dim, job.head_dim, false);
    t = stop;
  }
}

void ValuesByPanel(Work& work, const AttentionJob::Segment& segment) {
  const AttentionJob& job = work.job;
  int begin = AttentionJob::kTokens;
  int end = 0;
  for (int b = 0; b < work.blocks; ++b) {
    if (work.block[b].common_begin == work.block[b].common_end) continue;
    begin = Smaller(begin, work.block[b].common_begin);
    end = Larger(end, work.block[b].common_end);
  }
  for (int col = 0; col < job.head_dim; col += kPanelCols) {
    const int vectors = Smaller(kPanelCols, job.head_dim - col) / 16;
    for (int t = begin; t < end; t += kPanelDepth) {
      const int stop = Smaller(t + kPanelDepth, end);
      for (int i = t; i < stop; ++i) {
        const uint16_t* unit = segment.v[i / 16 - segment.first_unit];
        const uint16_t* from = unit + (i % 16) * job.head_dim + col;
        float* to = work.panel + (i - t) * kPanelCols;
        for (int j = 0; j < vectors; ++j) Store(to + j * 16, LoadHalf(from + j * 16));
        const uint16_t* after = job.after[i / 16];
        if (after == nullptr) continue;
        for (int j = 0; j < vectors; ++j) {
          __builtin_prefetch(after + (i % 16) * job.head_dim + col + j * 16, 0, 2);
        }
      }
      for (int b = 0; b < work.blocks; ++b) {
        const RowBlock& block = work.block[b];
        const int from = Larger(t, block.common_begin);
        const int to = Smaller(stop, block.common_end);
        if (from >= to) continue;
        const float* panel = work.panel + (from - t) * kPanelCols;
        Tiles(
            vectors, block.rows, work.p_row + block.first, from,
            [&](int j) { return Panel{panel + j * 16}; }, to - from,
            job.o + block.first * job.head_dim + col, job.head_dim, false);
      }
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
    for (int r = block.first; r < block.first + block.rows; ++r) {
      ValuesDirect(work, segment, r, 1, Larger(job.begin[r], from),
                   Smaller(job.end[r], block.common_begin));
    }
    if (segment.rows <= kDirectRows) {
      ValuesDirect(work, segment, block.first, block.rows, block.common_begin, block.common_end);
    }
  }
  if (segment.rows > kDirectRows) ValuesByPanel(work, segment);
  for (int b = 0; b < work.blocks; ++b) {
    const RowBlock& block = work.block[b];
    for (int r = block.first; r < block.first + block.rows; ++r) {
      ValuesDirect(work, segment, r, 1, Larger(block.common_end, from), Smaller(job.end[r], to));
    }
  }
}

void Chunk(const AttentionJob& job) {
  Work work(job);
  for (int r = 0; r < job.rows; ++r) work.p_row[r] = PRow(work, r);
  for (int i = 0; i < job.segments; ++i) Scores(work, job.segment[i]);
  for (int r = 0; r < job.rows; ++r) Soften(work, r);
  for (int i = 0; i < job.rows * job.head_dim; i += 16) Store(job.o + i, Zero());
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
