// From scores to the 16-bit coefficients that int8 and int4 values are multiplied by. Included
// inside attention_quantized.inl.

// Soften for weights that are rounded to 16 bits next: 2^x with x = log2(e) (scale s - max), of
// relative error 2.9e-6.
template <int kCount>
inline void PowersOfTwo(V (&x)[kCount]) {
  const V low = Set1(-125.0f);
  V shifted[kCount], n[kCount], r[kCount], p[kCount];
  Mask keep[kCount];
  const auto each = [](auto op) {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) op(i);
  };
  each([&](int i) { keep[i] = NotLess(x[i], low); });
  if constexpr (!kScaleSkips) each([&](int i) { x[i] = Max(low, x[i]); });
  each([&](int i) { shifted[i] = Add(x[i], Set1(kRoundShift)); });
  each([&](int i) { n[i] = Sub(shifted[i], Set1(kRoundShift)); });
  each([&](int i) { r[i] = Sub(x[i], n[i]); });
  each([&](int i) { p[i] = Fma(Set1(0x1.3a02ccp-7f), r[i], Set1(0x1.c9fc46p-5f)); });
  each([&](int i) { p[i] = Fma(p[i], r[i], Set1(0x1.ec0378p-3f)); });
  each([&](int i) { p[i] = Fma(p[i], r[i], Set1(0x1.62e12cp-1f)); });
  each([&](int i) { p[i] = Fma(p[i], r[i], Set1(1.0f)); });
  each([&](int i) { x[i] = ScaleOrZero(keep[i], p[i], shifted[i], n[i]); });
}
void SoftenRounded(Work& work, int row) {
  const AttentionJob& job = work.job;
  const float top = job.max[row];
  // Beyond this, x is too coarse (and a row that sees nothing has no maximum).
  if (!(top < 0x1p17f && top > -0x1p17f)) return Soften(work, row);
  float* const p = PRow(work, row);
  const int end = job.end[row];
  const V scale = Set1(work.scale * 0x1.715476p+0f);
  const V shift = Set1(-top * 0x1.715476p+0f);
  V sum = Zero();
  const auto some = [&](auto& x, int t) {
    constexpr int kCount = sizeof(x) / sizeof(x[0]);
#pragma GCC unroll 4
    for (int j = 0; j < kCount; ++j) x[j] = Fma(Load(p + t + j * 16), scale, shift);
    PowersOfTwo(x);
#pragma GCC unroll 4
    for (int j = 0; j < kCount; ++j) {
      Store(p + t + j * 16, x[j]);
      sum = Add(sum, x[j]);
    }
  };
  int t = job.begin[row] / 16 * 16;
  for (; t + 16 * kExpVectors <= end; t += 16 * kExpVectors) {
    V x[kExpVectors];
    some(x, t);
  }
  for (; t < end; t += 16) {
    V x[1];
    some(x, t);
  }
  job.sum[row] = SumLanes(sum);
}

// Scales, then minimums, of a segment's tokens as floats, [16 units][16] each, into work.panel.
// `scales` is in bytes from a unit's begin, minimums lie `minimums` behind them.
template <bool kNibbles>
void ExpandTokenScales(Work& work, const AttentionJob::Segment& segment, int scales, int minimums) {
  for (int u = 0; u < segment.units; ++u) {
    const uint16_t* const from = HalvesAt(segment.v[u], scales);
    Store(work.panel + u * 16, LoadHalf(from));
    if constexpr (kNibbles) {
      Store(work.panel + AttentionJob::kTokens + u * 16,
            LoadHalf(HalvesAt(segment.v[u], scales + minimums)));
    }
  }
}

// The units [begin, end) of a segment, all tokens of which a row sees, and the lanes that it sees
// of one of the others.
struct WholeUnits {
  int begin, end;
};
inline WholeUnits WholeUnitsOf(const AttentionJob& job, const AttentionJob::Segment& segment,
                               int row) {
  const int begin = Larger((job.begin[row] + 15) / 16 - segment.first_unit, 0);
  const int end = Smaller(job.end[row] / 16 - segment.first_unit, segment.units);
  return {begin, Larger(begin, end)};
}
inline Mask SeenLanes(const AttentionJob& job, int row, int t) {
  const int begin = Smaller(Larger(job.begin[row] - t, 0), 16);
  const int end = Smaller(Larger(job.end[row] - t, 0), 16);
  return begin < end ? Lanes(begin, end) : Lanes(0, 0);
}

// Adds a segment to a row's largest weight times scale, and to the sum of what is no product of
// nibbles: weights times minimums, of int8 the weights (to see what is no number). What is stale
// may be no number either: the results are chosen from, not the factors. kLast: the products take
// the place of the weights, 0 where a row does not see the token.
template <bool kNibbles, bool kLast>
void MeasureWeights(Work& work, const AttentionJob::Segment& segment, int row, V* largest, V* low) {
  const AttentionJob& job = work.job;
  float* const p = PRow(work, row) + segment.first_unit * 16;
  const WholeUnits whole = WholeUnitsOf(job, segment, row);
  V most = *largest;
  V sum = *low;
  const auto edge = [&](int u) {
    const Mask seen = SeenLanes(job, row, (segment.first_unit + u) * 16);
    const V x = Load(p + u * 16);
    const V weight = Mul(x, Load(work.panel + u * 16));
    const V minimum = Load(work.panel + AttentionJob::kTokens + u * 16);
    if constexpr (kLast) Store(p + u * 16, Select(seen, weight, Zero()));
    most = Select(seen, Max(weight, most), most);
    sum = Select(seen, kNibbles ? Fma(x, minimum, sum) : Add(sum, weight), sum);
  };
  for (int u = 0; u < Smaller(whole.begin, segment.units); ++u) edge(u);
  for (int u = whole.begin; u < whole.end; ++u) {
    const V x = Load(p + u * 16);
    const V weight = Mul(x, Load(work.panel + u * 16));
    const V minimum = Load(work.panel + AttentionJob::kTokens + u * 16);
    if constexpr (kLast) Store(p + u * 16, weight);
    most = Max(weight, most);
    sum = kNibbles ? Fma(x, minimum, sum) : Add(sum, weight);
  }
  for (int u = whole.end; u < segment.units; ++u) edge(u);
  *largest = most;
  *low = sum;
}

// Coefficients of one group of channels: weight times scale of each token, 0 where a row does not
// see it. Of int8, sums start at -128 times theirs.
template <bool kNibbles, bool kLast>
void StoreWeights(Work& work, const AttentionJob::Segment& segment, int row) {
  const AttentionJob& job = work.job;
  const float* const p = PRow(work, row) + segment.first_unit * 16;
  const WholeUnits whole = WholeUnitsOf(job, segment, row);
  const V by = Set1(work.inverse[row][0]);
  const V shift = Set1(kCoefShift);
  for (int u = 0; u < segment.units; u += 4) {
    const int count = Smaller(4, segment.units - u);
    V shifted[4];
    for (int k = 0; k < count; ++k) {
      V weight = Load(p + (u + k) * 16);
      if constexpr (!kLast) {
        weight = Mul(weight, Load(work.panel + (u + k) * 16));
        if (u + k < whole.begin || u + k >= whole.end) {
          const Mask seen = SeenLanes(job, row, (segment.first_unit + u + k) * 16);
          weight = Select(seen, weight, Zero());
        }
      }
      shifted[k] = Fma(weight, by, shift);
    }
    StoreCoefGroup(shifted, count, CoefRow(work, row), (segment.first_unit + u) * 16);
  }
  if constexpr (!kNibbles) {
    const int32_t total = SumCoefs(CoefRow(work, row), segment.first_unit * 16, segment.units * 16);
    work.start[row][0] -= 128 * total;
  }
}

template <bool kNibbles, bool kLast>
void RoundWeights(Work& work, int scales, int minimums) {
  const AttentionJob& job = work.job;
  V largest[AttentionJob::kRows];  // Weights and scales are not negative.
  V low[AttentionJob::kRows];
  for (int r = 0; r < job.rows; ++r) largest[r] = low[r] = Zero();
  for (int i = 0; i < job.segments; ++i) {
    const AttentionJob::Segment& segment = job.segment[i];
    ExpandTokenScales<kNibbles>(work, segment, scales, minimums);
    for (int row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
      MeasureWeights<kNibbles, kLast>(work, segment, row, largest + row, low + row);
    }
  }
  for (int r = 0; r < job.rows; ++r) {
    const float top = MaxLanes(largest[r]);
    const float sum = SumLanes(low[r]);
    const bool sound = sum - sum == 0.0f;  // A finite number.
    work.unit[r][0] = sound ? top * (1.0f / kCoefMax) : sum - sum;
    work.inverse[r][0] = sound && top > kLeastMagnitude ? kCoefMax / top : 0.0f;
    work.offset[r] = sum;
    work.start[r][0] = 0;
  }
  for (int i = 0; i < job.segments; ++i) {
    const AttentionJob::Segment& segment = job.segment[i];
    if (!kLast && job.segments > 1) ExpandTokenScales<kNibbles>(work, segment, scales, minimums);
    for (int row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
      StoreWeights<kNibbles, kLast>(work, segment, row);
    }
  }
}
