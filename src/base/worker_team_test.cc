#include "base/worker_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace kvasir {
namespace {

// Each phase reads what all workers wrote in the phase before: a missing barrier or a unit claimed
// twice or never shows as a wrong sum.
TEST(WorkerTeam, PhasesSeeAllWritesOfThePhaseBefore) {
  for (int workers : {1, 2, 3, 5}) {
    WorkerTeam team(workers);
    constexpr uint32_t kUnits = 97;
    std::vector<uint64_t> a(kUnits, 1), b(kUnits, 0);
    for (int run = 0; run < 20; ++run) {
      team.Run([&](int) {
        for (int phase = 0; phase < 10; ++phase) {
          std::vector<uint64_t>& from = phase % 2 == 0 ? a : b;
          std::vector<uint64_t>& to = phase % 2 == 0 ? b : a;
          team.For(kUnits, phase % 3 + 1, [&](uint32_t begin, uint32_t end) {
            for (uint32_t i = begin; i < end; ++i) to[i] = from[kUnits - 1 - i] + 1;
          });
        }
      });
    }
    for (uint32_t i = 0; i < kUnits; ++i) EXPECT_EQ(a[i], 201u) << workers << " " << i;
  }
}

// Every unit once, whoever takes it, phase after phase; a worker that is late loses its range to
// the others.
TEST(WorkerTeam, NearClaimsCoverAllUnitsOnce) {
  for (const int workers : {1, 2, 3, 5}) {
    WorkerTeam team(workers);
    for (const uint32_t units : {0u, 1u, 2u, 7u, 97u}) {
      for (const uint32_t grain : {1u, 2u, 5u, 200u}) {
        std::vector<std::atomic<int>> taken(units);
        team.Run([&](int worker) {
          for (int phase = 0; phase < 3; ++phase) {
            if (worker == phase) std::this_thread::sleep_for(std::chrono::microseconds(200));
            team.ClaimNear(worker, units, grain, [&](uint32_t begin, uint32_t end) {
              EXPECT_EQ(begin % grain, 0u);
              EXPECT_LE(end - begin, grain);
              for (uint32_t i = begin; i < end; ++i) ++taken[i];
            });
            team.Barrier();
          }
        });
        for (uint32_t i = 0; i < units; ++i) {
          EXPECT_EQ(taken[i].load(), 3) << workers << " " << units << " " << grain << " " << i;
        }
      }
    }
  }
}

TEST(WorkerTeam, NearClaimsOfAWorkerAreNeighbours) {
  WorkerTeam team(2);
  std::vector<uint32_t> begins;  // Of worker 1, while worker 0 has not begun.
  std::atomic<bool> done{false};
  team.Run([&](int worker) {
    while (worker == 0 && !done) std::this_thread::yield();
    team.ClaimNear(worker, 20, 3, [&](uint32_t begin, uint32_t) {
      if (worker == 1) begins.push_back(begin);
    });
    done = true;
  });
  EXPECT_EQ(begins, (std::vector<uint32_t>{9, 12, 15, 18, 0, 3, 6}));
}

TEST(WorkerTeam, EveryWorkerRunsTheProgramOnce) {
  WorkerTeam team(4);
  std::atomic<int> calls[4] = {};
  for (int i = 0; i < 100; ++i) team.Run([&](int worker) { ++calls[worker]; });
  for (auto& count : calls) EXPECT_EQ(count.load(), 100);
}

TEST(WorkerTeam, CreateStartsTheWorkers) {
  StatusOr<std::unique_ptr<WorkerTeam>> team = WorkerTeam::Create(3);
  ASSERT_TRUE(team.ok());
  EXPECT_EQ((*team)->worker_count(), 3);
  std::atomic<int> calls[3] = {};
  (*team)->Run([&](int worker) { ++calls[worker]; });
  for (auto& count : calls) EXPECT_EQ(count.load(), 1);
}

// A worker that is late at every barrier is given up, and taken back when it has stopped to be; the
// units are all done either way.
TEST(WorkerTeam, ElasticRunsDoWithoutAWorkerThatStalls) {
  WorkerTeam team(2);
  bool stalls = true;
  const auto takes_part = [&](int worker) {
    std::atomic<uint32_t> units{0};
    std::atomic<int> calls[2] = {};
    team.RunElastic([&](int me) {
      ++calls[me];
      for (int phase = 0; phase < 3; ++phase) {
        if (me == 1 && stalls) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        team.For(7, 2, [&](uint32_t begin, uint32_t end) { units += end - begin; });
      }
    });
    EXPECT_EQ(units.load(), 21u);
    EXPECT_EQ(calls[0].load(), 1);
    return calls[worker].load() == 1;
  };
  while (takes_part(1)) {
  }
  stalls = false;
  while (!takes_part(1)) {
  }
}

TEST(WorkerTeam, UsableCoresIsPositive) { EXPECT_GE(WorkerTeam::UsableCores(), 1); }

}  // namespace
}  // namespace kvasir
