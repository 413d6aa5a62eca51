#include "text/vocabulary.h"

#include <cstring>
#include <limits>

#include "text/bpe_bytes.h"
#include "text/bpe_pretokenizer.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, SentencePiece's visible space.

// For messages: long or unprintable tokens would spoil the line.
std::string Quote(std::string_view text) {
  constexpr size_t kMaxBytes = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) {
    const uint8_t byte = static_cast<uint8_t>(c);
    out += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02X}", byte) : std::string(1, c);
  }
  out = RepairUtf8(out);
  return out + (text.size() > kMaxBytes ? "...\"" : "\"");
}

// The byte that "<0x0A>" names, or -1.
int ByteOf(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (c >= 'A' && c <= 'F') {
      value = value * 16 + (c - 'A' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

void AppendWithSpaces(std::string_view text, std::string* out) {
  for (size_t i = 0;;) {
    const size_t mark = text.find(kSpaceMark, i);
    out->append(text.substr(i, mark - i));
    if (mark == std::string_view::npos) return;
    out->push_back(' ');
    i = mark + kSpaceMark.size();
  }
}

Status ReadId(std::string_view key, std::optional<int64_t> value, size_t size,
              std::optional<TokenId>* out) {
  if (!value) return OkStatus();
  if (*value < 0 || static_cast<uint64_t>(*value) >= size) {
    return InvalidArgument("tokenizer.ggml.{} is {}, outside the vocabulary of {} tokens", key,
                           *value, size);
  }
  *out = TokenId{static_cast<int32_t>(*value)};
  return OkStatus();
}

}  // namespace

uint64_t HashText(std::string_view text) {
  constexpr uint64_t kMul = 0x9E3779B97F4A7C15ull;
  uint64_t hash = text.size() * kMul;
  const char* p = text.data();
  size_t left = text.size();
  for (; left >= 8; left -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    hash = (hash ^ word) * kMul;
    hash ^= hash >> 29;
  }
  // The tail without a variable-length copy: two overlapping loads.
  uint64_t word = 0;
  if (left >= 4) {
    uint32_t low, high;
    std::memcpy(&low, p, 4);
    std::memcpy(&high, p + left - 4, 4);
    word = low | static_cast<uint64_t>(high) << 32;
  } else if (left > 0) {
    const auto byte = [p](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    word = byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16;
  }
  hash = (hash ^ word) * kMul;
  hash ^= hash >> 32;
  hash *= 0xD6E8FEB86659FD93ull;
  return hash ^ hash >> 32;
}

TextIndex::TextIndex(size_t count) {
  size_t capacity = 16;
  while (capacity < 2 * count) capacity *= 2;
  slots_.resize(capacity);
  mask_ = capacity - 1;
}

StatusOr<Vocabulary> Vocabulary::Create(const VocabularySource& source) {
  Vocabulary vocabulary;
  if (source.model == "gpt2") {
    vocabulary.model_ = TokenizerModel::kByteLevelBpe;
  } else if (source.model == "llama") {
    vocabulary.model_ = TokenizerModel::kSentencePieceBpe;
  } else {
    return InvalidArgument(
        "tokenizer.ggml.model is {}, which is not supported; known models: gpt2, llama",
        Quote(source.model));
  }
  if (source.tokens.empty()) return InvalidArgument("tokenizer.ggml.tokens is missing or empty");
  if (source.tokens.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return InvalidArgument("tokenizer.ggml.tokens has {} entries, more than 2^31 - 1",
                           source.tokens.size());
  }
  KV_RETURN_IF_ERROR(vocabulary.ReadKinds(source));
  KV_RETURN_IF_ERROR(vocabulary.ReadTexts(source));
  KV_RETURN_IF_ERROR(vocabulary.ReadIds(source));
  KV_RETURN_IF_ERROR(vocabulary.DeriveBytes());
  return vocabulary;
}

Status Vocabulary::ReadKinds(const VocabularySource& source) {
  const size_t size = source.tokens.size();
  kinds_.assign(size, TokenKind::kNormal);
  if (source.types.empty()) return OkStatus();
  if (source.types.size() != size) {
    return InvalidArgument("tokenizer.ggml.token_type has {} entries for {} tokens",
                           source.types.size(), size);
  }
  for (size_t i = 0; i < size; ++i) {
    const int32_t type = source.types[i];
    // 0, "undefined", is what some converters write for ordinary tokens.
    if (type < 0 || type > 6) {
      return InvalidArgument(
          "tokenizer.ggml.token_type[{}] is {}, not one of 1 (normal) to 6 (byte)", i, type);
    }
    if (type != 0) kinds_[i] = static_cast<TokenKind>(type);
  }
  return OkStatus();
}

Status Vocabulary::ReadTexts(const VocabularySource& source) {
  const size_t size = source.tokens.size();
  uint64_t total = 0;
  for (const std::string_view token : source.tokens) total += token.size();
  if (total > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("tokenizer.ggml.tokens holds {} bytes, more than 4 GiB", total);
  }
  texts_.chars.reserve(total);
  texts_.ends.reserve(size);
  by_text_ = TextIndex(size);
  const auto view_of = [this](int32_t id) { return texts_.View(id); };
  for (size_t i = 0; i < size; ++i) {
    const std::string_view text = source.tokens[i];
    texts_.chars.append(text);
    texts_.ends.push_back(static_cast<uint32_t>(texts_.chars.size()));
    // Some files fill unused rows with empty tokens: they stand for nothing and match nothing.
    if (text.empty()) continue;
    const std::optional<int32_t> other = by_text_.Insert(text, static_cast<int32_t>(i), view_of);
    if (other) {
      return InvalidArgument("tokenizer.ggml.tokens[{}] repeats token {}: {}", i, *other,
                             Quote(text));
    }
  }
  return OkStatus();
}

Status Vocabulary::ReadIds(const VocabularySource& source) {
  KV_RETURN_IF_ERROR(ReadId("bos_token_id", source.bos, size(), &bos_));
  KV_RETURN_IF_ERROR(ReadId("eos_token_id", source.eos, size(), &eos_));
  KV_RETURN_IF_ERROR(ReadId("eot_token_id", source.eot, size(), &eot_));
  KV_RETURN_IF_ERROR(ReadId("unknown_token_id", source.unk, size(), &unk_));
  KV_RETURN_IF_ERROR(ReadId("padding_token_id", source.pad, size(), &pad_));
  const bool sentence_piece = model_ == TokenizerModel::kSentencePieceBpe;
  bool wants_bos = sentence_piece;
  if (!sentence_piece) {
    const PretokenizerRule* const rule = FindPretokenizerRule(source.pre);
    wants_bos = rule != nullptr && rule->adds_bos;
  }
  add_bos_ = source.add_bos.value_or(wants_bos && bos_.has_value());
  add_eos_ = source.add_eos.value_or(false);
  add_space_prefix_ = sentence_piece && source.add_space_prefix.value_or(true);
  remove_extra_whitespaces_ = sentence_piece && source.remove_extra_whitespaces.value_or(false);
  if (add_bos_ && !bos_) {
    return InvalidArgument("tokenizer.ggml.add_bos_token is true without a bos_token_id");
  }
  if (add_eos_ && !eos_) {
    return InvalidArgument("tokenizer.ggml.add_eos_token is true without an eos_token_id");
  }
  return OkStatus();
}

Status Vocabulary::DeriveBytes() {
  bytes_.chars.reserve(texts_.chars.size());
  bytes_.ends.reserve(size());
  for (size_t i = 0; i < size(); ++i) {
    const std::string_view text = texts_.View(static_cast<int32_t>(i));
    const bool literal = kinds_[i] == TokenKind::kControl || kinds_[i] == TokenKind::kUnknown;
    if (kinds_[i] == TokenKind::kByte) {
      const int byte = ByteOf(text);
      if (byte < 0) {
        return InvalidArgument("tokenizer.ggml.tokens[{}] is {}, not a byte token like \"<0x0A>\"",
                               i, Quote(text));
      }
      bytes_.chars.push_back(static_cast<char>(byte));
    } else if (literal) {
      bytes_.chars.append(text);
    } else if (model_ == TokenizerModel::kSentencePieceBpe) {
      AppendWithSpaces(text, &bytes_.chars);
    } else if (kinds_[i] == TokenKind::kUserDefined || !AppendBytesOfBpeText(text, &bytes_.chars)) {
      // Tokens added after training are spelled as they are, not in the byte alphabet.
      bytes_.chars.append(text);
    }
    bytes_.ends.push_back(static_cast<uint32_t>(bytes_.chars.size()));
  }
  return OkStatus();
}

std::optional<TokenId> Vocabulary::Find(std::string_view text) const {
  if (text.empty()) return std::nullopt;
  const int32_t id = by_text_.Find(text, [this](int32_t other) { return texts_.View(other); });
  if (id < 0) return std::nullopt;
  return TokenId{id};
}

}  // namespace kvasir
