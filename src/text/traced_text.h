// TracedText: a string in which every byte knows whether it stems from the chat template.
//
// The one place where provenance lives: whatever a template does to text (slice, upper, join,
// tojson ...) builds its result with the Append functions below, and bytes that cannot be traced to
// the template are appended as untrusted. Trust is a set of runs, not a bit per byte: a prompt has
// a few runs per message.
//
// Invariant: runs() cover the bytes exactly, are not empty, and neighbours differ in trust.
// Thread:    a value; no shared state.
#ifndef KVASIR_TEXT_TRACED_TEXT_H_
#define KVASIR_TEXT_TRACED_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

class TracedText {
 public:
  struct Run {
    size_t end;  // Byte offset one past the run; it begins where the previous one ends.
    bool trusted;
  };

  TracedText() = default;
  TracedText(std::string bytes, bool trusted);

  std::string_view view() const { return bytes_; }
  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }

  // Whether the byte at `offset` stems from the template. REQUIRES: offset < size(). O(log runs).
  bool TrustedAt(size_t offset) const;

  void Append(std::string_view bytes, bool trusted);
  void Append(const TracedText& other);
  // Appends bytes [begin, end) of `other`. REQUIRES: begin <= end <= other.size().
  void AppendSlice(const TracedText& other, size_t begin, size_t end);

  // Bytes [begin, end). REQUIRES: begin <= end <= size().
  TracedText Slice(size_t begin, size_t end) const;

  // Crashes when the invariant does not hold. For tests.
  void CheckInvariants() const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

}  // namespace kvasir

#endif  // KVASIR_TEXT_TRACED_TEXT_H_
