#include "io/whole_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace kvasir {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class WholeFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::string(testing::TempDir()) + "/whole_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/f";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  size_t FileCount() const {
    const auto begin = std::filesystem::directory_iterator(folder_);
    return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }
  std::string Content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  std::string folder_;
  std::string path_;
};

TEST_F(WholeFileTest, AppearsWithCommit) {
  StatusOr<WholeFile> file = WholeFile::Create(path_, 6, WholeFile::Existing::kRefuse);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->WriteAt(3, Bytes("def")).ok());
  ASSERT_TRUE(file->WriteAt(0, Bytes("abc")).ok());
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Content(), "abcdef");
  EXPECT_EQ(FileCount(), 1u);
}

TEST_F(WholeFileTest, WithoutCommitNothingIsLeft) {
  {
    StatusOr<WholeFile> file = WholeFile::Create(path_, 3, WholeFile::Existing::kRefuse);
    ASSERT_TRUE(file.ok());
    WholeFile moved = *std::move(file);
    ASSERT_TRUE(moved.WriteAt(0, Bytes("abc")).ok());
  }
  EXPECT_EQ(FileCount(), 0u);
}

TEST_F(WholeFileTest, WhatIsThere) {
  std::ofstream(path_) << "old";
  EXPECT_EQ(WholeFile::Create(path_, 3, WholeFile::Existing::kRefuse).status().code(),
            StatusCode::kAlreadyExists);
  StatusOr<WholeFile> file = WholeFile::Create(path_, 3, WholeFile::Existing::kReplace);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->WriteAt(0, Bytes("new")).ok());
  EXPECT_EQ(Content(), "old");
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(Content(), "new");
  EXPECT_EQ(FileCount(), 1u);
}

// Somebody else was faster: their file stays.
TEST_F(WholeFileTest, WhatCameMeanwhile) {
  StatusOr<WholeFile> file = WholeFile::Create(path_, 3, WholeFile::Existing::kRefuse);
  ASSERT_TRUE(file.ok());
  std::ofstream(path_) << "theirs";
  EXPECT_EQ(file->Commit().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Content(), "theirs");
}

TEST_F(WholeFileTest, WhereNothingCanBe) {
  const auto create = [](const std::string& path) {
    return WholeFile::Create(path, 1, WholeFile::Existing::kReplace).status().code();
  };
  EXPECT_EQ(create(folder_), StatusCode::kInvalidArgument);
  EXPECT_EQ(create("/dev/null"), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(""), StatusCode::kInvalidArgument);
  EXPECT_EQ(create(folder_ + "/none/f"), StatusCode::kNotFound);
}

}  // namespace
}  // namespace kvasir
