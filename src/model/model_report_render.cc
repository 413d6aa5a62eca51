// RenderText and RenderJson of ModelReport.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/counted.h"
#include "model/model_report.h"

namespace kvasir {
namespace {

using Json = nlohmann::ordered_json;

constexpr KvStorage kKvStorages[] = {KvStorage::kF16, KvStorage::kInt8, KvStorage::kInt4};

std::string_view NameOf(Activation activation) {
  return activation == Activation::kSilu ? "silu" : "gelu_tanh";
}

std::string_view NameOf(RopePairing pairing) {
  return pairing == RopePairing::kInterleaved ? "interleaved" : "halves";
}

// 12345678 as "12,345,678".
std::string Grouped(uint64_t value) {
  const std::string digits = fmt::format("{}", value);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// Printable on a terminal whatever the file says: control codes (also the second set, U+0080 to
// U+009F) as \xNN, newlines kept when `keep_newlines`; other UTF-8 stays.
std::string Printable(std::string_view text, bool keep_newlines = false) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    const bool is_second_set = byte == 0xc2 && next >= 0x80 && next < 0xa0;
    const bool is_control = byte < 0x20 || byte == 0x7f || is_second_set;
    if (is_control && !(keep_newlines && byte == '\n')) out += fmt::format("\\x{:02x}", byte);
    if (is_second_set) out += fmt::format("\\x{:02x}", next);
    if (!is_control || (keep_newlines && byte == '\n')) out += text[i];
    if (is_second_set) ++i;
  }
  return out;
}

class Lines {
 public:
  void Add(std::string_view label, std::string_view value) {
    text_ += fmt::format("{:<18}{}\n", label, value);
  }
  void Gap() { text_ += '\n'; }
  void Raw(std::string_view text) { text_ += text; }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// "0, 1, 2" of the layers with (or without) a window.
std::string LayersText(const ModelConfig& config, bool windowed) {
  std::string text;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if ((config.layers[i].window != 0) != windowed) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  }
  return text;
}

// Windows, RoPE bases and factors that occur, with how many layers have each.
using LayerKind = std::tuple<uint32_t, double, double>;
std::map<LayerKind, uint32_t> LayerKinds(const ModelConfig& config) {
  std::map<LayerKind, uint32_t> kinds;
  for (const LayerConfig& layer : config.layers) {
    ++kinds[{layer.window, layer.rope_base, layer.rope_factor}];
  }
  return kinds;
}

// What RoPE does beyond its base; empty when nothing.
std::string RopeText(const ModelConfig& config, double factor) {
  std::string text;
  if (config.rope_dim != config.head_dim) {
    text += fmt::format(", of {} dimensions", config.rope_dim);
  }
  if (config.yarn.original_context != 0) {
    text += fmt::format(", YaRN factor {:.10g} of a context of {}", factor,
                        Grouped(config.yarn.original_context));
  } else if (factor != 1.0) {
    text += fmt::format(", linear factor {:.10g}", factor);
  }
  if (!config.rope_divisors.empty()) text += ", divisors of each pair";
  if (config.rope_magnitude != 1.0) text += fmt::format(", times {:.6g}", config.rope_magnitude);
  return text;
}

void AddConfig(const ModelConfig& config, Lines& lines) {
  lines.Gap();
  lines.Add("layers", fmt::format("{}", config.layer_count));
  lines.Add("width", fmt::format("{}, feed-forward {} ({})", config.d_model, config.d_ffn,
                                 NameOf(config.activation)));
  lines.Add("heads", fmt::format("{} of {}, KV heads {}", config.head_count, config.head_dim,
                                 config.kv_head_count));
  lines.Add("context", fmt::format("{} tokens", Grouped(config.context_length)));
  lines.Add("vocabulary", fmt::format("{} tokens, head {}", Grouped(config.vocab_size),
                                      config.tied_head ? "tied to the embedding" : "of its own"));
  lines.Add("norms", fmt::format("RMS, epsilon {:g}{}{}", config.norm_eps,
                                 config.qk_norm ? ", of q and k" : "",
                                 config.post_norms ? ", after attention and feed-forward" : ""));
  for (const auto& [kind, count] : LayerKinds(config)) {
    const auto& [window, base, factor] = kind;
    const std::string sees = window == 0 ? "full attention" : fmt::format("window of {}", window);
    lines.Add("attention",
              fmt::format("{}: {}, RoPE base {:.10g} ({}){}", Counted(count, "layer"), sees, base,
                          NameOf(config.rope_pairing), RopeText(config, factor)));
  }
  if (config.attention_cap != 0.0 || config.logit_cap != 0.0) {
    lines.Add("soft caps", fmt::format("scores {:g}, logits {:g} (0: none)", config.attention_cap,
                                       config.logit_cap));
  }
  if (config.qkv_bias) lines.Add("biases", "of q, k and v");
  if (config.fused_qkv) lines.Add("fused matrices", "q, k and v; gate and up");
  if (LayerKinds(config).size() > 1) {
    lines.Add("full layers", LayersText(config, /*windowed=*/false));
  }
  for (const KvStorage type : kKvStorages) {
    const uint64_t window_bytes = WindowKvBytesPerToken(config, type);
    std::string text = fmt::format("{} bytes a token", Grouped(KvBytesPerToken(config, type)));
    if (window_bytes > 0) {
      text += fmt::format(", {} of them in layers with a window", Grouped(window_bytes));
    }
    lines.Add(fmt::format("KV {}", NameOf(type)), text);
  }
}

std::string IdText(const std::optional<uint32_t>& id) {
  return id.has_value() ? fmt::format("{}", *id) : "none";
}

std::string FlagText(const std::optional<bool>& flag) {
  if (!flag.has_value()) return "not said";
  return *flag ? "yes" : "no";
}

void AddTokenizer(const TokenizerReport& tokenizer, Lines& lines) {
  lines.Gap();
  lines.Add("tokenizer",
            fmt::format("{}{}{}", Printable(tokenizer.model),
                        tokenizer.pre.empty() ? "" : ", pre-tokenizer ", Printable(tokenizer.pre)));
  lines.Add("tokens", fmt::format("{}: {} control, {} user-defined, {} bytes; {} merges",
                                  Grouped(tokenizer.token_count), Grouped(tokenizer.control_count),
                                  Grouped(tokenizer.user_defined_count),
                                  Grouped(tokenizer.byte_count), Grouped(tokenizer.merge_count)));
  lines.Add("special tokens",
            fmt::format("bos {}, eos {}, eot {}, unknown {}, padding {}", IdText(tokenizer.bos_id),
                        IdText(tokenizer.eos_id), IdText(tokenizer.eot_id),
                        IdText(tokenizer.unknown_id), IdText(tokenizer.padding_id)));
  lines.Add("added", fmt::format("bos {}, eos {}", FlagText(tokenizer.add_bos),
                                 FlagText(tokenizer.add_eos)));
}

void AddTemplate(const std::optional<std::string>& chat_template, const std::string& tool_arguments,
                 Lines& lines) {
  lines.Gap();
  if (!chat_template.has_value()) {
    lines.Add("chat template", "none in the file");
    return;
  }
  if (!tool_arguments.empty()) lines.Add("tool arguments", tool_arguments);
  lines.Add("chat template", fmt::format("{} bytes", Grouped(chat_template->size())));
  std::string text = Printable(*chat_template, /*keep_newlines=*/true);
  if (text.empty() || text.back() != '\n') text += '\n';
  lines.Raw(text);
}

std::string VerdictText(bool is_there, const std::string& problem, std::string_view absent) {
  if (!problem.empty()) return fmt::format("no: {}", Printable(problem));
  return std::string(is_there ? "yes" : absent);
}

// What this build can do with the file, in the order in which it matters.
void AddVerdicts(const ModelReport& report, Lines& lines) {
  lines.Gap();
  lines.Add("usable: model", VerdictText(report.config.has_value(), report.model_problem,
                                         "no: a vocabulary-only file has no tensors"));
  lines.Add("usable: tokenizer", VerdictText(report.tokenizer.has_value(), report.tokenizer_problem,
                                             "no: there is none in the file"));
  lines.Add("usable: template",
            VerdictText(report.chat_template.has_value(), report.template_problem,
                        "none in the file: chat needs --template"));
}

// {"supported": bool, "problem": text or null}.
Json VerdictJson(bool is_there, const std::string& problem) {
  return {{"supported", is_there && problem.empty()},
          {"problem", problem.empty() ? Json(nullptr) : Json(problem)}};
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json ConfigJson(const ModelConfig& config) {
  Json layers = Json::array();
  for (const LayerConfig& layer : config.layers) {
    layers.push_back({{"window", layer.window},
                      {"rope_base", layer.rope_base},
                      {"rope_factor", layer.rope_factor}});
  }
  return {{"layer_count", config.layer_count},
          {"d_model", config.d_model},
          {"d_ffn", config.d_ffn},
          {"head_count", config.head_count},
          {"kv_head_count", config.kv_head_count},
          {"head_dim", config.head_dim},
          {"context_length", config.context_length},
          {"vocab_size", config.vocab_size},
          {"norm_eps", config.norm_eps},
          {"rope_pairing", NameOf(config.rope_pairing)},
          {"activation", NameOf(config.activation)},
          {"rope_dim", config.rope_dim},
          {"rope_magnitude", config.rope_magnitude},
          {"rope_divisors", config.rope_divisors},
          {"yarn_original_context", config.yarn.original_context},
          {"yarn_beta_fast", config.yarn.beta_fast},
          {"yarn_beta_slow", config.yarn.beta_slow},
          {"attention_cap", config.attention_cap},
          {"logit_cap", config.logit_cap},
          {"qkv_bias", config.qkv_bias},
          {"fused_qkv", config.fused_qkv},
          {"fused_gate_up", config.fused_gate_up},
          {"qk_norm", config.qk_norm},
          {"post_norms", config.post_norms},
          {"tied_head", config.tied_head},
          {"embedding_scale", config.embedding_scale},
          {"attention_scale", config.attention_scale},
          {"layers", std::move(layers)}};
}

// Bytes a token by storage, from one of the two functions of model_report.h.
Json KvJson(const ModelConfig& config, uint64_t (*bytes)(const ModelConfig&, KvStorage)) {
  Json json = Json::object();
  for (const KvStorage storage : kKvStorages) {
    json[std::string(NameOf(storage))] = bytes(config, storage);
  }
  return json;
}

Json TokenizerJson(const TokenizerReport& tokenizer) {
  return {{"model", tokenizer.model},
          {"pre", tokenizer.pre},
          {"token_count", tokenizer.token_count},
          {"merge_count", tokenizer.merge_count},
          {"control_count", tokenizer.control_count},
          {"user_defined_count", tokenizer.user_defined_count},
          {"byte_count", tokenizer.byte_count},
          {"bos_id", OrNull(tokenizer.bos_id)},
          {"eos_id", OrNull(tokenizer.eos_id)},
          {"eot_id", OrNull(tokenizer.eot_id)},
          {"unknown_id", OrNull(tokenizer.unknown_id)},
          {"padding_id", OrNull(tokenizer.padding_id)},
          {"add_bos", OrNull(tokenizer.add_bos)},
          {"add_eos", OrNull(tokenizer.add_eos)}};
}

}  // namespace

std::string RenderText(const ModelReport& report) {
  Lines lines;
  lines.Add("architecture", Printable(report.architecture));
  if (!report.name.empty()) lines.Add("name", Printable(report.name));
  lines.Add("file", fmt::format("{} bytes, GGUF version {}, alignment {}",
                                Grouped(report.file_bytes), report.version, report.alignment));
  if (report.tensor_count == 0) {
    lines.Add("tensors", "none: a vocabulary-only file");
  } else {
    lines.Add("tensors",
              fmt::format("{}, {} bytes, {} parameters", Grouped(report.tensor_count),
                          Grouped(report.tensor_bytes), Grouped(report.parameter_count)));
  }
  for (const FormatTotal& total : report.formats) {
    lines.Add(
        fmt::format("  {}", TraitsOf(total.format).name),
        fmt::format("{}, {} bytes", Counted(total.tensor_count, "tensor"), Grouped(total.bytes)));
  }
  if (report.config.has_value()) AddConfig(*report.config, lines);
  if (report.tokenizer.has_value()) AddTokenizer(*report.tokenizer, lines);
  AddVerdicts(report, lines);
  AddTemplate(report.chat_template, report.tool_arguments, lines);
  for (const std::string& name : report.unused_tensors) {
    lines.Add("unused tensor", Printable(name));
  }
  return lines.Take();
}

std::string RenderJson(const ModelReport& report) {
  Json formats = Json::object();
  for (const FormatTotal& total : report.formats) {
    formats[std::string(TraitsOf(total.format).name)] = {
        {"tensor_count", total.tensor_count}, {"bytes", total.bytes}, {"values", total.values}};
  }
  Json config = nullptr;
  Json kv_bytes = nullptr;
  Json window_kv_bytes = nullptr;
  if (report.config.has_value()) {
    config = ConfigJson(*report.config);
    kv_bytes = KvJson(*report.config, KvBytesPerToken);
    window_kv_bytes = KvJson(*report.config, WindowKvBytesPerToken);
  }
  Json support = {
      {"runnable", report.is_runnable()},
      {"model", VerdictJson(report.config.has_value(), report.model_problem)},
      {"tokenizer", VerdictJson(report.tokenizer.has_value(), report.tokenizer_problem)},
      {"chat_template", VerdictJson(report.chat_template.has_value(), report.template_problem)}};
  const Json json = {{"architecture", report.architecture},
                     {"name", report.name},
                     {"gguf_version", report.version},
                     {"file_bytes", report.file_bytes},
                     {"alignment", report.alignment},
                     {"tensor_count", report.tensor_count},
                     {"tensor_bytes", report.tensor_bytes},
                     {"parameter_count", report.parameter_count},
                     {"tensor_types", std::move(formats)},
                     {"config", std::move(config)},
                     {"kv_bytes_per_token", std::move(kv_bytes)},
                     {"window_kv_bytes_per_token", std::move(window_kv_bytes)},
                     {"tokenizer", report.tokenizer.has_value() ? TokenizerJson(*report.tokenizer)
                                                                : Json(nullptr)},
                     {"chat_template", OrNull(report.chat_template)},
                     {"tool_arguments",
                      report.tool_arguments.empty() ? Json(nullptr) : Json(report.tool_arguments)},
                     {"unused_tensors", report.unused_tensors},
                     {"support", std::move(support)}};
  // Bytes that are not UTF-8 become U+FFFD: a file can say anything, JSON cannot.
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace kvasir
