// RunEncoder: turns a run of ordinary text (no control or user-defined tokens in it) into tokens.
// One implementation per tokenizer model: BpeEncoder, SpmEncoder.
//
// Thread: implementations are immutable after creation; the scratch belongs to one call at a time.
#ifndef KVASIR_TEXT_RUN_ENCODER_H_
#define KVASIR_TEXT_RUN_ENCODER_H_

#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/bpe_merge.h"

namespace kvasir {

class RunEncoder {
 public:
  virtual ~RunEncoder() = default;

  // Appends the tokens of `run` to `*out`; any bytes are accepted. The result depends on `run`
  // only.
  virtual void Encode(std::string_view run, BpeMerge* scratch, std::vector<TokenId>* out) const = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_RUN_ENCODER_H_
