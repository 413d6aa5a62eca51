#include "model/model_digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "base/check.h"

namespace kvasir {
namespace {

// Changes whenever the same tensors would get another digest.
constexpr std::string_view kDomain = "kvasir model digest 1";

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    KV_CHECK(context_ != nullptr);
    KV_CHECK_EQ(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr), 1);
  }

  void Bytes(const void* data, size_t size) {
    KV_CHECK_EQ(EVP_DigestUpdate(context_.get(), data, size), 1);
  }
  void Number(uint64_t value) {
    std::array<uint8_t, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    Bytes(bytes.data(), bytes.size());
  }
  // Length first, so that neighbouring texts cannot trade characters.
  void Text(std::string_view text) {
    Number(text.size());
    Bytes(text.data(), text.size());
  }

  Digest Finish() {
    Digest digest;
    unsigned int size = 0;
    KV_CHECK_EQ(
        EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size),
        1);
    KV_CHECK_EQ(size, digest.size());
    return digest;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

size_t LeavesOf(const GgufTensor& tensor) {
  return (tensor.bytes.size() + ModelDigester::kLeafBytes - 1) / ModelDigester::kLeafBytes;
}

}  // namespace

ModelDigester::ModelDigester(const GgufFile& file) : file_(&file) {
  for (const GgufTensor& tensor : file.tensors()) {
    for (size_t at = 0; at < tensor.bytes.size(); at += kLeafBytes) {
      leaves_.push_back(tensor.bytes.subspan(at, std::min(kLeafBytes, tensor.bytes.size() - at)));
    }
  }
  digests_.resize(leaves_.size());
  hashed_.assign(leaves_.size(), 0);
}

void ModelDigester::HashLeaf(uint32_t i) {
  KV_CHECK_LT(i, leaf_count());
  Sha256 sha;
  sha.Bytes(leaves_[i].data(), leaves_[i].size());
  digests_[i] = sha.Finish();
  hashed_[i] = 1;
}

Digest ModelDigester::Root() const {
  Sha256 sha;
  sha.Text(kDomain);
  sha.Number(file_->tensors().size());
  size_t leaf = 0;
  for (const GgufTensor& tensor : file_->tensors()) {
    sha.Text(tensor.name);
    sha.Text(TraitsOf(tensor.format).name);
    sha.Number(tensor.dim_count);
    for (uint32_t d = 0; d < tensor.dim_count; ++d) sha.Number(tensor.dims[d]);
    for (size_t n = LeavesOf(tensor); n > 0; --n, ++leaf) {
      KV_CHECK_EQ(hashed_[leaf], 1);
      sha.Bytes(digests_[leaf].data(), digests_[leaf].size());
    }
  }
  return sha.Finish();
}

Digest ModelDigest(const GgufFile& file, int thread_count) {
  KV_CHECK_GE(thread_count, 1);
  ModelDigester digester(file);
  std::atomic<uint32_t> next{0};
  const auto work = [&] {
    for (uint32_t i = next++; i < digester.leaf_count(); i = next++) digester.HashLeaf(i);
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < thread_count; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return digester.Root();
}

std::string HexText(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

}  // namespace kvasir
