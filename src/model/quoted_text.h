// Quoted: text from outside made safe to print in a one-line message.
#ifndef KVASIR_MODEL_QUOTED_TEXT_H_
#define KVASIR_MODEL_QUOTED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace kvasir {

// 'text' in single quotes; control codes, quotes, backslashes and bytes beyond ASCII as \xNN, and
// "..." after `limit` bytes of input. A name in a damaged file can be anything, also terminal
// escapes.
std::string Quoted(std::string_view text, size_t limit = 96);

}  // namespace kvasir

#endif  // KVASIR_MODEL_QUOTED_TEXT_H_
