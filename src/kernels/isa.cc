#include "kernels/isa.h"

#include <cpuid.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/check.h"

namespace kvasir {
namespace {

// __builtin_cpu_supports("f16c") does not compile with clang 14.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool CpuRuns(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
    case Isa::kAvx512:
      return CpuRuns(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
             __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("gfni");
  }
  return false;
}

struct Choice {
  std::atomic<Isa> isa{Isa::kScalar};
  std::string problem;

  Choice() {
    isa = SupportedIsas().back();
    const char* wanted = std::getenv("KVASIR_ISA");
    if (wanted == nullptr || *wanted == '\0') return;
    const std::optional<Isa> parsed = IsaFromName(wanted);
    if (!parsed.has_value()) {
      problem = std::string("KVASIR_ISA=") + wanted + " is unknown; use avx512, avx2 or scalar";
    } else if (!CpuRuns(*parsed)) {
      problem = std::string("KVASIR_ISA=") + wanted + " is not supported by this CPU";
    } else {
      isa = *parsed;
    }
  }
};

Choice& TheChoice() {
  static Choice choice;
  return choice;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

std::optional<Isa> IsaFromName(std::string_view name) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (IsaName(isa) == name) return isa;
  }
  return std::nullopt;
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512}) {
    if (CpuRuns(isa)) isas.push_back(isa);
  }
  return isas;
}

Isa ActiveIsa() { return TheChoice().isa.load(std::memory_order_relaxed); }

std::string_view ActiveIsaProblem() { return TheChoice().problem; }

void SetActiveIsa(Isa isa) {
  const std::vector<Isa> isas = SupportedIsas();
  KV_CHECK(std::find(isas.begin(), isas.end(), isa) != isas.end());
  TheChoice().isa.store(isa, std::memory_order_relaxed);
}

}  // namespace kvasir
