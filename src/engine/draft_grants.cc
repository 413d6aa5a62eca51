#include "engine/draft_grants.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr double kLeastGain = 1.08;  // Chances and times are estimates: less than this is nothing.
constexpr double kMostStretch = 1.25;  // Of a step, with streams that gain nothing.
constexpr double kLeastChance = 0.05;  // Worse guesses never pay.
constexpr uint32_t kMostRows = StepTimes::kMaxRows;

}  // namespace

uint32_t GrantDrafts(std::span<Draft> drafts, uint32_t stream_count, uint32_t most_rows,
                     double most_us, const StepTimes& times) {
  KV_CHECK_GT(stream_count, 0u);
  KV_CHECK_LE(drafts.size(), stream_count);
  // What guesses gain is judged by a step without any, so that this is measured now and then: such
  // a step is no loss beside not guessing at all.
  most_rows = times.Knows(stream_count) ? std::min(most_rows, kMostRows) : 0;
  const double alone = times.Predict(stream_count);
  double best_rate = kLeastGain * stream_count / alone;
  double tokens = stream_count;
  uint32_t best = 0;
  uint32_t picked = 0, with_guess = 0;
  std::array<uint32_t, kMostRows> order{};  // Whose guess is the n-th.
  std::array<uint32_t, kMostRows> taken{};  // By draft; more drafts than rows cannot all be served.
  const size_t considered = std::min<size_t>(drafts.size(), taken.size());
  while (picked < most_rows) {
    double chance = kLeastChance;
    size_t whose = considered;
    for (size_t i = 0; i < considered; ++i) {
      if (taken[i] == drafts[i].count || drafts[i].chances[taken[i]] <= chance) continue;
      chance = drafts[i].chances[taken[i]];
      whose = i;
    }
    if (whose == considered) break;
    if (taken[whose]++ == 0) ++with_guess;
    order[picked++] = static_cast<uint32_t>(whose);
    tokens += chance;
    const double time = times.Predict(stream_count + picked);
    if (times.measured() && time > most_us) break;
    if (with_guess < stream_count && time > kMostStretch * alone) continue;
    if (tokens / time <= best_rate) continue;
    best_rate = tokens / time;
    best = picked;
  }
  for (Draft& draft : drafts) draft.count = 0;
  for (uint32_t i = 0; i < best; ++i) ++drafts[order[i]].count;
  return best;
}

uint32_t GrantAllDrafts(std::span<Draft> drafts, uint32_t most_rows) {
  uint32_t granted = 0;
  for (Draft& draft : drafts) {
    draft.count = std::min({draft.count, kForcedDraftTokens, most_rows - granted});
    granted += draft.count;
  }
  return granted;
}

}  // namespace kvasir
