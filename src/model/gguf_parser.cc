#include "model/gguf_parser.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "model/foreign_file.h"
#include "model/quoted_text.h"

namespace kvasir {
namespace {

static_assert(std::endian::native == std::endian::little, "values are copied as they lie");

constexpr std::string_view kMagic = "GGUF";

// Fewest bytes that an entry can take: key length, one byte of key, type, one byte of value; and a
// tensor's: name length, one byte of name, dimension count, one dimension, type, offset.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
constexpr uint64_t kMinArrayBytes = 4 + 8;

// ggml's tensor types by number; an empty name is a number that was never used or was withdrawn.
struct FileTensorType {
  std::string_view name;
  int format = -1;  // WeightFormat, or -1 when this build has no kernels for it.
};
constexpr int FormatNumber(WeightFormat format) { return static_cast<int>(format); }
constexpr std::array<FileTensorType, 40> kTensorTypes = {{
    {"F32", FormatNumber(WeightFormat::kF32)},
    {"F16", FormatNumber(WeightFormat::kF16)},
    {"Q4_0", FormatNumber(WeightFormat::kQ4_0)},
    {"Q4_1", FormatNumber(WeightFormat::kQ4_1)},
    {},
    {},
    {"Q5_0", FormatNumber(WeightFormat::kQ5_0)},
    {"Q5_1", FormatNumber(WeightFormat::kQ5_1)},
    {"Q8_0", FormatNumber(WeightFormat::kQ8_0)},
    {"Q8_1"},
    {"Q2_K", FormatNumber(WeightFormat::kQ2_K)},
    {"Q3_K", FormatNumber(WeightFormat::kQ3_K)},
    {"Q4_K", FormatNumber(WeightFormat::kQ4_K)},
    {"Q5_K", FormatNumber(WeightFormat::kQ5_K)},
    {"Q6_K", FormatNumber(WeightFormat::kQ6_K)},
    {"Q8_K"},
    {"IQ2_XXS"},
    {"IQ2_XS"},
    {"IQ3_XXS"},
    {"IQ1_S"},
    {"IQ4_NL", FormatNumber(WeightFormat::kIQ4_NL)},
    {"IQ3_S"},
    {"IQ2_S"},
    {"IQ4_XS", FormatNumber(WeightFormat::kIQ4_XS)},
    {"I8"},
    {"I16"},
    {"I32"},
    {"I64"},
    {"F64"},
    {"IQ1_M"},
    {"BF16", FormatNumber(WeightFormat::kBF16)},
    {},
    {},
    {},
    {"TQ1_0"},
    {"TQ2_0"},
    {},
    {},
    {},
    {"MXFP4", FormatNumber(WeightFormat::kMXFP4)},
}};

// Sorts indices 0..items.size() by name; returns a pair of neighbours with equal names, or none.
template <typename Item>
std::pair<const Item*, const Item*> SortByName(const std::vector<Item>& items,
                                               std::string_view Item::*name,
                                               std::vector<uint32_t>& sorted) {
  sorted.resize(items.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
    return std::pair(items[a].*name, a) < std::pair(items[b].*name, b);
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const Item& previous = items[sorted[i - 1]];
    const Item& next = items[sorted[i]];
    if (previous.*name == next.*name) return {&previous, &next};
  }
  return {nullptr, nullptr};
}

// a * b, or nullopt beyond 64 bits.
std::optional<uint64_t> Product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace

uint32_t TensorTypeNumber(WeightFormat format) {
  const auto at = std::find_if(kTensorTypes.begin(), kTensorTypes.end(), [&](const auto& type) {
    return type.format == FormatNumber(format);
  });
  KV_CHECK(at != kTensorTypes.end());
  return static_cast<uint32_t>(at - kTensorTypes.begin());
}

StatusOr<GgufFile> GgufParser::Run() {
  out_.file_bytes_ = file_.size();
  KV_RETURN_IF_ERROR(ReadVersion());
  KV_RETURN_IF_ERROR(ReadCounts());
  KV_RETURN_IF_ERROR(ReadEntries());
  KV_RETURN_IF_ERROR(IndexKeys());
  KV_RETURN_IF_ERROR(ReadAlignment());
  KV_RETURN_IF_ERROR(ReadTensors());
  KV_RETURN_IF_ERROR(IndexTensors());
  KV_RETURN_IF_ERROR(PlaceTensors());
  KV_RETURN_IF_ERROR(RefuseOverlaps());
  return std::move(out_);
}

template <typename T>
bool GgufParser::Read(T& value) {
  if (left() < sizeof(T)) return false;
  std::memcpy(&value, file_.data() + at_, sizeof(T));
  at_ += sizeof(T);
  return true;
}

Status GgufParser::EndsInside(std::string_view field) const {
  return InvalidArgument(
      "{}: the file ends here, after {} bytes; is the download complete? (at offset {})", field,
      file_.size(), at_);
}

Status GgufParser::ReadVersion() {
  const size_t size = std::min(file_.size(), kMagic.size());
  if (size < kMagic.size() || std::memcmp(file_.data(), kMagic.data(), size) != 0) {
    return NotGguf(file_);
  }
  at_ = kMagic.size();
  uint32_t version = 0;
  if (!Read(version)) return EndsInside("version");
  if (version == 2 || version == 3) {
    out_.version_ = version;
    return OkStatus();
  }
  const uint32_t swapped = __builtin_bswap32(version);
  if (swapped >= 1 && swapped <= 3) {
    return Unimplemented(
        "version: this is a big-endian GGUF file (version {}), only little-endian ones can be "
        "read; convert it (at offset 4)",
        swapped);
  }
  if (version == 1) {
    return Unimplemented("version: GGUF version 1 is not supported, only 2 and 3 (at offset 4)");
  }
  return Unimplemented("version: unknown GGUF version {}, only 2 and 3 are known (at offset 4)",
                       version);
}

Status GgufParser::ReadCounts() {
  const uint64_t tensors_at = at_;
  if (!Read(tensor_count_)) return EndsInside("tensor count");
  const uint64_t entries_at = at_;
  if (!Read(entry_count_)) return EndsInside("metadata count");
  if (entry_count_ > kMaxGgufEntries || entry_count_ > left() / kMinEntryBytes) {
    return InvalidArgument(
        "metadata count: {} keys cannot be in a file of {} bytes; is the download complete? (at "
        "offset {})",
        entry_count_, file_.size(), entries_at);
  }
  if (tensor_count_ > kMaxGgufTensors || tensor_count_ > left() / kMinTensorBytes) {
    return InvalidArgument(
        "tensor count: {} tensors cannot be in a file of {} bytes; is the download complete? (at "
        "offset {})",
        tensor_count_, file_.size(), tensors_at);
  }
  return OkStatus();
}

Status GgufParser::ReadEntries() {
  out_.entries_.reserve(entry_count_);
  for (uint64_t i = 0; i < entry_count_; ++i) KV_RETURN_IF_ERROR(ReadEntry(i));
  return OkStatus();
}

Status GgufParser::ReadEntry(uint64_t index) {
  const auto field = [&](std::string_view part) {
    return fmt::format("metadata key {} of {}: {}", index + 1, entry_count_, part);
  };
  const uint64_t key_at = at_;
  uint64_t key_bytes = 0;
  if (!Read(key_bytes)) return EndsInside(field("length of the name"));
  if (key_bytes == 0 || key_bytes > kMaxGgufKeyBytes || key_bytes > left()) {
    return InvalidArgument("{} is {}, at most {} are left in the file (at offset {})",
                           field("length of the name"), key_bytes,
                           std::min(left(), kMaxGgufKeyBytes), key_at);
  }
  GgufEntry entry;
  entry.key = {reinterpret_cast<const char*>(file_.data() + at_), static_cast<size_t>(key_bytes)};
  at_ += key_bytes;
  const uint64_t type_at = at_;
  uint32_t type = 0;
  if (!Read(type)) return EndsInside(fmt::format("metadata key {}: type", Quoted(entry.key)));
  if (type >= kGgufTypeCount) {
    return InvalidArgument("metadata key {}: unknown value type {} (at offset {})",
                           Quoted(entry.key), type, type_at);
  }
  entry.type = static_cast<GgufType>(type);
  entry.offset = at_;
  entry.count = 1;
  KV_RETURN_IF_ERROR(ReadValue(entry));
  out_.entries_.push_back(entry);
  return OkStatus();
}

Status GgufParser::ReadValue(GgufEntry& entry) {
  if (entry.type == GgufType::kArray) {
    KV_RETURN_IF_ERROR(ReadArrayHeader(entry, entry.element_type, entry.count));
    const uint64_t begin = at_;
    KV_RETURN_IF_ERROR(SkipElements(entry, entry.element_type, entry.count, 1));
    entry.bytes = file_.subspan(begin, at_ - begin);
    return OkStatus();
  }
  uint64_t size = FixedBytes(entry.type);
  if (entry.type == GgufType::kString) {
    if (!Read(size)) {
      return EndsInside(fmt::format("metadata key {}: length of the string", Quoted(entry.key)));
    }
  }
  if (size > left()) {
    return InvalidArgument(
        "metadata key {}: its {} of {} bytes runs past the end of the file ({} bytes) (at offset "
        "{})",
        Quoted(entry.key), NameOf(entry.type), size, file_.size(), entry.offset);
  }
  entry.bytes = file_.subspan(at_, size);
  at_ += size;
  if (entry.type == GgufType::kBool && entry.bytes[0] > std::byte{1}) {
    return InvalidArgument("metadata key {}: a bool must be 0 or 1, found {} (at offset {})",
                           Quoted(entry.key), std::to_integer<int>(entry.bytes[0]), entry.offset);
  }
  return OkStatus();
}

Status GgufParser::ReadArrayHeader(const GgufEntry& entry, GgufType& element_type,
                                   uint64_t& count) {
  const uint64_t type_at = at_;
  uint32_t type = 0;
  if (!Read(type) || !Read(count)) {
    return EndsInside(fmt::format("metadata key {}: array header", Quoted(entry.key)));
  }
  if (type >= kGgufTypeCount) {
    return InvalidArgument("metadata key {}: unknown array element type {} (at offset {})",
                           Quoted(entry.key), type, type_at);
  }
  element_type = static_cast<GgufType>(type);
  uint64_t min_bytes = FixedBytes(element_type);
  if (element_type == GgufType::kString) min_bytes = sizeof(uint64_t);
  if (element_type == GgufType::kArray) min_bytes = kMinArrayBytes;
  if (count > left() / min_bytes) {
    return InvalidArgument(
        "metadata key {}: an array of {} elements of type {} runs past the end of the file ({} "
        "bytes) (at offset {})",
        Quoted(entry.key), count, NameOf(element_type), file_.size(), type_at + sizeof(type));
  }
  if (FixedBytes(element_type) > 0) return OkStatus();
  if (count > elements_left_) {
    return InvalidArgument(
        "metadata key {}: with an array of {} elements, arrays hold more than {} strings and "
        "arrays "
        "(at offset {})",
        Quoted(entry.key), count, kMaxGgufElements, type_at + sizeof(type));
  }
  elements_left_ -= count;
  return OkStatus();
}

Status GgufParser::SkipElements(const GgufEntry& entry, GgufType type, uint64_t count,
                                uint32_t depth) {
  if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t size = 0;
      const uint64_t string_at = at_;
      if (!Read(size) || size > left()) {
        return InvalidArgument(
            "metadata key {}: string {} of {} has a length of {} and runs past the end of the file "
            "({} bytes) (at offset {})",
            Quoted(entry.key), i, count, size, file_.size(), string_at);
      }
      at_ += size;
    }
    return OkStatus();
  }
  if (type != GgufType::kArray) {
    at_ += count * FixedBytes(type);  // Checked against the end of the file with the header.
    return OkStatus();
  }
  if (depth >= kMaxArrayDepth) {
    return InvalidArgument("metadata key {}: arrays are nested deeper than {} (at offset {})",
                           Quoted(entry.key), kMaxArrayDepth, at_);
  }
  for (uint64_t i = 0; i < count; ++i) {
    GgufType element_type = GgufType::kUint8;
    uint64_t element_count = 0;
    KV_RETURN_IF_ERROR(ReadArrayHeader(entry, element_type, element_count));
    KV_RETURN_IF_ERROR(SkipElements(entry, element_type, element_count, depth + 1));
  }
  return OkStatus();
}

Status GgufParser::IndexKeys() {
  const auto [first, second] = SortByName(out_.entries_, &GgufEntry::key, out_.entries_by_key_);
  if (first == nullptr) return OkStatus();
  return InvalidArgument("metadata key {} occurs twice (values at offset {} and at offset {})",
                         Quoted(first->key), first->offset, second->offset);
}

Status GgufParser::ReadAlignment() {
  KV_ASSIGN_OR_RETURN(out_.alignment_, out_.GetUintOr("general.alignment", kDefaultAlignment));
  if (!std::has_single_bit(out_.alignment_) || out_.alignment_ < 8 ||
      out_.alignment_ > kMaxAlignment) {
    return InvalidArgument(
        "metadata key 'general.alignment': {} is not a power of two from 8 to {} (at offset {})",
        out_.alignment_, kMaxAlignment, out_.FindEntry("general.alignment")->offset);
  }
  return OkStatus();
}

Status GgufParser::ReadTensors() {
  out_.tensors_.reserve(tensor_count_);
  for (uint64_t i = 0; i < tensor_count_; ++i) KV_RETURN_IF_ERROR(ReadTensorEntry(i));
  return RefuseUnsupportedTypes();
}

// The first tensor, and how many there are of each type, so that one look tells what is missing.
Status GgufParser::RefuseUnsupportedTypes() const {
  uint64_t count = 0;
  std::string types;
  for (size_t type = 0; type < unsupported_.size(); ++type) {
    if (unsupported_[type] == 0) continue;
    count += unsupported_[type];
    types += fmt::format("{}{} of {}", types.empty() ? "" : ", ", unsupported_[type],
                         kTensorTypes[type].name);
  }
  if (count <= 1) return first_unsupported_;
  return Unimplemented("{}; of {} tensors {} cannot be read: {}", MessageOf(first_unsupported_),
                       tensor_count_, count, types);
}

Status GgufParser::ReadTensorEntry(uint64_t index) {
  const auto field = [&](std::string_view part) {
    return fmt::format("tensor {} of {}: {}", index + 1, tensor_count_, part);
  };
  GgufTensor tensor;
  tensor.entry_offset = at_;
  uint64_t name_bytes = 0;
  if (!Read(name_bytes)) return EndsInside(field("length of the name"));
  if (name_bytes == 0 || name_bytes > kMaxTensorNameBytes) {
    return InvalidArgument("{} is {}, must be 1 to {} (at offset {})", field("length of the name"),
                           name_bytes, kMaxTensorNameBytes, tensor.entry_offset);
  }
  if (name_bytes > left()) return EndsInside(field("name"));
  tensor.name = {reinterpret_cast<const char*>(file_.data() + at_),
                 static_cast<size_t>(name_bytes)};
  at_ += name_bytes;
  KV_RETURN_IF_ERROR(ReadTensorDims(tensor));
  KV_RETURN_IF_ERROR(ReadTensorFormat(tensor));
  // Relative to the data until PlaceTensor, which knows where that begins.
  if (!Read(tensor.data_offset)) {
    return EndsInside(fmt::format("tensor {}: data offset", Quoted(tensor.name)));
  }
  out_.tensors_.push_back(tensor);
  return OkStatus();
}

Status GgufParser::ReadTensorDims(GgufTensor& tensor) {
  const uint64_t count_at = at_;
  if (!Read(tensor.dim_count)) {
    return EndsInside(fmt::format("tensor {}: number of dimensions", Quoted(tensor.name)));
  }
  if (tensor.dim_count == 0 || tensor.dim_count > kMaxTensorDims) {
    return InvalidArgument("tensor {}: {} dimensions, must be 1 to {} (at offset {})",
                           Quoted(tensor.name), tensor.dim_count, kMaxTensorDims, count_at);
  }
  std::fill(std::begin(tensor.dims), std::end(tensor.dims), uint64_t{1});
  for (uint32_t d = 0; d < tensor.dim_count; ++d) {
    const uint64_t dim_at = at_;
    if (!Read(tensor.dims[d])) {
      return EndsInside(fmt::format("tensor {}: dimension {}", Quoted(tensor.name), d));
    }
    if (tensor.dims[d] == 0 || tensor.dims[d] > std::numeric_limits<uint32_t>::max()) {
      return InvalidArgument(
          "tensor {}: dimension {} is {}, must be 1 to 4294967295 (at offset {})",
          Quoted(tensor.name), d, tensor.dims[d], dim_at);
    }
  }
  return OkStatus();
}

Status GgufParser::ReadTensorFormat(GgufTensor& tensor) {
  const uint64_t type_at = at_;
  uint32_t type = 0;
  if (!Read(type)) return EndsInside(fmt::format("tensor {}: type", Quoted(tensor.name)));
  if (type >= kTensorTypes.size() || kTensorTypes[type].name.empty()) {
    return InvalidArgument("tensor {}: unknown tensor type {} (at offset {})", Quoted(tensor.name),
                           type, type_at);
  }
  if (kTensorTypes[type].format < 0) {
    if (first_unsupported_.ok()) {
      first_unsupported_ =
          Unimplemented("tensor {}: tensor type {} ({}) is not supported (at offset {})",
                        Quoted(tensor.name), kTensorTypes[type].name, type, type_at);
    }
    unsupported_.resize(kTensorTypes.size());
    ++unsupported_[type];
    return OkStatus();
  }
  tensor.format = static_cast<WeightFormat>(kTensorTypes[type].format);
  const uint32_t block_values = TraitsOf(tensor.format).block_values;
  if (tensor.cols() % block_values != 0) {
    return InvalidArgument(
        "tensor {}: rows of {} values are not a whole number of {} blocks of {} (at offset {})",
        Quoted(tensor.name), tensor.cols(), TraitsOf(tensor.format).name, block_values,
        tensor.entry_offset);
  }
  return OkStatus();
}

Status GgufParser::IndexTensors() {
  const auto [first, second] = SortByName(out_.tensors_, &GgufTensor::name, out_.tensors_by_name_);
  if (first == nullptr) return OkStatus();
  return InvalidArgument("tensor {} occurs twice (at offset {} and at offset {})",
                         Quoted(first->name), first->entry_offset, second->entry_offset);
}

Status GgufParser::PlaceTensors() {
  out_.data_begin_ = (at_ + out_.alignment_ - 1) / out_.alignment_ * out_.alignment_;
  for (GgufTensor& tensor : out_.tensors_) KV_RETURN_IF_ERROR(PlaceTensor(tensor));
  // Tensors may still overlap here, but each is smaller than the file and they are few.
  for (const GgufTensor& tensor : out_.tensors_) out_.tensor_bytes_ += tensor.bytes.size();
  return OkStatus();
}

Status GgufParser::PlaceTensor(GgufTensor& tensor) {
  const uint64_t relative = tensor.data_offset;
  if (relative % out_.alignment_ != 0) {
    return InvalidArgument("tensor {}: data offset {} is not a multiple of {} (at offset {})",
                           Quoted(tensor.name), relative, out_.alignment_, tensor.entry_offset);
  }
  // Dimensions are below 2^32: only the products beyond the second can overflow.
  std::optional<uint64_t> size = FileRowBytes(tensor.format, static_cast<uint32_t>(tensor.cols()));
  for (uint32_t d = 1; d < kMaxTensorDims && size.has_value(); ++d) {
    size = Product(*size, tensor.dims[d]);
  }
  if (!size.has_value()) {
    return InvalidArgument("tensor {}: dimensions [{}, {}, {}, {}] overflow (at offset {})",
                           Quoted(tensor.name), tensor.dims[0], tensor.dims[1], tensor.dims[2],
                           tensor.dims[3], tensor.entry_offset);
  }
  const uint64_t room = file_.size() - std::min<uint64_t>(file_.size(), out_.data_begin_);
  if (relative > room || *size > room - relative) {
    const auto begin = static_cast<unsigned __int128>(out_.data_begin_) + relative;
    return InvalidArgument(
        "tensor {}: data [{}, {}) lies beyond the end of the file ({} bytes); is the download "
        "complete? (at offset {})",
        Quoted(tensor.name), begin, begin + *size, file_.size(), tensor.entry_offset);
  }
  tensor.data_offset = out_.data_begin_ + relative;
  tensor.bytes = file_.subspan(tensor.data_offset, *size);
  return OkStatus();
}

Status GgufParser::RefuseOverlaps() const {
  std::vector<const GgufTensor*> by_offset;
  by_offset.reserve(out_.tensors_.size());
  for (const GgufTensor& tensor : out_.tensors_) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(), [](const GgufTensor* a, const GgufTensor* b) {
    return std::pair(a->data_offset, a->entry_offset) < std::pair(b->data_offset, b->entry_offset);
  });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& previous = *by_offset[i - 1];
    const GgufTensor& next = *by_offset[i];
    if (previous.data_offset + previous.bytes.size() > next.data_offset) {
      return InvalidArgument(
          "tensor {}: data [{}, {}) overlaps that of tensor {} from {} (at offset {})",
          Quoted(previous.name), previous.data_offset, previous.data_offset + previous.bytes.size(),
          Quoted(next.name), next.data_offset, next.entry_offset);
    }
    // No writer leaves room between tensors but for alignment: a type or dimension is wrong.
    const uint64_t end = previous.data_offset + previous.bytes.size();
    if (next.data_offset - end >= out_.alignment_) {
      return InvalidArgument(
          "tensor {}: its type and dimensions take {} bytes, the next tensor, {}, begins {} behind "
          "its start (at offset {})",
          Quoted(previous.name), previous.bytes.size(), Quoted(next.name),
          next.data_offset - previous.data_offset, previous.entry_offset);
    }
  }
  return OkStatus();
}

}  // namespace kvasir
