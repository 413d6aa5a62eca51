#include "text/traced_text.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

// The index of the run that holds `offset`.
size_t RunIndex(const std::vector<TracedText::Run>& runs, size_t offset) {
  const auto it =
      std::upper_bound(runs.begin(), runs.end(), offset,
                       [](size_t value, const TracedText::Run& run) { return value < run.end; });
  return static_cast<size_t>(it - runs.begin());
}

}  // namespace

TracedText::TracedText(std::string bytes, bool trusted) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), trusted});
}

bool TracedText::TrustedAt(size_t offset) const {
  KV_CHECK_LT(offset, bytes_.size());
  if (runs_.size() == 1) return runs_[0].trusted;
  return runs_[RunIndex(runs_, offset)].trusted;
}

void TracedText::Append(std::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().trusted == trusted) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), trusted});
  }
}

void TracedText::Append(const TracedText& other) { AppendSlice(other, 0, other.size()); }

void TracedText::AppendSlice(const TracedText& other, size_t begin, size_t end) {
  KV_CHECK_LE(begin, end);
  KV_CHECK_LE(end, other.size());
  KV_CHECK(&other != this);
  if (begin == end) return;
  for (size_t r = RunIndex(other.runs_, begin); begin < end; ++r) {
    const size_t stop = std::min(end, other.runs_[r].end);
    Append(other.view().substr(begin, stop - begin), other.runs_[r].trusted);
    begin = stop;
  }
}

TracedText TracedText::Slice(size_t begin, size_t end) const {
  TracedText result;
  result.AppendSlice(*this, begin, end);
  return result;
}

void TracedText::CheckInvariants() const {
  size_t begin = 0;
  for (size_t r = 0; r < runs_.size(); ++r) {
    KV_CHECK_GT(runs_[r].end, begin);
    if (r > 0) KV_CHECK(runs_[r].trusted != runs_[r - 1].trusted);
    begin = runs_[r].end;
  }
  KV_CHECK_EQ(begin, bytes_.size());
}

}  // namespace kvasir
