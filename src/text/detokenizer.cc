#include "text/detokenizer.h"

#include "text/utf8.h"

namespace kvasir {
namespace {

constexpr size_t kTypicalTokenBytes = 128;

}  // namespace

Detokenizer::Detokenizer(const Tokenizer* tokenizer, DetokenizerOptions options)
    : tokenizer_(tokenizer), options_(options), stretch_starts_(options.starts_text) {
  held_.reserve(kTypicalTokenBytes);
  out_.reserve(kTypicalTokenBytes);
}

std::string_view Detokenizer::Append(TokenId id) {
  out_.clear();
  std::string_view bytes = tokenizer_->TokenBytes(id);
  if (tokenizer_->IsControl(id)) {
    stretch_starts_ = true;
    if (!options_.special) return out_;
  } else {
    if (stretch_starts_ && tokenizer_->adds_space_prefix() && !bytes.empty() && bytes[0] == ' ') {
      bytes.remove_prefix(1);
    }
    stretch_starts_ = false;
  }
  held_.append(bytes);
  const size_t consumed = AppendValidUtf8(held_, &out_);
  held_.erase(0, consumed);
  return out_;
}

std::string_view Detokenizer::Finish() {
  out_.clear();
  if (!held_.empty()) out_.append(kReplacementUtf8);
  held_.clear();
  stretch_starts_ = options_.starts_text;
  return out_;
}

void Detokenizer::Reset(DetokenizerOptions options) {
  options_ = options;
  stretch_starts_ = options.starts_text;
  held_.clear();
  out_.clear();
}

}  // namespace kvasir
