// One tile of a matrix product in double: up to 4 weight rows times 8 activation rows. Included
// once per instruction set by reference_matmul.cc, which defines TILE_NAME and TILE_TARGET.
//
// Each of the 4 x 8 sums has its own lane and adds its products in index order, one rounding for
// the product and one for the sum (no fused multiply-add), so all instruction sets give the same
// bits.
//   w    weight row o at w + o * w_stride, `depth` values each; rows beyond w_rows are not read
//   x    [depth][8]
//   out  sum of row o, lane r, to out[o * 8 + r], o < w_rows
TILE_TARGET void TILE_NAME(const double* w, size_t w_stride, size_t w_rows, const double* x,
                           size_t depth, double* out) {
  const double* w0 = w;
  const double* w1 = w + (w_rows > 1 ? w_stride : 0);
  const double* w2 = w + (w_rows > 2 ? 2 * w_stride : 0);
  const double* w3 = w + (w_rows > 3 ? 3 * w_stride : 0);
  Lanes sum0 = {};
  Lanes sum1 = {};
  Lanes sum2 = {};
  Lanes sum3 = {};
  for (size_t k = 0; k < depth; ++k) {
    Lanes row;
    std::memcpy(&row, x + k * kLanes, sizeof(row));
    sum0 += row * w0[k];
    sum1 += row * w1[k];
    sum2 += row * w2[k];
    sum3 += row * w3[k];
  }
  const Lanes* sums[4] = {&sum0, &sum1, &sum2, &sum3};
  for (size_t o = 0; o < w_rows; ++o) std::memcpy(out + o * kLanes, sums[o], sizeof(Lanes));
}
