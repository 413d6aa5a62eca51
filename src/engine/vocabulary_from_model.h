// From the tokenizer's part of a model file to the text module's words: the seam between model
// (which knows files, not text) and text (which knows text, not files).
#ifndef KVASIR_ENGINE_VOCABULARY_FROM_MODEL_H_
#define KVASIR_ENGINE_VOCABULARY_FROM_MODEL_H_

#include "model/tokenizer_fields.h"
#include "text/vocabulary.h"

namespace kvasir {

// Strings stay views into the file's bytes.
VocabularySource VocabularySourceFrom(const TokenizerFields& fields);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_VOCABULARY_FROM_MODEL_H_
