#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "text/bpe_encoder.h"
#include "text/special_tokens.h"
#include "text/spm_encoder.h"

namespace kvasir {
namespace {

// Names under which models mark the end of a turn or a text. They count only as control tokens:
// Gemma has "</s>", the HTML tag, among its ordinary tokens.
constexpr std::array<std::string_view, 13> kEndNames = {
    "</s>",       "<eos>",         "<end_of_turn>", "<|end_of_text|>", "<|endoftext|>",
    "<|im_end|>", "<|eot_id|>",    "<|eom_id|>",    "<|end|>",         "<|end_of_turn|>",
    "<|eot|>",    "<|endofturn|>", "<EOT>"};

// Says how far the trust at a position reaches, for positions in ascending order.
class TrustCursor {
 public:
  explicit TrustCursor(std::span<const TextSegment> segments) : segments_(segments) {}

  // One past the last byte of the unbroken trusted stretch around `offset`; `offset` itself if that
  // byte is not trusted. Amortised O(1).
  size_t TrustedEnd(size_t offset) {
    while (end_ <= offset && next_ < segments_.size()) {
      trusted_ = segments_[next_].trusted;
      end_ += segments_[next_++].text.size();
      // Neighbours of equal trust are one stretch.
      while (next_ < segments_.size() &&
             (segments_[next_].trusted == trusted_ || segments_[next_].text.empty())) {
        end_ += segments_[next_++].text.size();
      }
    }
    return trusted_ && offset < end_ ? end_ : offset;
  }

 private:
  std::span<const TextSegment> segments_;
  size_t next_ = 0;  // First segment not yet part of a stretch.
  size_t end_ = 0;   // The current stretch is [.., end_).
  bool trusted_ = false;
};

// Sends stretches of plain text to the run encoder, with the model's space in front where it
// belongs and without the spaces that the model does not want.
class RunSink {
 public:
  RunSink(const RunEncoder& encoder, const Vocabulary& vocabulary, std::vector<TokenId>* out)
      : encoder_(encoder),
        space_prefix_(vocabulary.add_space_prefix()),
        squeezes_(vocabulary.remove_extra_whitespaces()),
        prefix_due_(space_prefix_),
        out_(out) {}

  // `ends`: a control token or the end of the text follows.
  void Text(std::string_view run, bool ends) {
    if (squeezes_) {
      Squeeze(run, ends);
      run = squeezed_;
    }
    if (run.empty()) return;
    stretch_begun_ = true;
    if (prefix_due_) {
      prefix_due_ = false;
      encoder_.Encode(std::string(" ").append(run), &scratch_, out_);
    } else {
      encoder_.Encode(run, &scratch_, out_);
    }
  }
  void UserDefined(int32_t id) {
    if (prefix_due_) encoder_.Encode(" ", &scratch_, out_);
    prefix_due_ = false;
    stretch_begun_ = true;
    out_->push_back(TokenId{id});
  }
  void Control(int32_t id) {
    out_->push_back(TokenId{id});
    prefix_due_ = space_prefix_;
    stretch_begun_ = false;
  }

 private:
  void Squeeze(std::string_view run, bool ends) {
    squeezed_.clear();
    for (const char c : run) {
      const bool is_first = squeezed_.empty() ? !stretch_begun_ : squeezed_.back() == ' ';
      if (c != ' ' || !is_first) squeezed_.push_back(c);
    }
    if (ends && !squeezed_.empty() && squeezed_.back() == ' ') squeezed_.pop_back();
  }

  const RunEncoder& encoder_;
  const bool space_prefix_;
  const bool squeezes_;
  bool prefix_due_;  // The next text begins a stretch.
  bool stretch_begun_ = false;
  std::string squeezed_;
  BpeMerge scratch_;
  std::vector<TokenId>* out_;
};

}  // namespace

class Tokenizer::Parts {
 public:
  explicit Parts(const Vocabulary& vocabulary) : specials(vocabulary) {}
  SpecialTokens specials;
  std::unique_ptr<RunEncoder> encoder;
};

Tokenizer::Tokenizer(Vocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), parts_(std::make_unique<Parts>(vocabulary_)) {}

Tokenizer::~Tokenizer() = default;

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(const VocabularySource& source) {
  KV_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(source));
  // The parts point into the vocabulary, which therefore has its final address first.
  std::unique_ptr<Tokenizer> tokenizer(new Tokenizer(std::move(vocabulary)));
  const Vocabulary& words = tokenizer->vocabulary_;
  if (words.model() == TokenizerModel::kByteLevelBpe) {
    KV_ASSIGN_OR_RETURN(std::unique_ptr<BpeEncoder> encoder, BpeEncoder::Create(words, source));
    tokenizer->encodes_all_bytes_ = encoder->covers_all_bytes();
    tokenizer->parts_->encoder = std::move(encoder);
  } else {
    KV_ASSIGN_OR_RETURN(std::unique_ptr<SpmEncoder> encoder, SpmEncoder::Create(&words, source));
    tokenizer->encodes_all_bytes_ =
        encoder->covers_all_bytes() && !words.remove_extra_whitespaces();
    tokenizer->parts_->encoder = std::move(encoder);
  }
  tokenizer->FindEndOfGeneration();
  return tokenizer;
}

void Tokenizer::FindEndOfGeneration() {
  std::vector<TokenId>& ends = end_of_generation_;
  if (eos()) ends.push_back(*eos());
  if (eot()) ends.push_back(*eot());
  for (const std::string_view name : kEndNames) {
    const std::optional<TokenId> id = Find(name);
    if (id && IsControl(*id)) ends.push_back(*id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
}

std::vector<TokenId> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::vector<TokenId> out;
  if (options.add_bos && adds_bos()) out.push_back(*bos());
  const TextSegment all{text, options.parse_special};
  EncodeText(text, std::span(&all, 1), &out);
  return out;
}

std::vector<TokenId> Tokenizer::EncodeSegments(std::span<const TextSegment> segments,
                                               bool add_bos) const {
  std::string text;
  size_t total = 0;
  for (const TextSegment& segment : segments) total += segment.text.size();
  text.reserve(total);
  for (const TextSegment& segment : segments) text.append(segment.text);

  std::vector<TokenId> out;
  if (add_bos && adds_bos()) out.push_back(*bos());
  const size_t before = out.size();
  EncodeText(text, segments, &out);
  const bool doubled = before > 0 && out.size() > before && out[before] == *bos();
  if (doubled) out.erase(out.begin());
  return out;
}

void Tokenizer::EncodeText(std::string_view text, std::span<const TextSegment> segments,
                           std::vector<TokenId>* out) const {
  KV_CHECK_LE(text.size(), kMaxTextBytes);
  const SpecialTokens& specials = parts_->specials;
  TrustCursor trust(segments);
  RunSink sink(*parts_->encoder, vocabulary_, out);
  out->reserve(out->size() + text.size() / 4);
  size_t run_begin = 0;
  for (size_t offset = 0; offset < text.size();) {
    if (!specials.MayStart(text[offset])) {
      ++offset;
      continue;
    }
    const SpecialTokens::Match match =
        specials.LongestMatch(text, offset, trust.TrustedEnd(offset));
    if (match.id < 0) {
      ++offset;
      continue;
    }
    sink.Text(text.substr(run_begin, offset - run_begin), match.control);
    match.control ? sink.Control(match.id) : sink.UserDefined(match.id);
    offset += match.length;
    run_begin = offset;
  }
  sink.Text(text.substr(run_begin), true);
}

std::string Tokenizer::Decode(std::span<const TokenId> tokens, DecodeOptions options) const {
  std::string out;
  bool stretch_starts = true;
  for (const TokenId id : tokens) {
    std::string_view bytes = TokenBytes(id);
    if (IsControl(id)) {
      if (options.special) out.append(bytes);
      stretch_starts = true;
      continue;
    }
    if (stretch_starts && adds_space_prefix() && !bytes.empty() && bytes[0] == ' ') {
      bytes.remove_prefix(1);
    }
    stretch_starts = false;
    out.append(bytes);
  }
  return out;
}

std::string_view Tokenizer::TokenBytes(TokenId id) const {
  return vocabulary_.IsValid(id) ? vocabulary_.bytes(id) : std::string_view();
}

bool Tokenizer::IsControl(TokenId id) const {
  if (!vocabulary_.IsValid(id)) return false;
  const TokenKind kind = vocabulary_.kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

}  // namespace kvasir
