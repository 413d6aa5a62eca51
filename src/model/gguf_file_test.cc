#include "model/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <memory>

#include "base/rng.h"
#include "model/gguf_parser.h"
#include "model/model_config.h"
#include "model/tiny_model_for_test.h"
#include "model/tokenizer_fields.h"

namespace kvasir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// A copy of exactly the file's size, so that the address sanitizer sees a read past its end.
struct ExactBytes {
  explicit ExactBytes(std::string_view text)
      : size(text.size()), bytes(std::make_unique<std::byte[]>(text.size())) {
    std::memcpy(bytes.get(), text.data(), size);
  }
  std::span<const std::byte> span() const { return {bytes.get(), size}; }
  size_t size;
  std::unique_ptr<std::byte[]> bytes;
};

std::string ParseError(std::string_view file) {
  const ExactBytes bytes(file);
  const auto parsed = GgufFile::Parse(bytes.span());
  return parsed.ok() ? "parsed" : std::string(MessageOf(parsed.status()));
}

// Everything that reads outside bytes, as the program does; the result does not matter, returning
// in good time and in one piece does.
void ReadEverything(std::string_view file) {
  const ExactBytes bytes(file);
  const auto parsed = GgufFile::Parse(bytes.span());
  if (!parsed.ok()) {
    EXPECT_THAT(std::string(MessageOf(parsed.status())), Not(HasSubstr("\n")));
    return;
  }
  const auto config = ReadModelConfig(*parsed);
  if (config.ok()) UnusedTensors(*parsed, *config);
  const auto fields = ReadTokenizerFields(*parsed);
  if (!fields.ok()) return;
  size_t total = 0;
  for (const std::string_view token : fields->tokens) total += token.size();
  for (const std::string_view merge : fields->merges) total += merge.size();
  EXPECT_LE(total, file.size());
}

// The bytes of `file` with `value` written over those at `offset`.
template <typename T>
std::string Patched(std::string file, size_t offset, T value) {
  std::memcpy(file.data() + offset, &value, sizeof(value));
  return file;
}

// Offset just behind the last byte of `text` in `file`.
size_t After(const std::string& file, std::string_view text) {
  const size_t at = file.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  return at + text.size();
}

TEST(GgufFile, ReadsEveryKindOfValue) {
  GgufWriter writer;
  writer.Scalar<uint8_t>("u8", GgufType::kUint8, 200);
  writer.Scalar<int8_t>("i8", GgufType::kInt8, -3);
  writer.Scalar<uint16_t>("u16", GgufType::kUint16, 60000);
  writer.Scalar<int16_t>("i16", GgufType::kInt16, 300);
  writer.Uint("u32", 4000000000u);
  writer.Scalar<int32_t>("i32", GgufType::kInt32, 7);
  writer.Float("f32", 1.5f);
  writer.Bool("yes", true);
  writer.Bool("no", false);
  writer.String("text", "two words");
  writer.String("empty", "");
  writer.Scalar<uint64_t>("u64", GgufType::kUint64, uint64_t{1} << 60);
  writer.Scalar<int64_t>("i64", GgufType::kInt64, -1);
  writer.Scalar<double>("f64", GgufType::kFloat64, -0.25);
  writer.Strings("names", {"a", "", "ccc"});
  writer.Numbers<int32_t>("ints", GgufType::kInt32, {1, -2, 3});
  writer.Numbers<float>("floats", GgufType::kFloat32, {0.5f, 1e30f});
  const std::string bytes = writer.Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << MessageOf(file.status());

  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->entries().size(), 17u);
  EXPECT_EQ(file->entries()[0].key, "u8");
  EXPECT_EQ(file->FindUint("u8"), 200u);
  EXPECT_EQ(file->FindUint("i8"), std::nullopt);  // Negative.
  EXPECT_EQ(file->FindUint("u16"), 60000u);
  EXPECT_EQ(file->FindUint("i16"), 300u);
  EXPECT_EQ(file->FindUint("u32"), 4000000000u);
  EXPECT_EQ(file->FindUint("i32"), 7u);
  EXPECT_EQ(file->FindUint("u64"), uint64_t{1} << 60);
  EXPECT_EQ(file->FindUint("i64"), std::nullopt);
  EXPECT_EQ(file->FindUint("f32"), std::nullopt);
  EXPECT_EQ(file->FindUint("absent"), std::nullopt);
  EXPECT_EQ(file->FindFloat("f32"), 1.5);
  EXPECT_EQ(file->FindFloat("f64"), -0.25);
  EXPECT_EQ(file->FindFloat("u32"), std::nullopt);
  EXPECT_EQ(file->FindBool("yes"), true);
  EXPECT_EQ(file->FindBool("no"), false);
  EXPECT_EQ(file->FindBool("u8"), std::nullopt);
  EXPECT_EQ(file->FindString("text"), "two words");
  EXPECT_EQ(file->FindString("empty"), "");
  EXPECT_EQ(file->FindString("names"), std::nullopt);
  EXPECT_THAT(file->GetStrings("names")->ToVector(), ElementsAre("a", "", "ccc"));
  const GgufNumbers ints = *file->GetNumbers("ints");
  EXPECT_TRUE(ints.is_integer());
  EXPECT_EQ(ints.size(), 3u);
  EXPECT_EQ(ints.Int(1), -2);
  EXPECT_EQ(ints.Float(2), 3.0);
  const GgufNumbers floats = *file->GetNumbers("floats");
  EXPECT_FALSE(floats.is_integer());
  EXPECT_EQ(floats.Float(0), 0.5);
  EXPECT_EQ(floats.Int(1), std::numeric_limits<int64_t>::max());  // Saturates.
  EXPECT_TRUE(file->GetStrings("absent")->empty());
  EXPECT_TRUE(file->GetNumbers("absent")->empty());
}

TEST(GgufFile, TypedLookUpsNameKeyAndOffset) {
  GgufWriter writer;
  writer.String("text", "x");
  writer.Strings("names", {"a"});
  const std::string bytes = writer.Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(MessageOf(file->GetUint("absent").status()), HasSubstr("'absent' is missing"));
  EXPECT_EQ(MessageOf(file->GetUint("text").status()),
            "metadata key 'text': expected an integer that is not negative, found type string (at "
            "offset 40)");
  EXPECT_THAT(MessageOf(file->GetNumbers("names").status()),
              HasSubstr("expected an array of numbers, found an array of type string"));
  EXPECT_EQ(*file->GetUintOr("absent", 9), 9u);
  EXPECT_FALSE(file->GetUintOr("text", 9).ok());
  EXPECT_EQ(*file->GetFloatOr("absent", 0.5), 0.5);
  EXPECT_EQ(*file->GetBoolOr("absent", true), true);
  EXPECT_EQ(*file->GetStringOr("absent", "d"), "d");
  EXPECT_FALSE(file->GetStringOr("names", "d").ok());
}

TEST(GgufFile, ReadsTensorsInPlace) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer;
    writer.version = version;
    writer.Tensor("m", {32, 3}, 8, std::string(3 * 34, 'q'));  // Q8_0.
    writer.Tensor("v", {5}, 0, std::string(20, 'f'));
    const std::string bytes = writer.Finish();
    const auto file = GgufFile::Parse(BytesOf(bytes));
    ASSERT_TRUE(file.ok()) << MessageOf(file.status());
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->tensor_bytes(), 122u);
    const GgufTensor* m = file->FindTensor("m");
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(m->format, WeightFormat::kQ8_0);
    EXPECT_EQ(m->cols(), 32u);
    EXPECT_EQ(m->rows(), 3u);
    EXPECT_EQ(m->data_offset, file->data_begin());
    EXPECT_EQ(m->bytes.size(), 102u);
    EXPECT_EQ(m->bytes.data(), BytesOf(bytes).data() + m->data_offset);
    const GgufTensor* v = file->FindTensor("v");
    ASSERT_NE(v, nullptr);
    EXPECT_EQ(v->data_offset, file->data_begin() + 128);
    EXPECT_EQ(v->bytes[0], std::byte{'f'});
    EXPECT_EQ(file->FindTensor("w"), nullptr);
  }
}

TEST(GgufFile, HonoursAlignment) {
  GgufWriter writer;
  writer.alignment = 256;
  writer.Uint("general.alignment", 256);
  writer.Tensor("a", {1}, 0, "aaaa");
  writer.Tensor("b", {1}, 0, "bbbb");
  const std::string bytes = writer.Finish();
  const auto file = GgufFile::Parse(BytesOf(bytes));
  ASSERT_TRUE(file.ok()) << MessageOf(file.status());
  EXPECT_EQ(file->data_begin() % 256, 0u);
  EXPECT_EQ(file->FindTensor("b")->bytes[0], std::byte{'b'});
  for (const uint32_t wrong : {0u, 4u, 24u, 1u << 21}) {
    const std::string broken = Patched(bytes, After(bytes, "general.alignment") + 4, wrong);
    EXPECT_THAT(ParseError(broken), HasSubstr("'general.alignment': " + std::to_string(wrong) +
                                              " is not a power of two"));
  }
}

TEST(GgufFile, NamesWhatIsNoModel) {
  EXPECT_THAT(ParseError(""), HasSubstr("empty"));
  EXPECT_THAT(ParseError("GG"), HasSubstr("ends inside the magic"));
  EXPECT_THAT(ParseError("<!DOCTYPE html>\n<html><body>404"), HasSubstr("HTML page"));
  EXPECT_THAT(ParseError("\n  <html lang=en>"), HasSubstr("HTML page"));
  EXPECT_THAT(ParseError("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n"),
              HasSubstr("git-lfs pointer"));
  EXPECT_THAT(ParseError("{\"error\":\"Invalid username\"}"), HasSubstr("text that begins"));
  EXPECT_THAT(ParseError(std::string("PK\x03\x04zip", 7)), HasSubstr("ZIP"));
  EXPECT_THAT(ParseError("tjgg\x01"), HasSubstr("old GGJT format"));
  EXPECT_THAT(ParseError(std::string("\x90\0\0\0\0\0\0\0{\"a\":", 14)), HasSubstr("safetensors"));
  EXPECT_THAT(ParseError(std::string("\x7f"
                                     "ELF\0\0\0\0\0\0\0\0",
                                     12)),
              HasSubstr("the magic is '\\x7fELF' instead of 'GGUF'"));
}

TEST(GgufFile, NamesVersionsItCannotRead) {
  const std::string good = TinyModel();
  EXPECT_THAT(ParseError(Patched<uint32_t>(good, 4, 1)), HasSubstr("version 1 is not supported"));
  EXPECT_THAT(ParseError(Patched<uint32_t>(good, 4, 4)), HasSubstr("unknown GGUF version 4"));
  EXPECT_THAT(ParseError(Patched<uint32_t>(good, 4, 0)), HasSubstr("unknown GGUF version 0"));
  EXPECT_THAT(ParseError(Patched<uint32_t>(good, 4, 0x03000000)), HasSubstr("big-endian"));
}

struct BrokenCase {
  std::string what;
  std::function<std::string()> make;
  std::string message;
};

std::string WithTensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
  GgufWriter writer;
  writer.TensorAt("t", dims, type, offset);
  return writer.Finish() + std::string(64, '\0');
}

std::string WithEntry(GgufType type, std::string_view raw) {
  GgufWriter writer;
  writer.Raw("k", type, raw);
  return writer.Finish();
}

std::string U32(uint32_t value) { return {reinterpret_cast<const char*>(&value), 4}; }
std::string U64(uint64_t value) { return {reinterpret_cast<const char*>(&value), 8}; }

std::string NestedArrays(int depth) {
  std::string raw;
  for (int i = 1; i < depth; ++i) raw += U32(9) + U64(1);
  return WithEntry(GgufType::kArray, raw + U32(0) + U64(1) + "x");
}

// A file of one string array whose declared count is `count` but that holds one string.
std::string ShortStrings(uint64_t count) {
  return WithEntry(GgufType::kArray, U32(8) + U64(count) + U64(1) + "x");
}

std::vector<BrokenCase> BrokenHeaders() {
  constexpr uint64_t kHuge = ~uint64_t{0};
  const auto counts = [](size_t offset, uint64_t value) {
    return [=] { return Patched(TinyModel(), offset, value); };
  };
  return {
      {"tensor count", counts(8, kHuge), "tensor count: 18446744073709551615 tensors cannot be"},
      {"metadata count", counts(16, kHuge), "metadata count: 18446744073709551615 keys cannot be"},
      {"metadata count just too big", counts(16, 70000), "metadata count: 70000 keys cannot be"},
      {"key length",
       [] {
         GgufWriter writer;
         writer.Uint("k", 1);
         return Patched(writer.Finish(), 24, ~uint64_t{0});
       },
       "metadata key 1 of 1: length of the name is 18446744073709551615"},
      {"key of no length",
       [] {
         GgufWriter writer;
         writer.Uint("k", 1);
         return Patched(writer.Finish(), 24, uint64_t{0});
       },
       "length of the name is 0"},
      {"value type", [] { return WithEntry(static_cast<GgufType>(13), "x"); },
       "metadata key 'k': unknown value type 13 (at offset 33)"},
      {"string length", [] { return WithEntry(GgufType::kString, U64(~uint64_t{0}) + "x"); },
       "metadata key 'k': its string of 18446744073709551615 bytes runs past the end"},
      {"bool", [] { return WithEntry(GgufType::kBool, "\x02"); }, "a bool must be 0 or 1, found 2"},
      {"element type", [] { return WithEntry(GgufType::kArray, U32(77) + U64(1) + "x"); },
       "unknown array element type 77"},
      {"array count", [] { return WithEntry(GgufType::kArray, U32(6) + U64(~uint64_t{0} / 4)); },
       "an array of 4611686018427387903 elements of type float32 runs past the end"},
      {"string array count", [] { return ShortStrings(uint64_t{1} << 61); },
       "an array of 2305843009213693952 elements of type string runs past the end"},
      {"string array too short",
       [] { return WithEntry(GgufType::kArray, U32(8) + U64(2) + U64(1) + "x" + U64(1u << 20)); },
       "metadata key 'k': string 1 of 2 has a length of 1048576 and runs past the end"},
      {"nested too deep", [] { return NestedArrays(5); }, "arrays are nested deeper than 4"},
      {"nested deep enough", [] { return NestedArrays(4); }, "parsed"},
      {"key twice",
       [] {
         GgufWriter writer;
         writer.Uint("same", 1);
         writer.Uint("other", 1);
         writer.Uint("same", 2);
         return writer.Finish();
       },
       "metadata key 'same' occurs twice (values at offset 40"},
      {"terminal escape in a key",
       [] {
         GgufWriter writer;
         writer.Raw("\x1b[31m'", static_cast<GgufType>(99), "");
         return writer.Finish();
       },
       "metadata key '\\x1b[31m\\x27': unknown value type 99"},
  };
}

std::vector<BrokenCase> BrokenTensors() {
  constexpr uint64_t kTop = 0xFFFFFFFF;
  return {
      {"no dimensions", [] { return WithTensor({}, 0, 0); }, "tensor 't': 0 dimensions"},
      {"five dimensions",
       [] {
         return WithTensor({1, 1, 1, 1, 1}, 0, 0);
       },
       "tensor 't': 5 dimensions, must be 1 to 4"},
      {"zero dimension",
       [] {
         return WithTensor({4, 0}, 0, 0);
       },
       "tensor 't': dimension 1 is 0"},
      {"huge dimension", [] { return WithTensor({uint64_t{1} << 32}, 0, 0); },
       "tensor 't': dimension 0 is 4294967296"},
      {"overflow",
       [] {
         return WithTensor({kTop, kTop, kTop}, 0, 0);
       },
       "dimensions [4294967295, 4294967295, 4294967295, 1] overflow"},
      {"overflow to small",
       [] {
         return WithTensor({1u << 31, 1u << 31, 4, 1}, 0, 0);
       },
       "overflow"},
      {"number without type", [] { return WithTensor({32}, 4, 0); }, "unknown tensor type 4 "},
      {"unknown type", [] { return WithTensor({32}, 4000000000u, 0); },
       "tensor 't': unknown tensor type 4000000000 (at offset 45)"},
      {"known, not supported", [] { return WithTensor({32}, 16, 0); },
       "tensor 't': tensor type IQ2_XXS (16) is not supported (at offset 45)"},
      {"integers", [] { return WithTensor({32}, 24, 0); }, "I8 (24) is not supported"},
      {"partial block", [] { return WithTensor({33}, 8, 0); },
       "rows of 33 values are not a whole number of Q8_0 blocks of 32"},
      {"crooked offset", [] { return WithTensor({1}, 0, 31); },
       "data offset 31 is not a multiple of 32"},
      {"offset beyond the end", [] { return WithTensor({1}, 0, 1u << 20); },
       "data [1048640, 1048644) lies beyond the end of the file (128 bytes)"},
      {"offset that overflows", [] { return WithTensor({1}, 0, ~uint64_t{0} - 31); },
       "lies beyond the end of the file"},
      {"data beyond the end", [] { return WithTensor({17}, 0, 0); },
       "tensor 't': data [64, 132) lies beyond the end of the file (128 bytes)"},
      {"fits exactly", [] { return WithTensor({16}, 0, 0); }, "parsed"},
      {"tensor twice",
       [] {
         GgufWriter writer;
         writer.Tensor("t", {1}, 0, "aaaa");
         writer.Tensor("t", {1}, 0, "bbbb");
         return writer.Finish();
       },
       "tensor 't' occurs twice"},
      {"overlap",
       [] {
         GgufWriter writer;
         writer.TensorAt("b", {16}, 0, 32);
         writer.TensorAt("a", {16}, 0, 0);
         return writer.Finish() + std::string(96, '\0');
       },
       "tensor 'a': data [96, 160) overlaps that of tensor 'b' from 128"},
      {"a type too small",
       [] {
         GgufWriter writer;
         writer.TensorAt("a", {16}, 1, 0);
         writer.TensorAt("b", {16}, 0, 64);
         return writer.Finish() + std::string(128, '\0');
       },
       "tensor 'a': its type and dimensions take 32 bytes, the next tensor, 'b', begins 64 behind"},
      {"long name",
       [] {
         GgufWriter writer;
         writer.TensorAt(std::string(65, 'n'), {1}, 0, 0);
         return writer.Finish();
       },
       "tensor 1 of 1: length of the name is 65, must be 1 to 64"},
  };
}

TEST(GgufFile, SaysHowManyTensorsOfWhichTypeCannotBeRead) {
  GgufWriter writer;
  writer.String("general.architecture", "llama");
  writer.Tensor("a", {32}, 0, std::string(128, 0));
  writer.Tensor("b", {256}, 16, std::string(66, 0));
  writer.Tensor("c", {256}, 18, std::string(98, 0));
  writer.Tensor("d", {256}, 16, std::string(66, 0));
  EXPECT_THAT(ParseError(writer.Finish()),
              HasSubstr("tensor 'b': tensor type IQ2_XXS (16) is not supported"));
  EXPECT_THAT(ParseError(writer.Finish()),
              HasSubstr("of 4 tensors 3 cannot be read: 2 of IQ2_XXS, 1 of IQ3_XXS"));
}

TEST(GgufFile, NamesEveryDefectOfTheHeader) {
  for (const BrokenCase& broken : BrokenHeaders()) {
    EXPECT_THAT(ParseError(broken.make()), HasSubstr(broken.message)) << broken.what;
  }
}

TEST(GgufFile, NamesEveryDefectOfATensor) {
  for (const BrokenCase& broken : BrokenTensors()) {
    EXPECT_THAT(ParseError(broken.make()), HasSubstr(broken.message)) << broken.what;
  }
}

TEST(GgufFile, AnEndAnywhereIsAnError) {
  const TinyShape shape = {
      .layers = 1, .d_model = 32, .d_ffn = 32, .heads = 2, .kv_heads = 1, .vocab = 4};
  const std::string good = TinyModel("llama", shape);
  ASSERT_EQ(ParseError(good), "parsed");
  for (size_t size = 0; size < good.size(); ++size) {
    const std::string message = ParseError(std::string_view(good).substr(0, size));
    ASSERT_NE(message, "parsed") << size;
    if (size > 4) {
      ASSERT_THAT(message, HasSubstr("offset")) << size;
    }
  }
}

TEST(GgufFile, FlippedBitsNeverDoHarm) {
  const std::string good = TinyModel("gemma3");
  const auto file = GgufFile::Parse(BytesOf(good));
  ASSERT_TRUE(file.ok());
  const size_t header = file->data_begin();
  for (const uint64_t seed : TestSeeds(/*count=*/20)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    for (int round = 0; round < 100; ++round) {
      std::string broken = good;
      for (uint64_t flips = 1 + rng.Below(4); flips > 0; --flips) {
        broken[rng.Below(header)] ^= static_cast<char>(1u << rng.Below(8));
      }
      ReadEverything(broken);
    }
  }
}

TEST(GgufFile, NumbersReplacedByExtremesNeverDoHarm) {
  const std::string good = TinyModel();
  const auto file = GgufFile::Parse(BytesOf(good));
  ASSERT_TRUE(file.ok());
  for (size_t at = 4; at + 8 <= file->data_begin(); ++at) {
    for (const uint64_t value : {~uint64_t{0}, uint64_t{1} << 63, uint64_t{0}, uint64_t{1} << 32}) {
      ReadEverything(Patched(good, at, value));
    }
  }
}

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What costs most: as many strings as are allowed, and counts that promise more.
TEST(GgufFile, LargeHostileFilesFailFast) {
  const std::string empty_strings((kMaxGgufElements + 1) * 8, '\0');
  const auto with_count = [&](uint64_t count) {
    return WithEntry(GgufType::kArray, U32(8) + U64(count) + empty_strings);
  };
  const std::pair<std::string, std::string> cases[] = {
      {with_count(kMaxGgufElements), "parsed"},
      {with_count(kMaxGgufElements + 1),
       "metadata key 'k': with an array of 4194305 elements, arrays hold more than 4194304"},
      {with_count(kMaxGgufElements + 100), "runs past the end"}};
  for (const auto& [bytes, message] : cases) {
    const double start = ThreadSeconds();
    const auto parsed = GgufFile::Parse(BytesOf(bytes));
    EXPECT_LT(ThreadSeconds() - start, 0.5);
    EXPECT_THAT(parsed.ok() ? "parsed" : std::string(MessageOf(parsed.status())),
                HasSubstr(message));
  }
}

}  // namespace
}  // namespace kvasir
