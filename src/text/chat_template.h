// ChatTemplate: a model's Jinja template; turns a conversation into a prompt.
//
// Renders exactly what Hugging Face tokenizers' apply_chat_template renders (jinja2's immutable
// sandbox, trim_blocks, lstrip_blocks, loop controls, tojson as json.dumps(ensure_ascii=False),
// raise_exception, strftime_now, generation blocks). Does no I/O and reads no clock.
//
// The output carries provenance: text written by the template, and the bos and eos strings, are
// trusted and may become control tokens; whatever stems from messages, tools or other variables,
// through any filter, is text, and so are characters that cannot be traced (numbers, JSON
// punctuation, dates). One exception: a message's role that is exactly one of kKnownRoles counts
// as the template's, since templates build control tokens such as <|user|> from it and it can
// spell nothing else.
//
// Thread: immutable once parsed; Render may run on any number of threads at once.
// Source: Hugging Face transformers documentation, "Chat templates"; jinja2 documentation.
#ifndef KVASIR_TEXT_CHAT_TEMPLATE_H_
#define KVASIR_TEXT_CHAT_TEMPLATE_H_

#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/text_segment.h"
#include "text/tool_argument_form.h"

namespace kvasir {

namespace jinja {
struct Template;
}

inline constexpr std::string_view kKnownRoles[] = {
    "system", "developer", "user",    "assistant",   "model",
    "tool",   "function",  "ipython", "observation",
};

// The most bytes of messages_json, tools_json and variables_json, each.
inline constexpr size_t kMaxChatJsonBytes = size_t{32} << 20;

// One rendering's input. JSON is text, so that callers need no common JSON type.
struct ChatInput {
  std::string messages_json;   // An array of objects, each with a string "role".
  std::string tools_json;      // An array; empty: the template sees tools = none.
  std::string variables_json;  // An object of further variables; empty: none.
  bool add_generation_prompt = true;
  std::string bos_token;  // Trusted; the strings of the vocabulary.
  std::string eos_token;
  std::optional<std::tm> now;  // For strftime_now; see ParseIsoTime.
  // Tool calls' arguments are brought into the form that the template expects. False: it gets them
  // as they are, as apply_chat_template would give them.
  bool adapt_tool_arguments = true;
};

struct RenderedPrompt {
  struct Segment {
    size_t begin;  // Byte offsets into text.
    size_t end;
    bool trusted;
  };
  std::string text;
  // Covers text in order; neighbours differ in trust.
  std::vector<Segment> segments;

  // The segments as views into text, for the tokenizer.
  std::vector<TextSegment> Views() const;
};

// What one rendering may use; beyond it Render returns ResourceExhausted.
struct ChatTemplateLimits {
  int64_t steps = 20'000'000;       // Operations; about a second or two.
  int64_t value_bytes = 512 << 20;  // All values made along the way.
  size_t output_bytes = 64 << 20;
};

class ChatTemplate {
 public:
  // Errors name the line and the construct: "line 3: 'for' without 'endfor'". Renders a few small
  // conversations to learn how the template wants tool calls; what fails there is no error.
  static StatusOr<ChatTemplate> Parse(std::string source);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Errors: messages, tools or variables that are not the JSON asked for (naming which and where),
  // what the template refuses with raise_exception, what it does wrong ("line 12: ..."), limits.
  StatusOr<RenderedPrompt> Render(const ChatInput& input,
                                  const ChatTemplateLimits& limits = {}) const;

  const std::string& source() const { return source_; }
  ToolArgumentForm tool_argument_form() const { return tool_argument_form_; }

 private:
  ChatTemplate(std::string source, std::unique_ptr<const jinja::Template> tree);

  std::string source_;
  std::unique_ptr<const jinja::Template> tree_;
  ToolArgumentForm tool_argument_form_ = ToolArgumentForm::kAsGiven;
};

// "2026-01-02T03:04:05" (or with a space, or the date alone) as a calendar time with the day of the
// week and of the year filled in.
StatusOr<std::tm> ParseIsoTime(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_TEXT_CHAT_TEMPLATE_H_
