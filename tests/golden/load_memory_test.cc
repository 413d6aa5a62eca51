// Loading must not hold the model twice: the peak of resident memory, measured in a process of its
// own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/golden/golden_model.h"

namespace kvasir {
namespace {

// VmHWM of this process in bytes.
uint64_t PeakResidentBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "VmHWM:") {
      uint64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

// Loads the weights as `kvasir run` does and exits with 0 when the peak stayed within the bound.
int LoadAndMeasure(const std::string& path) {
  auto file = MappedFile::Open(path);
  if (!file.ok()) return 3;
  auto gguf = GgufFile::Parse(file->bytes());
  if (!gguf.ok()) return 3;
  auto config = ReadModelConfig(*gguf);
  if (!config.ok()) return 3;
  WorkerTeam team(2);
  WeightsLoadOptions options;
  options.release = [&](std::span<const std::byte> bytes) { file->ReleasePages(bytes); };
  auto weights = Weights::Load(*gguf, *config, team, options);
  if (!weights.ok()) return 3;
  const uint64_t bound = gguf->tensor_bytes() * 115 / 100 + (uint64_t{64} << 20);
  const uint64_t peak = PeakResidentBytes();
  std::fprintf(stderr, "  peak %.1f MiB, tensors %.1f MiB, bound %.1f MiB\n", peak / 1048576.0,
               gguf->tensor_bytes() / 1048576.0, bound / 1048576.0);
  return peak > 0 && peak <= bound ? 0 : 1;
}

void ExpectBoundedLoad(const char* file_name) {
  const std::optional<std::string> path = GoldenModelPath(file_name);
  if (!path.has_value()) return;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The fork shares what the tests before have loaded; a fresh image does not.
    ::execl("/proc/self/exe", "load_memory_child", "--gtest_filter=LoadMemoryChild.*",
            "--gtest_also_run_disabled_tests", path->c_str(), nullptr);
    ::_exit(4);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(LoadMemory, SmolLm2) { ExpectBoundedLoad(kSmolLm2); }
TEST(LoadMemory, Gemma3) { ExpectBoundedLoad(kGemma3); }

// The body of the child process; says nothing when run by itself.
TEST(LoadMemoryChild, DISABLED_Measure) {
  const std::vector<std::string> arguments = ::testing::internal::GetArgvs();
  if (arguments.empty() || arguments[0] != "load_memory_child") GTEST_SKIP();
  EXPECT_EQ(LoadAndMeasure(arguments.back()), 0);
}

}  // namespace
}  // namespace kvasir
