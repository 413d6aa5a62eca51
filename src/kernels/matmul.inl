// Included once by the matmul_*.cc of each instruction set, inside the anonymous namespace of each:
// loops over row blocks, panels and tiles. Arithmetic is the including file's:
//   kTile<F>                     the format whose tiles serve F: unpacked they look alike
//   kExpandedBytes<F>            bytes of one unpacked 32-block of a panel
//   kPanelsAtOnce                panels that TilesExpanded takes side by side
//   kManyRowsTile                most rows of a tile beyond kFewRows rows
//   ExpandChunk<F>(panel, first_block, block_count, chunk, chunk_stride)
//                                panel bytes to what TilesExpanded reads
//   TilesExpanded<F, R, P>(chunk, run, ahead, sums)
//                                sums [R][P * 16] of each tile += 32-blocks in order; chunk
//                                [block][P]. One tile after the other: matmul_tiles.inl
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

// acc [rows][acc_stride] to `lanes` outputs of as many rows of `out`.
void StoreRows(const float* acc, uint32_t acc_stride, uint32_t rows, uint32_t lanes, bool add,
               float* out, size_t out_stride) {
  for (uint32_t r = 0; r < rows; ++r, acc += acc_stride, out += out_stride) {
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

// The sums in `acc` of one tile and one panel, complete, to where they go.
void StorePanel(const MatMulArgs& args, uint32_t row, uint32_t tile_rows, uint32_t panel,
                const float* acc) {
  StoreRows(acc, 16, tile_rows, LanesOf(args, panel, 1), args.add,
            args.out + row * args.out_stride + panel * 16, args.out_stride);
}

template <int F, int R, int P>
void TilesExpanded(const unsigned char* chunk, const TileRun& run, Ahead ahead, TileSums sums);

using ExpandedFn = void (*)(const unsigned char* chunk, const TileRun& run, Ahead ahead,
                            TileSums sums);
using DirectFn = void (*)(const unsigned char* panel, const unsigned char* activations,
                          uint32_t block_count, const unsigned char* prefetch_end, float* acc);
using FloatFn = void (*)(const unsigned char* panel, const float* x, size_t x_stride, uint32_t cols,
                         float* acc);

template <int F, int P>
constexpr ExpandedFn kExpandedTiles[kMaxTileRows] = {
    TilesExpanded<F, 1, P>,  TilesExpanded<F, 2, P>,  TilesExpanded<F, 3, P>,
    TilesExpanded<F, 4, P>,  TilesExpanded<F, 5, P>,  TilesExpanded<F, 6, P>,
    TilesExpanded<F, 7, P>,  TilesExpanded<F, 8, P>,  TilesExpanded<F, 9, P>,
    TilesExpanded<F, 10, P>, TilesExpanded<F, 11, P>, TilesExpanded<F, 12, P>};

template <int F>
constexpr FloatFn kFloatTiles[kMaxTileRows] = {
    TileFloat<F, 1>, TileFloat<F, 2>,  TileFloat<F, 3>,  TileFloat<F, 4>,
    TileFloat<F, 5>, TileFloat<F, 6>,  TileFloat<F, 7>,  TileFloat<F, 8>,
    TileFloat<F, 9>, TileFloat<F, 10>, TileFloat<F, 11>, TileFloat<F, 12>};

// Blocks of the chunks that `blocks` are cut into: evenly, each starting at a pair or a header.
template <int F>
uint32_t ChunkBlocks(uint32_t blocks) {
  constexpr uint32_t kStep = kPanelLayouts[F].header_bytes != 0 ? 2 * kPairsPerHeader : 2;
  // Of whole steps, or rounding up would go beyond what a chunk holds.
  constexpr uint32_t kMost = kChunkBlocks / kStep * kStep;
  static_assert(kMost > 0);
  const uint32_t chunks = (blocks + kMost - 1) / kMost;
  return ((blocks + chunks - 1) / chunks + kStep - 1) / kStep * kStep;
}

// The bytes where block `block`, the first of a chunk, begins in its panel.
template <int F>
size_t ChunkOffset(uint32_t block) {
  constexpr PanelLayout kLayout = kPanelLayouts[F];
  const uint32_t pair = block / 2;
  return size_t{pair} * kLayout.pair_bytes + size_t{pair / kPairsPerHeader} * kLayout.header_bytes;
}

// Tiles [tile_begin, tile_end), all of as many rows, against P panels from `panel` on: blocks
// [first_block, first_block + count), which `chunk` holds.
template <int F, int P>
void ChunkOfTiles(const MatMulArgs& args, const TileSplit& split, uint32_t tile_begin,
                  uint32_t tile_end, const unsigned char* chunk, uint32_t first_block,
                  uint32_t count, const Ahead& ahead, const TileSums& sums) {
  const uint32_t rows = split.base + (tile_begin < split.longer ? 1 : 0);
  const size_t block_bytes = size_t{rows} * kRecordBytes;
  const size_t tile_bytes = args.cols / 32 * block_bytes;
  const size_t offset = size_t{TileStart(split, tile_begin)} * (args.cols / 32) * kRecordBytes;
  TileRun run = {args.quantized + offset + first_block * block_bytes, tile_bytes,
                 tile_end - tile_begin, count, 0};
  // One chunk: the sums of one tile after the other use the same lines of L1.
  if (!sums.is_first || !sums.is_last) run.acc_step = rows * P * 16;
  kExpandedTiles<kTile<F>, P>[rows - 1](chunk, run, ahead, sums);
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
  const unsigned char* rows = args.quantized + size_t{first_row} * blocks * kRecordBytes;
  // Beyond the panels asked for: who shares out a matrix takes the next ones next, as a rule.
  const bool has_next = panel + 2 * P <= (args.out_rows + 15) / 16;
  for (uint32_t b = 0; b < blocks; b += chunk_blocks) {
    const uint32_t count = blocks - b < chunk_blocks ? blocks - b : chunk_blocks;
    const bool last = b + count == blocks;
    for (int p = 0; p < P; ++p) {
      ExpandChunk<F>(weights + p * args.panel_bytes, b, count, chunk + p * kExpandedBytes<F>,
                     P * kExpandedBytes<F>);
    }
    // The next chunk, or the first one of the next panels; the first tile again.
    Ahead ahead = {weights + ChunkOffset<F>(b + count), args.panel_bytes, 0, 0, rows};
    if (last) ahead.bytes = weights + P * args.panel_bytes;
    if (!last || has_next) {
      const size_t lines = (ChunkOffset<F>(chunk_blocks) + 63) / 64;
      const uint32_t tiles = tile_end - tile_begin;
      const uint32_t lines_per_tile = static_cast<uint32_t>((lines + tiles - 1) / tiles);
      ahead.bytes_per_tile = lines_per_tile * 64;
      ahead.bytes_per_block = (lines_per_tile + count - 1) / count * 64;
    }
    TileSums sums = {b == 0,
                     last,
                     args.add,
                     LanesOf(args, panel, P),
                     acc,
                     args.out + first_row * args.out_stride + panel * 16,
                     args.out_stride};
    // First the tiles of a row more than the others.
    const uint32_t longer = split.longer < tile_end ? split.longer : tile_end;
    uint32_t begin = tile_begin;
    if (begin < longer) {
      ChunkOfTiles<F, P>(args, split, begin, longer, chunk, b, count, ahead, sums);
      const uint32_t done = TileStart(split, longer) - first_row;
      if (!sums.is_first || !sums.is_last) sums.acc += done * P * 16;
      sums.out += done * args.out_stride;
      ahead.bytes += size_t{longer - begin} * ahead.bytes_per_tile;
      begin = longer;
    }
    if (begin < tile_end) {
      ChunkOfTiles<F, P>(args, split, begin, tile_end, chunk, b, count, ahead, sums);
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
  StorePanel(args, row, tile_rows, panel, acc);
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
      StorePanel(args, row, tile_rows, panel, acc);
    }
  }
}
