// LoadEvents: reads the event stream of one answer, in pieces as they arrive, into a LoadRecord.
#ifndef KVASIR_APP_LOAD_EVENTS_H_
#define KVASIR_APP_LOAD_EVENTS_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "load_client.h"

namespace kvasir {

class LoadEvents {
 public:
  // Both outlive the object.
  LoadEvents(LoadRecord* record, std::string* answer) : record_(*record), answer_(*answer) {}

  // `now_s` is the arrival of `bytes`. False: this is no event stream, or it reported an error;
  // reading on is of no use.
  bool Feed(std::string_view bytes, double now_s);

  // A finish reason or [DONE] has come: the answer is whole.
  bool finished() const { return finished_; }
  size_t event_count() const { return event_count_; }
  const std::string& head() const { return head_; }  // The first bytes, for messages.

 private:
  bool OnLine(std::string_view line, double now_s);
  bool OnEvent(std::string_view text, double now_s);

  LoadRecord& record_;
  std::string& answer_;
  std::string buffer_;  // An incomplete line.
  std::string head_;
  size_t event_count_ = 0;
  bool finished_ = false;
};

// Puts a kind and a message into `record` unless an error is there already. Control characters
// become blanks; long messages are cut.
void SetError(std::string_view kind, std::string_view message, LoadRecord* record);

// {"error": {"message": ...}}, {"error": "..."} or the text itself.
std::string ErrorText(std::string_view body);

}  // namespace kvasir

#endif  // KVASIR_APP_LOAD_EVENTS_H_
