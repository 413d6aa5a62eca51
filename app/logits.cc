// kvasir logits: the logits after given tokens, for comparison with other engines.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "command.h"
#include "kernels/logits_row.h"
#include "kernels/row_ops.h"
#include "model/reference_forward.h"
#include "model_flags.h"
#include "model_path.h"
#include "option_values.h"
#include "output.h"

namespace kvasir {
namespace {

// Rows of logits held at once while all positions are asked for: 64 of Gemma's are 67 MB.
constexpr uint32_t kLogitsRows = 64;

class LogitsCommand : public Command {
 public:
  std::vector<std::string> path() const override { return {"logits"}; }
  std::string description() const override {
    return "Print the logits that follow the given tokens as JSON";
  }

  void Register(Options& options) override {
    flags_.Register(options);
    options.Add("--tokens", &tokens_, "Token ids to compute, such as 1,2,3")
        .Type("IDS")
        .Check(TokenIdsProblem)
        .Required();
    options
        .Add("--positions", &positions_,
             "Positions whose logits to print, such as 0,2, or all (default: the last)")
        .Type("LIST")
        .Check([](const std::string& text) {
          return text == "all" ? std::string() : TokenIdsProblem(text);
        });
    options.Add("--top", &top_, "How many logits of each position, largest first")
        .Type("N")
        .Range(1, 1 << 22)
        .ShowDefault();
    options.AddFlag("--reference", &reference_,
                    "Compute with dequantized weights in double precision (slow)");
  }

  StatusOr<int> Run() override {
    KV_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, ParseTokenIds(tokens_));
    KV_ASSIGN_OR_RETURN(const std::vector<uint32_t> positions, Positions(tokens.size()));
    KV_RETURN_IF_ERROR(FetchModel(&flags_.path, flags_.models_dir));
    return reference_ ? RunReference(tokens, positions) : RunFast(tokens, positions);
  }

 private:
  // Ascending, each once.
  StatusOr<std::vector<uint32_t>> Positions(size_t token_count) const {
    std::vector<uint32_t> positions;
    if (positions_ == "all") {
      positions.resize(token_count);
      std::iota(positions.begin(), positions.end(), 0u);
      return positions;
    }
    if (positions_.empty()) return std::vector<uint32_t>{static_cast<uint32_t>(token_count - 1)};
    KV_ASSIGN_OR_RETURN(const std::vector<TokenId> numbers, ParseTokenIds(positions_));
    for (const TokenId number : numbers) {
      const uint32_t position = static_cast<uint32_t>(Index(number));
      if (position >= token_count) {
        return InvalidArgument("--positions: {} is beyond the {} tokens", position, token_count);
      }
      positions.push_back(position);
    }
    // Printed in ascending order, each once: they are computed chunk by chunk.
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    return positions;
  }

  static Status CheckFits(const std::vector<TokenId>& tokens, const ModelConfig& config) {
    KV_RETURN_IF_ERROR(CheckTokenIds(tokens, config.vocab_size));
    if (tokens.size() > config.context_length) {
      return InvalidArgument("--tokens has {} tokens, the model's context is {}", tokens.size(),
                             config.context_length);
    }
    return OkStatus();
  }

  // Prints one position; `logits` in any float type.
  template <typename Row>
  void Print(uint32_t position, double log_sum_exp, const Row& logits,
             const std::vector<uint32_t>& ids) {
    std::string line = fmt::format("{}\n {{\"position\": {}, \"logsumexp\": {:.9g}, \"ids\": [",
                                   first_ ? "" : ",", position, log_sum_exp);
    first_ = false;
    for (size_t i = 0; i < ids.size(); ++i) line += fmt::format("{}{}", i ? ", " : "", ids[i]);
    line += "], \"logits\": [";
    for (size_t i = 0; i < ids.size(); ++i) {
      line += fmt::format("{}{:.9g}", i ? ", " : "", logits[ids[i]]);
    }
    PrintOut("{}]}}", line);
  }

  template <typename Row>
  std::vector<uint32_t> BestIds(const Row& logits) const {
    std::vector<uint32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0u);
    const size_t count = std::min<size_t>(top_, ids.size());
    std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count), ids.end(),
                      [&logits](uint32_t a, uint32_t b) {
                        return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
                      });
    ids.resize(count);
    return ids;
  }

  StatusOr<int> RunFast(const std::vector<TokenId>& tokens,
                        const std::vector<uint32_t>& positions) {
    OpenNeeds needs;
    needs.max_logits_rows = kLogitsRows;
    needs.context_tokens = static_cast<uint32_t>(tokens.size());
    needs.context_advice = "give fewer --tokens";
    KV_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(flags_, needs));
    LoadedModel& model = *opened.model;
    KV_RETURN_IF_ERROR(CheckFits(tokens, model.config()));

    // One token beyond would be reused at most; an empty cache reuses none.
    const std::optional<SequenceId> id = model.kv().Open(model.Root(""), tokens);
    if (!id.has_value()) return ResourceExhausted("no sequence is free");
    PrintOut("{{\"positions\": [");
    for (size_t done = 0; done < tokens.size();) {
      const size_t rows = std::min<size_t>(kLogitsRows, tokens.size() - done);
      KV_RETURN_IF_ERROR(
          ComputeChunk(model, *id, std::span(tokens).subspan(done, rows), positions));
      done += rows;
    }
    PrintOut("\n]}}\n");
    model.kv().Close(*id);
    return kExitOk;
  }

  Status ComputeChunk(LoadedModel& model, SequenceId id, std::span<const TokenId> chunk,
                      const std::vector<uint32_t>& wanted) {
    KvCache& kv = model.kv();
    const uint32_t start = kv.computed(id);
    const uint32_t rows = static_cast<uint32_t>(chunk.size());
    if (!kv.Reserve(id, rows)) return ResourceExhausted("the KV memory is full");
    const auto first = std::lower_bound(wanted.begin(), wanted.end(), start);
    const bool any = first != wanted.end() && *first < start + rows;
    const uint32_t logits_begin = any ? *first - start : rows;
    Batch batch;
    batch.sequences.resize(1);
    BatchSequence& sequence = batch.sequences[0];
    sequence.tokens = chunk;
    sequence.start = start;
    sequence.logits_begin = logits_begin;
    for (uint32_t group = 0; group < kv.layout().group_count(); ++group) {
      sequence.blocks[group] = kv.table(id, group).addresses();
    }
    sequence.tail = kv.tail(id);
    model.runner().Run(batch);
    kv.Commit(id, chunk);
    for (auto at = first; at != wanted.end() && *at < start + rows; ++at) {
      const std::span<const float> row = model.runner().logits(*at - start - logits_begin);
      Print(*at, static_cast<double>(LogSumExp(row)), row, BestIds(row));
    }
    return OkStatus();
  }

  StatusOr<int> RunReference(const std::vector<TokenId>& tokens,
                             const std::vector<uint32_t>& positions) {
    KV_ASSIGN_OR_RETURN(const int threads, ApplyMachineFlags(flags_));
    KV_ASSIGN_OR_RETURN(const MappedParts file, MappedParts::Open(flags_.path));
    const Status status = PrintReference(file, threads, tokens, positions);
    if (!status.ok()) return WithPrefix(status, flags_.path);
    return kExitOk;
  }

  Status PrintReference(const MappedParts& file, int threads, const std::vector<TokenId>& tokens,
                        const std::vector<uint32_t>& positions) {
    KV_ASSIGN_OR_RETURN(const GgufFile gguf, GgufFile::ParseParts(file.parts()));
    KV_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(gguf));
    KV_RETURN_IF_ERROR(CheckFits(tokens, config));
    const ReferenceModel model(gguf, config, threads);
    KV_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> rows,
                        model.Logits(tokens, positions));
    PrintOut("{{\"positions\": [");
    for (size_t i = 0; i < positions.size(); ++i) {
      const std::vector<double>& row = rows[i];
      const double max = *std::max_element(row.begin(), row.end());
      double sum = 0.0;
      for (const double logit : row) sum += std::exp(logit - max);
      Print(positions[i], max + std::log(sum), row, BestIds(row));
    }
    PrintOut("\n]}}\n");
    return OkStatus();
  }

  ModelFlags flags_;
  std::string tokens_;
  std::string positions_;
  uint32_t top_ = 256;
  bool reference_ = false;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<Command> MakeLogitsCommand() { return std::make_unique<LogitsCommand>(); }

}  // namespace kvasir
