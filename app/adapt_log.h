// AdaptLog: a line for each decision that adaptive management made since it was last asked, from
// the engine's snapshots. The engine thread itself writes no log: a reader that is slow to take it
// would hold up every request.
// Thread: one at a time.
#ifndef KVASIR_APP_ADAPT_LOG_H_
#define KVASIR_APP_ADAPT_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine_loop.h"

namespace kvasir {

class AdaptLog {
 public:
  // Lines without line ends, oldest first. Of more than AdaptiveReport::kRecent decisions between
  // two calls the oldest are only counted.
  std::vector<std::string> News(const EngineSnapshot& snapshot);

 private:
  uint64_t told_decisions_ = 0;
  uint64_t told_switches_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_APP_ADAPT_LOG_H_
