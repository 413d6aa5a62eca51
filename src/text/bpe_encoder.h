// BpeEncoder: byte-level BPE. Words by the model's pre-tokenizer rule, bytes as first symbols,
// pairs merged in the order of the model's merge list.
//
// A byte that has no token of its own (some vocabularies lack bytes that never occurred in
// training) and takes part in no merge yields nothing: it is lost, as in the models' own
// tokenizers. All other text round-trips.
//
// Thread: immutable after Create.
// Source: Sennrich, Haddow, Birch 2016 (arXiv:1508.07909); Radford et al. 2019 (GPT-2).
#ifndef KVASIR_TEXT_BPE_ENCODER_H_
#define KVASIR_TEXT_BPE_ENCODER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/bpe_pretokenizer.h"
#include "text/run_encoder.h"
#include "text/vocabulary.h"

namespace kvasir {

class BpeEncoder final : public RunEncoder {
 public:
  // InvalidArgument: an unknown pre-tokenizer, a merge that is malformed or names a token that does
  // not exist or is not ordinary text, no byte tokens at all.
  // `vocabulary` must outlive the encoder.
  static StatusOr<std::unique_ptr<BpeEncoder>> Create(const Vocabulary& vocabulary,
                                                      const VocabularySource& source);

  void Encode(std::string_view run, BpeMerge* scratch, std::vector<TokenId>* out) const override;

  // Whether every byte has a token, so that any byte string round-trips.
  bool covers_all_bytes() const;

 private:
  // A merge, keyed by the pair: an open-addressing table at most half full.
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t merged = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static uint64_t Pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  static size_t Hash(uint64_t pair) {
    const uint64_t mixed = pair * 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(mixed ^ mixed >> 32);
  }

  BpeEncoder() = default;
  Status ReadBytes(const Vocabulary& vocabulary);
  void IndexWords(const Vocabulary& vocabulary);
  Status ReadMerges(const Vocabulary& vocabulary, const VocabularySource& source);
  const Slot* FindMerge(int32_t left, int32_t right) const;
  void EncodeWord(std::string_view word, BpeMerge* scratch, std::vector<TokenId>* out) const;

  const PretokenizerRule* rule_ = nullptr;
  // Tokens by their bytes, for rules that look words up; else empty.
  TextIndex words_;
  const Vocabulary* vocabulary_ = nullptr;
  std::array<int32_t, 256> byte_ids_{};  // -1: this byte has no token.
  std::vector<Slot> slots_;              // A power of two.
  size_t mask_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_BPE_ENCODER_H_
