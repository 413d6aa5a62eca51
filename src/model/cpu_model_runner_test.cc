// The forward pass on tiny models: what it counts, and that sharing blocks changes no bit. That its
// numbers are right is tested on real models (tests/golden).
#include "model/cpu_model_runner.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/huge_buffer.h"
#include "kernels/attention.h"
#include "kernels/logits_row.h"
#include "kernels/row_ops.h"
#include "model/architecture.h"
#include "model/tiny_model_for_test.h"

namespace kvasir {
namespace {

constexpr uint32_t kBlockTokens = 16;

// A tiny model, ready to run.
class TinyRunner {
 public:
  TinyRunner(const std::string& arch, const TinyShape& shape, int workers,
             const WeightsLoadOptions& loading = {})
      : bytes_(TinyModel(arch, shape)), team_(workers) {
    file_ = std::make_unique<GgufFile>(*GgufFile::Parse(BytesOf(bytes_)));
    config_ = *ReadModelConfig(*file_);
    weights_ = std::make_unique<Weights>(*Weights::Load(*file_, config_, team_, loading));
    StepLimits limits;
    limits.max_rows = 64;
    limits.max_sequences = 8;
    limits.max_logits_rows = 16;
    runner_ = *CpuModelRunner::Create(config_, *weights_, kBlockTokens, limits, team_);
  }

  const ModelConfig& config() const { return config_; }
  const Weights& weights() const { return *weights_; }
  CpuModelRunner& runner() { return *runner_; }

 private:
  std::string bytes_;
  WorkerTeam team_;
  std::unique_ptr<GgufFile> file_;
  ModelConfig config_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<CpuModelRunner> runner_;
};

std::vector<TokenId> RandomTokens(uint32_t count, uint64_t seed, uint32_t vocab) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < count; ++i) {
    tokens.push_back(TokenId{static_cast<int32_t>(rng.Below(vocab))});
  }
  return tokens;
}

// The tokens of one sequence and KV blocks for them.
class Stream {
 public:
  Stream(const KvLayout& layout, std::vector<TokenId> tokens)
      : layout_(layout), tokens_(std::move(tokens)) {
    const size_t blocks = (tokens_.size() + kBlockTokens - 1) / kBlockTokens;
    for (uint32_t g = 0; g < layout.group_count(); ++g) {
      buffers_.push_back(*HugeBuffer::Allocate(blocks * layout.block_bytes(g)));
      for (size_t b = 0; b < blocks; ++b) {
        addresses_[g].push_back(buffers_[g].data() + b * layout.block_bytes(g));
      }
    }
  }

  // From now on the first `count` blocks are those of `other`.
  void ShareBlocks(const Stream& other, uint32_t count) {
    for (size_t g = 0; g < buffers_.size(); ++g) {
      std::copy_n(other.addresses_[g].begin(), count, addresses_[g].begin());
    }
  }

  BatchSequence Rows(uint32_t start, uint32_t count, uint32_t logits_begin) const {
    BatchSequence sequence;
    sequence.tokens = std::span<const TokenId>(tokens_).subspan(start, count);
    sequence.start = start;
    sequence.logits_begin = logits_begin;
    for (size_t g = 0; g < buffers_.size(); ++g) sequence.blocks[g] = addresses_[g];
    return sequence;
  }

  // Computes tokens [start, end) alone.
  void Prefill(CpuModelRunner& runner, uint32_t start, uint32_t end) const {
    for (uint32_t p = start; p < end; p += 50) {
      Batch batch;
      const uint32_t count = std::min(50u, end - p);
      batch.sequences = {Rows(p, count, count)};
      runner.Run(batch);
    }
  }

  bool SameBlocks(const Stream& other) const {
    for (uint32_t g = 0; g < buffers_.size(); ++g) {
      for (size_t b = 0; b < addresses_[g].size(); ++b) {
        const size_t bytes = layout_.block_bytes(g);
        if (std::memcmp(addresses_[g][b], other.addresses_[g][b], bytes) != 0) return false;
      }
    }
    return true;
  }

 private:
  KvLayout layout_;
  std::vector<TokenId> tokens_;
  std::vector<HugeBuffer> buffers_;
  std::array<std::vector<std::byte*>, kMaxKvGroups> addresses_;
};

size_t MatrixBytes(const PackedMatrix& matrix) {
  return matrix.panel_count() * PackedPanelBytes(matrix.format, matrix.cols);
}

// Every matrix of the layers once, the head when logits are wanted, and a row of embeddings each.
uint64_t WeightBytes(const Weights& weights, uint32_t rows, bool logits) {
  uint64_t bytes = logits ? MatrixBytes(weights.head()) : 0;
  for (const LayerWeights& layer : weights.layers()) {
    for (const PackedMatrix* matrix :
         {&layer.q, &layer.k, &layer.v, &layer.attn_output, &layer.gate, &layer.up, &layer.down}) {
      bytes += MatrixBytes(*matrix);
    }
  }
  const PackedMatrix& table = weights.token_embedding();
  return bytes + rows * PackedPanelBytes(table.format, table.cols) / kPanelRows;
}

// K and V units that a single row at `position` sees, in all layers and KV heads.
uint64_t KvBytesOfRow(const ModelConfig& config, uint32_t position) {
  uint64_t units = 0;
  for (const LayerConfig& layer : config.layers) {
    const uint32_t first =
        layer.window == 0 || position < layer.window ? 0 : position - layer.window + 1;
    units += position / kUnitTokens + 1 - first / kUnitTokens;
  }
  return 2 * units * config.kv_head_count * kUnitTokens * config.head_dim * sizeof(uint16_t);
}

TEST(CpuModelRunner, CountsWhatAStepMoves) {
  for (const char* arch : {"llama", "gemma3"}) {
    for (const int workers : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << arch << " " << workers);
      TinyRunner tiny(arch, {.layers = 7}, workers);
      const ModelConfig& config = tiny.config();
      const Stream stream(tiny.runner().kv_layout(), RandomTokens(100, 1, config.vocab_size));
      Batch prefill;
      prefill.sequences = {stream.Rows(0, 40, 40)};
      tiny.runner().Run(prefill);
      const uint64_t kv_row = uint64_t{config.layer_count} * 2 * config.kv_width() * 2;
      StepCounters step = tiny.runner().last_step();
      EXPECT_EQ(step.rows, 40u);
      EXPECT_EQ(step.weight_bytes, WeightBytes(tiny.weights(), 40, false));
      EXPECT_EQ(step.kv_written_bytes, 40 * kv_row);

      Batch decode;
      decode.sequences = {stream.Rows(40, 1, 0)};
      tiny.runner().Run(decode);
      step = tiny.runner().last_step();
      EXPECT_EQ(step.steps, 1u);
      EXPECT_EQ(step.rows, 1u);
      EXPECT_EQ(step.weight_bytes, WeightBytes(tiny.weights(), 1, true));
      EXPECT_EQ(step.kv_written_bytes, kv_row);
      EXPECT_EQ(step.kv_read_bytes, KvBytesOfRow(config, 40));
      EXPECT_EQ(step.barriers, uint64_t{config.layer_count} * 5 + 3);
      tiny.runner().Run(decode);
      EXPECT_EQ(tiny.runner().last_step().barriers, step.barriers);
      EXPECT_EQ(tiny.runner().last_step().kv_read_bytes, step.kv_read_bytes);
      EXPECT_EQ(tiny.runner().totals().steps, 3u);
      EXPECT_EQ(tiny.runner().totals().rows, 42u);
    }
  }
}

// The largest logit of each row, and the bits of all of them.
struct LogitsOf {
  std::vector<uint32_t> largest;
  std::vector<uint32_t> largest_bits;
  std::vector<float> all;

  LogitsOf(CpuModelRunner& runner, const Batch& batch) {
    runner.Run(batch);
    for (uint32_t row = 0; row < batch.logits_row_count(); ++row) {
      const std::span<const float> logits = runner.logits(row);
      largest.push_back(ArgMax(logits));
      largest_bits.push_back(std::bit_cast<uint32_t>(logits[largest.back()]));
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  bool SameLargest(const LogitsOf& other) const {
    return largest == other.largest && largest_bits == other.largest_bits;
  }
};

// Rows that each worker normalizes itself, a long chunk with few logits, and drafts.
TEST(CpuModelRunner, AHeadWithASketchIsReadInPartWhereTheLargestIsAllThatIsAskedFor) {
  struct Case {
    uint32_t rows;
    uint32_t logits_rows;
    bool scans;
  };
  const Case cases[] = {{1, 1, true}, {5, 5, true}, {8, 8, true}, {40, 3, true}, {12, 9, false}};
  const TinyShape shape = {.d_model = 128, .vocab = 1000, .q8_head = true};
  WeightsLoadOptions loading;
  loading.head_sketch = true;
  for (const char* arch : {"llama", "gemma3", "gemma2"}) {
    for (const int workers : {1, 3}) {
      TinyRunner tiny(arch, shape, workers, loading);
      const HeadSketch* sketch = tiny.weights().head_sketch();
      ASSERT_NE(sketch, nullptr);
      CpuModelRunner& runner = tiny.runner();
      const Stream stream(runner.kv_layout(), RandomTokens(40, 1, shape.vocab));
      for (const Case& one : cases) {
        SCOPED_TRACE(testing::Message() << arch << " " << workers << " " << one.rows);
        Batch batch;
        batch.sequences = {stream.Rows(0, one.rows, one.rows - one.logits_rows)};
        const LogitsOf whole(runner, batch);
        ASSERT_EQ(runner.last_step().weight_bytes, WeightBytes(tiny.weights(), one.rows, true));
        batch.sequences[0].arg_max_only = true;
        const LogitsOf scanned(runner, batch);
        EXPECT_TRUE(scanned.SameLargest(whole));
        if (!one.scans) {
          EXPECT_EQ(scanned.all, whole.all);
          continue;
        }
        // What was read: the sketch, and of the head some panels, one at least.
        const uint64_t others = WeightBytes(tiny.weights(), one.rows, false);
        const uint64_t sketch_bytes = sketch->panel_count() * sketch->panel_bytes();
        const uint64_t panel_bytes =
            MatrixBytes(tiny.weights().head()) / tiny.weights().head().panel_count();
        ASSERT_GE(runner.last_step().weight_bytes, others + sketch_bytes + panel_bytes);
        const uint64_t of_head = runner.last_step().weight_bytes - others - sketch_bytes;
        EXPECT_EQ(of_head % panel_bytes, 0u);
        EXPECT_LT(of_head, MatrixBytes(tiny.weights().head()));
      }
    }
  }
}

TEST(CpuModelRunner, OneSequenceThatWantsItsLogitsGetsThemWholeBesideOthers) {
  WeightsLoadOptions loading;
  loading.head_sketch = true;
  TinyRunner tiny("llama", {.d_model = 128, .vocab = 1000, .q8_head = true}, 2, loading);
  const Stream a(tiny.runner().kv_layout(), RandomTokens(3, 1, 1000));
  const Stream b(tiny.runner().kv_layout(), RandomTokens(3, 2, 1000));
  const Stream none(tiny.runner().kv_layout(), RandomTokens(3, 3, 1000));
  Batch batch;
  batch.sequences = {a.Rows(0, 3, 2), b.Rows(0, 3, 2), none.Rows(0, 3, 3)};
  const LogitsOf whole(tiny.runner(), batch);
  batch.sequences[0].arg_max_only = true;
  EXPECT_EQ(LogitsOf(tiny.runner(), batch).all, whole.all);
  // One that asks for no logits does not stand in the way.
  batch.sequences[1].arg_max_only = true;
  const LogitsOf scanned(tiny.runner(), batch);
  EXPECT_TRUE(scanned.SameLargest(whole));
  EXPECT_NE(scanned.all, whole.all);
}

// The same batch over copied and over shared blocks of a prefix that ends inside a chunk: the same
// logits and KV, and the prefix is read once instead of five times. One row a sequence, and drafts.
TEST(CpuModelRunner, SharedBlocksAreReadOnceAndChangeNothing) {
  constexpr uint32_t kPrefix = 300;
  constexpr uint32_t kSharedBlocks = kPrefix / kBlockTokens;
  constexpr uint32_t kSequences = 5;
  for (const char* arch : {"llama", "gemma2", "gemma3", "qwen3", "phi3"}) {
    for (const uint32_t drafts : {1u, 3u}) {
      SCOPED_TRACE(testing::Message() << arch << " " << drafts);
      TinyRunner tiny(arch, {.layers = 7, .context = 512, .window = 100}, 2);
      const KvLayout& layout = tiny.runner().kv_layout();
      const uint32_t vocab = tiny.config().vocab_size;
      const std::vector<TokenId> prefix = RandomTokens(kPrefix, 1, vocab);
      std::vector<Stream> copied;
      std::vector<Stream> shared;
      Batch over_copied;
      Batch over_shared;
      for (uint32_t s = 0; s < kSequences; ++s) {
        std::vector<TokenId> tokens = prefix;
        const std::vector<TokenId> own = RandomTokens(20 + s, s + 2, vocab);
        tokens.insert(tokens.end(), own.begin(), own.end());
        copied.emplace_back(layout, tokens);
        shared.emplace_back(layout, tokens);
      }
      for (uint32_t s = 0; s < kSequences; ++s) {
        if (s > 0) shared[s].ShareBlocks(shared[0], kSharedBlocks);
        const uint32_t start = kPrefix + 20 + s - drafts;
        copied[s].Prefill(tiny.runner(), 0, start);
        shared[s].Prefill(tiny.runner(), s == 0 ? 0 : kSharedBlocks * kBlockTokens, start);
        over_copied.sequences.push_back(copied[s].Rows(start, drafts, drafts - 1));
        over_shared.sequences.push_back(shared[s].Rows(start, drafts, drafts - 1));
      }
      tiny.runner().Run(over_copied);
      const StepCounters alone = tiny.runner().last_step();
      std::vector<std::vector<float>> logits;
      for (uint32_t s = 0; s < kSequences; ++s) {
        const std::span<const float> row = tiny.runner().logits(s);
        logits.emplace_back(row.begin(), row.end());
      }
      tiny.runner().Run(over_shared);
      const StepCounters together = tiny.runner().last_step();
      for (uint32_t s = 0; s < kSequences; ++s) {
        const std::span<const float> row = tiny.runner().logits(s);
        EXPECT_EQ(std::memcmp(row.data(), logits[s].data(), row.size_bytes()), 0) << s;
        EXPECT_TRUE(shared[s].SameBlocks(copied[s])) << s;
      }
      EXPECT_EQ(together.kv_written_bytes, alone.kv_written_bytes);
      EXPECT_EQ(together.barriers, alone.barriers);
      uint32_t full_layers = 0;
      for (const LayerConfig& layer : tiny.config().layers) full_layers += layer.window == 0;
      const uint64_t once = uint64_t{kSharedBlocks} * full_layers * 2 * tiny.config().kv_width() *
                            kBlockTokens * sizeof(uint16_t);
      const uint64_t saved = alone.kv_read_bytes - together.kv_read_bytes;
      if (full_layers == tiny.config().layer_count) {
        EXPECT_EQ(saved, (kSequences - 1) * once);
      } else {
        EXPECT_GT(saved, (kSequences - 1) * once);  // And shared units inside the windows.
      }
    }
  }
}

TEST(CpuModelRunner, LogitsComeWithNotesOfTheirBlocks) {
  for (const auto& [arch, workers] : {std::pair("llama", 1), {"llama", 3}, {"gemma2", 2}}) {
    TinyRunner tiny(arch, {.vocab = 3 * kLogitsBlock + 40}, workers);
    const uint32_t vocab = tiny.config().vocab_size;
    const Stream quiet(tiny.runner().kv_layout(), RandomTokens(12, 1, vocab));
    const Stream asks(tiny.runner().kv_layout(), RandomTokens(3, 2, vocab));
    Batch batch;
    batch.sequences = {quiet.Rows(0, 12, 11), asks.Rows(0, 3, 1)};
    batch.sequences[1].wants_log_sums = true;
    tiny.runner().Run(batch);
    for (uint32_t row = 0; row < 3; ++row) {
      const LogitsRow noted = tiny.runner().logits_row(row);
      std::vector<float> maxima(LogitsBlocks(vocab));
      std::vector<float> sums(LogitsBlocks(vocab));
      SummarizeBlocks(tiny.runner().logits(row), maxima, sums);
      EXPECT_EQ(std::vector<float>(noted.maxima.begin(), noted.maxima.end()), maxima);
      if (std::string_view(arch) == "gemma2") {
        // Notes are of the capped row: 30 is the cap.
        EXPECT_LE(maxima[0], 30.0f);
      }
      if (row == 0) sums.clear();
      EXPECT_EQ(std::vector<float>(noted.sums.begin(), noted.sums.end()), sums);
    }
  }
}

TEST(CpuModelRunner, ProfileCoversTheStepOnlyWhenWanted) {
  TinyRunner tiny("llama", {}, 2);
  const Stream stream(tiny.runner().kv_layout(), RandomTokens(20, 1, tiny.config().vocab_size));
  Batch batch;
  batch.sequences = {stream.Rows(0, 20, 19)};
  StepProfile profile;
  tiny.runner().set_profile(&profile);
  tiny.runner().Run(batch);
  const uint64_t total = profile.total();
  EXPECT_GT(total, 0u);
  for (const StepPhase phase : {StepPhase::kQkv, StepPhase::kAttention, StepPhase::kHead}) {
    EXPECT_GT(profile.phases[static_cast<size_t>(phase)].work, 0u);
  }
  tiny.runner().set_profile(nullptr);
  tiny.runner().Run(batch);
  EXPECT_EQ(profile.total(), total);
}

}  // namespace
}  // namespace kvasir
