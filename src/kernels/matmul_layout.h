// The bytes that the matmul kernels of all instruction sets share: panels, activation tiles, and
// the table of functions each set exports. Internal to kernels/.
//
// No function here, and no header beyond the plain C ones: what an instruction set's translation
// unit instantiates inline, the linker might choose for the whole program.
//
// Panel of 16 output rows (quantized): 32-blocks of k in pairs; before every fourth pair of a
// K-quant a header of 64 bytes (f16 d[16], then f16 dmin[16] for Q2_K, Q4_K and Q5_K). In a pair,
// first the code lines of both blocks, then bit planes of both, then scales of both. A line of 64
// bytes is [16 rows][4 consecutive k]: it holds k-group g (k = 4g..4g+3). Nibble line j: group 2j
// in the low nibbles, 2j+1 in the high ones. An odd last block has a zero partner that no kernel
// reads.
//   Q4_0  4 nibble lines                                  scales: f16 d[16]
//   Q4_1  4 nibble lines                                  scales: f16 d[16], f16 m[16]
//   Q5_0  4 nibble lines, plane: bit g = bit 4 of group g scales: f16 d[16]
//   Q8_0  8 byte lines (q + 128)                          scales: f16 d[16]
//   Q4_K  4 nibble lines                                  scales: u8 scale[16], u8 min[16]
//   Q6_K  4 nibble lines, 2 planes: bits 2t, 2t+1 of plane p = bits 4, 5 of group 4p+t
//                                                         scales: i8 [2 halves of 16 k][16]
//   Q5_1   as Q5_0, and the minima of Q4_1                scales: f16 d[16], f16 m[16]
//   Q5_K   as Q4_K, and the plane of Q5_0                 scales: u8 scale[16], u8 min[16]
//   Q2_K   no lines, 2 planes: bits 2t, 2t+1 of plane p = group 4p+t
//                                           scales: u8 [2 halves][16], minima in the high nibbles
//   Q3_K   no lines, 2 planes as Q2_K, plane: bit g = bit 2 of group g
//                                                         scales: i8 [2 halves of 16 k][16]
//   IQ4_NL 4 nibble lines (of table codes, as below)      scales: f16 d[16]
//   IQ4_XS 4 nibble lines                                 scales: i8 scale[16], 16 bytes unused
//   MXFP4  4 nibble lines                                 scales: bf16 d[16]
// Panel of F32, F16, BF16: [k][16].
//
// Activation tile of R <= 12 rows (rows are shared out evenly, TileSplit in matmul.inl; beyond
// kFewRows tiles have as many rows as the instruction set likes best, Kernels::tile_rows): one
// record of 64 * R bytes per 32-block: int8 q[R][32], then eight arrays [R] of 4 bytes at the slots
// below. A record is one cache line when R is 1: that is what decoding one sequence streams
// through.
#ifndef KVASIR_KERNELS_MATMUL_LAYOUT_H_
#define KVASIR_KERNELS_MATMUL_LAYOUT_H_

#include <stddef.h>
#include <stdint.h>

namespace kvasir::matmul {

// Numbers of WeightFormat's members; matmul.cc asserts that they agree.
enum Format : int {
  kF32,
  kF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ8_0,
  kQ4_K,
  kQ6_K,
  kBF16,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ5_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kFormatCount
};

struct PanelLayout {
  uint32_t header_bytes;  // Before every fourth pair.
  uint32_t pair_bytes;    // Two 32-blocks.
  uint32_t line_bytes;    // Code lines of one block.
  uint32_t plane_offset;  // In the pair, first block's.
  uint32_t plane_bytes;   // Of one block.
  uint32_t scale_offset;  // In the pair, first block's.
  uint32_t scale_bytes;   // Of one block.
  int scales;             // Of one block and output: 2 when its halves have scales of their own.
  int minima;
};
constexpr PanelLayout kPanelLayouts[kFormatCount] = {
    {0, 0, 0, 0, 0, 0, 0, 0, 0},              // F32
    {0, 0, 0, 0, 0, 0, 0, 0, 0},              // F16
    {0, 576, 256, 0, 0, 512, 32, 1, 0},       // Q4_0
    {0, 640, 256, 0, 0, 512, 64, 1, 1},       // Q4_1
    {0, 704, 256, 512, 64, 640, 32, 1, 0},    // Q5_0
    {0, 1088, 512, 0, 0, 1024, 32, 1, 0},     // Q8_0
    {64, 576, 256, 0, 0, 512, 32, 1, 1},      // Q4_K
    {64, 832, 256, 512, 128, 768, 32, 2, 0},  // Q6_K
    {0, 0, 0, 0, 0, 0, 0, 0, 0},              // BF16
    {0, 768, 256, 512, 64, 640, 64, 1, 1},    // Q5_1
    {64, 320, 0, 0, 128, 256, 32, 2, 2},      // Q2_K
    {64, 448, 0, 0, 192, 384, 32, 2, 0},      // Q3_K
    {64, 704, 256, 512, 64, 640, 32, 1, 1},   // Q5_K
    {0, 576, 256, 0, 0, 512, 32, 1, 0},       // IQ4_NL
    {64, 576, 256, 0, 0, 512, 32, 1, 0},      // IQ4_XS
    {0, 576, 256, 0, 0, 512, 32, 1, 0},       // MXFP4
};
constexpr uint32_t kPairsPerHeader = 4;

// What the codes of table formats stand for: a cubic, and the values of FP4 (E2M1) doubled. Kernels
// add 128 where they want unsigned bytes.
constexpr signed char kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
constexpr signed char kFp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The integer sums are kept as the low bits of the float 1.5 * 2^23 + sum: as long as |sum| < 2^22
// its bits are kMagicBits + sum (32 * 128 * 127 < 2^19 here). Times d, less 1.5 * 2^23 * d, both in
// one fused multiply-add, is d * sum rounded once: no conversion, no product of scales. For that
// the product 1.5 * 2^23 * d must be exact and finite, so d has 22 bits and is below 2^104.
constexpr int32_t kMagicBits = 0x4B400000;
constexpr float kMagic = 12582912.0f;

// Slots of an activation record: array s lies at R * (32 + 4 * s).
enum Slot : int {
  kSlotScale,       // f32 d
  kSlotMinusMagic,  // f32 -kMagic * d
  kSlotScaleSum,    // f32 d * sum(q): multiplies the weights' minimum
  kSlotZero8,       // i32 kMagicBits - 8 * sum(q), and so on: the integer accumulator starts here
  kSlotZero16,
  kSlotZero128,
  kSlotZero32Low,   // i32 kMagicBits - 32 * sum(q[0..15])
  kSlotZero32High,  // i32 kMagicBits - 32 * sum(q[16..31])
};
constexpr uint32_t kRecordBytes = 64;  // Per activation row and 32-block.
constexpr uint32_t kMaxTileRows = 12;
constexpr uint32_t kFewRows = 24;
constexpr uint32_t kMaxRowBlock = 518;  // 74 tiles of 7 (RowBlocks in matmul.cc).
// 32-blocks unpacked at once, at most: two panels of 20 * 640 bytes (Q2_K: 768) and a tile's
// activations take 34 KiB. At least 8, so that every chunk can start at a header.
constexpr uint32_t kChunkBlocks = 20;

// What tiles fetch ahead of, a few lines per 32-block computed: the packed bytes of the next chunk,
// and the activations of the next tile.
struct Ahead {
  const unsigned char* bytes;  // Of the first panel's; the others lie panel_stride apart.
  size_t panel_stride;
  uint32_t bytes_per_tile;           // Of each panel; 0: nothing.
  uint32_t bytes_per_block;          // A multiple of 64.
  const unsigned char* activations;  // Behind the run of tiles.
};

// Tiles of equally many rows, one after the other, of which the same 32-blocks are taken.
struct TileRun {
  const unsigned char* activations;  // The first tile's first block.
  size_t tile_bytes;                 // From one tile's activations to the next one's.
  uint32_t tile_count;
  uint32_t block_count;
  size_t acc_step;  // From one tile's sums to the next one's, in floats; 0: they share a place.
};

// Where the sums of tiles' rows begin and where they go. Rows of `out` lie out_stride apart.
struct TileSums {
  bool is_first;   // They begin at zero; otherwise in acc.
  bool is_last;    // They go to out; otherwise to acc.
  bool add;        // To what out holds.
  uint32_t lanes;  // Outputs of the panels side by side; the padding of the last one is none.
  float* acc;      // The first tile's, [R][panels * 16].
  float* out;      // The first tile's first row and output.
  size_t out_stride;
};

struct MatMulArgs {
  const unsigned char* weights;  // Panel 0.
  size_t panel_bytes;
  uint32_t out_rows;
  uint32_t panel_begin;
  uint32_t panel_end;
  uint32_t cols;
  uint32_t rows;
  uint32_t row_blocks;  // Rows are gone through in so many blocks of whole tiles,
  uint32_t row_block;   // of which this is one.
  const unsigned char* quantized;
  const float* values;
  bool add;
  float* out;
  size_t out_stride;
};

// One per instruction set. mat_mul is indexed by format. quantize_row fills row r of a tile of
// tile_rows rows from x [32 * blocks].
using MatMulFn = void (*)(const MatMulArgs& args);
struct Kernels {
  uint32_t tile_rows;  // Of tiles, at most, if there are more than kFewRows rows.
  MatMulFn mat_mul[kFormatCount];
  void (*quantize_row)(const float* x, uint32_t blocks, uint32_t tile_rows, uint32_t r,
                       unsigned char* tile);
};
extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;

// Formats whose AVX-512 kernels are compiled in a file of their own (matmul_more_avx512.cc).
void MatMulBf16Avx512(const MatMulArgs& args);
void MatMulQ51Avx512(const MatMulArgs& args);
void MatMulQ2KAvx512(const MatMulArgs& args);
void MatMulQ3KAvx512(const MatMulArgs& args);
void MatMulQ5KAvx512(const MatMulArgs& args);
void MatMulIq4NlAvx512(const MatMulArgs& args);
void MatMulIq4XsAvx512(const MatMulArgs& args);
void MatMulMxfp4Avx512(const MatMulArgs& args);

}  // namespace kvasir::matmul

#endif  // KVASIR_KERNELS_MATMUL_LAYOUT_H_
