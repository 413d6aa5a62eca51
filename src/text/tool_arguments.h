// Tool call arguments as a chat template wants them: as an object (which it prints with tojson or
// piece by piece) or as the JSON text that the model once wrote (which it prints as it is).
//
// Families differ, and a template that gets the wrong form fails or writes the arguments as Python
// or twice quoted. Which one a template wants is found by rendering a conversation with one call in
// both forms and looking at what comes out.
//
// Thread: pure functions.
#ifndef KVASIR_TEXT_TOOL_ARGUMENTS_H_
#define KVASIR_TEXT_TOOL_ARGUMENTS_H_

#include "base/status.h"
#include "text/jinja_value.h"
#include "text/tool_argument_form.h"

namespace kvasir {

class ChatTemplate;

// What `parsed` wants; renders it up to eight times with small limits.
ToolArgumentForm FindToolArgumentForm(const ChatTemplate& parsed);

// `message` with the arguments of its calls in that form: objects become text as json.dumps writes
// them, text that is a JSON object becomes an object; anything else stays. Errors: what a value's
// limits refuse.
StatusOr<jinja::Value> WithToolArguments(const jinja::Value& message, ToolArgumentForm form);

}  // namespace kvasir

#endif  // KVASIR_TEXT_TOOL_ARGUMENTS_H_
