// kvasir chat: a conversation in the terminal.
//
// The KV cache outlives the turns, so each turn computes only what it adds; the line after an
// answer says how much was reused.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "answer.h"
#include "base/counted.h"
#include "chat_prompt.h"
#include "command.h"
#include "line_reader.h"
#include "model_flags.h"
#include "model_path.h"
#include "output.h"
#include "sampling_flags.h"
#include "speculation_flag.h"
#include "terminal.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

constexpr const char* kHelp =
    "/reset         forget the conversation\n"
    "/system TEXT   set the system message and start over; without TEXT, remove it\n"
    "/save FILE     write the conversation as a JSON array of messages\n"
    "/help          this list\n"
    "/quit          leave; so does Ctrl-D\n"
    "A message that begins with / is written //. A line ending in \\ goes on in the next.\n"
    "Ctrl-C stops an answer, or clears the line.\n";

std::string HistoryPath() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state != '\0') return std::string(state) + "/kvasir/chat_history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::string(home) + "/.local/state/kvasir/chat_history";
}

// A line about the conversation, not part of it: on standard error, dimmed on a terminal.
void Note(const std::string& text) {
  const bool terminal = IsTerminal(STDERR_FILENO);
  PrintError("{}{}{}\n", terminal ? "\033[2m" : "", text, terminal ? "\033[0m" : "");
}

class Conversation {
 public:
  Conversation(LoadedModel& model, const ChatPrompt& prompt, SequenceOptions options,
               Speculation speculate)
      : model_(model), prompt_(prompt), options_(std::move(options)), speculate_(speculate) {}

  void SetSystem(const std::string& text) {
    system_ = text;
    Reset();
  }

  void Reset() {
    messages_.clear();
    if (!system_.empty()) messages_.push_back({"system", system_});
  }

  // One turn: the answer is streamed and remembered. On an error the conversation is as before.
  Status Ask(const std::string& text) {
    KV_RETURN_IF_ERROR(ValidateUtf8(text));
    std::vector<ChatMessage> messages = messages_;
    messages.push_back({"user", text});
    KV_ASSIGN_OR_RETURN(std::vector<TokenId> tokens, prompt_.Encode(messages));
    const uint32_t context = model_.context_tokens();
    if (tokens.size() >= context) {
      return InvalidArgument(
          "the conversation has {} tokens, there is room for {}; /reset starts over; or {}",
          tokens.size(), context, model_.AdviceFor(tokens.size() + 1));
    }
    KV_ASSIGN_OR_RETURN(const Answer answer, GenerateAnswer(model_, std::move(tokens), options_,
                                                            speculate_, [](auto piece) {
                                                              Write(stdout, piece);
                                                              std::fflush(stdout);
                                                            }));
    PrintOut("\n");
    std::string note = answer.Summary();
    if (answer.finish == FinishReason::kCancelled) note += ", stopped";
    if (answer.finish == FinishReason::kLength) {
      const std::string full = FullContextNote(model_, answer, options_.max_new_tokens);
      note += full.empty() ? ", cut at the length limit" : ", " + full + "; /reset starts over";
    }
    Note("[" + note + "]");
    messages.push_back({"assistant", answer.text});
    messages_ = std::move(messages);
    return OkStatus();
  }

  Status Save(const std::string& path) const {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const ChatMessage& message : messages_) {
      json.push_back({{"role", message.role}, {"content", message.content}});
    }
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    file.close();
    if (!file) return Internal("{}: cannot be written: {}", path, std::strerror(errno));
    return OkStatus();
  }

  size_t message_count() const { return messages_.size(); }

 private:
  LoadedModel& model_;
  const ChatPrompt& prompt_;
  SequenceOptions options_;
  Speculation speculate_;
  std::string system_;
  std::vector<ChatMessage> messages_;
};

class ChatCommand : public Command {
 public:
  ChatCommand() {
    sampling_.temperature = 0.7f;
    sampling_.top_p = 0.95f;
  }

  std::vector<std::string> path() const override { return {"chat"}; }
  std::string description() const override { return "Talk with a model in the terminal"; }

  void Register(Options& options) override {
    flags_.Register(options);
    options.Add("--system", &system_, "System message").Type("TEXT");
    options.Add("--chat-template", &template_path_, "Use this Jinja template, not the model's")
        .Type("FILE");
    options.Add("-n,--max-tokens", &max_tokens_, "Longest answer in tokens (default: the room)")
        .Type("N")
        .Range(1u, kMaxContext);
    speculate_.Register(options);
    sampling_.Register(options);
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(WithPrefix(ValidateUtf8(system_), "--system"));
    KV_RETURN_IF_ERROR(FetchModel(&flags_.path, flags_.models_dir));
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags_, speculate_.Needs()));
    LoadedModel& model = *opened.model;
    SequenceOptions options;
    KV_ASSIGN_OR_RETURN(options.sampling, sampling_.ToSamplingOptions(model.config().vocab_size));
    if (max_tokens_.has_value()) options.max_new_tokens = *max_tokens_;
    options.stops = sampling_.stops;
    const StatusOr<ChatPrompt> prompt = ChatPrompt::Create(model.text(), template_path_);
    if (!prompt.ok()) return WithPrefix(prompt.status(), flags_.path);

    Conversation conversation(model, *prompt, std::move(options), speculate_.value());
    conversation.SetSystem(system_);
    CatchInterrupts(SecondInterrupt::kIsIgnored);
    LineReader reader("> ", HistoryPath());
    if (reader.is_terminal()) {
      Note(fmt::format("{}, {} of context. /help lists the commands.",
                       model.config().name.empty() ? flags_.path : model.config().name,
                       Counted(model.context_tokens(), "token")));
    }
    while (const std::optional<std::string> line = ReadMessage(reader)) {
      if (line->empty()) continue;
      const bool escaped = line->rfind("//", 0) == 0;  // A message that begins with a slash.
      if (line->front() == '/' && !escaped) {
        if (!Obey(*line, conversation)) break;
        continue;
      }
      const Status status = conversation.Ask(escaped ? line->substr(1) : *line);
      if (!status.ok()) Note(fmt::format("kvasir: {}", MessageOf(status)));
      failed_ = failed_ || (!status.ok() && !reader.is_terminal());
    }
    // A script must learn that a turn failed; a person has seen it.
    return failed_ ? kExitFailure : kExitOk;
  }

 private:
  // One line, or several joined where they end in a backslash.
  static std::optional<std::string> ReadMessage(LineReader& reader) {
    // Here and nowhere later: a Ctrl-C right after Enter is meant for the answer.
    Interrupted().store(false);
    std::string message;
    std::string line;
    while (true) {
      const LineReader::Event event = reader.Read(&line);
      if (event == LineReader::Event::kEnd && message.empty()) return std::nullopt;
      if (event == LineReader::Event::kCleared) {
        message.clear();
        continue;
      }
      message += line;
      if (line.empty() || line.back() != '\\') return message;
      message.back() = '\n';
    }
  }

  // A line that begins with '/'. False: leave.
  static bool Obey(const std::string& line, Conversation& conversation) {
    const size_t space = std::min(line.find(' '), line.size());
    const std::string name = line.substr(0, space);
    const size_t begin = line.find_first_not_of(' ', space);
    const std::string argument = begin == std::string::npos ? "" : line.substr(begin);
    if (name == "/quit" || name == "/exit") return false;
    if (name == "/help") {
      Note(std::string(kHelp, std::strlen(kHelp) - 1));
    } else if (name == "/reset") {
      conversation.Reset();
      Note("[conversation forgotten]");
    } else if (name == "/system") {
      const Status valid = ValidateUtf8(argument);
      if (valid.ok()) conversation.SetSystem(argument);
      Note(valid.ok() ? fmt::format("[system message {}, conversation forgotten]",
                                    argument.empty() ? "removed" : "set")
                      : fmt::format("kvasir: {}", MessageOf(valid)));
    } else if (name == "/save") {
      if (argument.empty()) {
        Note("kvasir: /save needs a file name");
        return true;
      }
      const Status saved = conversation.Save(argument);
      Note(saved.ok() ? fmt::format("[{} saved to {}]",
                                    Counted(conversation.message_count(), "message"), argument)
                      : fmt::format("kvasir: {}", MessageOf(saved)));
    } else {
      Note(fmt::format("kvasir: {} is no command; /help lists them", name));
    }
    return true;
  }

  ModelFlags flags_;
  SpeculationFlag speculate_;
  SamplingFlags sampling_;
  std::string system_;
  std::string template_path_;
  std::optional<uint32_t> max_tokens_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand() { return std::make_unique<ChatCommand>(); }

}  // namespace kvasir
