#include "io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace kvasir {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "mapped_file_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
  }
  void TearDown() override {
    for (const std::string& path : paths_) unlink(path.c_str());
    rmdir(dir_.c_str());
  }

  std::string Write(const std::string& name, const std::string& content) {
    paths_.push_back(dir_ + "/" + name);
    std::ofstream(paths_.back(), std::ios::binary) << content;
    return paths_.back();
  }

  std::string dir_;
  std::vector<std::string> paths_;
};

std::string ErrorOf(const std::string& path) {
  const auto file = MappedFile::Open(path);
  return file.ok() ? "opened" : std::string(MessageOf(file.status()));
}

std::string TextOf(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(MappedFileTest, GivesTheFilesBytes) {
  const std::string content = "not a multiple of a page";
  const auto file = MappedFile::Open(Write("a", content));
  ASSERT_TRUE(file.ok()) << MessageOf(file.status());
  EXPECT_EQ(TextOf(*file), content);
  EXPECT_EQ(file->path(), paths_[0]);
}

TEST_F(MappedFileTest, NamesPathAndReason) {
  EXPECT_THAT(ErrorOf(dir_ + "/absent"),
              HasSubstr(dir_ + "/absent: cannot open the file: No such"));
  EXPECT_EQ(ErrorOf(dir_), dir_ + ": is a directory, not a file");
  EXPECT_THAT(ErrorOf(Write("empty", "")), HasSubstr("/empty: the file is empty"));
  EXPECT_THAT(ErrorOf(std::string("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("No such"));
  EXPECT_EQ(MappedFile::Open(dir_ + "/absent").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::Open(dir_).status().code(), StatusCode::kInvalidArgument);
  const std::string fifo = dir_ + "/fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  paths_.push_back(fifo);
  EXPECT_THAT(ErrorOf(fifo),
              HasSubstr("is not a regular file"));  // And does not wait for a writer.
}

TEST_F(MappedFileTest, NoPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = Write("secret", "x");
  chmod(path.c_str(), 0);
  EXPECT_EQ(MappedFile::Open(path).status().code(), StatusCode::kPermissionDenied);
}

TEST_F(MappedFileTest, MovesLeaveNothingBehind) {
  auto opened = MappedFile::Open(Write("a", "content"));
  ASSERT_TRUE(opened.ok());
  MappedFile first = *std::move(opened);
  MappedFile second = std::move(first);
  EXPECT_EQ(TextOf(second), "content");
  MappedFile third;
  third = std::move(second);
  EXPECT_EQ(TextOf(third), "content");
  EXPECT_TRUE(MappedFile().bytes().empty());
}

TEST_F(MappedFileTest, ReleasedPagesStayReadable) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::string content;
  for (size_t i = 0; content.size() < 5 * page + 7; ++i) content += std::to_string(i);
  const auto file = MappedFile::Open(Write("a", content));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(TextOf(*file), content);
  const std::pair<size_t, size_t> ranges[] = {{0, content.size()},
                                              {1, page},
                                              {page - 1, 2 * page},
                                              {3, 4},
                                              {4 * page, content.size() - 4 * page}};
  for (const auto& [begin, size] : ranges) {
    file->ReleasePages(file->bytes().subspan(begin, size));
    EXPECT_EQ(TextOf(*file), content) << begin;
  }
  file->ReleasePages({});
}

// The point of it: resident memory goes down.
TEST_F(MappedFileTest, ReleasedPagesLeaveMemory) {
  const auto resident_pages = [] {
    std::ifstream stream("/proc/self/statm");
    size_t total = 0;
    size_t resident = 0;
    stream >> total >> resident;
    return resident;
  };
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::string content(size_t{16} << 20, 'x');
  const auto file = MappedFile::Open(Write("big", content));
  ASSERT_TRUE(file.ok());
  size_t sum = 0;
  for (size_t i = 0; i < file->bytes().size(); i += page) sum += file->bytes()[i] == std::byte{'x'};
  ASSERT_EQ(sum, content.size() / page);
  const size_t before = resident_pages();
  file->ReleasePages(file->bytes());
  EXPECT_LE(resident_pages() + content.size() / page / 2, before);
}

TEST_F(MappedFileTest, ReleasingForeignBytesIsOurBug) {
  const auto file = MappedFile::Open(Write("a", "content"));
  ASSERT_TRUE(file.ok());
  const std::byte other[4] = {};
  EXPECT_DEATH(file->ReleasePages(other), "mapped_file.cc");
}

}  // namespace
}  // namespace kvasir
