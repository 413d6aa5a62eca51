// TokenizerFields: the tokenizer's part of a GGUF file, as views into it.
//
// Found and checked for shape, not interpreted: which model and pre-tokenizer names exist is the
// text module's business. Works on vocabulary-only files. Valid as long as the file's bytes.
#ifndef KVASIR_MODEL_TOKENIZER_FIELDS_H_
#define KVASIR_MODEL_TOKENIZER_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "model/gguf_file.h"

namespace kvasir {

struct TokenizerFields {
  std::string_view model;  // "gpt2" (byte-level BPE), "llama" (SentencePiece with scores), ...
  std::string_view pre;    // "smollm", "default", ...; empty when the file names none.
  GgufStrings tokens;      // Never empty; the index is the token id.
  GgufNumbers scores;      // One a token, or empty.
  GgufNumbers types;       // One integer a token (1 normal, 2 unknown, 3 control, 4 user defined,
                           // 5 unused, 6 byte), or empty.
  GgufStrings merges;      // "left right" by rank, or empty.

  // All below tokens.size().
  std::optional<uint32_t> bos_id;
  std::optional<uint32_t> eos_id;
  std::optional<uint32_t> eot_id;
  std::optional<uint32_t> eom_id;
  std::optional<uint32_t> unknown_id;
  std::optional<uint32_t> padding_id;

  // nullopt: the file does not say, and the default depends on the model.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::optional<bool> remove_extra_whitespaces;

  std::optional<std::string_view> chat_template;
};

// kInvalidArgument when the file has no tokenizer, or one whose parts do not fit together (counts
// differ, an id is outside the vocabulary, a field is of the wrong type): names key and offset.
StatusOr<TokenizerFields> ReadTokenizerFields(const GgufFile& file);

}  // namespace kvasir

#endif  // KVASIR_MODEL_TOKENIZER_FIELDS_H_
