#include "text/bpe_encoder.h"

#include <algorithm>
#include <string>

#include "text/bpe_bytes.h"
#include "text/utf8.h"

namespace kvasir {

StatusOr<std::unique_ptr<BpeEncoder>> BpeEncoder::Create(const Vocabulary& vocabulary,
                                                         const VocabularySource& source) {
  const PretokenizerRule* const rule = FindPretokenizerRule(source.pre);
  if (source.pre.empty()) {
    return InvalidArgument("tokenizer.ggml.pre is missing; known: {}", KnownPretokenizerRules());
  }
  if (rule == nullptr) {
    return InvalidArgument("tokenizer.ggml.pre is \"{}\", which is not supported; known: {}",
                           RepairUtf8(std::string_view(source.pre).substr(0, 60)),
                           KnownPretokenizerRules());
  }
  std::unique_ptr<BpeEncoder> encoder(new BpeEncoder());
  encoder->rule_ = rule;
  encoder->vocabulary_ = &vocabulary;
  KV_RETURN_IF_ERROR(encoder->ReadBytes(vocabulary));
  KV_RETURN_IF_ERROR(encoder->ReadMerges(vocabulary, source));
  if (rule->whole_words_first) encoder->IndexWords(vocabulary);
  return encoder;
}

void BpeEncoder::IndexWords(const Vocabulary& vocabulary) {
  words_ = TextIndex(vocabulary.size());
  const auto bytes_of = [&vocabulary](int32_t id) { return vocabulary.bytes(TokenId{id}); };
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId id{static_cast<int32_t>(i)};
    if (vocabulary.kind(id) != TokenKind::kNormal || vocabulary.bytes(id).empty()) continue;
    words_.Insert(vocabulary.bytes(id), Index(id), bytes_of);
  }
}

Status BpeEncoder::ReadBytes(const Vocabulary& vocabulary) {
  byte_ids_.fill(-1);
  bool any = false;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const std::optional<TokenId> id = vocabulary.Find(BpeTextOfByte(static_cast<uint8_t>(byte)));
    if (!id || vocabulary.kind(*id) != TokenKind::kNormal) continue;
    byte_ids_[byte] = Index(*id);
    any = true;
  }
  if (any) return OkStatus();
  return InvalidArgument("tokenizer.ggml.tokens has no token for a single byte");
}

Status BpeEncoder::ReadMerges(const Vocabulary& vocabulary, const VocabularySource& source) {
  size_t capacity = 16;
  while (capacity < 2 * source.merges.size()) capacity *= 2;
  slots_.resize(capacity);
  mask_ = capacity - 1;

  const auto find = [&vocabulary](std::string_view text) {
    const std::optional<TokenId> id = vocabulary.Find(text);
    return id && vocabulary.kind(*id) == TokenKind::kNormal ? Index(*id) : -1;
  };
  std::string merged_text;
  for (size_t rank = 0; rank < source.merges.size(); ++rank) {
    const std::string_view merge = source.merges[rank];
    // The alphabet spells a space as U+0120, so the one space separates the halves.
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      return InvalidArgument("tokenizer.ggml.merges[{}] is not two tokens with a space between",
                             rank);
    }
    merged_text.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    const int32_t left = find(merge.substr(0, space));
    const int32_t right = find(merge.substr(space + 1));
    const int32_t merged = find(merged_text);
    if (left < 0 || right < 0 || merged < 0) {
      const std::string_view culprit = left < 0    ? merge.substr(0, space)
                                       : right < 0 ? merge.substr(space + 1)
                                                   : std::string_view(merged_text);
      return InvalidArgument(
          "tokenizer.ggml.merges[{}] names \"{}\", which is not an ordinary token", rank,
          RepairUtf8(culprit.substr(0, 60)));
    }
    const uint64_t pair = Pair(left, right);
    size_t i = Hash(pair) & mask_;
    while (slots_[i].pair != kNoPair && slots_[i].pair != pair) i = (i + 1) & mask_;
    // A repeated merge keeps its first, better rank.
    if (slots_[i].pair == kNoPair) slots_[i] = {pair, static_cast<uint32_t>(rank), merged};
  }
  return OkStatus();
}

const BpeEncoder::Slot* BpeEncoder::FindMerge(int32_t left, int32_t right) const {
  const uint64_t pair = Pair(left, right);
  for (size_t i = Hash(pair) & mask_; slots_[i].pair != kNoPair; i = (i + 1) & mask_) {
    if (slots_[i].pair == pair) return &slots_[i];
  }
  return nullptr;
}

bool BpeEncoder::covers_all_bytes() const {
  return std::none_of(byte_ids_.begin(), byte_ids_.end(), [](int32_t id) { return id < 0; });
}

void BpeEncoder::Encode(std::string_view run, BpeMerge* scratch, std::vector<TokenId>* out) const {
  WordCutter cutter(rule_, run);
  for (std::string_view word; cutter.Next(&word);) {
    if (rule_->whole_words_first) {
      const int32_t id =
          words_.Find(word, [this](int32_t other) { return vocabulary_->bytes(TokenId{other}); });
      if (id >= 0) {
        out->push_back(TokenId{id});
        continue;
      }
    }
    EncodeWord(word, scratch, out);
  }
}

void BpeEncoder::EncodeWord(std::string_view word, BpeMerge* scratch,
                            std::vector<TokenId>* out) const {
  scratch->Reset(word.size());
  for (const char c : word) scratch->Add(byte_ids_[static_cast<uint8_t>(c)], 1);
  scratch->Run([this](const MergeSymbol& left, const MergeSymbol& right, uint32_t /*offset*/,
                      uint32_t /*length*/, MergeCandidate* candidate) {
    if (left.id < 0 || right.id < 0) return false;
    const Slot* const slot = FindMerge(left.id, right.id);
    if (slot == nullptr) return false;
    *candidate = {slot->rank, slot->merged};
    return true;
  });
  for (size_t offset = 0; offset < scratch->size(); offset += scratch->at(offset).length) {
    if (scratch->at(offset).id >= 0) out->push_back(TokenId{scratch->at(offset).id});
  }
}

}  // namespace kvasir
