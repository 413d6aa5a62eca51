// GenerationExchange: the life of one HTTP request that generates: from its tokenized prompts
// through the engine to the reply, whole or streamed.
//
// One HTTP request may hold several prompts; each is one GenerateRequest, and they are answered
// together or not at all: nothing of the reply is sent before the engine has taken all of them. The
// engine's events come as posts on the exchange's strand. When the client goes away its requests
// are cancelled at once.
// Owned by the wakers of its token streams until the last one ends. Thread: the exchange's strand.
#ifndef KVASIR_API_GENERATION_EXCHANGE_H_
#define KVASIR_API_GENERATION_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/openai_reply.h"
#include "api/openai_schema.h"
#include "api/service.h"

namespace kvasir {

struct GenerationPrompt {
  std::vector<TokenId> tokens;
  std::string echo;  // Put in front of each choice's text.
  bool bos_added = false;
};

struct GenerationInput {
  const char* route = "";  // The metrics' label.
  const char* where = "";  // The field that holds the prompt, for messages.
  bool chat = false;
  GenerationParameters parameters;
  std::vector<GenerationPrompt> prompts;
  bool echo = false;
  std::string prompt_text;  // For the log, if prompts are logged.
};

class GenerationExchange : public std::enable_shared_from_this<GenerationExchange> {
 public:
  // Replies now if the input cannot be served, later otherwise.
  static void Start(ApiService& service, std::shared_ptr<const ServedModel> model,
                    std::shared_ptr<HttpExchange> exchange, GenerationInput input);

 private:
  struct Choice {
    uint32_t index = 0;               // Among all choices of the reply.
    std::string text;                 // Whole replies: all of it.
    std::vector<ScoredToken> tokens;  // Likewise; streams: since the last chunk.
    size_t offset = 0;                // Characters before `tokens`.
    bool begun = false;
    FinishReason finish = FinishReason::kNone;
    TimeUs last_token_us = 0;  // 0: none yet.
  };
  struct Part {  // One prompt.
    RequestId id{};
    std::shared_ptr<TokenStream> stream;
    std::vector<ScoredToken> prompt_tokens;  // Of an echo with log-probabilities.
    std::vector<Choice> choices;
    std::vector<TokenEvent> held;  // Came before all parts were accepted.
    bool accepted = false;
    std::optional<RequestSummary> end;
  };

  GenerationExchange(ApiService& service, std::shared_ptr<const ServedModel> model,
                     std::shared_ptr<HttpExchange> exchange, GenerationInput input);

  std::optional<ApiError> CheckLengths() const;
  GenerateRequest RequestFor(const GenerationPrompt& prompt, TimeUs deadline, uint64_t seed,
                             const BlockHash& root) const;
  void MakeParts();
  void Submit();
  void OnEvents(size_t part_index);
  void OpenReply();
  void TakeEvent(Part& part, TokenEvent& event);
  void TakeToken(Part& part, Choice& choice, TokenEvent& event);
  void BeginChoice(const Part& part, size_t part_index, Choice& choice);
  void Emit(Choice& choice, std::string text);
  void CancelAll();
  void Fail(const ApiError& error);
  void Complete();
  void FinishReply(const RequestSummary& total);
  void RecordEnd(int status, const RequestSummary& total, const std::string& error);
  RequestSummary Total() const;
  Explanation Explain(const RequestSummary& total) const;

  ApiService& service_;
  const std::shared_ptr<const ServedModel> model_;
  const std::shared_ptr<HttpExchange> exchange_;
  GenerationInput input_;
  ReplyStyle style_;
  uint32_t tenant_ = 0;
  bool explain_ = false;
  bool keep_generated_ = true;  // False for max_tokens 0: one token is computed and dropped.
  std::vector<Part> parts_;
  std::string outbox_;  // SSE text of this turn.
  bool open_ = false;   // All parts are accepted.
  bool over_ = false;   // The reply is complete or has failed.
};

}  // namespace kvasir

#endif  // KVASIR_API_GENERATION_EXCHANGE_H_
