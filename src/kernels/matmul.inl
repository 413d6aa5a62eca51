// Included once by the matmul_*.cc of each instruction set, inside the anonymous namespace of each:
// loops over row blocks, panels and tiles. Arithmetic is the including file's:
//   kTile<F>                     the format whose TileExpanded serves F: unpacked they look alike
//   kExpandedBytes<F>            bytes of one unpacked 32-block of a panel
//   kPanelsAtOnce                panels that TileExpanded takes side by side
//   kManyRowsTile                most rows of a tile beyond kFewRows rows
//   kTilesStore                  TileExpanded heeds all of TileSums; otherwise it adds to sums.acc
//   ExpandChunk<F>(panel, first_block, block_count, chunk, chunk_stride)
//                                panel bytes to what TileExpanded reads
//   TileExpanded<F, R, P>(chunk, activations, block_count, ahead, sums)
//                                sums [R][P * 16] += 32-blocks in order; chunk [block][P]
//   kDirectUpTo<F>               rows up to which unpacking in the tile is the faster way
//   kDirectTiles<F>[R - 1]       DirectFn (for R up to kDirectUpTo and kMaxTileRows)
//   TileFloat<F, R>(panel, x, x_stride, cols, acc)
//
// Numerics: for every output, f32 acc = 0, then for each 32-block in order
//   acc = fma(m_w, d_a * sum(q_a), acc)            formats with a minimum
//   acc = fma(d_a * (sum(q_w * q_a) - zero * sum(q_a)), d_w, acc)     the product rounded
// (Q2_K, Q3_K, Q6_K: each line for both halves of the block, with their scales; Q2_K's minima come
// last. The minimum needs no dot product, so it is done while those are on their way.) F32, F16,
// BF16: s = 0, s = fma(w, x, s) over the 32 k in order, acc = acc + s. Whatever an instruction set
// does otherwise is exact.

// Rows go to tiles evenly, longer tiles first: 9 rows are 5 + 4, not 8 + 1.
struct TileSplit {
  uint32_t count;
  uint32_t base;
  uint32_t longer;
};

TileSplit SplitRows(uint32_t rows, uint32_t most) {
  TileSplit split;
  split.count = (rows + most - 1) / most;
  split.base = rows / split.count;
  split.longer = rows % split.count;
  return split;
}

uint32_t TileStart(const TileSplit& split, uint32_t tile) {
  return tile * split.base + (tile < split.longer ? tile : split.longer);
}

// acc [row_count][acc_stride] to rows from first_row on, `lanes` outputs from first_out on.
void StoreTile(const MatMulArgs& args, uint32_t first_out, uint32_t lanes, uint32_t first_row,
               uint32_t row_count, const float* acc, uint32_t acc_stride) {
  float* out = args.out + first_row * args.out_stride + first_out;
  const size_t out_stride = args.out_stride;
  const bool add = args.add;
  for (uint32_t r = 0; r < row_count; ++r, acc += acc_stride, out += out_stride) {
    uint32_t i = 0;
    for (; i + 16 <= lanes; i += 16) {
      float sum[16];
      for (int lane = 0; lane < 16; ++lane) sum[lane] = acc[i + lane];
      if (add) {
        for (int lane = 0; lane < 16; ++lane) sum[lane] = out[i + lane] + sum[lane];
      }
      for (int lane = 0; lane < 16; ++lane) out[i + lane] = sum[lane];
    }
    for (; i < lanes; ++i) out[i] = add ? out[i] + acc[i] : acc[i];
  }
}

// Outputs of `panels` panels from `panel` on; the padding of the last one is none.
uint32_t LanesOf(const MatMulArgs& args, uint32_t panel, uint32_t panels) {
  const uint32_t left = args.out_rows - panel * 16;
  return left < panels * 16 ? left : panels * 16;
}

using ExpandedFn = void (*)(const unsigned char* chunk, const unsigned char* activations,
                            uint32_t block_count, const Ahead& ahead, const TileSums& sums);
using DirectFn = void (*)(const unsigned char* panel, const unsigned char* activations,
                          uint32_t block_count, const unsigned char* prefetch_end, float* acc);
using FloatFn = void (*)(const unsigned char* panel, const float* x, size_t x_stride, uint32_t cols,
                         float* acc);

template <int F, int P>
constexpr ExpandedFn kExpandedTiles[kMaxTileRows] = {
    TileExpanded<F, 1, P>, TileExpanded<F, 2, P>,  TileExpanded<F, 3, P>,  TileExpanded<F, 4, P>,
    TileExpanded<F, 5, P>, TileExpanded<F, 6, P>,  TileExpanded<F, 7, P>,  TileExpanded<F, 8, P>,
    TileExpanded<F, 9, P>, TileExpanded<F, 10, P>, TileExpanded<F, 11, P>, TileExpanded<F, 12, P>};

template <int F>
constexpr FloatFn kFloatTiles[kMaxTileRows] = {
    TileFloat<F, 1>, TileFloat<F, 2>,  TileFloat<F, 3>,  TileFloat<F, 4>,
    TileFloat<F, 5>, TileFloat<F, 6>,  TileFloat<F, 7>,  TileFloat<F, 8>,
    TileFloat<F, 9>, TileFloat<F, 10>, TileFloat<F, 11>, TileFloat<F, 12>};

// Blocks of the chunks that `blocks` are cut into: evenly, each starting at a pair or a header.
template <int F>
uint32_t ChunkBlocks(uint32_t blocks) {
  constexpr uint32_t kStep = kPanelLayouts[F].header_bytes != 0 ? 2 * kPairsPerHeader : 2;
  const uint32_t chunks = (blocks + kChunkBlocks - 1) / kChunkBlocks;
  return ((blocks + chunks - 1) / chunks + kStep - 1) / kStep * kStep;
}

// The bytes where block `block`, the first of a chunk, begins in its panel.
template <int F>
size_t ChunkOffset(uint32_t block) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  const uint32_t pair = block / 2;
  return size_t{pair} * kLayout.pair_bytes + size_t{pair / kPairsPerHeader} * kLayout.header_bytes;
}

// Tells the cache that lines of `lanes` floats in rows from first_row on will be written: they come
// from the last-level cache when there are many rows, and stores wait for them in order.
void PrefetchStores(const MatMulArgs& args, uint32_t first_out, uint32_t lanes, uint32_t first_row,
                    uint32_t row_count) {
  const float* out = args.out + first_row * args.out_stride + first_out;
  for (uint32_t r = 0; r < row_count; ++r, out += args.out_stride) {
    for (uint32_t i = 0; i < lanes; i += 16) __builtin_prefetch(out + i, 1);
  }
}

// One tile against P panels' chunk.
template <int F, int P>
void TileOfRows(uint32_t tile_rows, uint32_t first_out, const MatMulArgs& args,
                const unsigned char* chunk, const unsigned char* activations, uint32_t block_count,
                uint32_t row, const Ahead& ahead, const TileSums& sums) {
  if (!kTilesStore) {
    if (sums.is_first) {
      for (uint32_t i = 0; i < tile_rows * P * 16; ++i) sums.acc[i] = 0.0f;
    }
    if (sums.is_last) PrefetchStores(args, first_out, sums.lanes, row, tile_rows);
  }
  kExpandedTiles<kTile<F>, P>[tile_rows - 1](chunk, activations, block_count, ahead, sums);
  if (!kTilesStore && sums.is_last) {
    StoreTile(args, first_out, sums.lanes, row, tile_rows, sums.acc, P * 16);
  }
}

// Tiles [tile_begin, tile_end) against P panels from `panel` on, unpacking them chunk by chunk into
// L1 once for all.
template <int F, int P>
void PanelsExpanded(const MatMulArgs& args, const TileSplit& split, uint32_t tile_begin,
                    uint32_t tile_end, uint32_t panel) {
  alignas(64) unsigned char chunk[kChunkBlocks * P * kExpandedBytes<F>];
  alignas(64) float acc[kMaxRowBlock * P * 16];
  const unsigned char* weights = args.weights + panel * args.panel_bytes;
  const uint32_t blocks = args.cols / 32;
  const uint32_t chunk_blocks = ChunkBlocks<F>(blocks);
  const uint32_t first_row = TileStart(split, tile_begin);
  // Beyond the panels asked for: who shares out a matrix takes the next ones next, as a rule.
  const bool has_next = panel + 2 * P <= (args.out_rows + 15) / 16;
  for (uint32_t b = 0; b < blocks; b += chunk_blocks) {
    const uint32_t count = blocks - b < chunk_blocks ? blocks - b : chunk_blocks;
    const bool last = b + count == blocks;
    for (int p = 0; p < P; ++p) {
      ExpandChunk<F>(weights + p * args.panel_bytes, b, count, chunk + p * kExpandedBytes<F>,
                     P * kExpandedBytes<F>);
    }
    // The next chunk, or the first one of the next panels.
    Ahead ahead = {weights + ChunkOffset<F>(b + count), args.panel_bytes, 0, nullptr};
    if (last) ahead.bytes = weights + P * args.panel_bytes;
    if (!last || has_next) {
      const size_t bytes = ChunkOffset<F>(chunk_blocks) / (count * (tile_end - tile_begin));
      ahead.bytes_per_block = static_cast<uint32_t>(bytes / 64 + 1) * 64;
    }
    TileSums sums = {b == 0,  last,    args.add,       LanesOf(args, panel, P),
                     nullptr, nullptr, args.out_stride};
    for (uint32_t tile = tile_begin; tile < tile_end; ++tile) {
      const uint32_t row = TileStart(split, tile);
      const uint32_t tile_rows = split.base + (tile < split.longer ? 1 : 0);
      const unsigned char* activations =
          args.quantized + (size_t{row} * blocks + size_t{b} * tile_rows) * kRecordBytes;
      const unsigned char* block_rows = args.quantized + size_t{first_row} * blocks * kRecordBytes;
      if (tile + 1 < tile_end) {
        ahead.activations = activations + size_t{blocks} * tile_rows * kRecordBytes;
      } else {  // From the first tile again.
        ahead.activations = last ? block_rows : block_rows + (b + count) * tile_rows * kRecordBytes;
      }
      // One chunk: the sums of one tile after the other use the same lines of L1.
      sums.acc = chunk_blocks < blocks ? acc + (row - first_row) * P * 16 : acc;
      sums.out = args.out + row * args.out_stride + panel * 16;
      TileOfRows<F, P>(tile_rows, panel * 16, args, chunk, activations, count, row, ahead, sums);
      ahead.bytes += size_t{count} * ahead.bytes_per_block;
    }
  }
}

// One panel straight from the packed bytes: for few rows.
template <int F>
void PanelDirect(const MatMulArgs& args, const TileSplit& split, uint32_t tile, uint32_t panel) {
  alignas(64) float acc[kMaxTileRows * 16];
  const unsigned char* weights = args.weights + panel * args.panel_bytes;
  const uint32_t blocks = args.cols / 32;
  const uint32_t row = TileStart(split, tile);
  const uint32_t tile_rows = split.base + (tile < split.longer ? 1 : 0);
  // Beyond the panels asked for: who shares out a matrix takes the next ones next, as a rule.
  const unsigned char* end = args.weights + (args.out_rows + 15) / 16 * args.panel_bytes;
  kDirectTiles<F>[tile_rows - 1](weights, args.quantized + size_t{row} * blocks * kRecordBytes,
                                 blocks, tile == 0 ? end : weights, acc);
  StoreTile(args, panel * 16, LanesOf(args, panel, 1), row, tile_rows, acc, 16);
}

template <int F>
void MatMulQuantized(const MatMulArgs& args) {
  const TileSplit split =
      SplitRows(args.rows, args.rows <= kFewRows ? kMaxTileRows : kManyRowsTile);
  if constexpr (kDirectUpTo < F >> 0) {
    static_assert(kDirectUpTo<F> <= kFewRows);
    if (args.rows <= kDirectUpTo<F>) {
      for (uint32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
        for (uint32_t tile = 0; tile < split.count; ++tile)
          PanelDirect<F>(args, split, tile, panel);
      }
      return;
    }
  }
  const uint32_t tiles = (split.count + args.row_blocks - 1) / args.row_blocks;
  const uint32_t begin = args.row_block * tiles;
  if (begin >= split.count) return;
  const uint32_t end = split.count - begin < tiles ? split.count : begin + tiles;
  uint32_t panel = args.panel_begin;
  for (; panel + kPanelsAtOnce <= args.panel_end; panel += kPanelsAtOnce) {
    PanelsExpanded<F, kPanelsAtOnce>(args, split, begin, end, panel);
  }
  for (; panel < args.panel_end; ++panel) PanelsExpanded<F, 1>(args, split, begin, end, panel);
}

template <int F>
void MatMulFloat(const MatMulArgs& args) {
  alignas(64) float acc[kMaxTileRows * 16];
  const TileSplit split = SplitRows(args.rows, kMaxTileRows);
  const uint32_t begin = split.count * args.row_block / args.row_blocks;
  const uint32_t end = split.count * (args.row_block + 1) / args.row_blocks;
  for (uint32_t panel = args.panel_begin; panel < args.panel_end; ++panel) {
    const unsigned char* weights = args.weights + panel * args.panel_bytes;
    for (uint32_t tile = begin; tile < end; ++tile) {
      const uint32_t row = TileStart(split, tile);
      const uint32_t tile_rows = split.base + (tile < split.longer ? 1 : 0);
      kFloatTiles<F>[tile_rows - 1](weights, args.values + size_t{row} * args.cols, args.cols,
                                    args.cols, acc);
      StoreTile(args, panel * 16, LanesOf(args, panel, 1), row, tile_rows, acc, 16);
    }
  }
}
