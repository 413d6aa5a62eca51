// WorkerTeam: one persistent thread per core that runs whole forward passes as one program.
//
// Run(program) executes program(worker) on every worker, the caller being worker 0, and returns
// when all have finished. Inside, workers meet at Barrier() and share out loops with For(): units
// are claimed from an atomic counter, not split statically, so a foreign process that takes one
// core slows the team by its share only. Which worker takes which unit never changes a result.
//
// Waiting spins briefly (a barrier inside a forward pass is microseconds away), then yields, then
// sleeps on a futex, so that an oversubscribed machine is not starved by spinning
// (docs/ARCHITECTURE.md). When foreign processes take cores for whole time slices, RunElastic
// goes on with fewer workers for a while (worker_count_policy.h). No allocation after construction.
// Thread: Run is called by one thread at a time; Barrier and For only from inside its program.
#ifndef KVASIR_BASE_WORKER_TEAM_H_
#define KVASIR_BASE_WORKER_TEAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "base/worker_count_policy.h"

namespace kvasir {

class WorkerTeam {
 public:
  // kResourceExhausted when the system refuses that many threads.
  // REQUIRES: 1 <= worker_count <= 1024, here and below.
  static StatusOr<std::unique_ptr<WorkerTeam>> Create(int worker_count);
  explicit WorkerTeam(int worker_count);  // REQUIRES: the system grants the threads.
  ~WorkerTeam();                          // REQUIRES: no Run in progress.
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  int worker_count() const { return worker_count_; }

  // Runs program(int worker) on all workers. `program` must not throw, here and below.
  template <typename Program>
  void Run(Program&& program) {
    RunErased(Erase<Program>, Pointer(program), worker_count_);
  }

  // Runs it on workers [0, n), n as worker_count_policy.h says. For programs that are run over and
  // over and whose claims are small against a time slice: what stalls them is learned from.
  template <typename Program>
  void RunElastic(Program&& program) {
    RunLearning(Erase<Program>, Pointer(program));
  }

  // Every worker of the Run must call it; all writes before it are visible to all of them after it.
  void Barrier();

  // Shares units [0, unit_count) among the workers in claims of `grain`: body(begin, end) is called
  // for disjoint ranges that cover all units. Every worker must call it with the same arguments,
  // and Barrier before the next Claim. REQUIRES: grain > 0.
  template <typename Body>
  void Claim(uint32_t unit_count, uint32_t grain, Body&& body) {
    std::atomic<uint32_t>& next = NextCounter();
    while (true) {
      const uint32_t begin = next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= unit_count) break;
      body(begin, begin + grain < unit_count ? begin + grain : unit_count);
    }
  }

  // Claim, then Barrier.
  template <typename Body>
  void For(uint32_t unit_count, uint32_t grain, Body&& body) {
    Claim(unit_count, grain, body);
    Barrier();
  }

  // Barriers passed since construction, modulo 2^32. For the caller of Run, outside of it.
  uint32_t barrier_count() const { return phase_.load(std::memory_order_relaxed); }

  // How many cores this process may use: affinity mask and cgroup CPU quota (rounded up), at
  // least 1.
  static int UsableCores();

 private:
  struct NotStarted {};
  WorkerTeam(int worker_count, NotStarted);
  bool StartThreads();  // False: refused; some may run, which the destructor ends.

  using Entry = void (*)(void* context, int worker);
  template <typename Program>
  static void Erase(void* context, int worker) {
    (*static_cast<std::remove_reference_t<Program>*>(context))(worker);
  }
  template <typename Program>
  static void* Pointer(Program& program) {
    return const_cast<void*>(static_cast<const void*>(&program));
  }
  void RunErased(Entry entry, void* context, int workers);
  void RunLearning(Entry entry, void* context);
  void StartJob(uint32_t workers);  // Wakes workers [1, workers).
  void WorkerMain(int worker);
  std::atomic<uint32_t>& NextCounter() {
    // The barrier that ends a For resets the counter of that For before it releases anyone, and the
    // phase number picks the other one meanwhile, so a fast worker cannot see a stale count.
    return claims_[phase_.load(std::memory_order_relaxed) & 1].next;
  }

  struct alignas(64) ClaimCounter {
    std::atomic<uint32_t> next{0};
  };

  const int worker_count_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};  // Barriers passed; also what waiters sleep on.
  std::atomic<uint32_t> sleepers_{0};           // Waiters in the futex; none: nobody is woken.
  ClaimCounter claims_[2];
  std::atomic<uint64_t> stalled_ns_{0};  // Waited at barriers after the spin, all workers.
  uint32_t active_ = 1;                  // Workers of the running program.
  WorkerCountPolicy policy_;
  // Idle workers sleep on it. Low bits: workers of the program less one; above: programs started,
  // so that a worker that slept through programs without it cannot take one for another.
  alignas(64) std::atomic<uint32_t> job_{0};
  Entry entry_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  std::vector<std::thread> threads_;  // worker_count_ - 1.
};

}  // namespace kvasir

#endif  // KVASIR_BASE_WORKER_TEAM_H_
