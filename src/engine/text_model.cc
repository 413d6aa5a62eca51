#include "engine/text_model.h"

#include "engine/vocabulary_from_model.h"
#include "model/tokenizer_fields.h"

namespace kvasir {
namespace {

std::string TextOf(const Tokenizer& tokenizer, std::optional<TokenId> id) {
  return id.has_value() ? std::string(tokenizer.vocabulary().text(*id)) : std::string();
}

}  // namespace

StatusOr<std::unique_ptr<TextModel>> TextModel::Load(const GgufFile& file) {
  KV_ASSIGN_OR_RETURN(const TokenizerFields fields, ReadTokenizerFields(file));
  std::unique_ptr<TextModel> text(new TextModel());
  KV_ASSIGN_OR_RETURN(text->tokenizer_, Tokenizer::Create(VocabularySourceFrom(fields)));
  if (fields.chat_template.has_value()) text->chat_template_ = std::string(*fields.chat_template);
  text->bos_text_ = TextOf(*text->tokenizer_, text->tokenizer_->bos());
  text->eos_text_ = TextOf(*text->tokenizer_, text->tokenizer_->eos());
  return text;
}

}  // namespace kvasir
