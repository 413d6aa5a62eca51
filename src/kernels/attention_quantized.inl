// Scores from, and weighted sums of, int8 and int4 units: integer dot products between the stored
// bytes and 16-bit coefficients. Included inside attention.inl, after Work.
//
// A group of 64 channels (K) or the 256 tokens of a chunk (V) share the unit of their coefficients,
// 1/32512 of the largest magnitude there: of the query, of the query times the channels' scales
// (int4 K; bounded by the product of the two largest), or of weight times scale (V). Rounding to
// that is the only loss; the dot products are exact int32, hence the same in any order and on any
// machine, and what a token beyond a row's view holds is multiplied by an integer 0.
//
// int8 bytes are value + 128: sums start at -128 times the sum of the coefficients.

constexpr int kScaleChannels = 64;
constexpr float kCoefMax = 32512.0f;  // 127 * 256: high bytes stay in int8.

inline const uint8_t* UnitBytes(const uint16_t* unit) {
  return reinterpret_cast<const uint8_t*>(unit);
}
inline const uint16_t* HalvesAt(const uint16_t* unit, int bytes) {
  return reinterpret_cast<const uint16_t*>(UnitBytes(unit) + bytes);
}
inline uint8_t* CoefRow(Work& work, int row) { return work.coef + row * 2 * kCoefSpan; }

// The same address, of which the compiler knows no more: it then counts from here, where it would
// keep a dozen offsets, in vector registers for want of others.
inline const uint8_t* Anchor(const uint8_t* p) {
  __asm__("" : "+r"(p));
  return p;
}

// What Dot multiplies. From<kCols>(u) is outer step u: its At(k, c, half) are the bytes of column
// vector c at step k, for one half of their nibbles. It also fetches ahead: a function that did
// nothing else would be one without effect to the compiler, and gone.
struct KBytes {  // Columns are units; one outer step.
  const uint16_t* const* unit;
  const uint16_t* const* next;  // As many units to fetch meanwhile.
  int offset;
  template <int kCols>
  struct Run {
    const uint8_t* from[kCols];
    const uint8_t* to[kCols];
    const uint8_t* At(int k, int c, int) const {
      __builtin_prefetch(to[c] + k * 64, 0, 2);
      return from[c] + k * 64;
    }
  };
  template <int kCols>
  Run<kCols> From(int) const {
    Run<kCols> run;
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      run.from[c] = Anchor(UnitBytes(unit[c]) + offset);
      run.to[c] = Anchor(UnitBytes(next[c]) + offset);
    }
    return run;
  }
};
struct VBytes {  // Columns are channels, outer steps units.
  const uint16_t* const* unit;
  const uint16_t* const* next;
  int offset, stride, fetch;
  int scales;  // Two lines of an int4 K unit's scales or minimums.
  struct Run {
    const uint8_t* from;
    const uint8_t* to;
    const uint8_t* scales;
    int stride;
    const uint8_t* At(int k, int c, int half) const {
      if (half == 0) {
        __builtin_prefetch(to + (k * 4 + c) * 64, 0, 2);
      } else if (c == 0) {
        __builtin_prefetch(scales + k * 64, 0, 2);
      }
      return from + k * stride + c * 64;
    }
  };
  template <int>
  Run From(int u) const {
    const uint8_t* const to = UnitBytes(next[u]);
    return {Anchor(UnitBytes(unit[u]) + offset), Anchor(to + fetch), Anchor(to + scales), stride};
  }
};

// c[row][16 columns each] += A * B over `outer` times `inner` vectors of bytes. With a single
// column, sums of alternate steps are kept apart so that enough of them are under way.
template <int kRows, int kCols, bool kNibbles, typename Source>
__attribute__((noinline)) void Dot(const uint8_t* const* a, Source b, int outer, int inner,
                                   int32_t* c, int c_stride) {
  constexpr int kHalves = kNibbles ? 2 : 1;
  constexpr int kParts = kNibbles && kCols == 1 && kIntCols > 1 ? 2 : 1;
  Sums sum[kRows][kCols][kParts];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) sum[r][j][part] = ZeroSums();
    }
  }
  int quad = 0;
  for (int u = 0; u < outer; ++u) {
    const auto run = b.template From<kCols>(u);
    for (int k = 0; k < inner; ++k) {
#pragma GCC unroll 2
      for (int half = 0; half < kHalves; ++half, ++quad) {
        Bytes bytes[kCols];
#pragma GCC unroll 4
        for (int j = 0; j < kCols; ++j) {
          const uint8_t* const from = run.At(k, j, half);
          bytes[j] = !kNibbles ? LoadBytes(from)
                               : (half == 0 ? LoadLowNibbles(from) : LoadHighNibbles(from));
        }
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const Coef coef = LoadCoef(a[r], quad);
#pragma GCC unroll 4
          for (int j = 0; j < kCols; ++j) {
            Accumulate(sum[r][j][kParts == 2 ? half : 0], bytes[j], coef);
          }
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < kCols; ++j) {
      int32_t* const to = c + r * c_stride + j * 16;
      Ints total = LoadInts(to);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) total = Total(sum[r][j][part], total);
      StoreInts(to, total);
    }
  }
}

template <int kCols, bool kNibbles, typename Source>
inline void DotOfRows(int rows, const uint8_t* const* a, Source b, int outer, int inner, int32_t* c,
                      int c_stride) {
  constexpr int kMost = kCols == 1 ? kLoneRows : kIntRows;
  if constexpr (kMost >= 6) {
    if (rows == 6) return Dot<6, kCols, kNibbles>(a, b, outer, inner, c, c_stride);
    if (rows == 5) return Dot<5, kCols, kNibbles>(a, b, outer, inner, c, c_stride);
    if (rows == 4) return Dot<4, kCols, kNibbles>(a, b, outer, inner, c, c_stride);
  }
  if constexpr (kMost >= 3) {
    if (rows == 3) return Dot<3, kCols, kNibbles>(a, b, outer, inner, c, c_stride);
  }
  if constexpr (kMost >= 2) {
    if (rows == 2) return Dot<2, kCols, kNibbles>(a, b, outer, inner, c, c_stride);
  }
  Dot<1, kCols, kNibbles>(a, b, outer, inner, c, c_stride);
}

// `cols` column vectors, source(j) being B from vector j on.
template <bool kNibbles, typename MakeSource>
inline void DotOfCols(int cols, int rows, const uint8_t* const* a, MakeSource source, int outer,
                      int inner, int32_t* c, int c_stride) {
  for (int j = 0; j < cols;) {
    if constexpr (kIntCols >= 2) {
      if (cols - j >= kIntCols) {
        DotOfRows<kIntCols, kNibbles>(rows, a, source(j), outer, inner, c + j * 16, c_stride);
        j += kIntCols;
        continue;
      }
    }
    // One column takes at least as many rows as several do.
    DotOfRows<1, kNibbles>(rows, a, source(j), outer, inner, c + j * 16, c_stride);
    ++j;
  }
}

// Whether any of the rows sees tokens of [from, to).
inline bool AnySees(const AttentionJob& job, int first, int rows, int from, int to) {
  for (int r = first; r < first + rows; ++r) {
    if (Larger(job.begin[r], from) < Smaller(job.end[r], to)) return true;
  }
  return false;
}

inline V AbsMax(V largest, V x) { return Max(Sub(Zero(), NegAbs(x)), largest); }

// Magnitudes below this (nothing a model makes) count as 0, so that the inverse stays finite.
constexpr float kLeastMagnitude = 0x1p-100f;

// The largest magnitude of each group of a row's query, in units of 1/kCoefMax, and its inverse.
void MeasureQuery(Work& work, int row) {
  const AttentionJob& job = work.job;
  for (int first = 0, g = 0; first < job.head_dim; first += kScaleChannels, ++g) {
    const int last = Smaller(first + kScaleChannels, job.head_dim);
    V largest = Zero();
    for (int d = first; d < last; d += 16) largest = AbsMax(largest, Load(job.q[row] + d));
    const float top = MaxLanes(largest);
    work.unit[row][g] = top * (1.0f / kCoefMax);
    work.inverse[row][g] = top > kLeastMagnitude ? kCoefMax / top : 0.0f;
  }
}

// Coefficients of an int8 query.
void RoundQuery(Work& work, int row) {
  const AttentionJob& job = work.job;
  MeasureQuery(work, row);
  const V shift = Set1(kCoefShift);
  for (int first = 0, g = 0; first < job.head_dim; first += kScaleChannels, ++g) {
    const int last = Smaller(first + kScaleChannels, job.head_dim);
    V sum = Zero();
    for (int d = first; d < last; d += 16) {
      const V shifted = Fma(Load(job.q[row] + d), Set1(work.inverse[row][g]), shift);
      StoreCoefs(shifted, CoefRow(work, row), d);
      sum = Add(sum, Sub(shifted, shift));
    }
    const float total = SumLanes(sum);  // Exact; NaN if the query holds one.
    const bool sound = total == total;
    work.start[row][g] = sound ? static_cast<int32_t>(-128.0f * total) : 0;
    if (!sound) work.unit[row][g] = total;
  }
}

// Scores of a segment's int8 units, before the scale.
void ScoresInt8(Work& work, const AttentionJob::Segment& segment) {
  const AttentionJob& job = work.job;
  int32_t dot[kIntRows * kIntCols * 16];
  for (int u = 0; u < segment.units; u += kIntCols) {
    const int cols = Smaller(kIntCols, segment.units - u);
    const int base = (segment.first_unit + u) * 16;
    for (int r = 0; r < segment.rows; r += kIntRows) {
      const int row = segment.first_row + r;
      const int rows = Smaller(kIntRows, segment.rows - r);
      if (!AnySees(job, row, rows, base, base + cols * 16)) continue;
      for (int first = 0, g = 0; first < job.head_dim; first += kScaleChannels, ++g) {
        const uint8_t* a[kIntRows];
        for (int i = 0; i < rows; ++i) {
          // A row of coefficients is not split by group, its low and high bytes are.
          a[i] = CoefRow(work, row + i) + first * kCoefBytes;
          for (int j = 0; j < cols * 16; ++j) dot[i * kIntCols * 16 + j] = work.start[row + i][g];
        }
        DotOfCols<false>(
            cols, rows, a,
            [&](int j) {
              return KBytes{segment.k + u + j, segment.v + u + j, first * 16};
            },
            1, Smaller(kScaleChannels, job.head_dim - first) / 4, dot, kIntCols * 16);
        for (int c = 0; c < cols; ++c) {
          const V scale = LoadHalf(HalvesAt(segment.k[u + c], job.head_dim * 16) + g * 16);
          __builtin_prefetch(HalvesAt(segment.v[u + c], job.head_dim * 16) + g * 16, 0, 2);
          for (int i = 0; i < rows; ++i) {
            float* const p = PRow(work, row + i) + base + c * 16;
            const V x = ToFloat(LoadInts(dot + (i * kIntCols + c) * 16));
            const V by = Mul(scale, Set1(work.unit[row + i][g]));
            Store(p, g == 0 ? Mul(x, by) : Fma(x, by, Load(p)));
          }
        }
      }
    }
  }
}

// Scores of a segment's int4 units, a group of 64 channels at a time, in three passes over its
// units: largest scales, coefficients, dot products. So nothing waits for what was only just
// stored, and sums over lanes and divisions are those of 16 units at once.

// The largest scale of each unit, into `top` [16], and its inverse.
void FindTopScales(Work& work, const AttentionJob::Segment& segment, int first, int vectors,
                   float* top, float* inverse) {
  float* const lanes = work.panel;
  for (int u = 0; u < segment.units; ++u) {
    StoreTopHalves(HalvesAt(segment.k[u], work.job.head_dim * 8) + first, vectors, lanes + u * 16);
  }
  const V tops = JoinTopHalves(lanes);
  Store(top, tops);
  Store(inverse, Select(Less(Zero(), tops), Div(Set1(1.0f), tops), Zero()));
}

inline uint8_t* UnitCoefs(Work& work, int u, int i) {  // Four units share the place of a row.
  return CoefRow(work, u / 4 * kLoneRows + i) + u % 4 * kScaleChannels * kCoefBytes;
}

// Coefficients of some rows for each unit, and the sums of query times minimum into `offset`
// [rows][16].
template <int kVectors>
void RoundForUnits(Work& work, const AttentionJob::Segment& segment, int row, int rows, int first,
                   const float* inverse, float (*offset)[16]) {
  alignas(64) float scaled[kLoneRows][kScaleChannels];
  const float* q[kLoneRows];
  for (int i = 0; i < rows; ++i) {
    q[i] = work.job.q[row + i] + first;
    const V by = Set1(work.inverse[row + i][first / kScaleChannels]);
    for (int j = 0; j < kVectors; ++j) Store(scaled[i] + j * 16, Mul(Load(q[i] + j * 16), by));
  }
  const int dim = work.job.head_dim;
  const V shift = Set1(kCoefShift);
  for (int u = 0; u < segment.units; ++u) {
    const uint16_t* const scale = HalvesAt(segment.k[u], dim * 8) + first;
    const uint8_t* const fetch = UnitBytes(segment.v[u]) + first * 8;
    __builtin_prefetch(UnitBytes(segment.v[u]) + dim * 8 + first, 0, 2);  // Scales.
    const V by = Set1(inverse[u]);
    V relative[kVectors], low[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      __builtin_prefetch(fetch + j * 128, 0, 2);
      __builtin_prefetch(fetch + j * 128 + 64, 0, 2);
      relative[j] = Mul(LoadHalf(scale + j * 16), by);
      low[j] = LoadHalf(scale + dim + j * 16);
    }
    for (int i = 0; i < rows; ++i) {
      V sum = Mul(Load(q[i]), low[0]);
      V shifted[kVectors];
      shifted[0] = Fma(Load(scaled[i]), relative[0], shift);
#pragma GCC unroll 4
      for (int j = 1; j < kVectors; ++j) {
        sum = Fma(Load(q[i] + j * 16), low[j], sum);
        shifted[j] = Fma(Load(scaled[i] + j * 16), relative[j], shift);
      }
      StoreCoefGroup(shifted, kVectors, UnitCoefs(work, u, i), 0);
      Store(work.panel + (i * 16 + u) * 16, sum);
    }
  }
  for (int i = 0; i < rows; ++i) Store(offset[i], SumLanes16(work.panel + i * 256));
}

// Dot products of the units with the coefficients of kRows rows, into the rows' scores.
template <int kRows, int kVectors>
__attribute__((noinline)) void DotUnits(Work& work, const AttentionJob::Segment& segment, int row,
                                        int first, const float* top, const float (*offset)[16]) {
  float by[kRows][16];
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i) {
    Store(by[i], Mul(Set1(work.unit[row + i][first / kScaleChannels]), Load(top)));
  }
  for (int u = 0; u < segment.units; ++u) {
    const uint8_t* const bytes = Anchor(UnitBytes(segment.k[u]) + first * 8);
    const uint8_t* const coefs = Anchor(UnitCoefs(work, u, 0));
    Sums sum[kRows][2];
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) sum[i][0] = sum[i][1] = ZeroSums();
#pragma GCC unroll 8
    for (int k = 0; k < kVectors * 2; ++k) {
      const Bytes low = LoadLowNibbles(bytes + k * 64);
      const Bytes high = LoadHighNibbles(bytes + k * 64);
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        const uint8_t* const a = coefs + i * 2 * kCoefSpan;
        Accumulate(sum[i][0], low, LoadCoef(a, 2 * k));
        Accumulate(sum[i][1], high, LoadCoef(a, 2 * k + 1));
      }
    }
#pragma GCC unroll 6
    for (int i = 0; i < kRows; ++i) {
      float* const p = PRow(work, row + i) + (segment.first_unit + u) * 16;
      const V x = ToFloat(Total(sum[i][1], Total(sum[i][0], ZeroInts())));
      const V part = Fma(x, Set1(by[i][u]), Set1(offset[i][u]));
      Store(p, first == 0 ? part : Add(Load(p), part));
    }
  }
}

template <int kVectors>
void ScoresOfChannels(Work& work, const AttentionJob::Segment& segment, int first) {
  float top[16], inverse[16];
  FindTopScales(work, segment, first, kVectors, top, inverse);
  float offset[kLoneRows][16];
  for (int r = 0; r < segment.rows; r += kLoneRows) {
    const int row = segment.first_row + r;
    const int rows = Smaller(kLoneRows, segment.rows - r);
    RoundForUnits<kVectors>(work, segment, row, rows, first, inverse, offset);
    if constexpr (kLoneRows >= 6) {
      if (rows == 6) DotUnits<6, kVectors>(work, segment, row, first, top, offset);
      if (rows == 5) DotUnits<5, kVectors>(work, segment, row, first, top, offset);
      if (rows == 4) DotUnits<4, kVectors>(work, segment, row, first, top, offset);
      if (rows == 3) DotUnits<3, kVectors>(work, segment, row, first, top, offset);
    }
    if constexpr (kLoneRows >= 2) {
      if (rows == 2) DotUnits<2, kVectors>(work, segment, row, first, top, offset);
    }
    if (rows == 1) DotUnits<1, kVectors>(work, segment, row, first, top, offset);
  }
}

void ScoresInt4(Work& work, const AttentionJob::Segment& segment) {
  const int dim = work.job.head_dim;
  for (int first = 0; first < dim; first += kScaleChannels) {
    switch (Smaller(kScaleChannels, dim - first) / 16) {
      case 4:
        ScoresOfChannels<4>(work, segment, first);
        break;
      case 3:
        ScoresOfChannels<3>(work, segment, first);
        break;
      case 2:
        ScoresOfChannels<2>(work, segment, first);
        break;
      default:
        ScoresOfChannels<1>(work, segment, first);
    }
  }
}

#include "kernels/attention_weights.inl"

// o = sum of p * v over the chunk, for all rows, from int8 or (kNibbles) int4 units. The integer
// sums of a group stand in o until they are complete.
template <bool kNibbles>
void ValuesInt(Work& work) {
  const AttentionJob& job = work.job;
  const int dim = job.head_dim;
  const int value_bytes = kNibbles ? dim * 8 : dim * 16;
  const int groups = (dim + kScaleChannels - 1) / kScaleChannels;
  for (int first = 0, g = 0; first < dim; first += kScaleChannels, ++g) {
    const int vectors = Smaller(kScaleChannels, dim - first) / 16;
    if (g + 1 == groups) {
      RoundWeights<kNibbles, true>(work, value_bytes + g * 32, groups * 32);
    } else {
      RoundWeights<kNibbles, false>(work, value_bytes + g * 32, groups * 32);
    }
    int32_t* const sums = work.sums;
    for (int r = 0; r < job.rows; ++r) {
      for (int i = 0; i < vectors * 16; ++i) sums[r * kScaleChannels + i] = work.start[r][0];
    }
    for (int i = 0; i < job.segments; ++i) {
      const AttentionJob::Segment& segment = job.segment[i];
      const uint16_t* next[AttentionJob::kUnits];
      for (int u = 0; u < segment.units; ++u) {
        const uint16_t* const after = job.after[segment.first_unit + u];
        next[u] = after != nullptr ? after : segment.v[u];
        if constexpr (!kNibbles) __builtin_prefetch(HalvesAt(next[u], value_bytes + g * 32), 0, 2);
      }
      for (int r = 0; r < segment.rows; r += kIntRows) {
        const int row = segment.first_row + r;
        const int rows = Smaller(kIntRows, segment.rows - r);
        const uint8_t* a[kIntRows];
        for (int k = 0; k < rows; ++k) {
          a[k] = CoefRow(work, row + k) + segment.first_unit * 16 * kCoefBytes;
        }
        DotOfCols<kNibbles>(
            vectors, rows, a,
            [&](int j) {
              return VBytes{segment.v,
                            next,
                            first * 4 + j * 64,
                            dim * 4,
                            (kNibbles ? first * 8 : first * 16) + j * 64,
                            dim * (j < 2 ? 8 : 10) + first * 2};
            },
            segment.units, kNibbles ? 2 : 4, sums + row * kScaleChannels, kScaleChannels);
      }
    }
    for (int r = 0; r < job.rows; ++r) {
      const V unit = Set1(work.unit[r][0]);
      for (int j = 0; j < vectors; ++j) {
        const V x = ToFloat(LoadInts(sums + r * kScaleChannels + j * 16));
        Store(job.o + r * dim + first + j * 16,
              kNibbles ? Fma(x, unit, Set1(work.offset[r])) : Mul(x, unit));
      }
    }
  }
}
