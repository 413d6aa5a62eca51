// HttpRequest and HttpHeaders: what a client asked, after the protocol has been dealt with.
//
// Plain values. Everything in them is input from outside: checked for form (RFC 9110, 9112), not
// for meaning.
#ifndef KVASIR_IO_HTTP_MESSAGE_H_
#define KVASIR_IO_HTTP_MESSAGE_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace kvasir {

// True when `a` and `b` are equal but for the case of ASCII letters.
bool EqualsIgnoreCase(std::string_view a, std::string_view b);

// Header fields in the order they came. Names compare without case.
class HttpHeaders {
 public:
  HttpHeaders() = default;
  HttpHeaders(std::initializer_list<std::pair<std::string, std::string>> fields)
      : fields_(fields) {}

  void Add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
  }

  // The value of the first field called `name`, or nullptr. O(fields), as is Count.
  const std::string* Find(std::string_view name) const;
  size_t Count(std::string_view name) const;

  // True when a comma-separated list field called `name` holds `token` (Connection: close, TE).
  bool HasToken(std::string_view name, std::string_view token) const;

  size_t size() const { return fields_.size(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct HttpRequest {
  std::string method;          // As sent: "GET", "POST". HEAD stays "HEAD" in a GET route.
  std::string path;            // Percent-decoded, without the query; begins with '/'.
  std::string path_parameter;  // What a trailing {id} of the route matched (decoded), or empty.
  std::string query;           // After '?', as sent (not decoded); empty when none.
  int version = 11;            // 10 or 11.
  HttpHeaders headers;
  std::string body;        // Chunked coding removed. At most Options.max_body_bytes.
  std::string peer;        // "127.0.0.1:54321", "[::1]:54321".
  std::string request_id;  // The client's X-Request-Id, or ours. 1 to 128 visible ASCII characters.
  TimeUs received_us = 0;  // SteadyClock, when the last byte had come.
};

}  // namespace kvasir

#endif  // KVASIR_IO_HTTP_MESSAGE_H_
