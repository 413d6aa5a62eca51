// LineReader: lines from a person (line editing, history) or from a pipe (plain lines, no escape
// codes, no prompt).
//
// On a terminal libedit edits: arrows, history with up and down, Ctrl-A/E/K/U/R. Ctrl-C clears the
// line, empty or not, and stays; Ctrl-D on an empty line is the end. The history file is read at
// construction and appended to; a file that cannot be written is not worth a word. Thread: one.
// Source: editline(3).
#ifndef KVASIR_APP_LINE_READER_H_
#define KVASIR_APP_LINE_READER_H_

#include <memory>
#include <string>

namespace kvasir {

class LineReader {
 public:
  // `history_path` empty: history lasts as long as the reader.
  LineReader(std::string prompt, std::string history_path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  enum class Event {
    kLine,
    kCleared,  // Ctrl-C: whoever collects several lines drops them.
    kEnd,      // Of input.
  };

  // Waits for the next one. For kLine, `line` is it without its newline; otherwise it is empty.
  Event Read(std::string* line);

  bool is_terminal() const { return editor_ != nullptr; }

 private:
  class Editor;
  std::unique_ptr<Editor> editor_;  // Null when standard input or output is not a terminal.
};

}  // namespace kvasir

#endif  // KVASIR_APP_LINE_READER_H_
