#include "model/model_digest.h"

#include <gtest/gtest.h>

#include "model/tiny_model_for_test.h"

namespace kvasir {
namespace {

Digest DigestOf(const std::string& bytes, int threads = 1) {
  const auto file = GgufFile::Parse(BytesOf(bytes));
  EXPECT_TRUE(file.ok()) << MessageOf(file.status());
  return ModelDigest(*file, threads);
}

std::string OneTensor(const std::string& name, const std::vector<uint64_t>& dims,
                      const std::string& data, uint32_t type = 0) {
  GgufWriter writer;
  writer.Tensor(name, dims, type, data);
  return writer.Finish();
}

TEST(ModelDigest, DependsOnTensorsOnly) {
  GgufWriter plain;
  WriteTinyTensors(plain, {}, "gemma3");
  EXPECT_EQ(DigestOf(plain.Finish()), DigestOf(plain.Finish(), 3));
  GgufWriter moved;
  moved.alignment = 64;
  moved.Uint("general.alignment", 64);
  moved.String("general.name", "another name, another place in the file");
  WriteTinyTensors(moved, {}, "gemma3");
  EXPECT_EQ(DigestOf(plain.Finish()), DigestOf(moved.Finish()));
}

TEST(ModelDigest, TellsApartNameShapeTypeAndData) {
  const std::string data = "0123456789abcdef";
  const Digest base = DigestOf(OneTensor("t", {4}, data));
  EXPECT_EQ(HexText(base).size(), 64u);
  EXPECT_NE(base, DigestOf(OneTensor("u", {4}, data)));
  EXPECT_NE(base, DigestOf(OneTensor("t", {2, 2}, data)));
  EXPECT_NE(base, DigestOf(OneTensor("t", {4, 1}, data)));
  EXPECT_NE(base, DigestOf(OneTensor("t", {8}, data, /*type=*/1)));
  EXPECT_NE(base, DigestOf(OneTensor("t", {4}, "0123456789abcdeF")));
  EXPECT_NE(base, DigestOf(GgufWriter().Finish()));
}

// More than one leaf: the last byte of each counts, and so does the order of leaves.
TEST(ModelDigest, CoversEveryLeaf) {
  std::string data(2 * ModelDigester::kLeafBytes + 8, 'x');
  const auto dims = std::vector<uint64_t>{data.size() / 4};
  const Digest base = DigestOf(OneTensor("t", dims, data), 2);
  for (const size_t at :
       {ModelDigester::kLeafBytes - 1, ModelDigester::kLeafBytes, data.size() - 1}) {
    std::string changed = data;
    changed[at] = 'y';
    EXPECT_NE(base, DigestOf(OneTensor("t", dims, changed))) << at;
  }
  std::string front = data;
  front[0] = 'y';
  std::string second = data;
  second[ModelDigester::kLeafBytes] = 'y';
  EXPECT_NE(DigestOf(OneTensor("t", dims, front)), DigestOf(OneTensor("t", dims, second)));
}

TEST(ModelDigestDeathTest, RootNeedsAllLeaves) {
  const std::string bytes = OneTensor("t", {4}, "0123456789abcdef");
  const auto file = GgufFile::Parse(BytesOf(bytes));
  const ModelDigester digester(*file);
  EXPECT_EQ(digester.leaf_count(), 1u);
  EXPECT_DEATH(digester.Root(), "model_digest.cc");
}

}  // namespace
}  // namespace kvasir
