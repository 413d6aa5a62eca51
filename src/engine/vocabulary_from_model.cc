#include "engine/vocabulary_from_model.h"

namespace kvasir {
namespace {

std::optional<int64_t> Widen(std::optional<uint32_t> id) {
  if (!id.has_value()) return std::nullopt;
  return int64_t{*id};
}

}  // namespace

VocabularySource VocabularySourceFrom(const TokenizerFields& fields) {
  VocabularySource source;
  source.model = std::string(fields.model);
  source.pre = std::string(fields.pre);
  source.tokens = fields.tokens.ToVector();
  source.merges = fields.merges.ToVector();
  source.scores.reserve(fields.scores.size());
  for (uint64_t i = 0; i < fields.scores.size(); ++i) {
    source.scores.push_back(static_cast<float>(fields.scores.Float(i)));
  }
  source.types.reserve(fields.types.size());
  for (uint64_t i = 0; i < fields.types.size(); ++i) {
    source.types.push_back(static_cast<int32_t>(fields.types.Int(i)));
  }
  source.bos = Widen(fields.bos_id);
  source.eos = Widen(fields.eos_id);
  source.eot = Widen(fields.eot_id);
  source.unk = Widen(fields.unknown_id);
  source.pad = Widen(fields.padding_id);
  source.add_bos = fields.add_bos;
  source.add_eos = fields.add_eos;
  source.add_space_prefix = fields.add_space_prefix;
  source.remove_extra_whitespaces = fields.remove_extra_whitespaces;
  return source;
}

}  // namespace kvasir
