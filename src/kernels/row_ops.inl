// The row operations over V, the same source for every instruction set. Included inside an
// anonymous namespace, after vec16_math.inl; ends with the table's initialiser.

constexpr size_t kLanes = 16;

// Calls op(offset, lanes) for each vector of a row; the last may have fewer than 16 lanes.
template <typename Whole, typename Rest>
inline void ForEachVector(size_t count, Whole whole, Rest rest) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) whole(i);
  if (i < count) rest(i, static_cast<int>(count - i));
}

// out[i] = op(x[i], y[i]).
template <typename Op>
inline void Map2(const float* x, const float* y, float* out, size_t count, Op op) {
  ForEachVector(
      count, [&](size_t i) { Store(out + i, op(Load(x + i), Load(y + i))); },
      [&](size_t i, int n) {
        StoreFirst(out + i, n, op(LoadFirst(x + i, n), LoadFirst(y + i, n)));
      });
}

// Four sums of 16 lanes hide the latency of the multiply-add; they are joined in a fixed order.
float SumOfSquares(const float* x, size_t count) {
  V sum[4] = {Zero(), Zero(), Zero(), Zero()};
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (size_t j = 0; j < 4; ++j) {
      const V v = Load(x + i + j * kLanes);
      sum[j] = Fma(v, v, sum[j]);
    }
  }
  for (; i + kLanes <= count; i += kLanes) {
    const V v = Load(x + i);
    sum[0] = Fma(v, v, sum[0]);
  }
  if (i < count) {
    const V v = LoadFirst(x + i, static_cast<int>(count - i));
    sum[1] = Fma(v, v, sum[1]);
  }
  return SumLanes(Add(Add(sum[0], sum[1]), Add(sum[2], sum[3])));
}

void RmsNormRow(const float* x, const float* weight, float eps, float* out, size_t count) {
  const float mean = SumOfSquares(x, count) / static_cast<float>(count);
  const V factor = Set1(1.0f / __builtin_sqrtf(mean + eps));
  Map2(x, weight, out, count, [factor](V v, V w) { return Mul(Mul(v, factor), w); });
}

// (a, b) becomes (a cos - b sin, b cos + a sin); the product with the sine is rounded first.
void RotatePair(float* a, float* b, float cosine, float sine) {
  const float x = *a;
  const float y = *b;
  *a = __builtin_fmaf(x, cosine, -(y * sine));
  *b = __builtin_fmaf(y, cosine, x * sine);
}

void RopeInterleavedHead(float* head, const float* cosine, const float* sine, size_t pairs) {
  size_t i = 0;
  for (; i + kLanes / 2 <= pairs; i += kLanes / 2) {
    const V x = Load(head + 2 * i);
    const V sin_part = Mul(SwapPairs(x), NegateEven(DuplicatePairs(sine + i)));
    Store(head + 2 * i, Fma(x, DuplicatePairs(cosine + i), sin_part));
  }
  for (; i < pairs; ++i) RotatePair(head + 2 * i, head + 2 * i + 1, cosine[i], sine[i]);
}

void RopeHalvesHead(float* head, const float* cosine, const float* sine, size_t pairs) {
  size_t i = 0;
  for (; i + kLanes <= pairs; i += kLanes) {
    const V x = Load(head + i);
    const V y = Load(head + pairs + i);
    const V c = Load(cosine + i);
    const V s = Load(sine + i);
    Store(head + i, Fma(x, c, Sub(Set1(-0.0f), Mul(y, s))));
    Store(head + pairs + i, Fma(y, c, Mul(x, s)));
  }
  for (; i < pairs; ++i) RotatePair(head + i, head + pairs + i, cosine[i], sine[i]);
}

void SiluGateRow(const float* gate, const float* up, float* out, size_t count) {
  Map2(gate, up, out, count, [](V g, V u) { return Mul(Mul(g, Logistic(g)), u); });
}

// 0.5 g (1 + tanh(t)) = g / (1 + e^-2t): no tanh, so nothing cancels for small or negative g.
// 2t = g (a + b g^2) with a = 2 sqrt(2/pi), b = 0.044715 a.
void GeluGateRow(const float* gate, const float* up, float* out, size_t count) {
  Map2(gate, up, out, count, [](V g, V u) {
    const V inner = Fma(Mul(g, g), Set1(0.0713548162726f), Set1(1.59576912161f));
    return Mul(Mul(g, Logistic(Mul(g, inner))), u);
  });
}

void ScaleRow(float* x, float factor, size_t count) {
  const V f = Set1(factor);
  Map2(x, x, x, count, [f](V v, V) { return Mul(v, f); });
}

void SoftCapRow(float* x, float cap, size_t count) {
  const V by = Set1(1.0f / cap);
  const V c = Set1(cap);
  Map2(x, x, x, count, [by, c](V v, V) { return Mul(c, Tanh(Mul(v, by))); });
}

void AddRow(float* x, const float* y, size_t count) {
  Map2(x, y, x, count, [](V a, V b) { return Add(a, b); });
}

void ExpRow(const float* x, float* out, size_t count) {
  Map2(x, x, out, count, [](V v, V) { return Exp(v); });
}

void HalfFromFloatRow(const float* x, uint16_t* out, size_t count) {
  ForEachVector(
      count, [&](size_t i) { StoreHalf(out + i, Load(x + i)); },
      [&](size_t i, int n) {
        uint16_t half[kLanes];
        StoreHalf(half, LoadFirst(x + i, n));
        for (int j = 0; j < n; ++j) out[i + static_cast<size_t>(j)] = half[j];
      });
}

void FloatFromHalfRow(const uint16_t* x, float* out, size_t count) {
  ForEachVector(
      count, [&](size_t i) { Store(out + i, LoadHalf(x + i)); },
      [&](size_t i, int n) {
        uint16_t half[kLanes] = {};
        for (int j = 0; j < n; ++j) half[j] = x[i + static_cast<size_t>(j)];
        StoreFirst(out + i, n, LoadHalf(half));
      });
}

constexpr float kMinusInfinity = -__builtin_inff();

// Max(v, m) keeps m where v is NaN, so NaN counts as -infinity.
float MaximumOf(const float* x, size_t count) {
  V m[4];
  for (V& v : m) v = Set1(kMinusInfinity);
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (size_t j = 0; j < 4; ++j) m[j] = Max(Load(x + i + j * kLanes), m[j]);
  }
  V all = Max(Max(m[0], m[1]), Max(m[2], m[3]));
  for (; i + kLanes <= count; i += kLanes) all = Max(Load(x + i), all);
  float best = MaxLanes(all);
  for (; i < count; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

size_t ArgMaxOf(const float* x, size_t count) {
  constexpr size_t kBlock = 1024;
  float best = kMinusInfinity;
  size_t best_block = 0;
  for (size_t i = 0; i < count; i += kBlock) {
    const size_t size = count - i < kBlock ? count - i : kBlock;
    const float value = MaximumOf(x + i, size);
    if (value > best) {
      best = value;
      best_block = i;
    }
  }
  if (best == kMinusInfinity) return 0;
  size_t index = best_block;
  while (x[index] != best) ++index;
  return index;
}

// Blocks of 1024 keep the rounding error of the long sum near that of a short one.
float SumExpOf(const float* x, size_t count, float shift) {
  constexpr size_t kBlock = 1024;
  const V s = Set1(shift);
  V total = Zero();
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = count - begin < kBlock ? count - begin : kBlock;
    V sum = Zero();
    ForEachVector(
        size, [&](size_t i) { sum = Add(sum, Exp(Sub(Load(x + begin + i), s))); },
        [&](size_t i, int n) {
          const V e = Exp(Sub(LoadFirst(x + begin + i, n), s));
          sum = Add(sum, Select(Lanes(0, n), e, Zero()));
        });
    total = Add(total, sum);
  }
  return SumLanes(total);
}

void BlockKeysOf(const float* x, size_t count, size_t block, uint32_t* out) {
  for (size_t i = 0; (i + 1) * block <= count; ++i) {
    const float value = MaximumOf(x + i * block, block);
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    out[i] = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  }
}

template <typename Test>
inline size_t Collect(const float* x, size_t count, size_t limit, uint32_t* out, Test test) {
  const V lowest = Set1(kMinusInfinity);
  size_t found = 0;
  const auto take = [&](uint64_t bits, size_t base) {
    for (; bits != 0 && found < limit; bits &= bits - 1) {
      out[found++] = static_cast<uint32_t>(base + static_cast<size_t>(__builtin_ctzll(bits)));
    }
  };
  size_t i = 0;
  for (; i + 4 * kLanes <= count && found < limit; i += 4 * kLanes) {
    uint64_t bits = 0;
    for (size_t j = 0; j < 4; ++j) {
      bits |= uint64_t{Bits(test(Max(Load(x + i + j * kLanes), lowest)))} << (j * kLanes);
    }
    if (bits != 0) take(bits, i);
  }
  for (; i < count && found < limit; i += kLanes) {
    const int n = count - i < kLanes ? static_cast<int>(count - i) : static_cast<int>(kLanes);
    take(Bits(test(Max(LoadFirst(x + i, n), lowest))) & ((1u << n) - 1u), i);
  }
  return found;
}

size_t CollectAbove(const float* x, size_t count, float threshold, size_t limit, uint32_t* out) {
  const V t = Set1(threshold);
  return Collect(x, count, limit, out, [t](V v) { return Less(t, v); });
}

size_t CollectEqual(const float* x, size_t count, float threshold, size_t limit, uint32_t* out) {
  const V t = Set1(threshold);
  return Collect(x, count, limit, out, [t](V v) { return Equal(t, v); });
}

constexpr RowOpsTable kTable = {
    .rms_norm = RmsNormRow,
    .rope_interleaved = RopeInterleavedHead,
    .rope_halves = RopeHalvesHead,
    .silu_gate = SiluGateRow,
    .gelu_gate = GeluGateRow,
    .scale = ScaleRow,
    .soft_cap = SoftCapRow,
    .add = AddRow,
    .exp = ExpRow,
    .half_from_float = HalfFromFloatRow,
    .float_from_half = FloatFromHalfRow,
    .arg_max = ArgMaxOf,
    .maximum = MaximumOf,
    .sum_exp = SumExpOf,
    .block_keys = BlockKeysOf,
    .collect_above = CollectAbove,
    .collect_equal = CollectEqual,
};
