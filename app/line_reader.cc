#include "line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "terminal.h"

namespace kvasir {
namespace {

constexpr int kHistoryLines = 1000;

// libedit decodes keys by the locale; in the C locale it would take UTF-8 apart.
void UseUtf8Locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(::nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
}

}  // namespace

class LineReader::Editor {
 public:
  Editor(std::string prompt, std::string history_path)
      : prompt_(std::move(prompt)), history_path_(std::move(history_path)) {
    UseUtf8Locale();
    history_ = ::history_init();
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, kHistoryLines);
    ::history(history_, &event, H_SETUNIQUE, 1);
    LoadHistory();

    edit_ = ::el_init("kvasir", stdin, stdout, stderr);
    ::el_set(edit_, EL_CLIENTDATA, this);
    ::el_set(edit_, EL_PROMPT, &Editor::Prompt);
    ::el_set(edit_, EL_EDITOR, "emacs");
    ::el_set(edit_, EL_SIGNAL, 0);
    ::el_set(edit_, EL_HIST, ::history, history_);
    ::el_set(edit_, EL_ADDFN, "kv-clear", "Clear the line", &Editor::ClearLine);
    ::el_set(edit_, EL_BIND, "^C", "kv-clear", nullptr);
    ::el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    // While a line is edited Ctrl-C is a key, not a signal; ~/.editrc may not change that.
    ::el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    // libedit would cook input between lines, whatever it found: see QuietInput.
    ::el_set(edit_, EL_SETTY, "-x", "-icanon", "-echo", nullptr);
  }

  ~Editor() {
    ::el_end(edit_);
    ::history_end(history_);
  }

  Event Read(std::string* text) {
    cleared_ = false;
    // Before the prompt appears: el_gets would do it after that, and whoever answers the prompt
    // with Ctrl-C at once would send a signal.
    ::el_set(edit_, EL_PREP_TERM, 1);
    int count = 0;
    const char* line = ::el_gets(edit_, &count);
    // First: an empty line that Ctrl-C ended looks like the end of input.
    if (cleared_) return Event::kCleared;
    if (line == nullptr || count <= 0) return Event::kEnd;
    text->assign(line, static_cast<size_t>(count));
    while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
    Remember(*text);
    return Event::kLine;
  }

 private:
  static char* Prompt(EditLine* edit) {
    Editor* self = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &self);
    return self->prompt_.data();
  }

  static unsigned char ClearLine(EditLine* edit, int) {
    Editor* self = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &self);
    self->cleared_ = true;
    std::fputs("^C\n", stdout);
    std::fflush(stdout);
    return CC_NEWLINE;
  }

  void LoadHistory() {
    if (history_path_.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(history_path_).parent_path(),
                                        ignored);
    HistEvent event;
    ::history(history_, &event, H_LOAD, history_path_.c_str());
  }

  void Remember(const std::string& text) {
    if (text.empty()) return;
    HistEvent event;
    ::history(history_, &event, H_ENTER, text.c_str());
    if (!history_path_.empty()) ::history(history_, &event, H_SAVE, history_path_.c_str());
  }

  QuietInput quiet_;  // Restores the terminal's own modes after edit_ is gone.
  std::string prompt_;
  std::string history_path_;
  History* history_ = nullptr;
  EditLine* edit_ = nullptr;
  bool cleared_ = false;
};

LineReader::LineReader(std::string prompt, std::string history_path) {
  if (IsTerminal(STDIN_FILENO) && IsTerminal(STDOUT_FILENO)) {
    editor_ = std::make_unique<Editor>(std::move(prompt), std::move(history_path));
  }
}

LineReader::~LineReader() = default;

LineReader::Event LineReader::Read(std::string* line) {
  line->clear();
  if (editor_ != nullptr) return editor_->Read(line);
  if (!std::getline(std::cin, *line)) return Event::kEnd;
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return Event::kLine;
}

}  // namespace kvasir
