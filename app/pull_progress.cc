#include "pull_progress.h"

#include <algorithm>

#include "output.h"

namespace kvasir {
namespace {

constexpr std::chrono::milliseconds kRedraw{100};
constexpr std::chrono::seconds kLine{5};
constexpr std::chrono::seconds kRateWindow{5};
constexpr size_t kMostSamples = 64;

double Seconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::string ShowBytes(uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1000) return fmt::format("{} B", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.1f} kB", value / 1e3);
  if (bytes < 1'000'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  return fmt::format("{:.2f} GB", value / 1e9);
}

std::string ShowSeconds(double seconds) {
  const auto whole = static_cast<uint64_t>(std::clamp(seconds, 0.0, 1e9) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

std::string PullProgress::Describe(const DownloadProgress& now, Clock::time_point time) {
  const bool checking = now.phase == DownloadProgress::Phase::kChecking;
  std::string text = fmt::format("{} {}", checking ? "checking" : "fetching", ShowBytes(now.bytes));
  if (now.total.has_value()) {
    text += fmt::format(" of {} ({:.0f} %)", ShowBytes(*now.total),
                        100.0 * static_cast<double>(now.bytes) /
                            static_cast<double>(std::max<uint64_t>(1, *now.total)));
  }
  const double span = recent_.empty() ? 0.0 : Seconds(time - recent_.front().first);
  if (span < 0.5 || now.bytes <= recent_.front().second) return text;
  const double rate = static_cast<double>(now.bytes - recent_.front().second) / span;
  text += fmt::format(", {}/s", ShowBytes(static_cast<uint64_t>(rate)));
  if (now.total.has_value() && rate > 0.0) {
    text +=
        fmt::format(", {} left", ShowSeconds(static_cast<double>(*now.total - now.bytes) / rate));
  }
  return text;
}

void PullProgress::Update(const DownloadProgress& now) {
  const Clock::time_point time = Clock::now();
  if (now.phase == DownloadProgress::Phase::kFetching) {
    fetched_ = now.bytes - std::min(now.bytes, now.resumed_at);
  }
  // Begun anew, or another phase: what was measured speaks of something else.
  if (!recent_.empty() && now.bytes < recent_.back().second) recent_.clear();
  if (recent_.empty() || time - recent_.back().first >= kRedraw) {
    recent_.emplace_back(time, now.bytes);
  }
  while (recent_.size() > kMostSamples || time - recent_.front().first > kRateWindow) {
    if (recent_.size() == 1) break;
    recent_.pop_front();
  }
  if (quiet_) return;
  if (terminal_) {
    if (time - last_ < kRedraw) return;
    PrintError("\r{}\033[K", Describe(now, time));
    drawn_ = true;
  } else {
    if (time - last_ < kLine) return;
    PrintError("{}\n", Describe(now, time));
  }
  last_ = time;
}

void PullProgress::Clear() {
  if (drawn_) PrintError("\r\033[K");
  drawn_ = false;
}

void PullProgress::Note(const std::string& line) {
  if (quiet_) return;
  Clear();
  PrintError("{}\n", line);
}

void PullProgress::Finish(const DownloadResult* result) {
  Clear();
  if (quiet_ || result == nullptr) return;
  if (result->was_there) {
    PrintError("{} is already there\n", result->path);
    return;
  }
  const double seconds = Seconds(Clock::now() - start_);
  PrintError(
      "{}: {}, {} of them fetched in {} ({}/s)\n", result->path, ShowBytes(result->bytes),
      ShowBytes(fetched_), ShowSeconds(seconds),
      ShowBytes(static_cast<uint64_t>(static_cast<double>(fetched_) / std::max(seconds, 0.001))));
}

}  // namespace kvasir
