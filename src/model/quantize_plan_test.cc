// What is written in which format, and that the header written for it reads back.
#include "model/quantize_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "model/gguf_output.h"
#include "model/gguf_writer_for_test.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

constexpr uint32_t kF32 = 0;
constexpr uint32_t kF16 = 1;
constexpr uint32_t kQ80 = 8;

std::map<std::string, std::string> Formats(const GgufFile& file, const char* type,
                                           bool allow_requantize = false) {
  const auto plan = PlanQuantization(file, *FindQuantizeType(type), allow_requantize);
  EXPECT_TRUE(plan.ok()) << plan.status();
  std::map<std::string, std::string> formats;
  for (const PlannedTensor& planned : *plan) {
    formats[std::string(planned.tensor->name)] = TraitsOf(planned.format).name;
  }
  return formats;
}

// A matrix of `rows` rows; the data are zeros.
void Matrix(GgufWriter& writer, const std::string& name, uint64_t cols, uint64_t rows,
            uint32_t type = kF32) {
  const uint64_t bytes = type == kF32 ? 4 * cols : type == kF16 ? 2 * cols : cols / 32 * 34;
  writer.Tensor(name, {cols, rows}, type, std::string(bytes * rows, '\0'));
}

TEST(PlanQuantization, MatricesOnlyAndWholeBlocks) {
  GgufWriter writer;
  Matrix(writer, "token_embd.weight", 256, 2);
  writer.Tensor("output_norm.weight", {256}, kF32, std::string(1024, '\0'));
  writer.Tensor("rope_freqs.weight", {32}, kF32, std::string(128, '\0'));
  writer.Tensor("blk.0.attn_q.bias", {256}, kF32, std::string(1024, '\0'));
  Matrix(writer, "blk.0.attn_q.weight", 256, 2, kF16);
  Matrix(writer, "blk.0.ffn_down.weight", 96, 2);
  Matrix(writer, "blk.0.odd.weight", 40, 2);
  const std::string bytes = writer.Finish();
  const GgufFile file = GgufFile::Parse(BytesOf(bytes)).value();
  auto formats = Formats(file, "Q4_K");
  EXPECT_EQ(formats["token_embd.weight"], "Q4_K");
  EXPECT_EQ(formats["output_norm.weight"], "F32");
  EXPECT_EQ(formats["rope_freqs.weight"], "F32");
  EXPECT_EQ(formats["blk.0.attn_q.bias"], "F32");
  EXPECT_EQ(formats["blk.0.attn_q.weight"], "Q4_K");
  EXPECT_EQ(formats["blk.0.ffn_down.weight"], "Q5_0");
  EXPECT_EQ(formats["blk.0.odd.weight"], "F16");
  const auto plan = PlanQuantization(file, *FindQuantizeType("Q4_K"), false).value();
  for (const PlannedTensor& planned : plan) {
    const bool fits = planned.tensor->cols() == 256 || TraitsOf(planned.format).name == "F32";
    EXPECT_EQ(planned.instead_of, fits ? std::nullopt : std::optional(WeightFormat::kQ4_K))
        << planned.tensor->name;
  }
  EXPECT_EQ(Formats(file, "q6_k")["blk.0.ffn_down.weight"], "Q8_0");
  EXPECT_EQ(Formats(file, "F16")["blk.0.ffn_down.weight"], "F16");
  EXPECT_EQ(Formats(file, "Q4_1")["blk.0.ffn_down.weight"], "Q4_1");
}

TEST(PlanQuantization, TheMixKeepsHeadsAndSensitiveLayers) {
  for (const bool tied : {true, false}) {
    GgufWriter writer;
    Matrix(writer, "token_embd.weight", 256, 2);
    if (!tied) Matrix(writer, "output.weight", 256, 2);
    for (int i = 0; i < 16; ++i) {
      for (const char* part : {"attn_v", "attn_k", "ffn_down"}) {
        Matrix(writer, "blk." + std::to_string(i) + "." + part + ".weight", 256, 2);
      }
    }
    const std::string bytes = writer.Finish();
    const GgufFile file = GgufFile::Parse(BytesOf(bytes)).value();
    auto formats = Formats(file, "Q4_K_M");
    EXPECT_EQ(formats["token_embd.weight"], tied ? "Q6_K" : "Q4_K");
    EXPECT_EQ(formats["output.weight"], tied ? "" : "Q6_K");
    std::string sensitive;
    for (int i = 0; i < 16; ++i) {
      const std::string at = "blk." + std::to_string(i) + ".";
      EXPECT_EQ(formats[at + "attn_k.weight"], "Q4_K");
      EXPECT_EQ(formats[at + "attn_v.weight"], formats[at + "ffn_down.weight"]);
      if (formats[at + "attn_v.weight"] == "Q6_K") sensitive += std::to_string(i) + " ";
    }
    EXPECT_EQ(sensitive, "0 1 4 7 10 13 14 15 ");
  }
}

TEST(PlanQuantization, LossyFormatsOnlyWhenAsked) {
  GgufWriter writer;
  Matrix(writer, "a.weight", 64, 2, kQ80);
  const std::string bytes = writer.Finish();
  const GgufFile file = GgufFile::Parse(BytesOf(bytes)).value();
  const auto refused = PlanQuantization(file, *FindQuantizeType("Q4_0"), false);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(refused.status())),
              HasSubstr("'a.weight': it is Q8_0 already"));
  EXPECT_EQ(Formats(file, "Q4_0", true)["a.weight"], "Q4_0");
  EXPECT_EQ(Formats(file, "Q8_0")["a.weight"], "Q8_0");  // Nothing changes.
}

TEST(PlanQuantization, Names) {
  EXPECT_EQ(FindQuantizeType("Q5_K"), nullptr);
  EXPECT_EQ(FindQuantizeType(""), nullptr);
  EXPECT_EQ(FindQuantizeType("q4_k_m")->file_type, 15u);
}

TEST(LayOutGguf, ReadsBack) {
  GgufWriter writer;
  writer.alignment = 64;
  writer.Uint("general.alignment", 64);
  writer.Uint("general.file_type", 0);
  writer.Uint("split.count", 1);
  writer.Strings("s", {"x", "", "long one"});
  writer.Numbers<int32_t>("n", GgufType::kInt32, {1, -2});
  writer.Bool("b", true);
  Matrix(writer, "a.weight", 64, 3);
  Matrix(writer, "b.weight", 96, 5);
  const std::string bytes = writer.Finish();
  const GgufFile file = GgufFile::Parse(BytesOf(bytes)).value();
  const auto plan = PlanQuantization(file, *FindQuantizeType("Q8_0"), false).value();
  const GgufOutput output = LayOutGguf(file, plan, 7);
  std::string written = output.header;
  written.resize(output.file_bytes);
  const StatusOr<GgufFile> back = GgufFile::Parse(BytesOf(written));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->alignment(), 32u);
  EXPECT_EQ(back->FindUint("general.file_type"), 7u);
  EXPECT_EQ(back->FindEntry("split.count"), nullptr);
  EXPECT_THAT(back->GetStrings("s")->ToVector(), testing::ElementsAre("x", "", "long one"));
  EXPECT_EQ(back->GetNumbers("n")->Int(1), -2);
  EXPECT_EQ(back->FindBool("b"), true);
  ASSERT_EQ(back->tensors().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back->tensors()[i].format, WeightFormat::kQ8_0);
    EXPECT_EQ(back->tensors()[i].data_offset, output.offsets[i]);
    EXPECT_EQ(back->tensors()[i].dims[1], file.tensors()[i].dims[1]);
  }
}

}  // namespace
}  // namespace kvasir
