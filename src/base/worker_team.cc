#include "base/worker_team.h"

#include <sched.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>

#include "base/check.h"

namespace kvasir {
namespace {

// About 30 us of pauses on current x86: longer than any imbalance inside a phase on quiet cores.
constexpr int kSpinCount = 1000;
constexpr int kYieldCount = 200;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until word != old: spin, yield, sleep. `sleepers` tells the waker whether a syscall is
// needed. Returns how long it took after the spinning.
std::chrono::nanoseconds WaitWhile(std::atomic<uint32_t>& word, uint32_t old,
                                   std::atomic<uint32_t>* sleepers) {
  for (int i = 0; i < kSpinCount; ++i) {
    if (word.load(std::memory_order_acquire) != old) return std::chrono::nanoseconds(0);
    Pause();
  }
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kYieldCount; ++i) {
    if (word.load(std::memory_order_acquire) != old) {
      return std::chrono::steady_clock::now() - start;
    }
    ::sched_yield();
  }
  if (sleepers != nullptr) sleepers->fetch_add(1, std::memory_order_seq_cst);
  while (word.load(std::memory_order_seq_cst) == old) {
    word.wait(old, std::memory_order_seq_cst);
  }
  if (sleepers != nullptr) sleepers->fetch_sub(1, std::memory_order_relaxed);
  return std::chrono::steady_clock::now() - start;
}

constexpr uint32_t kCountBits = 10;  // Of WorkerTeam::job_.
constexpr uint32_t kMostWorkers = 1u << kCountBits;

// "max 100000" or "150000 100000" (cgroup v2 cpu.max): the quota in cores, or 0 for none.
double CgroupCores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::strtod(quota.c_str(), nullptr) / period;
}

}  // namespace

StatusOr<std::unique_ptr<WorkerTeam>> WorkerTeam::Create(int worker_count) {
  std::unique_ptr<WorkerTeam> team(new WorkerTeam(worker_count, NotStarted{}));
  if (!team->StartThreads()) {
    return ResourceExhausted("the system does not grant {} threads", worker_count);
  }
  return team;
}

WorkerTeam::WorkerTeam(int worker_count, NotStarted)
    : worker_count_(worker_count),
      near_(std::make_unique<NearCounter[]>(
          static_cast<size_t>(worker_count > 0 ? worker_count : 0))),
      policy_(worker_count) {
  KV_CHECK_GE(worker_count, 1);
  KV_CHECK_LE(static_cast<uint32_t>(worker_count), kMostWorkers);
}

WorkerTeam::WorkerTeam(int worker_count) : WorkerTeam(worker_count, NotStarted{}) {
  KV_CHECK(StartThreads());
}

bool WorkerTeam::StartThreads() {
  threads_.reserve(static_cast<size_t>(worker_count_ - 1));
  for (int worker = 1; worker < worker_count_; ++worker) {
    try {
      threads_.emplace_back([this, worker] { WorkerMain(worker); });
    } catch (const std::system_error&) {
      return false;
    }
  }
  return true;
}

WorkerTeam::~WorkerTeam() {
  stop_ = true;
  StartJob(static_cast<uint32_t>(worker_count_));
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::StartJob(uint32_t workers) {
  const uint32_t started = (job_.load(std::memory_order_relaxed) >> kCountBits) + 1;
  job_.store(started << kCountBits | (workers - 1), std::memory_order_seq_cst);
  job_.notify_all();
}

void WorkerTeam::RunErased(Entry entry, void* context, int workers) {
  active_ = static_cast<uint32_t>(workers);
  if (workers > 1) {
    entry_ = entry;
    context_ = context;
    StartJob(active_);
  }
  entry(context, 0);
  // All workers must have left the program before its context dies.
  Barrier();
}

void WorkerTeam::RunLearning(Entry entry, void* context) {
  stalled_ns_.store(0, std::memory_order_relaxed);
  const auto start = std::chrono::steady_clock::now();
  RunErased(entry, context, policy_.count());
  const std::chrono::nanoseconds stalled(stalled_ns_.load(std::memory_order_relaxed));
  policy_.Observe(std::chrono::steady_clock::now() - start, stalled);
}

void WorkerTeam::WorkerMain(int worker) {
  uint32_t seen = 0;
  while (true) {
    WaitWhile(job_, seen, nullptr);
    // A program without this worker may have been followed by others by now; one with it waits.
    seen = job_.load(std::memory_order_acquire);
    if (static_cast<uint32_t>(worker) > (seen & (kMostWorkers - 1))) continue;
    if (stop_) return;
    entry_(context_, worker);
    Barrier();
  }
}

void WorkerTeam::Barrier() {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  // Before the arrival: after it the last Barrier may be over, and the next Run set another count.
  const uint32_t active = active_;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == active) {
    arrived_.store(0, std::memory_order_relaxed);
    claims_[phase & 1].next.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) phase_.notify_all();
    return;
  }
  const std::chrono::nanoseconds waited = WaitWhile(phase_, phase, &sleepers_);
  if (waited.count() > 0) {
    stalled_ns_.fetch_add(static_cast<uint64_t>(waited.count()), std::memory_order_relaxed);
  }
}

int WorkerTeam::UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 0;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  if (cores < 1) cores = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = CgroupCores();
  if (quota > 0 && std::ceil(quota) < cores) cores = static_cast<int>(std::ceil(quota));
  return cores < 1 ? 1 : cores;
}

}  // namespace kvasir
