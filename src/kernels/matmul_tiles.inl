// Included after matmul.inl by instruction sets that compute one tile at a time and keep its sums
// in memory:
//   TileExpanded<F, R, P>(chunk, activations, block_count, acc)
//                                acc [R][P * 16] += 32-blocks in order; chunk [block][P]

// Tells the cache that lines of `rows` rows will be written: they come from the last-level cache
// when there are many, and stores wait for them in order.
void PrefetchStores(const TileSums& sums, uint32_t rows) {
  const float* out = sums.out;
  for (uint32_t r = 0; r < rows; ++r, out += sums.out_stride) {
    for (uint32_t i = 0; i < sums.lanes; i += 16) __builtin_prefetch(out + i, 1);
  }
}

template <int F, int R, int P>
void TilesExpanded(const unsigned char* chunk, const TileRun& run, Ahead, TileSums sums) {
  const unsigned char* activations = run.activations;
  for (uint32_t tile = 0; tile < run.tile_count; ++tile) {
    if (sums.is_first) {
      for (int i = 0; i < R * P * 16; ++i) sums.acc[i] = 0.0f;
    }
    if (sums.is_last) PrefetchStores(sums, R);
    TileExpanded<F, R, P>(chunk, activations, run.block_count, sums.acc);
    if (sums.is_last) {
      StoreRows(sums.acc, P * 16, R, sums.lanes, sums.add, sums.out, sums.out_stride);
    }
    activations += run.tile_bytes;
    sums.acc += run.acc_step;
    sums.out += R * sums.out_stride;
  }
}
