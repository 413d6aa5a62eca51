// TextSegment: a piece of a prompt and whether it may be read as control tokens.
//
// A prompt is a list of segments in order. Only in a trusted segment (written by a chat template or
// by the operator) may the tokenizer recognise control tokens such as <|im_start|>; everything else
// is plain text, whatever it spells. Ordinary text is still tokenized across segment borders.
#ifndef KVASIR_TEXT_TEXT_SEGMENT_H_
#define KVASIR_TEXT_TEXT_SEGMENT_H_

#include <string_view>

namespace kvasir {

struct TextSegment {
  std::string_view text;  // UTF-8; not owned.
  bool trusted = false;   // true: control tokens are parsed.
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_TEXT_SEGMENT_H_
