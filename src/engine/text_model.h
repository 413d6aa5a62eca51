// TextModel: the text side of a model file: its tokenizer and its chat template's source. Also of
// files that hold a vocabulary and no weights.
// Thread: immutable.
#ifndef KVASIR_ENGINE_TEXT_MODEL_H_
#define KVASIR_ENGINE_TEXT_MODEL_H_

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/gguf_file.h"
#include "text/tokenizer.h"

namespace kvasir {

class TextModel {
 public:
  // kInvalidArgument or kUnimplemented when the file has no tokenizer that this build knows.
  // Nothing of `file` is needed afterwards.
  static StatusOr<std::unique_ptr<TextModel>> Load(const GgufFile& file);

  const Tokenizer& tokenizer() const { return *tokenizer_; }

  // The Jinja source in the file; nullopt: the model has no chat template.
  const std::optional<std::string>& chat_template() const { return chat_template_; }

  // The spelling of BOS and EOS, which templates ask for; empty when there is none.
  const std::string& bos_text() const { return bos_text_; }
  const std::string& eos_text() const { return eos_text_; }

 private:
  TextModel() = default;

  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<std::string> chat_template_;
  std::string bos_text_;
  std::string eos_text_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_TEXT_MODEL_H_
