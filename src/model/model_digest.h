// ModelDigest: the identity of a model's tensors, the first word of every KV name.
//
// SHA-256 over a list of leaves: each leaf is at most kLeafBytes of one tensor's data, and the root
// hashes, in file order, every tensor's name, type and shape with its leaves' digests. So it can be
// computed by many threads in any order, slice by slice while weights are repacked, or later; and
// it does not depend on padding, metadata or the place of the data in the file. What metadata
// changes is CanonicalText (model_config.h).
// Thread: HashLeaf on distinct leaves from any threads; Root after all of them.
#ifndef KVASIR_MODEL_MODEL_DIGEST_H_
#define KVASIR_MODEL_MODEL_DIGEST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/gguf_file.h"

namespace kvasir {

using Digest = std::array<std::byte, 32>;

class ModelDigester {
 public:
  static constexpr size_t kLeafBytes = size_t{4} << 20;

  explicit ModelDigester(const GgufFile& file);  // `file` must outlive it. O(bytes / kLeafBytes).

  uint32_t leaf_count() const { return static_cast<uint32_t>(leaves_.size()); }
  std::span<const std::byte> leaf(uint32_t i) const { return leaves_[i]; }  // File order.
  void HashLeaf(uint32_t i);  // Reads leaf(i). REQUIRES: i < leaf_count().
  Digest Root() const;        // REQUIRES: every leaf has been hashed.

 private:
  const GgufFile* file_;
  std::vector<std::span<const std::byte>> leaves_;
  std::vector<Digest> digests_;
  std::vector<uint8_t> hashed_;  // Not vector<bool>: threads write neighbours.
};

// All of it at once, on `thread_count` threads of its own. About 1.5 GB/s a thread with SHA
// instructions. REQUIRES: thread_count >= 1.
Digest ModelDigest(const GgufFile& file, int thread_count = 1);

std::string HexText(const Digest& digest);  // 64 lower-case characters.

}  // namespace kvasir

#endif  // KVASIR_MODEL_MODEL_DIGEST_H_
