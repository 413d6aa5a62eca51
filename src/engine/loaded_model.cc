#include "engine/loaded_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/byte_size.h"
#include "base/counted.h"
#include "base/huge_buffer.h"

namespace kvasir {
namespace {

uint64_t BlockBytesOfAllGroups(const KvLayout& layout) {
  uint64_t bytes = 0;
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    bytes += layout.block_bytes(group);
  }
  return bytes;
}

// One block more than the tokens need: a sequence that starts inside a cached block copies it.
// Static slots share nothing.
uint64_t SpareBlocks(KvStrategy strategy) { return strategy == KvStrategy::kStatic ? 0 : 1; }

struct KvSize {
  uint32_t blocks = 0;  // In each group.
  uint32_t context_tokens = 0;
};

StatusOr<KvSize> SizeKv(const LoadedModelOptions& options, const ModelConfig& config,
                        const KvLayout& layout) {
  if (options.context_tokens > config.context_length) {
    return InvalidArgument("a context of {} tokens is more than the model's {}; {}",
                           options.context_tokens, config.context_length,
                           options.context_advice.empty()
                               ? fmt::format("give --ctx {}", config.context_length)
                               : options.context_advice);
  }
  const uint64_t wanted_context =
      options.context_tokens == 0 ? config.context_length : options.context_tokens;
  const uint64_t block_bytes = BlockBytesOfAllGroups(layout);
  const uint64_t block_tokens = layout.block_tokens;
  const uint64_t spare = SpareBlocks(options.kv_strategy);
  const uint64_t sequence_blocks = (wanted_context + block_tokens - 1) / block_tokens + spare;
  const uint64_t wanted_blocks = sequence_blocks * options.max_sequences;
  const uint64_t tail_bytes = TailStore::SlotBytes(layout) * options.max_sequences;
  const uint64_t bytes = options.kv_bytes != 0 ? options.kv_bytes
                                               : std::min(wanted_blocks * block_bytes + tail_bytes,
                                                          options.kv_bytes_cap);
  const std::string tails = tail_bytes == 0
                                ? std::string()
                                : fmt::format(" ({} of them for the newest keys of {})", tail_bytes,
                                              Counted(options.max_sequences, "sequence"));
  const uint64_t block_room = bytes > tail_bytes ? bytes - tail_bytes : 0;
  const uint64_t blocks = std::min<uint64_t>(block_room / block_bytes, UINT32_MAX - 1);
  if (blocks < 1 + spare) {
    // For the context that was asked for: else what is advised would be refused next.
    const bool any_context = options.context_tokens == 0;
    const uint64_t least = (any_context ? 1 + spare : sequence_blocks) * block_bytes;
    const std::string purpose =
        any_context ? "" : fmt::format(" for a context of {} tokens", wanted_context);
    std::string fewer;  // Sequences, whose newest keys then leave room.
    if (tail_bytes > 0 && bytes > least) {
      const uint64_t fit = (bytes - least) / TailStore::SlotBytes(layout);
      if (fit > 0)
        fewer =
            fmt::format(", or no more than {} at a time (--max-batch)", Counted(fit, "sequence"));
    }
    return InvalidArgument(
        "KV memory of {} is too small; this model needs at least {}{}{}: give --kv-memory {}{}",
        Counted(bytes, "byte"), least + tail_bytes, tails, purpose,
        SizeForAtLeast(least + tail_bytes), fewer);
  }
  const uint64_t most_context = (blocks - spare) * block_tokens;
  if (options.context_tokens > most_context) {
    const uint64_t needed = sequence_blocks * block_bytes + tail_bytes;
    return InvalidArgument(
        "a context of {} tokens needs {} bytes of KV memory{}, there are {}: give --kv-memory {} "
        "or {}",
        options.context_tokens, needed, tails, bytes, SizeForAtLeast(needed),
        options.context_advice.empty() ? fmt::format("--ctx {}", most_context)
                                       : options.context_advice);
  }
  return KvSize{static_cast<uint32_t>(blocks),
                static_cast<uint32_t>(std::min(wanted_context, most_context))};
}

KvRope RopeOf(const ModelConfig& config, const KvGroup& group) {
  KvRope rope;
  rope.base = config.layers[group.layers.front()].rope_base;
  rope.dimensions = config.rope_dim;
  rope.neox = config.rope_pairing == RopePairing::kHalves;
  return rope;
}

}  // namespace

StatusOr<std::unique_ptr<LoadedModel>> LoadedModel::Load(
    std::span<const std::span<const std::byte>> parts, const LoadedModelOptions& options) {
  KV_ASSIGN_OR_RETURN(GgufFile gguf, GgufFile::ParseParts(parts));
  std::unique_ptr<LoadedModel> model(new LoadedModel(std::move(gguf)));
  KV_ASSIGN_OR_RETURN(model->config_, ReadModelConfig(model->file_, options.context_tokens));
  KV_ASSIGN_OR_RETURN(model->text_, TextModel::Load(model->file_));
  if (model->text_->tokenizer().vocab_size() > model->config_.vocab_size) {
    return InvalidArgument("the tokenizer has {} tokens, the embedding only {} rows",
                           model->text_->tokenizer().vocab_size(), model->config_.vocab_size);
  }
  // Before the weights: a wish that cannot be granted is refused before the long part.
  const KvLayout layout = KvLayoutFor(model->config_, options.block_tokens, options.kv_types);
  KV_RETURN_IF_ERROR(layout.Validate());
  KV_RETURN_IF_ERROR(SizeKv(options, model->config_, layout).status());

  KV_ASSIGN_OR_RETURN(model->team_, WorkerTeam::Create(options.thread_count));
  KV_ASSIGN_OR_RETURN(Weights weights,
                      Weights::Load(model->file_, model->config_, *model->team_, options.loading));
  model->weights_ = std::make_unique<Weights>(std::move(weights));
  KV_ASSIGN_OR_RETURN(model->runner_,
                      CpuModelRunner::Create(model->config_, *model->weights_, options.block_tokens,
                                             options.limits, *model->team_, options.kv_types));
  KV_RETURN_IF_ERROR(model->CreateKv(options));
  KV_RETURN_IF_ERROR(model->RefuseWeightsOfNaN());
  return model;
}

Status LoadedModel::RefuseWeightsOfNaN() {
  const KvLayout& layout = runner_->kv_layout();
  constexpr TokenId kToken{0};
  std::array<HugeBuffer, kMaxKvGroups> blocks, tails;
  std::array<std::byte*, kMaxKvGroups> addresses{};
  Batch batch;
  BatchSequence& sequence = batch.sequences.emplace_back();
  sequence.tokens = {&kToken, 1};
  for (uint32_t g = 0; g < layout.group_count(); ++g) {
    KV_ASSIGN_OR_RETURN(blocks[g], HugeBuffer::Allocate(layout.block_bytes(g)));
    addresses[g] = blocks[g].data();
    sequence.blocks[g] = {&addresses[g], 1};
    if (layout.tail_bytes(g) == 0) continue;
    KV_ASSIGN_OR_RETURN(tails[g], HugeBuffer::Allocate(layout.tail_bytes(g)));
    sequence.tail.memory[g] = tails[g].data();
  }
  runner_->Run(batch);
  const std::span<const float> logits = runner_->logits(0);
  const auto bad = std::find_if_not(logits.begin(), logits.end(),
                                    [](float logit) { return std::isfinite(logit); });
  if (bad == logits.end()) return OkStatus();
  return InvalidArgument(
      "this model computes no numbers: after token 0 the logit of token {} is {}; weights are NaN "
      "or too large, is the file damaged?",
      bad - logits.begin(), *bad);
}

Status LoadedModel::CreateKv(const LoadedModelOptions& options) {
  KvCache::Options cache;
  cache.strategy = options.kv_strategy;
  cache.layout = runner_->kv_layout();
  KV_ASSIGN_OR_RETURN(const KvSize size, SizeKv(options, config_, cache.layout));
  cache.block_counts.assign(cache.layout.group_count(), size.blocks);
  cache.evict = options.kv_evict;
  cache.max_sequences = options.max_sequences;
  cache.max_sequence_tokens = size.context_tokens;
  memory_limits_context_ =
      options.context_tokens == 0 && size.context_tokens < config_.context_length;
  StatusOr<std::unique_ptr<KvCache>> created = KvCache::Create(cache);
  if (created.status().code() == StatusCode::kResourceExhausted) {
    return ResourceExhausted("the KV memory cannot be had: {}; give less with --kv-memory or --ctx",
                             MessageOf(created.status()));
  }
  if (!created.ok()) return created.status();
  kv_ = *std::move(created);
  spare_blocks_ = SpareBlocks(options.kv_strategy);
  tail_bytes_ = TailStore::SlotBytes(cache.layout) * options.max_sequences;
  kv_bytes_ = kv_->usage().total + tail_bytes_;
  return OkStatus();
}

std::string LoadedModel::AdviceFor(uint64_t tokens) const {
  // config_ may be for the context that was asked for (Phi-3); the file has the longest.
  const StatusOr<ModelConfig> whole = ReadModelConfig(file_, /*context_tokens=*/0);
  const uint32_t longest = whole.ok() ? whole->context_length : config_.context_length;
  if (tokens > longest) {
    return fmt::format("the model's context is {}, and no option makes it longer", longest);
  }
  if (!memory_limits_context_) {
    return fmt::format("give --ctx {} (the model's context is {})", tokens, longest);
  }
  const KvLayout& layout = kv_->layout();
  const uint64_t blocks = (tokens + layout.block_tokens - 1) / layout.block_tokens + spare_blocks_;
  const uint64_t needed = blocks * BlockBytesOfAllGroups(layout) + tail_bytes_;
  const bool least = layout.types == KvTypes{KvType::kInt4, KvType::kInt4};
  return fmt::format("give --kv-memory {}{} (it is {}; the model's context is {})",
                     SizeForAtLeast(needed), least ? "" : ", or a smaller --kv-type",
                     ShownBytes(kv_bytes_), longest);
}

BlockHash LoadedModel::Root(const std::string& tenant_salt) const {
  KvFormat format;
  // Tensor data and what the metadata says about computing with it, under one name.
  std::vector<std::byte> identity(weights_->digest().begin(), weights_->digest().end());
  const std::string canonical = CanonicalText(config_);
  const size_t digest_bytes = identity.size();
  identity.resize(digest_bytes + canonical.size());
  std::memcpy(identity.data() + digest_bytes, canonical.data(), canonical.size());
  format.model_digest = DigestOf(identity).bytes;
  format.layout = runner_->kv_layout();
  for (const KvGroup& group : format.layout.groups) format.rope.push_back(RopeOf(config_, group));
  format.tenant_salt = tenant_salt;
  return RootHash(format);
}

}  // namespace kvasir
