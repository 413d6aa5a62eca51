// Feeds a fuzz target its corpus without libFuzzer, so that every compiler and sanitizer replays
// what fuzzing found: each file as it is, cut short, and with a few bytes changed (the same ones
// each run).
//
//   NAME_replay [file or folder...]     default: tests/fuzz/corpus/NAME
//
// Prints each input before it is run; the last line before a crash names the culprit. Exit code 1
// when there is nothing to replay.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace kvasir {
namespace {

constexpr int kCuts = 32;
constexpr int kChanges = 64;

void RunOne(const std::vector<uint8_t>& input) {
  // An exact copy on the heap: the address sanitizer then sees the first byte read past the end.
  const std::vector<uint8_t> exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void Replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<uint8_t> input{std::istreambuf_iterator<char>(file), {}};
  std::printf("%s, %zu bytes\n", path.c_str(), input.size());
  std::fflush(stdout);
  RunOne(input);
  Rng rng(input.size() + 1);
  for (int i = 0; i < kCuts && !input.empty(); ++i) {
    const size_t length = rng.Below(input.size());
    std::printf("%s cut to %zu bytes\n", path.c_str(), length);
    std::fflush(stdout);
    RunOne({input.begin(), input.begin() + static_cast<ptrdiff_t>(length)});
  }
  for (int i = 0; i < kChanges && !input.empty(); ++i) {
    std::vector<uint8_t> changed = input;
    std::printf("%s with", path.c_str());
    for (uint64_t n = 1 + rng.Below(4); n > 0; --n) {
      const size_t at = rng.Below(changed.size());
      changed[at] = static_cast<uint8_t>(rng.Next());
      std::printf(" [%zu]=%u", at, unsigned{changed[at]});
    }
    std::printf("\n");
    std::fflush(stdout);
    RunOne(changed);
  }
}

std::vector<std::filesystem::path> FilesOf(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
      if (entry.is_regular_file(error)) files.push_back(entry.path());
    }
  } else if (std::filesystem::is_regular_file(path, error)) {
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  std::vector<std::string> places(argv + 1, argv + argc);
  if (places.empty()) places.push_back(KVASIR_CORPUS_DIR);
  size_t count = 0;
  for (const std::string& place : places) {
    for (const auto& path : kvasir::FilesOf(place)) {
      kvasir::Replay(path);
      ++count;
    }
  }
  std::printf("%zu inputs replayed\n", count);
  return count > 0 ? 0 : 1;
}
