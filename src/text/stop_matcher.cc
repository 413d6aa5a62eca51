#include "text/stop_matcher.h"

namespace kvasir {

StatusOr<StopMatcher> StopMatcher::Create(std::span<const std::string> stops) {
  size_t total = 0;
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) return InvalidArgument("stop string {} is empty", i + 1);
    total += stops[i].size();
  }
  if (total > kMaxTotalBytes) {
    return InvalidArgument("the stop strings have {} bytes together, more than {}", total,
                           kMaxTotalBytes);
  }
  StopMatcher matcher;
  matcher.stops_.assign(stops.begin(), stops.end());
  matcher.nodes_.reserve(total + 1);
  matcher.nodes_.emplace_back();
  for (size_t i = 0; i < stops.size(); ++i) matcher.Insert(stops[i], static_cast<int32_t>(i));
  matcher.LinkFailures();
  matcher.buffer_.reserve(total + 256);
  return matcher;
}

void StopMatcher::Insert(std::string_view stop, int32_t index) {
  uint32_t node = 0;
  for (const char c : stop) {
    const uint8_t byte = static_cast<uint8_t>(c);
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      Node added;
      added.depth = nodes_[node].depth + 1;
      added.byte = byte;
      added.sibling = nodes_[node].first_child;
      nodes_.push_back(added);
      nodes_[node].first_child = child;
      if (node == 0) root_children_[byte] = child;
    }
    node = child;
  }
  if (nodes_[node].match < 0) nodes_[node].match = index;
}

void StopMatcher::LinkFailures() {
  // Breadth first: a failure link points to a shallower node, which is finished by then.
  std::vector<uint32_t> queue = {0};
  queue.reserve(nodes_.size());
  for (size_t head = 0; head < queue.size(); ++head) {
    const uint32_t parent = queue[head];
    for (uint32_t child = nodes_[parent].first_child; child != 0; child = nodes_[child].sibling) {
      Node& node = nodes_[child];
      node.fail = parent == 0 ? 0 : Step(nodes_[parent].fail, node.byte);
      // A stop string that ends here by itself is longer than any inside its suffix.
      if (node.match < 0) node.match = nodes_[node.fail].match;
      queue.push_back(child);
    }
  }
}

uint32_t StopMatcher::Child(uint32_t node, uint8_t byte) const {
  if (node == 0) return root_children_[byte];
  uint32_t child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

uint32_t StopMatcher::Step(uint32_t node, uint8_t byte) const {
  for (;;) {
    const uint32_t child = Child(node, byte);
    if (child != 0 || node == 0) return child;
    node = nodes_[node].fail;
  }
}

StopMatcher::Result StopMatcher::Feed(std::string_view text) {
  buffer_.erase(0, released_);
  released_ = 0;
  if (matched_) return {std::string_view(), matched_};
  const size_t before = buffer_.size();
  buffer_.append(text);
  for (size_t i = before; i < buffer_.size(); ++i) {
    state_ = Step(state_, static_cast<uint8_t>(buffer_[i]));
    const int32_t match = nodes_[state_].match;
    if (match < 0) continue;
    matched_ = static_cast<size_t>(match);
    // The stop string begins inside what was held back, so nothing of it has been shown.
    buffer_.resize(i + 1 - stops_[*matched_].size());
    released_ = buffer_.size();
    return {buffer_, matched_};
  }
  released_ = buffer_.size() - nodes_[state_].depth;
  return {std::string_view(buffer_).substr(0, released_), std::nullopt};
}

std::string_view StopMatcher::Flush() {
  buffer_.erase(0, released_);
  released_ = buffer_.size();
  state_ = 0;
  return buffer_;
}

void StopMatcher::Reset() {
  buffer_.clear();
  released_ = 0;
  state_ = 0;
  matched_.reset();
}

}  // namespace kvasir
