// Which instruction set the kernels run on, chosen once at start.
//
// Every kernel exists three times, compiled from one source: AVX-512 with VNNI, AVX2 with FMA and
// F16C, and portable scalar code. All three give the same bits (docs/ARCHITECTURE.md, "Numerics"),
// so the choice is speed only.
#ifndef KVASIR_KERNELS_ISA_H_
#define KVASIR_KERNELS_ISA_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace kvasir {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512 };

std::string_view IsaName(Isa isa);  // "scalar", "avx2", "avx512"
std::optional<Isa> IsaFromName(std::string_view name);

// The sets this CPU can run, slowest first; kScalar is always there.
std::vector<Isa> SupportedIsas();

// The set in use: the best supported one, or the one named by the environment variable KVASIR_ISA
// if it is known and supported (an unknown or unsupported name is ignored here; ActiveIsaProblem()
// tells).
Isa ActiveIsa();

// Why KVASIR_ISA could not be honoured, one line; empty when it was or is unset. For start-up
// checks.
std::string_view ActiveIsaProblem();

// Switches all kernels of the process. For tests and benchmarks, while no kernel runs.
// REQUIRES: isa is in SupportedIsas().
void SetActiveIsa(Isa isa);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_ISA_H_
