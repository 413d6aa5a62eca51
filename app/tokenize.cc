// kvasir tokenize and kvasir detokenize: text on standard input to token ids and back.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "command.h"
#include "engine/text_model.h"
#include "io/mapped_parts.h"
#include "model/gguf_file.h"
#include "model_path.h"
#include "option_values.h"
#include "output.h"
#include "text/utf8.h"
#include "text_input.h"

namespace kvasir {
namespace {

StatusOr<std::unique_ptr<TextModel>> LoadText(const MappedParts& file) {
  KV_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::ParseParts(file.parts()));
  return TextModel::Load(gguf);
}

StatusOr<std::unique_ptr<TextModel>> OpenText(const std::string& path) {
  KV_ASSIGN_OR_RETURN(const MappedParts file, MappedParts::Open(path));
  StatusOr<std::unique_ptr<TextModel>> text = LoadText(file);
  if (!text.ok()) return WithPrefix(text.status(), path);
  return text;
}

class TokenizeCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"tokenize"}; }
  std::string description() const override {
    return "Print the token ids of the text on standard input as a JSON array";
  }

  void Register(Options& options) override {
    AddModelPath(options, &path_, &models_dir_);
    options.AddFlag("--special", &special_, "Read control tokens written in the text as such");
    options.AddFlag("--no-bos", &no_bos_, "Do not put the model's BOS token in front");
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(FetchModel(&path_, models_dir_));
    KV_ASSIGN_OR_RETURN(const std::unique_ptr<TextModel> model, OpenText(path_));
    KV_ASSIGN_OR_RETURN(const std::string text, ReadText("-"));
    const Status valid = ValidateUtf8(text);
    if (!valid.ok()) return WithPrefix(valid, InputName("-"));
    EncodeOptions options;
    options.parse_special = special_;
    options.add_bos = !no_bos_;
    std::string line = "[";
    for (const TokenId id : model->tokenizer().Encode(text, options)) {
      if (line.size() > 1) line += ", ";
      line += std::to_string(Index(id));
    }
    PrintOut("{}]\n", line);
    return kExitOk;
  }

 private:
  std::string path_;
  std::string models_dir_;
  bool special_ = false;
  bool no_bos_ = false;
};

class DetokenizeCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"detokenize"}; }
  std::string description() const override {
    return "Print the text of the JSON array of token ids on standard input";
  }

  void Register(Options& options) override {
    AddModelPath(options, &path_, &models_dir_);
    options.AddFlag("--no-bos", &no_bos_,
                    "The ids come from tokenize --no-bos: a leading BOS is part of the text");
  }

  StatusOr<int> Run() override {
    KV_RETURN_IF_ERROR(FetchModel(&path_, models_dir_));
    KV_ASSIGN_OR_RETURN(const std::unique_ptr<TextModel> model, OpenText(path_));
    const Tokenizer& tokenizer = model->tokenizer();
    KV_ASSIGN_OR_RETURN(const std::string input, ReadText("-"));
    const StatusOr<std::vector<TokenId>> parsed = ParseIds(input);
    if (!parsed.ok()) return WithPrefix(parsed.status(), InputName("-"));
    const Status in_vocabulary =
        CheckTokenIds(*parsed, static_cast<uint32_t>(tokenizer.vocab_size()));
    if (!in_vocabulary.ok()) return WithPrefix(in_vocabulary, InputName("-"));

    std::span<const TokenId> ids = *parsed;
    if (!no_bos_ && tokenizer.adds_bos() && !ids.empty() && ids[0] == *tokenizer.bos()) {
      ids = ids.subspan(1);  // What tokenize put there.
    }
    DecodeOptions options;
    options.special = true;
    const std::string text = tokenizer.Decode(ids, options);
    Write(stdout, text);
    return kExitOk;
  }

 private:
  static StatusOr<std::vector<TokenId>> ParseIds(const std::string& text) {
    const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_array()) return InvalidArgument("must be a JSON array of token ids");
    std::vector<TokenId> ids;
    ids.reserve(json.size());
    for (const nlohmann::json& item : json) {
      const bool fits = item.is_number_integer() && item >= 0 && item <= INT32_MAX;
      if (!fits) return InvalidArgument("element {} is no token id", ids.size());
      ids.push_back(TokenId{item.get<int32_t>()});
    }
    return ids;
  }

  std::string path_;
  std::string models_dir_;
  bool no_bos_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }
std::unique_ptr<Command> MakeDetokenizeCommand() { return std::make_unique<DetokenizeCommand>(); }

}  // namespace kvasir
