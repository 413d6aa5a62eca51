// ToolArgumentForm: how a chat template wants the arguments of tool calls (tool_arguments.h).
#ifndef KVASIR_TEXT_TOOL_ARGUMENT_FORM_H_
#define KVASIR_TEXT_TOOL_ARGUMENT_FORM_H_

#include <cstdint>
#include <string_view>

namespace kvasir {

enum class ToolArgumentForm : uint8_t {
  kAsGiven,  // Takes both, or writes no calls at all.
  kObject,
  kJsonText,
};

// "object", "JSON text", "as given": for people.
std::string_view NameOf(ToolArgumentForm form);

}  // namespace kvasir

#endif  // KVASIR_TEXT_TOOL_ARGUMENT_FORM_H_
