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
// needed.
void WaitWhile(std::atomic<uint32_t>& word, uint32_t old, std::atomic<uint32_t>* sleepers) {
  for (int i = 0; i < kSpinCount; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    Pause();
  }
  for (int i = 0; i < kYieldCount; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    ::sched_yield();
  }
  if (sleepers != nullptr) sleepers->fetch_add(1, std::memory_order_seq_cst);
  while (word.load(std::memory_order_seq_cst) == old) {
    word.wait(old, std::memory_order_seq_cst);
  }
  if (sleepers != nullptr) sleepers->fetch_sub(1, std::memory_order_relaxed);
}

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

WorkerTeam::WorkerTeam(int worker_count, NotStarted) : worker_count_(worker_count) {
  KV_CHECK_GE(worker_count, 1);
  KV_CHECK_LE(worker_count, 1024);
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
  job_.fetch_add(1, std::memory_order_seq_cst);
  job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::RunErased(Entry entry, void* context) {
  if (worker_count_ > 1) {
    entry_ = entry;
    context_ = context;
    job_.fetch_add(1, std::memory_order_seq_cst);
    job_.notify_all();
  }
  entry(context, 0);
  // All workers must have left the program before its context dies.
  Barrier();
}

void WorkerTeam::WorkerMain(int worker) {
  uint32_t seen = 0;
  while (true) {
    WaitWhile(job_, seen, nullptr);
    ++seen;
    if (stop_) return;
    entry_(context_, worker);
    Barrier();
  }
}

void WorkerTeam::Barrier() {
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 ==
      static_cast<uint32_t>(worker_count_)) {
    arrived_.store(0, std::memory_order_relaxed);
    claims_[phase & 1].next.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) phase_.notify_all();
    return;
  }
  WaitWhile(phase_, phase, &sleepers_);
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
