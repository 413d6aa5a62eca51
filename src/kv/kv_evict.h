// KvEvict: the policies that choose what a full cache gives up (`--kv-evict`), and what they
// report. Plain values; eviction_policy.h has the objects.
#ifndef KVASIR_KV_KV_EVICT_H_
#define KVASIR_KV_KV_EVICT_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kvasir {

enum class KvEvict : uint8_t {
  kLru,       // Least recently used.
  kLfu,       // Least often used, then least recently.
  kGdsf,      // Smallest L + frequency * cost: what computing it again would take.
  kS3Fifo,    // First in, first out, in a small queue and a main one.
  kAdaptive,  // Whichever of the others would save most.
};
inline constexpr uint32_t kFixedKvEvicts = 4;  // All but kAdaptive, which chooses between them.

std::string_view KvEvictName(KvEvict evict);
std::optional<KvEvict> KvEvictFromName(std::string_view name);

// What eviction has done, and for kAdaptive why.
struct KvEviction {
  KvEvict policy = KvEvict::kLru;
  KvEvict ruling = KvEvict::kLru;                    // Other than `policy` for kAdaptive only.
  std::array<uint64_t, kFixedKvEvicts> evictions{};  // Blocks, by the policy that ruled then.
  // kAdaptive: share of the prompts' compute that each policy would have saved in the last windows
  // (older ones count less), and the same when it switched last.
  std::array<double, kFixedKvEvicts> saved{};
  std::array<double, kFixedKvEvicts> saved_at_switch{};
  KvEvict ruled_before = KvEvict::kLru;  // The last switch was from this one.
  uint64_t windows = 0;                  // Decisions, switches or not.
  uint64_t switches = 0;
  uint32_t shadow_blocks = 0;  // Capacity of each shadow now; 0: not adaptive.
  double sampled_share = 0.0;  // Of the block references, by the families in the sample.
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_EVICT_H_
