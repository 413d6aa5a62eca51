// The gate of promise P1: one prompt, computed in every way that the engine knows, gives the same
// KV bytes and the same logits, compared with memcmp.
//
// Ways: single steps; chunks of 7, 64 and 512; beside strangers in the batch; 1, 2 and 3 threads;
// block sizes 16 to 256; AVX-512, AVX2 and scalar kernels; through the KvCache as miss, hit and
// fork.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/rng.h"
#include "kernels/isa.h"
#include "kv/kv_cache.h"
#include "tests/golden/golden_model.h"
#include "tests/golden/tiny_variants.h"

namespace kvasir {
namespace {

constexpr uint32_t kLogitsRows = 3;  // Logits of the last positions are compared.

struct Outcome {
  std::vector<float> kv;
  std::vector<float> logits;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Way {
  Isa isa = SupportedIsas().back();
  int threads = 2;
  uint32_t block_tokens = 16;
  uint32_t chunk = 64;
  KvTypes types;
};

std::unique_ptr<CpuModelRunner> MakeRunner(const GoldenModel& model, const Way& way,
                                           WorkerTeam& team) {
  StepLimits limits;
  limits.max_rows = 512;
  limits.max_sequences = 8;
  limits.max_logits_rows = 16;
  auto runner = CpuModelRunner::Create(model.config, model.weights, way.block_tokens, limits, team,
                                       way.types);
  EXPECT_TRUE(runner.ok());
  return std::move(runner).value();
}

Outcome Compute(const GoldenModel& model, const std::vector<TokenId>& tokens, const Way& way) {
  SetActiveIsa(way.isa);
  WorkerTeam team(way.threads);
  const auto runner = MakeRunner(model, way, team);
  const uint32_t count = static_cast<uint32_t>(tokens.size());
  const PlainKv kv(runner->kv_layout(), count);
  Outcome outcome;
  RunInChunks(*runner, kv, tokens, way.chunk, count - kLogitsRows,
              [&](uint32_t, std::span<const float> logits) {
                outcome.logits.insert(outcome.logits.end(), logits.begin(), logits.end());
              });
  outcome.kv = kv.Gather(0, count);
  SetActiveIsa(SupportedIsas().back());
  return outcome;
}

// The prompt in chunks of random size, beside four sequences of other lengths and depths.
Outcome ComputeBesideStrangers(const GoldenModel& model, const std::vector<TokenId>& tokens,
                               const Way& way) {
  WorkerTeam team(2);
  const auto runner = MakeRunner(model, way, team);
  const uint32_t count = static_cast<uint32_t>(tokens.size());
  Rng rng(7);
  struct Stream {
    std::vector<TokenId> tokens;
    PlainKv kv;
    uint32_t done = 0;
  };
  std::vector<Stream> streams;
  streams.push_back({tokens, PlainKv(runner->kv_layout(), count)});
  for (int i = 0; i < 4; ++i) {
    std::vector<TokenId> other(count + 100);
    for (TokenId& token : other) {
      token = TokenId{static_cast<int32_t>(rng.Below(model.config.vocab_size))};
    }
    streams.push_back({other, PlainKv(runner->kv_layout(), count + 100)});
  }
  Outcome outcome;
  while (streams[0].done < count) {
    Batch batch;
    std::vector<size_t> members;
    // The prompt's place in the batch changes from step to step.
    const size_t first = rng.Below(streams.size());
    for (size_t i = 0; i < streams.size(); ++i) {
      Stream& stream = streams[(first + i) % streams.size()];
      const uint32_t left = static_cast<uint32_t>(stream.tokens.size()) - stream.done;
      const uint32_t want = static_cast<uint32_t>(rng.Below(3) == 0 ? 1 : rng.Between(1, 60));
      if (left == 0) continue;
      BatchSequence sequence;
      sequence.tokens = std::span(stream.tokens).subspan(stream.done, std::min(left, want));
      sequence.start = stream.done;
      const uint32_t size = static_cast<uint32_t>(sequence.tokens.size());
      const bool is_prompt = &stream == &streams[0];
      const uint32_t from = count - kLogitsRows;
      sequence.logits_begin =
          is_prompt ? (from <= stream.done ? 0 : std::min(size, from - stream.done)) : size;
      sequence.blocks = stream.kv.blocks();
      sequence.tail = stream.kv.tail(stream.done);
      batch.sequences.push_back(sequence);
      stream.done += size;
    }
    runner->Run(batch);
    for (uint32_t i = 0; i < batch.logits_row_count(); ++i) {
      const std::span<const float> row = runner->logits(i);
      outcome.logits.insert(outcome.logits.end(), row.begin(), row.end());
    }
  }
  outcome.kv = streams[0].kv.Gather(0, count);
  return outcome;
}

// Runs the rest of an open sequence through the cache and returns the logits of the last position.
std::vector<float> Finish(KvCache& cache, ModelRunner& runner, SequenceId id,
                          const std::vector<TokenId>& tokens) {
  std::vector<float> logits;
  while (cache.computed(id) < tokens.size()) {
    const uint32_t start = cache.computed(id);
    const uint32_t count = std::min<uint32_t>(100, static_cast<uint32_t>(tokens.size()) - start);
    EXPECT_TRUE(cache.Reserve(id, count));
    BatchSequence sequence;
    sequence.tokens = std::span<const TokenId>(tokens).subspan(start, count);
    sequence.start = start;
    sequence.logits_begin = start + count == tokens.size() ? count - 1 : count;
    for (uint32_t g = 0; g < cache.layout().groups.size(); ++g) {
      sequence.blocks[g] = cache.table(id, g).addresses();
    }
    sequence.tail = cache.tail(id);
    Batch batch;
    batch.sequences.push_back(sequence);
    runner.Run(batch);
    cache.Commit(id, sequence.tokens);
    if (batch.logits_row_count() == 1) {
      const std::span<const float> row = runner.logits(0);
      logits.assign(row.begin(), row.end());
    }
  }
  return logits;
}

void ExpectSameThroughCache(const GoldenModel& model, const std::vector<TokenId>& tokens,
                            const Outcome& expected, const Way& way) {
  WorkerTeam team(2);
  const auto runner = MakeRunner(model, way, team);
  KvCache::Options options;
  options.layout = runner->kv_layout();
  options.memory_bytes = uint64_t{256} << 20;
  options.max_sequences = 4;
  options.max_sequence_tokens = 2048;
  auto cache = KvCache::Create(options);
  ASSERT_TRUE(cache.ok());
  const std::vector<float> last(expected.logits.end() - model.config.vocab_size,
                                expected.logits.end());
  const BlockHash root{};
  const auto run = [&](const std::vector<TokenId>& prompt, uint32_t* reused) {
    const std::optional<SequenceId> id = (*cache)->Open(root, prompt);
    *reused = (*cache)->computed(*id);
    const std::vector<float> logits = Finish(**cache, *runner, *id, prompt);
    (*cache)->Close(*id);
    return logits;
  };
  uint32_t reused = 0;
  EXPECT_TRUE(SameBits(run(tokens, &reused), last)) << "miss";
  EXPECT_EQ(reused, 0u);
  EXPECT_TRUE(SameBits(run(tokens, &reused), last)) << "full hit";
  const size_t all = tokens.size() - 1;
  // Staged keys: whole blocks, the last one that was begun after not among them.
  EXPECT_EQ(reused, (*cache)->layout().staged() ? all / 16 * 16 : all);
  // A prompt that leaves the cached one in the middle, and then the first one again.
  std::vector<TokenId> other = tokens;
  for (size_t i = other.size() / 2 + 3; i < other.size(); ++i) other[i] = TokenId{5};
  const Outcome other_expected = Compute(model, other, way);
  EXPECT_TRUE(SameBits(run(other, &reused), {other_expected.logits.end() - model.config.vocab_size,
                                             other_expected.logits.end()}))
      << "partial hit";
  EXPECT_GE(reused, tokens.size() / 2 / 16 * 16);
  EXPECT_TRUE(SameBits(run(tokens, &reused), last)) << "hit after a neighbour";

  // Two branches of a fork write behind the same partial block.
  const std::vector<TokenId> stem(tokens.begin(), tokens.end() - 5);
  const std::optional<SequenceId> a = (*cache)->Open(root, stem);
  Finish(**cache, *runner, *a, stem);
  const std::optional<SequenceId> b = (*cache)->Fork(*a);
  std::vector<TokenId> branch = stem;
  branch.insert(branch.end(), 5, TokenId{9});
  Finish(**cache, *runner, *b, branch);
  EXPECT_TRUE(SameBits(Finish(**cache, *runner, *a, tokens), last)) << "beside a forked branch";
}

// Every way on one model.
void ExpectSameInEveryWay(const GoldenModel& model, const std::vector<TokenId>& tokens,
                          KvTypes types) {
  Way usual;
  usual.types = types;
  const Outcome expected = Compute(model, tokens, usual);
  ASSERT_EQ(expected.logits.size(), size_t{kLogitsRows} * model.config.vocab_size);
  const auto expect_same = [&](const Outcome& outcome, const std::string& name) {
    EXPECT_TRUE(outcome.kv == expected.kv) << "KV bytes differ: " << name;
    EXPECT_TRUE(SameBits(outcome.logits, expected.logits)) << "logits differ: " << name;
  };
  for (const uint32_t chunk : {1u, 7u, 512u}) {
    Way way = usual;
    way.chunk = chunk;
    expect_same(Compute(model, tokens, way), "chunk " + std::to_string(chunk));
  }
  for (const int threads : {1, 3}) {
    Way way = usual;
    way.threads = threads;
    expect_same(Compute(model, tokens, way), std::to_string(threads) + " threads");
  }
  for (const uint32_t block_tokens : {32u, 128u, 256u}) {
    Way way = usual;
    way.block_tokens = block_tokens;
    expect_same(Compute(model, tokens, way), "blocks of " + std::to_string(block_tokens));
  }
  expect_same(ComputeBesideStrangers(model, tokens, usual), "beside strangers");
  ExpectSameThroughCache(model, tokens, expected, usual);

  for (const Isa isa : SupportedIsas()) {
    // Scalar code is slow: a short prompt says as much about the arithmetic.
    const std::vector<TokenId> some(tokens.begin(),
                                    isa == Isa::kScalar ? tokens.begin() + 40 : tokens.end());
    Way way = usual;
    const Outcome best = Compute(model, some, way);
    way.isa = isa;
    way.chunk = isa == Isa::kScalar ? 13 : 512;
    const Outcome outcome = Compute(model, some, way);
    EXPECT_TRUE(outcome.kv == best.kv) << "KV bytes differ: " << IsaName(isa);
    EXPECT_TRUE(SameBits(outcome.logits, best.logits)) << "logits differ: " << IsaName(isa);
  }
}

void RunGate(const char* file_name, KvTypes types) {
  const std::optional<std::string> path = GoldenModelPath(file_name);
  if (!path.has_value()) return;
  std::vector<TokenId> tokens = LoadGoldenRows(file_name)[0].tokens;
  tokens.resize(600);  // Across Gemma's window of 512 and two borders of 256.
  ExpectSameInEveryWay(LoadGoldenModel(*path), tokens, types);
}

// The same on small random models of every architecture, but those that `skips` names.
void RunGateOnVariants(KvTypes types, const std::function<bool(const TinyVariant&)>& skips) {
  size_t count = 0;
  for (const TinyVariant& variant : LoadTinyVariants()) {
    if (skips(variant)) continue;
    SCOPED_TRACE(variant.name);
    const std::string path = testing::TempDir() + "/gate_" + variant.name + ".gguf";
    std::ofstream(path, std::ios::binary) << variant.file;
    const GoldenModel& model = LoadGoldenModel(path);
    std::filesystem::remove(path);  // It stays mapped.
    Rng rng(11);
    std::vector<TokenId> tokens(300);  // Beyond every window, and across a border of 256.
    for (TokenId& token : tokens) {
      token = TokenId{static_cast<int32_t>(rng.Below(model.config.vocab_size))};
    }
    ExpectSameInEveryWay(model, tokens, types);
    ++count;
  }
  EXPECT_GE(count, 8u);
}

constexpr KvTypes kInt8{KvType::kInt8, KvType::kInt8};
constexpr KvTypes kInt4{KvType::kInt4, KvType::kInt4};
constexpr KvTypes kMixed{KvType::kInt8, KvType::kInt4};

bool IsDeep(const TinyVariant& variant) { return variant.name.find("27b") != std::string::npos; }
// What meets the quantized kernels in a way of its own: caps, biases, fused and turned parts.
bool IsPlain(const TinyVariant& variant) {
  for (const char* part :
       {"gemma2_caps", "gemma2_window", "gemma3_bools", "head_80", "qwen2_untied", "biases",
        "phi3_long", "phi3_window", "phi3_partial", "mistral_window"}) {
    if (variant.name.find(part) != std::string::npos) return false;
  }
  return true;
}

TEST(InvarianceGate, EveryArchitecture) { RunGateOnVariants({}, IsDeep); }
TEST(InvarianceGate, EveryArchitectureInt8) { RunGateOnVariants(kInt8, IsPlain); }
TEST(InvarianceGate, EveryArchitectureInt4) { RunGateOnVariants(kInt4, IsPlain); }
TEST(InvarianceGate, SmolLm2) { RunGate(kSmolLm2, {}); }
TEST(InvarianceGate, Gemma3) { RunGate(kGemma3, {}); }
TEST(InvarianceGate, SmolLm2Int8) { RunGate(kSmolLm2, kInt8); }
TEST(InvarianceGate, Gemma3Int8) { RunGate(kGemma3, kInt8); }
TEST(InvarianceGate, SmolLm2Int4) { RunGate(kSmolLm2, kInt4); }
TEST(InvarianceGate, Gemma3Int4) { RunGate(kGemma3, kInt4); }
TEST(InvarianceGate, SmolLm2KeysInt8ValuesInt4) { RunGate(kSmolLm2, kMixed); }

}  // namespace
}  // namespace kvasir
