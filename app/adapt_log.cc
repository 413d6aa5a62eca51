#include "adapt_log.h"

#include <fmt/format.h>

namespace kvasir {

std::vector<std::string> AdaptLog::News(const EngineSnapshot& snapshot) {
  std::vector<std::string> lines;
  const AdaptiveReport& report = snapshot.scheduler.adaptive;
  if (report.decisions > told_decisions_ + AdaptiveReport::kRecent) {
    const uint64_t skipped = report.decisions - told_decisions_ - AdaptiveReport::kRecent;
    lines.push_back(fmt::format("adapt: {} decisions that are not shown", skipped));
    told_decisions_ += skipped;
  }
  for (; told_decisions_ < report.decisions; ++told_decisions_) {
    lines.push_back("adapt: " + Describe(report.recent[told_decisions_ % AdaptiveReport::kRecent]));
  }
  const KvEviction& eviction = snapshot.eviction;
  if (eviction.switches > told_switches_) {
    told_switches_ = eviction.switches;
    const auto saved = [&](KvEvict policy) {
      return eviction.saved_at_switch[static_cast<size_t>(policy)] * 100;
    };
    lines.push_back(fmt::format(
        "adapt: eviction {} -> {}: it would have saved {:.1f} % of the prompts' work, not {:.1f} %",
        KvEvictName(eviction.ruled_before), KvEvictName(eviction.ruling), saved(eviction.ruling),
        saved(eviction.ruled_before)));
  }
  return lines;
}

}  // namespace kvasir
