#include "base/worker_count_policy.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kvasir {
namespace {

using std::chrono::milliseconds;

// Steps of 3 ms of `workers` for `total`, each losing `share` of what its waiters could lose.
struct Spent {
  milliseconds with_all{0};
  milliseconds with_fewer{0};
  int fewest = 1 << 20;
};
Spent Work(WorkerCountPolicy& policy, int workers, milliseconds total, double share) {
  Spent spent;
  for (milliseconds done{0}; done < total; done += milliseconds(3)) {
    const int count = policy.count();
    (count == workers ? spent.with_all : spent.with_fewer) += milliseconds(3);
    spent.fewest = std::min(spent.fewest, count);
    const auto lost = std::chrono::nanoseconds(milliseconds(3)) * (count - 1);
    policy.Observe(
        milliseconds(3),
        std::chrono::nanoseconds(static_cast<int64_t>(share * static_cast<double>(lost.count()))));
  }
  return spent;
}

TEST(WorkerCountPolicy, UnevenPhasesChangeNothing) {
  WorkerCountPolicy policy(4);
  EXPECT_EQ(Work(policy, 4, milliseconds(5000), 0.3).with_fewer.count(), 0);
}

TEST(WorkerCountPolicy, AOneWorkerTeamStaysOne) {
  WorkerCountPolicy policy(1);
  policy.Observe(milliseconds(1000), milliseconds(1000));
  EXPECT_EQ(policy.count(), 1);
}

TEST(WorkerCountPolicy, AStolenCoreCostsAWorkerAfterOneWindow) {
  WorkerCountPolicy policy(2);
  const Spent spent = Work(policy, 2, milliseconds(60), 0.8);
  EXPECT_EQ(spent.fewest, 1);
  EXPECT_LE(spent.with_all, milliseconds(33));
}

// With the core gone for good, trials become rare: the pauses double up to four seconds.
TEST(WorkerCountPolicy, TrialsThatFailBecomeRare) {
  WorkerCountPolicy policy(2);
  Work(policy, 2, milliseconds(12000), 0.8);
  const Spent later = Work(policy, 2, milliseconds(20000), 0.8);
  EXPECT_GT(later.with_all.count(), 0);
  EXPECT_LE(later.with_all, milliseconds(6 * 33));
}

// Company that leaves is noticed by the next trial, and short company costs little.
TEST(WorkerCountPolicy, ShortCompanyIsForgotten) {
  WorkerCountPolicy policy(2);
  Work(policy, 2, milliseconds(33), 0.8);
  const Spent after = Work(policy, 2, milliseconds(1000), 0.0);
  EXPECT_LE(after.with_fewer, milliseconds(63));
  EXPECT_EQ(policy.count(), 2);
  // Forgotten altogether: the next time it begins with the short pause again.
  Work(policy, 2, milliseconds(33), 0.8);
  EXPECT_LE(Work(policy, 2, milliseconds(1000), 0.0).with_fewer, milliseconds(63));
}

TEST(WorkerCountPolicy, MoreStolenCoresCostMoreWorkers) {
  WorkerCountPolicy policy(4);
  EXPECT_EQ(Work(policy, 4, milliseconds(3000), 0.9).fewest, 1);
}

}  // namespace
}  // namespace kvasir
