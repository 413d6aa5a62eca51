// Exponential, logistic function and hyperbolic tangent over V, the same for every instruction set.
// Included inside an anonymous namespace, after one of vec16_*.inl.

// e^x within 2 ulp. Below -87 exactly 0 (so no subnormal is ever made, and -infinity gives 0),
// above 88.73 infinity, NaN stays NaN.
//
// x = n ln2 + r with |r| <= ln2 / 2; e^r = 1 + r + r^2 q(r), q of degree 4 fitted for least
// relative error (3.3e-9, a twentieth of an ulp). n comes from adding 1.5 * 2^23, which rounds to
// nearest and leaves n in the low bits: no conversion whose NaN behaviour could differ.
inline V Exp(V x) {
  const V low = Set1(-87.0f);
  const V bounded = Max(low, Min(Set1(89.0f), x));
  const V shifted = Fma(bounded, Set1(0x1.715476p+0f), Set1(kRoundShift));
  const V n = Sub(shifted, Set1(kRoundShift));
  V r = Fma(n, Set1(-0x1.62e430p-1f), bounded);  // ln2 in two parts
  r = Fma(n, Set1(0x1.05c610p-29f), r);
  V q = Fma(Set1(0x1.6a1a72p-10f), r, Set1(0x1.123fc6p-7f));
  q = Fma(q, r, Set1(0x1.555916p-5f));
  q = Fma(q, r, Set1(0x1.55548ap-3f));
  q = Fma(q, r, Set1(0x1.fffffcp-2f));
  const V p = Add(Fma(Mul(r, r), q, r), Set1(1.0f));
  return Select(Less(x, low), Zero(), ScaleByPowerOf2(p, shifted, n));
}

// Exp of several vectors at once, the same bits for x <= 88 (and NaN): independent chains side by
// side, and no work for arguments that cannot occur.
template <int kCount>
inline void ExpBounded(V (&x)[kCount]) {
  const V low = Set1(-87.0f);
  V shifted[kCount], n[kCount], q[kCount], r[kCount];
  const auto each = [](auto op) {
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) op(i);
  };
  Mask keep[kCount];
  each([&](int i) { keep[i] = NotLess(x[i], low); });
  if constexpr (!kScaleSkips) each([&](int i) { x[i] = Max(low, x[i]); });
  each([&](int i) { shifted[i] = Fma(x[i], Set1(0x1.715476p+0f), Set1(kRoundShift)); });
  each([&](int i) { n[i] = Sub(shifted[i], Set1(kRoundShift)); });
  each([&](int i) { r[i] = Fma(n[i], Set1(-0x1.62e430p-1f), x[i]); });
  each([&](int i) { r[i] = Fma(n[i], Set1(0x1.05c610p-29f), r[i]); });
  each([&](int i) { q[i] = Fma(Set1(0x1.6a1a72p-10f), r[i], Set1(0x1.123fc6p-7f)); });
  each([&](int i) { q[i] = Fma(q[i], r[i], Set1(0x1.555916p-5f)); });
  each([&](int i) { q[i] = Fma(q[i], r[i], Set1(0x1.55548ap-3f)); });
  each([&](int i) { q[i] = Fma(q[i], r[i], Set1(0x1.fffffcp-2f)); });
  each([&](int i) { q[i] = Add(Fma(Mul(r[i], r[i]), q[i], r[i]), Set1(1.0f)); });
  each([&](int i) { x[i] = ScaleOrZero(keep[i], q[i], shifted[i], n[i]); });
}

// 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits.
inline V Logistic(V x) {
  const V e = Exp(NegAbs(x));
  const V one = Set1(1.0f);
  return Div(Select(Less(x, Zero()), e, one), Add(one, e));
}

// tanh(x) within 3 ulp: x + x^3 q(x^2) up to 0.625, q of degree 4 fitted for least relative error
// (4.4e-9), and 1 - 2 e / (1 + e) with e = e^-2|x| beyond, where nothing cancels. NaN stays NaN.
inline V Tanh(V x) {
  const V z = Mul(x, x);
  V q = Fma(Set1(-0x1.75e1dcp-8f), z, Set1(0x1.52269ep-6f));
  q = Fma(q, z, Set1(-0x1.b83c5ap-5f));
  q = Fma(q, z, Set1(0x1.110726p-3f));
  q = Fma(q, z, Set1(-0x1.555532p-2f));
  const V near = Fma(Mul(x, z), q, x);
  const V e = Exp(Mul(Set1(2.0f), NegAbs(x)));
  const V far = Sub(Set1(1.0f), Div(Add(e, e), Add(Set1(1.0f), e)));
  const V signed_far = Select(Less(x, Zero()), Sub(Zero(), far), far);
  return Select(Less(NegAbs(x), Set1(-0.625f)), signed_far, near);
}
