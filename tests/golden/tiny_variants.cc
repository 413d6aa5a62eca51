#include "tests/golden/tiny_variants.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "kernels/weight_format.h"
#include "model/gguf_writer_for_test.h"

namespace kvasir {
namespace {

using Json = nlohmann::json;

// What a tensor type's blocks are and where their f16 scales stand; GGUF's numbers of types.
struct BlockForm {
  uint32_t type;
  size_t values;
  size_t bytes;
  std::vector<size_t> halves;
};
const std::vector<BlockForm>& BlockForms() {
  static const std::vector<BlockForm> forms = {{2, 32, 18, {0}},
                                               {3, 32, 20, {0, 2}},
                                               {8, 32, 34, {0}},
                                               {12, 256, 144, {0, 2}},
                                               {14, 256, 210, {208}}};
  return forms;
}

uint64_t HashOf(const std::string& text) {  // FNV-1a.
  uint64_t value = 0xCBF29CE484222325;
  for (const char byte : text) value = (value ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return value;
}

uint64_t RandomAt(uint64_t seed, uint64_t index) {  // splitmix64.
  uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

void Append(std::string& out, float value) {
  char bytes[sizeof(value)];
  std::memcpy(bytes, &value, sizeof(value));
  out.append(bytes, sizeof(value));
}

std::string FloatData(uint64_t seed, uint64_t count, float scale, float offset) {
  std::string out;
  for (uint64_t i = 0; i < count; ++i) {
    const auto integer = static_cast<int64_t>(RandomAt(seed, i) >> 40) - (int64_t{1} << 23);
    const float unit = static_cast<float>(integer) * 0x1p-23f;
    Append(out, unit * scale + offset);
  }
  return out;
}

std::string BlockData(uint64_t seed, uint64_t count, const BlockForm& form, const Json& halves) {
  const uint64_t blocks = count / form.values;
  std::string out;
  for (uint64_t i = 0; i < blocks * form.bytes; ++i) {
    out.push_back(static_cast<char>(RandomAt(seed, i) >> 56));
  }
  for (uint64_t b = 0; b < blocks; ++b) {
    for (size_t h = 0; h < halves.size(); ++h) {
      const auto bits = halves[h].get<uint16_t>();
      std::memcpy(out.data() + b * form.bytes + form.halves[h], &bits, sizeof(bits));
    }
  }
  return out;
}

std::string DataOf(const Json& tensor, uint64_t seed, uint64_t count) {
  const auto type = tensor[2].get<uint32_t>();
  if (type != 0) {
    for (const BlockForm& form : BlockForms()) {
      if (form.type == type) return BlockData(seed, count, form, tensor[3]);
    }
    KV_CHECK(false);
  }
  if (!tensor[3].is_array()) {
    return FloatData(seed, count, tensor[3].get<float>(), tensor[4].get<float>());
  }
  std::string out;
  for (const Json& value : tensor[3]) Append(out, value.get<float>());
  return out;
}

class Builder {
 public:
  explicit Builder(const Json& entry) : entry_(entry) {}

  TinyVariant Build(uint32_t vocab) {
    variant_.name = entry_["name"];
    WriteKeys(vocab);
    for (const Json& tensor : entry_["tensors"]) {
      const std::string name = tensor[0];
      const size_t star = name.find('*');
      const uint32_t copies = star == std::string::npos ? 1 : entry_["layers"].get<uint32_t>();
      for (uint32_t layer = 0; layer < copies; ++layer) {
        std::string own = name;
        if (star != std::string::npos) own.replace(star, 1, std::to_string(layer));
        WriteTensor(own, tensor);
      }
    }
    variant_.checksum_matches =
        checksum_ == std::stoull(entry_["checksum"].get<std::string>(), nullptr, 16);
    variant_.file = writer_.Finish();
    variant_.run_context = entry_["run_context"];
    for (const int32_t token : entry_["tokens"]) variant_.tokens.push_back(TokenId{token});
    variant_.positions = entry_["positions"].get<std::vector<uint32_t>>();
    variant_.logits = entry_["logits"].get<std::vector<std::vector<double>>>();
    return std::move(variant_);
  }

 private:
  void WriteKeys(uint32_t vocab) {
    writer_.String("general.architecture", entry_["arch"].get<std::string>());
    writer_.String("general.name", variant_.name);
    for (const Json& key : entry_["keys"]) {
      const std::string name = key[0];
      const Json& value = key[1];
      if (value.is_string()) writer_.String(name, value.get<std::string>());
      if (value.is_number_unsigned()) writer_.Uint(name, value.get<uint32_t>());
      if (value.is_number_float()) writer_.Float(name, value.get<float>());
      if (!value.is_array()) continue;
      std::vector<uint8_t> flags;
      for (const Json& flag : value) flags.push_back(flag.get<bool>() ? 1 : 0);
      writer_.Numbers(name, GgufType::kBool, flags);
    }
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<int32_t> types;
    for (uint32_t i = 0; i < vocab; ++i) {
      tokens.push_back(i < 3 ? "<" + std::to_string(i) + ">" : "t" + std::to_string(i));
      scores.push_back(-static_cast<float>(i));
      types.push_back(i == 0 ? 2 : i < 3 ? 3 : 1);  // Unknown, control, normal.
    }
    writer_.String("tokenizer.ggml.model", "llama");
    writer_.Strings("tokenizer.ggml.tokens", tokens);
    writer_.Numbers("tokenizer.ggml.scores", GgufType::kFloat32, scores);
    writer_.Numbers("tokenizer.ggml.token_type", GgufType::kInt32, types);
    writer_.Uint("tokenizer.ggml.unknown_token_id", 0);
    writer_.Uint("tokenizer.ggml.bos_token_id", 1);
    writer_.Uint("tokenizer.ggml.eos_token_id", 2);
  }

  void WriteTensor(const std::string& name, const Json& tensor) {
    const auto dims = tensor[1].get<std::vector<uint64_t>>();
    uint64_t count = 1;
    for (const uint64_t dim : dims) count *= dim;
    const std::string data = DataOf(tensor, HashOf(variant_.name + "/" + name), count);
    writer_.Tensor(name, dims, tensor[2].get<uint32_t>(), data);
    variant_.is_quantized = variant_.is_quantized || tensor[2].get<uint32_t>() != 0;
    AddToChecksum(data);
  }

  void AddToChecksum(std::string data) {
    data.resize((data.size() + 7) / 8 * 8);
    uint64_t mixed = 0;
    for (uint64_t i = 0; i < data.size() / 8; ++i) {
      uint64_t word;
      std::memcpy(&word, data.data() + i * 8, sizeof(word));
      mixed ^= (word + i) * 0x9E3779B97F4A7C15;
    }
    checksum_ = (checksum_ ^ mixed) * 0x100000001B3;
  }

  const Json& entry_;
  GgufWriter writer_;
  TinyVariant variant_;
  uint64_t checksum_ = 0xCBF29CE484222325;
};

}  // namespace

std::vector<TinyVariant> LoadTinyVariants() {
  std::ifstream stream(std::string(KVASIR_GOLDEN_DIR) + "/architectures.json");
  const Json json = Json::parse(stream);
  std::vector<TinyVariant> variants;
  for (const Json& entry : json["variants"]) {
    variants.push_back(Builder(entry).Build(json["vocab"].get<uint32_t>()));
  }
  return variants;
}

}  // namespace kvasir
