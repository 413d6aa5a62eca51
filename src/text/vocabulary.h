// Vocabulary: the tokens of one model: text, bytes, kind and the special ids. Not how text is split
// into them (tokenizer.h).
//
// VocabularySource is what the model file says, filled in by whoever reads the file; Create checks
// all of it, so that everything behind it may rely on sane lengths and ids.
//
// Invariant: every id in [0, size()) has a text, bytes and a kind; texts are distinct (empty ones
//            aside); the special ids are in range.
// Thread:    immutable after Create; any thread.
// Source:    GGUF specification, "Tokenizer" (tokenizer.ggml.*).
#ifndef KVASIR_TEXT_VOCABULARY_H_
#define KVASIR_TEXT_VOCABULARY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace kvasir {

struct VocabularySource {
  std::string
      model;        // tokenizer.ggml.model: "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE).
  std::string pre;  // tokenizer.ggml.pre; read for "gpt2" only.
  // Not owned (usually a mapped file); needed only until Create returns.
  std::vector<std::string_view> tokens;
  std::vector<std::string_view> merges;  // "left right", best first; "gpt2" only.
  std::vector<float> scores;             // One per token; needed for "llama".
  std::vector<int32_t> types;            // One per token, as TokenKind; empty: all normal.
  // Ids as in the file, unchecked.
  std::optional<int64_t> bos, eos, eot, unk, pad;
  // Absent: the model kind's custom ("llama" adds BOS and the space prefix, "gpt2" no prefix, and
  // BOS where the pre-tokenizer's models do).
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;  // "llama" only; absent: false.
};

enum class TokenizerModel : uint8_t { kByteLevelBpe, kSentencePieceBpe };

// Values of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // Never produced from text, unless the caller asks for it.
  kUserDefined = 4,  // Always recognised in text, as a whole, before anything else.
  kUnused = 5,
  kByte = 6,  // "<0x0A>": one byte of a character that has no token. SentencePiece only.
};

// An open-addressing table from byte strings to ids. The strings live elsewhere: `view_of(id)` must
// return the string an id was inserted with.
class TextIndex {
 public:
  // Room for `count` strings without growing (it never grows).
  explicit TextIndex(size_t count = 0);

  // Stores `id`, or returns the id already stored for an equal text.
  template <typename ViewOf>
  std::optional<int32_t> Insert(std::string_view text, int32_t id, const ViewOf& view_of);
  // The id, or -1.
  template <typename ViewOf>
  int32_t Find(std::string_view text, const ViewOf& view_of) const;

 private:
  struct Slot {
    uint32_t tag = 0;  // Other bits of the hash than the position: spares most comparisons.
    int32_t id = -1;
  };
  std::vector<Slot> slots_;  // A power of two, at most half full.
  size_t mask_ = 0;
};

class Vocabulary {
 public:
  // InvalidArgument names the key and the token that is wrong.
  static StatusOr<Vocabulary> Create(const VocabularySource& source);

  TokenizerModel model() const { return model_; }
  size_t size() const { return kinds_.size(); }
  bool IsValid(TokenId id) const {
    return Index(id) >= 0 && static_cast<size_t>(Index(id)) < size();
  }

  // As the file spells it: "\u0120the", "\u2581the", "<0x0A>". REQUIRES: IsValid(id); so below.
  std::string_view text(TokenId id) const { return texts_.View(Index(id)); }
  // What the token stands for: " the", " the", "\n". Control tokens: their text.
  std::string_view bytes(TokenId id) const { return bytes_.View(Index(id)); }
  TokenKind kind(TokenId id) const { return kinds_[static_cast<size_t>(Index(id))]; }
  // By the file's spelling.
  std::optional<TokenId> Find(std::string_view text) const;

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  std::optional<TokenId> eot() const { return eot_; }
  std::optional<TokenId> unk() const { return unk_; }
  std::optional<TokenId> pad() const { return pad_; }
  bool add_bos() const { return add_bos_; }  // Implies bos().
  bool add_eos() const { return add_eos_; }  // Implies eos().
  bool add_space_prefix() const { return add_space_prefix_; }
  // Runs of spaces count as one, those at either end of a stretch of text as none.
  bool remove_extra_whitespaces() const { return remove_extra_whitespaces_; }

 private:
  // Strings back to back: one allocation instead of one per token.
  struct Arena {
    std::string chars;
    std::vector<uint32_t> ends;  // [size]
    std::string_view View(int32_t id) const {
      const size_t i = static_cast<size_t>(id);
      const uint32_t begin = i == 0 ? 0 : ends[i - 1];
      return std::string_view(chars).substr(begin, ends[i] - begin);
    }
  };

  Vocabulary() = default;
  Status ReadKinds(const VocabularySource& source);
  Status ReadTexts(const VocabularySource& source);
  Status ReadIds(const VocabularySource& source);
  Status DeriveBytes();

  TokenizerModel model_ = TokenizerModel::kByteLevelBpe;
  Arena texts_;
  Arena bytes_;
  std::vector<TokenKind> kinds_;  // [size]
  TextIndex by_text_;
  std::optional<TokenId> bos_, eos_, eot_, unk_, pad_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool add_space_prefix_ = false;
  bool remove_extra_whitespaces_ = false;
};

// 64 well-mixed bits of a short string. Not for adversarial keys.
uint64_t HashText(std::string_view text);

template <typename ViewOf>
std::optional<int32_t> TextIndex::Insert(std::string_view text, int32_t id, const ViewOf& view_of) {
  const uint64_t hash = HashText(text);
  const uint32_t tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
    if (slots_[i].id < 0) {
      slots_[i] = {tag, id};
      return std::nullopt;
    }
    if (slots_[i].tag == tag && view_of(slots_[i].id) == text) return slots_[i].id;
  }
}

template <typename ViewOf>
int32_t TextIndex::Find(std::string_view text, const ViewOf& view_of) const {
  const uint64_t hash = HashText(text);
  const uint32_t tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask_; slots_[i].id >= 0; i = (i + 1) & mask_) {
    if (slots_[i].tag == tag && view_of(slots_[i].id) == text) return slots_[i].id;
  }
  return -1;
}

}  // namespace kvasir

#endif  // KVASIR_TEXT_VOCABULARY_H_
