// WorkerTeam: one persistent thread per core that runs whole forward passes as one program.
//
// Run(program) executes program(worker) on every worker, the caller being worker 0, and returns
// when all have finished. Inside, workers meet at Barrier() and share out loops with For(): units
// are claimed from atomic counters, not split statically, so a foreign process that takes one
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

  // Claim for units that are read one after the other: each worker has a range of neighbours, and
  // takes from others' ranges only when its own is used up, so that memory is read in long runs.
  // REQUIRES: as Claim; worker is the caller's own number.
  template <typename Body>
  void ClaimNear(int worker, uint32_t unit_count, uint32_t grain, Body&& body) {
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    const uint64_t grains = (uint64_t{unit_count} + grain - 1) / grain;
    for (uint32_t i = 0; i < active_; ++i) {
      const uint32_t owner = (static_cast<uint32_t>(worker) + i) % active_;
      const uint32_t first = static_cast<uint32_t>(grains * owner / active_);
      const uint32_t count = static_cast<uint32_t>(grains * (owner + 1) / active_) - first;
      while (true) {
        const uint32_t taken = TakeNear(owner, phase, count);
        if (taken == count) break;
        const uint32_t begin = (first + taken) * grain;
        body(begin, unit_count - begin < grain ? unit_count : begin + grain);
      }
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

  // The next of `count` grains of a worker's range, or `count`: none are left.
  uint32_t TakeNear(uint32_t owner, uint32_t phase, uint32_t count) {
    std::atomic<uint64_t>& taken = near_[owner].taken;
    uint64_t seen = taken.load(std::memory_order_relaxed);
    while (true) {
      const uint32_t next = seen >> 32 == phase ? static_cast<uint32_t>(seen) : 0;
      if (next >= count) return count;
      const uint64_t after = uint64_t{phase} << 32 | (next + 1);
      if (taken.compare_exchange_weak(seen, after, std::memory_order_relaxed)) return next;
    }
  }

  struct alignas(64) ClaimCounter {
    std::atomic<uint32_t> next{0};
  };
  struct alignas(64) NearCounter {
    std::atomic<uint64_t> taken{0};  // Above: the phase it counts in; another one's is 0.
  };

  const int worker_count_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> phase_{0};  // Barriers passed; also what waiters sleep on.
  std::atomic<uint32_t> sleepers_{0};           // Waiters in the futex; none: nobody is woken.
  ClaimCounter claims_[2];
  const std::unique_ptr<NearCounter[]> near_;  // One a worker.
  std::atomic<uint64_t> stalled_ns_{0};        // Waited at barriers after the spin, all workers.
  uint32_t active_ = 1;                        // Workers of the running program.
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
