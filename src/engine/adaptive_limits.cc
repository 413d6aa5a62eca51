#include "engine/adaptive_limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace kvasir {
namespace {

using Reason = AdaptiveDecision::Reason;

constexpr uint32_t kFirstPause = 8;
constexpr double kKept = 7.0 / 8;      // Of the sums, from window to window.
constexpr uint32_t kLeastWindows = 4;  // From one move to the next.
constexpr uint32_t kLongestPause = 512;
constexpr uint32_t kSlackWindows = 32;    // Without effect for so long, a limit is lifted.
constexpr uint32_t kCaughtUpWindows = 4;  // Streams get their share back after so many.
constexpr double kFullShare = 0.8;        // Of what could be read: beyond that, queues grow.

}  // namespace

const char* ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kWorkLost:
      return "work_lost";
    case Reason::kRoomAgain:
      return "room_again";
    case Reason::kProbe:
      return "probe";
    case Reason::kLimitIdle:
      return "limit_idle";
    case Reason::kPromptsWait:
      return "prompts_wait";
    case Reason::kPromptsCaughtUp:
      return "prompts_caught_up";
  }
  return "unknown";
}

std::string Describe(const AdaptiveDecision& decision) {
  const std::string what =
      fmt::format("{} {} -> {}",
                  decision.limit == AdaptiveDecision::Limit::kRunning ? "running sequences, at most"
                                                                      : "step stretch",
                  decision.from, decision.to);
  switch (decision.reason) {
    case Reason::kWorkLost:
      return fmt::format("{}: {:.0f} % of the work was done twice", what, decision.evidence * 100);
    case Reason::kRoomAgain:
      return fmt::format("{}: {:.0f} wait and nothing is lost", what, decision.evidence);
    case Reason::kProbe:
      return fmt::format("{}: nothing was lost for {:.0f} windows", what, decision.evidence);
    case Reason::kLimitIdle:
      return fmt::format("{}: fewer ran for {:.0f} windows", what, decision.evidence);
    case Reason::kPromptsWait:
      return fmt::format("{}: prompts to read for {:.1f} s", what, decision.evidence);
    case Reason::kPromptsCaughtUp:
      return fmt::format("{}: prompts to read for {:.1f} s only", what, decision.evidence);
  }
  return what;
}

AdaptiveLimits::AdaptiveLimits(const Options& options)
    : options_(options), probe_pause_(kFirstPause) {
  KV_CHECK_GT(options.most_running, 0u);
  report_.running_limit = options.most_running;
  report_.stretch = options.stretch;
}

void AdaptiveLimits::Observe(const AdaptiveStep& step) {
  ++window_.steps;
  window_.elapsed_us += step.elapsed_us;
  window_.peak_running = std::max(window_.peak_running, step.running);
  window_.waiting = step.waiting;
  window_.computed += step.computed_tokens;
  window_.recomputed += step.recomputed_tokens;
  window_.prompt += step.prompt_tokens;
  window_.backlog = step.prompt_backlog;
  window_.streams = window_.streams || step.streams;
  if (window_.steps >= kWindowSteps && window_.elapsed_us >= kWindowUs) EndWindow();
}

void AdaptiveLimits::EndWindow() {
  AdaptRunning();
  if (options_.stretch > 0) AdaptStretch();
  window_ = Window{};
}

void AdaptiveLimits::AdaptRunning() {
  ++quiet_windows_;
  lost_ = lost_ * kKept + static_cast<double>(window_.recomputed);
  work_ = work_ * kKept + static_cast<double>(window_.computed);
  const double lost = work_ == 0 ? 0.0 : std::min(lost_ / work_, 1.0);
  const uint32_t ran = std::min(window_.peak_running, report_.running_limit);
  if (quiet_windows_ < kLeastWindows) return;
  const double bearable = std::max(kLostShare, 2.0 / std::max(ran, 1u));
  if (ran > 1 && lost > bearable) {
    // Coming back to where it was lost before: the next try may wait longer.
    if (lossy_ != 0 && ran >= lossy_) probe_pause_ = std::min(probe_pause_ * 2, kLongestPause);
    lossy_ = ran;
    slack_windows_ = 0;
    SetRunning(ran - std::max(ran / 4, 1u), Reason::kWorkLost, lost);
    return;
  }
  if (report_.running_limit == options_.most_running) return;
  slack_windows_ = window_.peak_running < report_.running_limit ? slack_windows_ + 1 : 0;
  if (slack_windows_ >= kSlackWindows) {
    // The load is another one: what was learnt of it no longer counts.
    SetRunning(options_.most_running, Reason::kLimitIdle, slack_windows_);
    lossy_ = 0;
    probe_pause_ = kFirstPause;
    slack_windows_ = 0;
    return;
  }
  if (window_.waiting == 0 || window_.peak_running < report_.running_limit) return;
  if (lost > bearable / 2) return;
  const bool below = lossy_ == 0 || report_.running_limit + 1 < lossy_;
  if (below) {
    SetRunning(report_.running_limit + 1, Reason::kRoomAgain, window_.waiting);
  } else if (!below && quiet_windows_ >= probe_pause_) {
    SetRunning(report_.running_limit + 1, Reason::kProbe, quiet_windows_);
  }
}

// Prompts get stretch - 1 of stretch parts of the time at most, so a step down is safe when what
// comes in fits into the part that would be left.
bool AdaptiveLimits::FitsInto(uint32_t stretch) const {
  const double part = static_cast<double>(stretch - 1) / stretch;
  return demand_ <= kFullShare * rate_ * part;
}

void AdaptiveLimits::AdaptStretch() {
  const double seconds = static_cast<double>(window_.elapsed_us) / 1e6;
  const double read = static_cast<double>(window_.prompt);
  const double backlog = static_cast<double>(window_.backlog);
  const double came = std::max(read + backlog - last_backlog_, 0.0);
  last_backlog_ = backlog;
  demand_ += (came / seconds - demand_) / 2;
  // Without streams nobody waits for a step to end, and prompts take all of it.
  if (!window_.streams) return;
  double backlog_s = 0;
  if (backlog > 0 && read > 0 && report_.stretch > 1) {
    const double alone = read / seconds * report_.stretch / (report_.stretch - 1);
    rate_ = rate_ == 0 ? alone : rate_ + (alone - rate_) / 2;
    backlog_s = backlog / (read / seconds);
  }
  if (backlog_s > kLongBacklogS) {
    caught_up_windows_ = 0;
    SetStretch(std::max(std::min(report_.stretch * 2, kMostStretch), report_.stretch),
               Reason::kPromptsWait, backlog_s);
    return;
  }
  const uint32_t lower = std::max(report_.stretch / 2, options_.stretch);
  const bool could =
      report_.stretch > options_.stretch && backlog_s < kShortBacklogS && FitsInto(lower);
  caught_up_windows_ = could ? caught_up_windows_ + 1 : 0;
  if (caught_up_windows_ < kCaughtUpWindows) return;
  caught_up_windows_ = 0;
  SetStretch(lower, Reason::kPromptsCaughtUp, backlog_s);
}

void AdaptiveLimits::SetRunning(uint32_t limit, Reason reason, double evidence) {
  quiet_windows_ = 0;
  lost_ = work_ = 0;
  if (limit == report_.running_limit) return;
  ++running_moves_;
  Note({AdaptiveDecision::Limit::kRunning, reason, report_.running_limit, limit, evidence});
  report_.running_limit = limit;
}

void AdaptiveLimits::SetStretch(uint32_t stretch, Reason reason, double evidence) {
  if (stretch == report_.stretch) return;
  Note({AdaptiveDecision::Limit::kStretch, reason, report_.stretch, stretch, evidence});
  report_.stretch = stretch;
}

void AdaptiveLimits::Note(const AdaptiveDecision& decision) {
  ++report_.by_reason[static_cast<size_t>(decision.reason)];
  report_.recent[report_.decisions++ % AdaptiveReport::kRecent] = decision;
}

}  // namespace kvasir
