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
  return lines;
}

}  // namespace kvasir
