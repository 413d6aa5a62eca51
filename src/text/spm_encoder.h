// SpmEncoder: SentencePiece-BPE. Characters as first symbols; neighbours merge when the vocabulary
// has their concatenation, highest score first, the leftmost among equals. A character that ends up
// without a token becomes its byte tokens.
//
// Works on text with real spaces (the vocabulary's U+2581 is read as a space when it is loaded), so
// a U+2581 in the text is a character like any other and survives the round trip.
//
// Thread: immutable after Create.
// Source: Kudo, Richardson 2018 (arXiv:1808.06226).
#ifndef KVASIR_TEXT_SPM_ENCODER_H_
#define KVASIR_TEXT_SPM_ENCODER_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/run_encoder.h"
#include "text/vocabulary.h"

namespace kvasir {

class SpmEncoder final : public RunEncoder {
 public:
  // `vocabulary` must outlive the encoder. InvalidArgument: scores missing, too few or not numbers;
  // some byte tokens but not all 256; neither byte tokens nor an unknown token.
  static StatusOr<std::unique_ptr<SpmEncoder>> Create(const Vocabulary* vocabulary,
                                                      const VocabularySource& source);

  void Encode(std::string_view run, BpeMerge* scratch, std::vector<TokenId>* out) const override;

  // False only without byte tokens.
  bool covers_all_bytes() const { return unknown_id_ < 0; }

 private:
  static constexpr size_t kJoinBits = 1u << 20;  // 128 KiB: fits the second-level cache.

  explicit SpmEncoder(const Vocabulary* vocabulary) : vocabulary_(vocabulary) {}
  Status ReadBytes();
  Status ReadScores(const VocabularySource& source);
  void AddToken(int32_t id);
  int32_t Find(std::string_view text) const;
  // `run_begin`: where the run's tokens begin in `*out`.
  void EncodePiece(std::string_view piece, size_t run_begin, BpeMerge* scratch,
                   std::vector<TokenId>* out) const;

  // Whether some token may hold the characters `a` and `b` side by side. Where none does no merge
  // can cross, so the text is cut there and short pieces are merged one by one: the same result
  // from a small heap. A bit set over a hash; a false "may" costs time only.
  bool MayJoin(uint32_t a, uint32_t b) const {
    const size_t bit = JoinBit(a, b);
    return (joins_[bit / 64] >> (bit % 64) & 1) != 0;
  }
  static size_t JoinBit(uint32_t a, uint32_t b) {
    const uint64_t mixed = (static_cast<uint64_t>(a) << 32 | b) * 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(mixed >> 44);  // The top 20 bits.
  }

  const Vocabulary* vocabulary_;
  TextIndex index_;                      // Tokens that text may become, by their bytes.
  std::vector<uint32_t> priorities_;     // [vocabulary] lower is a higher score.
  std::vector<uint64_t> joins_;          // [kJoinBits / 64]
  std::array<int32_t, 256> byte_ids_{};  // All -1 when the vocabulary has no byte tokens.
  int32_t unknown_id_ = -1;              // Used only without byte tokens.
  size_t max_token_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_SPM_ENCODER_H_
