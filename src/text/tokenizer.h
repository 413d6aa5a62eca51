// Tokenizer: text to token ids and back, for one model.
//
// Control tokens (<|im_start|>, <bos>, ...) steer the model, so text from outside must never become
// one: they are parsed only where the caller says so. User-defined tokens are ordinary text that
// happens to be one token, and are recognised everywhere.
//
// Any bytes can be encoded. Invalid UTF-8 survives the round trip through byte tokens (byte-level
// BPE: if the vocabulary has all 256, see encodes_all_bytes()); callers that must refuse it ask
// ValidateUtf8 first.
//
// Thread: immutable after Create; any number of threads may encode at once.
// Cost:   O(n log n) in the bytes of the text, whatever the text; about 40 bytes of working memory
//         per byte of the longest unbroken word.
#ifndef KVASIR_TEXT_TOKENIZER_H_
#define KVASIR_TEXT_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/text_segment.h"
#include "text/vocabulary.h"

namespace kvasir {

struct EncodeOptions {
  bool parse_special = false;  // Control tokens written in the text become control tokens.
  bool add_bos = true;         // BOS in front if the model asks for it (adds_bos()).
};

struct DecodeOptions {
  bool special = false;  // Control tokens appear as their text; otherwise they yield nothing.
};

class Tokenizer {
 public:
  // Longest text that may be encoded: offsets are 32 bits wide. Callers have lower limits.
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;

  // Nothing of `source` is needed afterwards. InvalidArgument names the key and what is wrong.
  static StatusOr<std::unique_ptr<Tokenizer>> Create(const VocabularySource& source);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // REQUIRES: text.size() <= kMaxTextBytes.
  std::vector<TokenId> Encode(std::string_view text, EncodeOptions options = {}) const;

  // A prompt of trusted and untrusted pieces, as a chat template renders it. Tokenized as one text:
  // only control tokens cut it, and a control token is one only if every byte of it is trusted. BOS
  // goes in front if `add_bos`, the model asks for it and the text does not itself begin with it.
  // REQUIRES: together at most kMaxTextBytes.
  std::vector<TokenId> EncodeSegments(std::span<const TextSegment> segments,
                                      bool add_bos = true) const;

  // The bytes of a whole text. Undoes Encode: the space that the model's rule put in front is taken
  // off again. Pieces of a text cannot be decoded apart and joined; for that there is Detokenizer.
  std::string Decode(std::span<const TokenId> tokens, DecodeOptions options = {}) const;

  // The bytes one token stands for, perhaps part of a character; a control token's text. Empty for
  // an id outside the vocabulary (a model may have more logits rows than tokens).
  std::string_view TokenBytes(TokenId id) const;
  // Control tokens and the unknown token: never ordinary text.
  bool IsControl(TokenId id) const;
  // The model is done: EOS, EOT and the control tokens with well-known names (<|im_end|>, ...).
  bool IsEndOfGeneration(TokenId id) const;

  // By the vocabulary's own spelling: "<|im_end|>", "\u0120the".
  std::optional<TokenId> Find(std::string_view text) const { return vocabulary_.Find(text); }

  size_t vocab_size() const { return vocabulary_.size(); }
  std::optional<TokenId> bos() const { return vocabulary_.bos(); }
  std::optional<TokenId> eos() const { return vocabulary_.eos(); }
  std::optional<TokenId> eot() const { return vocabulary_.eot(); }
  std::optional<TokenId> unk() const { return vocabulary_.unk(); }
  std::optional<TokenId> pad() const { return vocabulary_.pad(); }
  bool adds_bos() const { return vocabulary_.add_bos(); }
  // The model asks for EOS after a text. Encode leaves it to the caller: a prompt is to be
  // continued.
  bool adds_eos() const { return vocabulary_.add_eos(); }
  // Each stretch of text between control tokens is encoded with a space in front.
  bool adds_space_prefix() const { return vocabulary_.add_space_prefix(); }
  // Every byte string round-trips. False for byte-level vocabularies that lack some bytes: those
  // are lost. False too for SentencePiece without byte tokens, or where the model squeezes spaces.
  bool encodes_all_bytes() const { return encodes_all_bytes_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  class Parts;  // What only the .cc needs.

  explicit Tokenizer(Vocabulary vocabulary);
  void FindEndOfGeneration();
  // Encodes `text`; control tokens only inside `segments`' trusted parts, which cover it.
  void EncodeText(std::string_view text, std::span<const TextSegment> segments,
                  std::vector<TokenId>* out) const;

  Vocabulary vocabulary_;
  std::unique_ptr<Parts> parts_;
  std::vector<TokenId> end_of_generation_;  // Sorted.
  bool encodes_all_bytes_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_TOKENIZER_H_
