// Split files: what GgufFile::ParseParts puts together and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/gguf_file.h"
#include "model/gguf_writer_for_test.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

struct Part {
  uint32_t number = 0;  // From 0.
  uint32_t count = 0;
  uint32_t tensors = 0;  // In all parts.
  std::vector<std::string> names;
  std::string architecture;  // Empty: not said.
};

std::string Write(const Part& part) {
  GgufWriter writer;
  if (!part.architecture.empty()) writer.String("general.architecture", part.architecture);
  writer.Scalar("split.no", GgufType::kUint16, static_cast<uint16_t>(part.number));
  writer.Scalar("split.count", GgufType::kUint16, static_cast<uint16_t>(part.count));
  writer.Scalar("split.tensors.count", GgufType::kInt32, static_cast<int32_t>(part.tensors));
  for (const std::string& name : part.names) {
    // The name's first letter is the data, so that a mix-up would show.
    writer.Tensor(name, {32}, 0, std::string(128, name[0]));
  }
  return writer.Finish();
}

StatusOr<GgufFile> Parse(const std::vector<std::string>& files) {
  std::vector<std::span<const std::byte>> parts;
  for (const std::string& file : files) parts.push_back(BytesOf(file));
  return GgufFile::ParseParts(parts);
}

std::string ParseError(const std::vector<std::string>& files) {
  return std::string(MessageOf(Parse(files).status()));
}

TEST(GgufParts, TensorsOfAllMetadataOfTheFirst) {
  const std::vector<std::string> files = {Write({0, 3, 4, {"c", "a"}, "llama"}),
                                          Write({1, 3, 4, {"d"}, ""}), Write({2, 3, 4, {"b"}, ""})};
  const StatusOr<GgufFile> file = Parse(files);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->FindString("general.architecture"), "llama");
  ASSERT_EQ(file->tensors().size(), 4u);
  EXPECT_EQ(file->file_bytes(), files[0].size() + files[1].size() + files[2].size());
  EXPECT_EQ(file->tensor_bytes(), 4u * 128);
  for (const char* name : {"a", "b", "c", "d"}) {
    const GgufTensor* tensor = file->FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    ASSERT_EQ(tensor->bytes.size(), 128u);
    EXPECT_EQ(static_cast<char>(tensor->bytes[127]), name[0]);
  }
  EXPECT_EQ(file->FindTensor("e"), nullptr);
}

TEST(GgufParts, APartAloneIsNoModel) {
  EXPECT_THAT(ParseError({Write({1, 3, 3, {"a"}, ""})}),
              HasSubstr("this is part 2 of a model of 3 parts; they are found by their names, "
                        "NAME-00002-of-00003.gguf"));
}

TEST(GgufParts, WhatDoesNotBelongTogether) {
  const std::string first = Write({0, 2, 2, {"a"}, "llama"});
  const std::string second = Write({1, 2, 2, {"b"}, ""});
  ASSERT_TRUE(Parse({first, second}).ok());
  EXPECT_THAT(ParseError({second, first}), HasSubstr("part 1 of 2: metadata key 'split.no'"));
  EXPECT_THAT(
      ParseError({first, first}),
      HasSubstr("part 2 of 2: metadata key 'split.no': it is part 2 (counted from 1) by its "
                "name, 1 by its content"));
  EXPECT_THAT(ParseError({first, Write({1, 3, 2, {"b"}, ""})}),
              HasSubstr("part 2 of 2: metadata key 'split.count': it says that the model has 3 "
                        "parts, the file's name says 2"));
  EXPECT_THAT(ParseError({first, Write({1, 2, 5, {"b"}, ""})}),
              HasSubstr("part 2 of 2: metadata key 'split.tensors.count' is not the first part's"));
  EXPECT_THAT(ParseError({first, Write({1, 2, 2, {"b"}, "gemma3"})}),
              HasSubstr("'general.architecture' is 'gemma3', in the first part 'llama'"));
  EXPECT_THAT(ParseError({first, Write({1, 2, 2, {"b", "c"}, ""})}),
              HasSubstr("the model has 2 tensors, its parts hold 3"));
  EXPECT_THAT(ParseError({first, Write({1, 2, 2, {"a"}, ""})}),
              HasSubstr("tensor 'a' occurs in two parts"));
  EXPECT_THAT(ParseError({first, second.substr(0, second.size() - 1)}),
              HasSubstr("part 2 of 2: tensor 'b': data"));
  GgufWriter plain;
  EXPECT_THAT(ParseError({first, plain.Finish()}),
              HasSubstr("part 2 of 2: metadata key 'split.count' is missing"));
}

}  // namespace
}  // namespace kvasir
