#include "text/spm_encoder.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "text/utf8.h"

namespace kvasir {
namespace {

// Orders like `-score`: the best score gets the lowest number.
uint32_t PriorityOf(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // +0 and -0 are one score.
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

bool IsPlain(TokenKind kind) { return kind == TokenKind::kNormal || kind == TokenKind::kUnused; }

// The symbol at `offset`: a character, or one byte that belongs to none.
Utf8Char SymbolAt(std::string_view text, size_t offset) {
  Utf8Char character = DecodeUtf8(text, offset);
  if (!character.valid) character.length = 1;
  return character;
}

}  // namespace

StatusOr<std::unique_ptr<SpmEncoder>> SpmEncoder::Create(const Vocabulary* vocabulary,
                                                         const VocabularySource& source) {
  std::unique_ptr<SpmEncoder> encoder(new SpmEncoder(vocabulary));
  KV_RETURN_IF_ERROR(encoder->ReadScores(source));
  KV_RETURN_IF_ERROR(encoder->ReadBytes());
  const int32_t size = static_cast<int32_t>(vocabulary->size());
  encoder->index_ = TextIndex(vocabulary->size());
  encoder->joins_.assign(kJoinBits / 64, 0);
  for (int32_t id = 0; id < size; ++id) {
    if (IsPlain(vocabulary->kind(TokenId{id}))) encoder->AddToken(id);
  }
  return encoder;
}

Status SpmEncoder::ReadScores(const VocabularySource& source) {
  if (source.scores.size() != vocabulary_->size()) {
    return InvalidArgument("tokenizer.ggml.scores has {} entries for {} tokens",
                           source.scores.size(), vocabulary_->size());
  }
  priorities_.resize(source.scores.size());
  for (size_t i = 0; i < source.scores.size(); ++i) {
    if (std::isnan(source.scores[i])) {
      return InvalidArgument("tokenizer.ggml.scores[{}] is not a number", i);
    }
    priorities_[i] = PriorityOf(source.scores[i]);
  }
  return OkStatus();
}

Status SpmEncoder::ReadBytes() {
  byte_ids_.fill(-1);
  const int32_t size = static_cast<int32_t>(vocabulary_->size());
  for (int32_t id = 0; id < size; ++id) {
    if (vocabulary_->kind(TokenId{id}) != TokenKind::kByte) continue;
    byte_ids_[static_cast<uint8_t>(vocabulary_->bytes(TokenId{id})[0])] = id;
  }
  const auto missing = std::count(byte_ids_.begin(), byte_ids_.end(), -1);
  if (missing == 0) return OkStatus();
  if (missing < 256) {
    const auto first = std::find(byte_ids_.begin(), byte_ids_.end(), -1);
    return InvalidArgument(
        "tokenizer.ggml.tokens lacks {} byte tokens, the first is \"<0x{:02X}>\"", missing,
        first - byte_ids_.begin());
  }
  const std::optional<TokenId> unknown = vocabulary_->unk();
  if (!unknown || vocabulary_->kind(*unknown) != TokenKind::kUnknown) {
    return InvalidArgument(
        "tokenizer.ggml.tokens has neither byte tokens nor an unknown token (type 2) that "
        "unknown_token_id names: some text could not be encoded");
  }
  unknown_id_ = Index(*unknown);
  return OkStatus();
}

void SpmEncoder::AddToken(int32_t id) {
  const std::string_view text = vocabulary_->bytes(TokenId{id});
  if (text.empty()) return;
  max_token_bytes_ = std::max(max_token_bytes_, text.size());
  // Two spellings of one text (with U+2581 and with a space): the first one is it.
  index_.Insert(text, id, [this](int32_t other) { return vocabulary_->bytes(TokenId{other}); });
  Utf8Char left = SymbolAt(text, 0);
  for (size_t offset = left.length; offset < text.size();) {
    const Utf8Char right = SymbolAt(text, offset);
    const size_t bit = JoinBit(left.code_point, right.code_point);
    joins_[bit / 64] |= uint64_t{1} << (bit % 64);
    offset += right.length;
    left = right;
  }
}

int32_t SpmEncoder::Find(std::string_view text) const {
  return index_.Find(text, [this](int32_t id) { return vocabulary_->bytes(TokenId{id}); });
}

void SpmEncoder::Encode(std::string_view run, BpeMerge* scratch, std::vector<TokenId>* out) const {
  const size_t run_begin = out->size();
  size_t begin = 0;
  uint32_t previous = 0;
  for (size_t offset = 0; offset < run.size();) {
    const Utf8Char character = SymbolAt(run, offset);
    if (offset > begin && !MayJoin(previous, character.code_point)) {
      EncodePiece(run.substr(begin, offset - begin), run_begin, scratch, out);
      begin = offset;
    }
    previous = character.code_point;
    offset += character.length;
  }
  if (begin < run.size()) EncodePiece(run.substr(begin), run_begin, scratch, out);
}

void SpmEncoder::EncodePiece(std::string_view piece, size_t run_begin, BpeMerge* scratch,
                             std::vector<TokenId>* out) const {
  scratch->Reset(piece.size());
  for (size_t offset = 0; offset < piece.size();) {
    const uint32_t length = SymbolAt(piece, offset).length;
    scratch->Add(Find(piece.substr(offset, length)), length);
    offset += length;
  }
  scratch->Run([this, piece](const MergeSymbol& /*left*/, const MergeSymbol& /*right*/,
                             uint32_t offset, uint32_t length, MergeCandidate* candidate) {
    if (length > max_token_bytes_) return false;
    const int32_t id = Find(piece.substr(offset, length));
    if (id < 0) return false;
    *candidate = {priorities_[static_cast<size_t>(id)], id};
    return true;
  });
  for (size_t offset = 0; offset < piece.size();) {
    const MergeSymbol& symbol = scratch->at(offset);
    if (symbol.id >= 0) {
      out->push_back(TokenId{symbol.id});
    } else if (unknown_id_ >= 0) {
      // Unknown neighbours are one unknown piece.
      if (out->size() == run_begin || out->back() != TokenId{unknown_id_}) {
        out->push_back(TokenId{unknown_id_});
      }
    } else {
      for (const char c : piece.substr(offset, symbol.length)) {
        out->push_back(TokenId{byte_ids_[static_cast<uint8_t>(c)]});
      }
    }
    offset += symbol.length;
  }
}

}  // namespace kvasir
