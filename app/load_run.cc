#include "load_run.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "output.h"
#include "terminal.h"

namespace kvasir {
namespace {

constexpr double kTickS = 0.1;  // How often the caller looks at Ctrl-C and draws.

// A server that is not there fails thousands of requests a second; that is of no use to anybody.
constexpr auto kPauseAfterFailure = std::chrono::milliseconds(50);

std::chrono::steady_clock::time_point SteadyTime(double seconds) {
  return std::chrono::steady_clock::time_point(
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(
          std::chrono::duration<double>(seconds)));
}

}  // namespace

LoadRun::LoadRun(LoadTarget target, LoadPlan plan, LoadPace pace, std::string label)
    : target_(std::move(target)),
      pace_(pace),
      label_(std::move(label)),
      draws_(IsTerminal(STDERR_FILENO)),
      plan_(std::move(plan)) {
  KV_CHECK_GT(pace_.concurrency, 0u);
}

LoadRun::~LoadRun() { KV_CHECK(threads_.empty()); }

double LoadRun::Now() const { return NowSeconds() - epoch_s_; }

LoadResult LoadRun::Run() {
  epoch_s_ = NowSeconds();
  if (pace_.open) {
    RunOpen();
  } else {
    while (threads_.size() < pace_.concurrency && Spawn()) {
    }
  }
  for (bool more = true; more;) {
    more = Pause(Now() + kTickS);
    MutexLock lock(mutex_);
    if (!more) ending_ = true;
    // Closed loop: the threads end when the plan does; open: once told so.
    if (pace_.open) ending_ = true;
    changed_.NotifyAll();
    more = working_ > 0;
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  if (drawn_s_ >= 0.0) PrintError("\r\033[K");
  MutexLock lock(mutex_);
  for (const LoadRecord& record : result_.records) {
    result_.wall_s = std::max(result_.wall_s, record.end_s);
  }
  return std::move(result_);
}

bool LoadRun::Spawn() {
  {
    MutexLock lock(mutex_);
    ++working_;
  }
  try {
    threads_.emplace_back([this] { Work(); });
    return true;
  } catch (const std::system_error&) {
    // No thread to be had: those there are do what they can, and latency shows it.
    MutexLock lock(mutex_);
    --working_;
    KV_CHECK(!threads_.empty());
    return false;
  }
}

void LoadRun::RunOpen() {
  for (;;) {
    std::optional<Conversation> next;
    {
      MutexLock lock(mutex_);
      next = plan_.Next();
    }
    if (!next.has_value()) return;
    if (pace_.duration_s > 0.0 && next->start_s > pace_.duration_s) return;
    while (Now() < next->start_s) {
      if (!Pause(std::min(next->start_s, Now() + kTickS))) return;
    }
    if (!Pause(0.0)) return;  // Also when the plan is behind time.
    bool spawn = false;
    {
      MutexLock lock(mutex_);
      queue_.push_back(std::move(*next));
      spawn = idle_ < queue_.size() && threads_.size() < pace_.concurrency;
      changed_.NotifyOne();
    }
    if (spawn) Spawn();
  }
}

bool LoadRun::Pause(double due_s) {
  {
    MutexLock lock(mutex_);
    if (Now() < due_s && (working_ > 0 || pace_.open)) {
      [[maybe_unused]] const bool woken = finished_.WaitUntil(mutex_, SteadyTime(epoch_s_ + due_s));
    }
  }
  DrawProgress();
  if (Interrupted().load()) {
    Stop();
    return false;
  }
  return pace_.duration_s <= 0.0 || Now() <= pace_.duration_s;
}

void LoadRun::Stop() {
  MutexLock lock(mutex_);
  if (result_.interrupted) return;
  result_.interrupted = true;
  ending_ = true;
  queue_.clear();
  for (LoadClient* client : clients_) client->Cancel();
  changed_.NotifyAll();
}

void LoadRun::DrawProgress() {
  if (!draws_ || Now() < drawn_s_ + kTickS) return;
  drawn_s_ = Now();
  MutexLock lock(mutex_);
  PrintError("\r{} {} done, {} under way{}, {:.0f} tokens/s, {} failed, {:.0f} s\033[K", label_,
             result_.records.size(), asking_,
             queue_.empty() ? "" : fmt::format(", {} waiting", queue_.size()),
             static_cast<double>(tokens_) / std::max(drawn_s_, kTickS), failed_, drawn_s_);
  std::fflush(stderr);
}

std::optional<Conversation> LoadRun::Take() {
  MutexLock lock(mutex_);
  if (!pace_.open) {
    if (ending_) return std::nullopt;
    std::optional<Conversation> next = plan_.Next();
    if (!next.has_value()) ending_ = true;
    return next;
  }
  ++idle_;
  while (queue_.empty() && !ending_) changed_.Wait(mutex_);
  --idle_;
  if (queue_.empty()) return std::nullopt;
  Conversation next = std::move(queue_.front());
  queue_.pop_front();
  return next;
}

void LoadRun::Work() {
  LoadClient client(target_);
  {
    MutexLock lock(mutex_);
    clients_.push_back(&client);
  }
  while (std::optional<Conversation> next = Take()) {
    const bool reached = Converse(client, *next);
    if (!reached && !pace_.open) std::this_thread::sleep_for(kPauseAfterFailure);
  }
  MutexLock lock(mutex_);
  clients_.erase(std::find(clients_.begin(), clients_.end(), &client));
  --working_;
  finished_.NotifyAll();
}

bool LoadRun::Converse(LoadClient& client, const Conversation& conversation) {
  double intended_s = pace_.open ? conversation.start_s : Now();
  std::vector<LoadMessage> messages;
  std::string answer;
  {
    MutexLock lock(mutex_);
    ++asking_;
  }
  bool reached = true;
  for (size_t i = 0; i < conversation.turns.size(); ++i) {
    const LoadTurn& turn = conversation.turns[i];
    messages.push_back({/*from_user=*/true, turn.text});
    LoadRecord record = client.Ask(messages, turn.output_tokens, epoch_s_, intended_s, &answer);
    messages.push_back({/*from_user=*/false, answer});
    intended_s = record.end_s;
    const bool ok = record.ok();
    reached = record.error != "connect";
    MutexLock lock(mutex_);
    tokens_ += record.output_tokens;
    const bool cancelled = record.error == LoadClient::kCancelledError;
    if (!ok && !cancelled) {
      ++failed_;
      result_.not_asked += conversation.turns.size() - i - 1;
    }
    if (!cancelled) result_.records.push_back(std::move(record));
    if (!ok || result_.interrupted) break;
  }
  MutexLock lock(mutex_);
  --asking_;
  return reached;
}

}  // namespace kvasir
