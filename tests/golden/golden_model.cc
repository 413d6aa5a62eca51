#include "tests/golden/golden_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "kernels/attention.h"

namespace kvasir {
namespace {

std::string ModelsDir() {
  if (const char* dir = std::getenv("KVASIR_MODELS_DIR")) return dir;
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/kvasir/models";
}

GoldenPosition ParsePosition(uint32_t position, const nlohmann::json& logsumexp,
                             const nlohmann::json& ids, const nlohmann::json& logits) {
  return {position, logsumexp.get<double>(), ids.get<std::vector<uint32_t>>(),
          logits.get<std::vector<double>>()};
}

template <typename T>
T Require(StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "golden model: %s\n", std::string(MessageOf(value.status())).c_str());
    std::abort();
  }
  return std::move(value).value();
}

}  // namespace

std::optional<std::string> GoldenModelPath(const std::string& file_name) {
  const std::string path = ModelsDir() + "/" + file_name;
  if (std::filesystem::exists(path)) return path;
  const auto report = [&] {
    if (std::getenv("KVASIR_REQUIRE_MODELS") != nullptr) {
      FAIL() << path << " is missing; ./dev test fetches it";
    } else {
      GTEST_SKIP() << path << " is missing; ./dev test fetches it";
    }
  };
  report();
  return std::nullopt;
}

const GoldenModel& LoadGoldenModel(const std::string& path) {
  static std::map<std::string, std::unique_ptr<GoldenModel>> loaded;
  std::unique_ptr<GoldenModel>& slot = loaded[path];
  if (slot == nullptr) {
    MappedFile file = Require(MappedFile::Open(path));
    GgufFile gguf = Require(GgufFile::Parse(file.bytes()));
    ModelConfig config = Require(ReadModelConfig(gguf));
    WorkerTeam team(WorkerTeam::UsableCores());
    Weights weights = Require(Weights::Load(gguf, config, team, {}));
    slot = std::make_unique<GoldenModel>(
        GoldenModel{std::move(file), std::move(gguf), std::move(config), std::move(weights)});
  }
  return *slot;
}

std::vector<GoldenRow> LoadGoldenRows(const std::string& model_file_name) {
  const std::string name = model_file_name == kGemma3 ? "gemma3-270m-q4_k_m-logits.json"
                                                      : "smollm2-135m-instruct-q4_1-logits.json";
  std::ifstream stream(std::string(KVASIR_GOLDEN_DIR) + "/" + name);
  const nlohmann::json json = nlohmann::json::parse(stream);
  std::vector<GoldenRow> rows;
  for (const nlohmann::json& source : json["rows"]) {
    GoldenRow row;
    row.label = source["label"];
    row.text = source["text"];
    for (const int32_t id : source["tokens"]) row.tokens.push_back(TokenId{id});
    row.nll_sum = source["nll_sum"];
    for (const nlohmann::json& p : source["positions"]) {
      row.positions.push_back(ParsePosition(p["position"], p["logsumexp"], p["ids"], p["logits"]));
    }
    uint32_t position = 0;
    for (const nlohmann::json& p : source["every"]) {
      row.every.push_back(ParsePosition(position++, p[0], p[1], p[2]));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

PlainKv::PlainKv(const KvLayout& layout, uint32_t token_count) : layout_(layout) {
  const uint32_t blocks = (token_count + layout.block_tokens - 1) / layout.block_tokens;
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const size_t block_bytes = layout.block_bytes(g);
    buffers_.push_back(Require(HugeBuffer::Allocate(blocks * block_bytes)));
    std::vector<std::byte*>& addresses = addresses_.emplace_back();
    // Backwards, so that nothing can rely on blocks being neighbours in order.
    for (uint32_t b = blocks; b > 0; --b) {
      addresses.push_back(buffers_[g].data() + (b - 1) * block_bytes);
    }
    // Stale bytes of the worst kind: all ones is a NaN in half precision.
    std::memset(buffers_[g].data(), 0xFF, buffers_[g].size());
    if (!layout.staged()) continue;
    tails_.push_back(Require(HugeBuffer::Allocate(layout.tail_bytes(g))));
    std::memset(tails_[g].data(), 0xFF, tails_[g].size());
  }
}

std::array<std::span<std::byte* const>, kMaxKvGroups> PlainKv::blocks() const {
  std::array<std::span<std::byte* const>, kMaxKvGroups> blocks;
  for (size_t g = 0; g < addresses_.size(); ++g) blocks[g] = addresses_[g];
  return blocks;
}

KvTail PlainKv::tail(uint32_t start) const {
  KvTail tail;
  for (size_t g = 0; g < tails_.size(); ++g) tail.memory[g] = tails_[g].data();
  tail.complete = !tails_.empty() && start > 0 && start % kUnitTokens == 0;
  return tail;
}

std::vector<float> PlainKv::Gather(uint32_t begin, uint32_t end) const {
  std::vector<float> out;
  const auto k_type = static_cast<StoredType>(layout_.types.k);
  const auto v_type = static_cast<StoredType>(layout_.types.v);
  for (uint32_t g = 0; g < layout_.group_count(); ++g) {
    const KvGroup& group = layout_.groups[g];
    const uint32_t dim = group.head_dim;
    for (uint32_t layer = 0; layer < group.layers.size(); ++layer) {
      for (uint32_t head = 0; head < group.kv_heads; ++head) {
        for (uint32_t t = begin; t < end; ++t) {
          const std::byte* block = addresses_[g][t / layout_.block_tokens];
          const uint32_t unit = t % layout_.block_tokens / kUnitTokens;
          const std::byte* k =
              block + layout_.k_offset(g, layer, head) + unit * layout_.k_unit_bytes(g);
          const std::byte* v =
              block + layout_.v_offset(g, layer, head) + unit * layout_.v_unit_bytes(g);
          const bool in_tail = !tails_.empty() && t / kUnitTokens == (end - 1) / kUnitTokens;
          if (in_tail) k = tails_[g].data() + layout_.tail_offset(g, layer, head);
          for (uint32_t d = 0; d < dim; ++d) {
            out.push_back(StoredK(in_tail ? StoredType::kF16 : k_type, dim, k, t % kUnitTokens, d));
            out.push_back(StoredV(v_type, dim, v, t % kUnitTokens, d));
          }
        }
      }
    }
  }
  return out;
}

void RunInChunks(ModelRunner& runner, const PlainKv& kv, const std::vector<TokenId>& tokens,
                 uint32_t chunk, uint32_t logits_from, const LogitsVisitor& visit) {
  chunk = std::min(chunk, runner.limits().max_rows);
  for (uint32_t start = 0; start < tokens.size();) {
    const uint32_t count = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - start);
    BatchSequence sequence;
    sequence.tokens = std::span<const TokenId>(tokens).subspan(start, count);
    sequence.start = start;
    sequence.logits_begin = logits_from <= start ? 0 : std::min(count, logits_from - start);
    sequence.blocks = kv.blocks();
    sequence.tail = kv.tail(start);
    Batch batch;
    batch.sequences.push_back(sequence);
    KV_CHECK_LE(batch.logits_row_count(), runner.limits().max_logits_rows);
    runner.Run(batch);
    for (uint32_t i = 0; i < batch.logits_row_count(); ++i) {
      visit(start + sequence.logits_begin + i, runner.logits(i));
    }
    start += count;
  }
}

}  // namespace kvasir
