// LoadRun: one pass of a plan over one server, with a thread for each request under way.
//
// Closed loop: `concurrency` conversations are always under way; each request is due when the one
// before it has ended. Open loop: conversations start at the plan's times whatever the server does,
// and a request that had to wait for a free thread still counts from its planned time, so that a
// server which stalls cannot hide what it did to those behind.
#ifndef KVASIR_APP_LOAD_RUN_H_
#define KVASIR_APP_LOAD_RUN_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "load_client.h"
#include "load_plan.h"

namespace kvasir {

struct LoadPace {
  bool open = false;
  uint32_t concurrency = 8;  // Closed: always so many at once. Open: never more.
  double duration_s = 0.0;   // After this no conversation begins; 0: no limit.
};

struct LoadResult {
  std::vector<LoadRecord> records;  // In the order in which they ended.
  double wall_s = 0.0;              // Until the last request's end.
  uint64_t not_asked = 0;           // Later turns of conversations in which a turn failed.
  bool interrupted = false;         // By Ctrl-C: what was under way is not among the records.
};

class LoadRun {
 public:
  // `label` begins the progress line, which only a terminal on standard error gets.
  LoadRun(LoadTarget target, LoadPlan plan, LoadPace pace, std::string label);
  ~LoadRun();
  LoadRun(const LoadRun&) = delete;
  LoadRun& operator=(const LoadRun&) = delete;

  // Once.
  LoadResult Run();

 private:
  bool Spawn();
  void Work();
  std::optional<Conversation> Take() KV_EXCLUDES(mutex_);
  // False when the server could not be reached.
  bool Converse(LoadClient& client, const Conversation& conversation);
  void RunOpen();
  // Sleeps until `due_s` at the latest or until something changed; false when nothing new is to
  // begin any more. Draws the progress line.
  bool Pause(double due_s);
  void Stop() KV_EXCLUDES(mutex_);
  void DrawProgress() KV_EXCLUDES(mutex_);
  double Now() const;

  const LoadTarget target_;
  const LoadPace pace_;
  const std::string label_;
  const bool draws_;
  double epoch_s_ = 0.0;
  double drawn_s_ = -1.0;
  std::vector<std::thread> threads_;  // Of the calling thread alone.

  Mutex mutex_;
  CondVar changed_;   // To workers: the queue or ending_.
  CondVar finished_;  // To the caller: a worker is done.
  LoadPlan plan_ KV_GUARDED_BY(mutex_);
  std::deque<Conversation> queue_ KV_GUARDED_BY(mutex_);  // Open loop: due and not begun.
  bool ending_ KV_GUARDED_BY(mutex_) = false;
  uint32_t idle_ KV_GUARDED_BY(mutex_) = 0;
  uint32_t working_ KV_GUARDED_BY(mutex_) = 0;  // Threads that have not ended.
  uint32_t asking_ KV_GUARDED_BY(mutex_) = 0;   // Conversations under way.
  uint64_t failed_ KV_GUARDED_BY(mutex_) = 0;
  uint64_t tokens_ KV_GUARDED_BY(mutex_) = 0;
  std::vector<LoadClient*> clients_ KV_GUARDED_BY(mutex_);  // Of the threads alive.
  LoadResult result_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvasir

#endif  // KVASIR_APP_LOAD_RUN_H_
