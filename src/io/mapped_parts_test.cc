#include "io/mapped_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kvasir {
namespace {

using testing::HasSubstr;

class MappedPartsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::string(testing::TempDir()) + "/parts_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(At(name)) << content;
    return At(name);
  }
  std::string At(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

TEST_F(MappedPartsTest, AnyPartOpensAllInOrder) {
  Write("m-00001-of-00003.gguf", "one");
  Write("m-00002-of-00003.gguf", "two!");
  Write("m-00003-of-00003.gguf", "three");
  for (const char* name :
       {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const StatusOr<MappedParts> parts = MappedParts::Open(At(name));
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->parts().size(), 3u);
    EXPECT_EQ(static_cast<char>(parts->parts()[0][0]), 'o');
    EXPECT_EQ(parts->parts()[1].size(), 4u);
    EXPECT_EQ(static_cast<char>(parts->parts()[2][1]), 'h');
    parts->ReleasePages(parts->parts()[2]);
    EXPECT_EQ(static_cast<char>(parts->parts()[2][4]), 'e');
  }
}

TEST_F(MappedPartsTest, OneFileIsOnePart) {
  const StatusOr<MappedParts> parts = MappedParts::Open(Write("m.gguf", "x"));
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->parts().size(), 1u);
}

TEST_F(MappedPartsTest, AMissingPartIsNamed) {
  Write("m-00002-of-00003.gguf", "two");
  Write("m-00003-of-00003.gguf", "three");
  const StatusOr<MappedParts> parts = MappedParts::Open(At("m-00003-of-00003.gguf"));
  EXPECT_EQ(parts.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(MessageOf(parts.status())),
              HasSubstr("m-00003-of-00003.gguf: part 1 of 3 is needed too: " +
                        At("m-00001-of-00003.gguf") + ": cannot open the file"));
  EXPECT_THAT(std::string(MessageOf(MappedParts::Open(At("m-00001-of-00003.gguf")).status())),
              testing::Not(HasSubstr("is needed too")));
  EXPECT_THAT(
      std::string(MessageOf(MappedParts::Open(Write("m-00001-of-02000.gguf", "x")).status())),
      HasSubstr("a model of 2000 parts; at most 1024"));
}

TEST(PartName, WhatIsOne) {
  const std::optional<PartName> name = ReadPartName("/a/m-00002-of-00012.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->stem, "/a/m");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 12u);
  EXPECT_EQ(NameOfPart(*name, 11), "/a/m-00011-of-00012.gguf");
  for (const char* other :
       {"m.gguf", "-00001-of-00002.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
        "m-0001-of-00002.gguf", "m-00001-of-0002.gguf", "m-00001_of-00002.gguf",
        "m-00001-of-00002.bin", "m-0000a-of-00002.gguf"}) {
    EXPECT_FALSE(ReadPartName(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace kvasir
