// GgufFile::Parse and ParseParts: one file, or the parts of a split one put together.
#include <algorithm>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "model/gguf_parser.h"
#include "model/quoted_text.h"

namespace kvasir {
namespace {

constexpr std::string_view kCountKey = "split.count";

// Whether part `index` of `count` says of itself that it is that.
Status CheckPart(const GgufFile& part, size_t index, size_t count) {
  KV_ASSIGN_OR_RETURN(const uint64_t said_count, part.GetUint(kCountKey));
  if (said_count != count) {
    return InvalidArgument(
        "metadata key '{}': it says that the model has {} parts, the file's name says {}",
        kCountKey, said_count, count);
  }
  KV_ASSIGN_OR_RETURN(const uint64_t number, part.GetUint("split.no"));
  if (number != index) {
    return InvalidArgument(
        "metadata key 'split.no': it is part {} (counted from 1) by its name, {} "
        "by its content",
        index + 1, number + 1);
  }
  return OkStatus();
}

// Whether what a later part says, which is little, is what the first one says.
Status CheckSameModel(const GgufFile& first, const GgufFile& part) {
  for (const std::string_view key : {"general.architecture", "general.name"}) {
    const std::optional<std::string_view> here = part.FindString(key);
    const std::optional<std::string_view> there = first.FindString(key);
    if (here.has_value() && here != there) {
      return InvalidArgument(
          "metadata key '{}' is {}, in the first part {}; is it a part of another "
          "model?",
          key, Quoted(*here), Quoted(there.value_or("")));
    }
  }
  if (part.FindUint("split.tensors.count") != first.FindUint("split.tensors.count")) {
    return InvalidArgument(
        "metadata key 'split.tensors.count' is not the first part's; is it a "
        "part of another model?");
  }
  return OkStatus();
}

}  // namespace

StatusOr<GgufFile> GgufFile::Parse(std::span<const std::byte> file) {
  KV_ASSIGN_OR_RETURN(GgufFile parsed, GgufParser(file).Run());
  KV_ASSIGN_OR_RETURN(const uint64_t count, parsed.GetUintOr(kCountKey, 1));
  if (count <= 1) return parsed;
  const uint64_t number = parsed.FindUint("split.no").value_or(0) + 1;
  return InvalidArgument(
      "metadata key '{}': this is part {} of a model of {} parts; they are found by their names, "
      "NAME-{:05}-of-{:05}.gguf (at offset {})",
      kCountKey, number, count, number, count, parsed.FindEntry(kCountKey)->offset);
}

StatusOr<GgufFile> GgufFile::ParseParts(std::span<const std::span<const std::byte>> parts) {
  KV_CHECK(!parts.empty());
  if (parts.size() == 1) return Parse(parts[0]);
  GgufFile whole;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string which = fmt::format("part {} of {}", i + 1, parts.size());
    StatusOr<GgufFile> part = GgufParser(parts[i]).Run();
    if (!part.ok()) return WithPrefix(part.status(), which);
    Status status = CheckPart(*part, i, parts.size());
    if (status.ok() && i > 0) status = CheckSameModel(whole, *part);
    if (!status.ok()) return WithPrefix(status, which);
    if (i == 0) {
      whole = *std::move(part);
      continue;
    }
    whole.file_bytes_ += part->file_bytes_;
    whole.tensor_bytes_ += part->tensor_bytes_;
    whole.tensors_.insert(whole.tensors_.end(), part->tensors_.begin(), part->tensors_.end());
  }
  KV_RETURN_IF_ERROR(whole.IndexParts());
  return whole;
}

// Tensors of all parts: as many as the first one says, each once.
Status GgufFile::IndexParts() {
  KV_ASSIGN_OR_RETURN(const uint64_t wanted, GetUintOr("split.tensors.count", tensors_.size()));
  if (tensors_.size() != wanted) {
    return InvalidArgument(
        "metadata key 'split.tensors.count': the model has {} tensors, its parts hold {}", wanted,
        tensors_.size());
  }
  if (tensors_.size() > kMaxGgufTensors) {
    return InvalidArgument("tensor count: {} in all parts, at most {} can be read", tensors_.size(),
                           kMaxGgufTensors);
  }
  tensors_by_name_.resize(tensors_.size());
  std::iota(tensors_by_name_.begin(), tensors_by_name_.end(), 0u);
  std::sort(tensors_by_name_.begin(), tensors_by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  for (size_t i = 1; i < tensors_by_name_.size(); ++i) {
    const GgufTensor& tensor = tensors_[tensors_by_name_[i]];
    if (tensor.name == tensors_[tensors_by_name_[i - 1]].name) {
      return InvalidArgument("tensor {} occurs in two parts", Quoted(tensor.name));
    }
  }
  return OkStatus();
}

}  // namespace kvasir
