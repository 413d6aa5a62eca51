// Url: where a file is to be fetched from, and what a redirect makes of it.
//
// Only http and https. Text in, values out; no look-ups. Names for local files are made here too,
// since they come from the same hostile texts.
// Source: RFC 3986, sections 5.2 and 5.3; RFC 6266 (Content-Disposition).
#ifndef KVASIR_IO_DOWNLOAD_URL_H_
#define KVASIR_IO_DOWNLOAD_URL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kvasir {

struct Url {
  bool tls = false;
  std::string host;  // Lower case; an IPv6 address without its brackets.
  uint16_t port = 80;
  std::string target = "/";  // Path and query, fit for a request line.

  std::string Full() const;
  // Without the query, which may be somebody's secret (signed links): for messages.
  std::string Shown() const;
  bool SameOrigin(const Url& other) const {
    return tls == other.tls && host == other.host && port == other.port;
  }
};

// "http://host[:port][/path][?query][#ignored]". What may not stand in a request line is encoded.
// kInvalidArgument: another scheme, user:password@, a bad host or port, control characters.
StatusOr<Url> ParseUrl(std::string_view text);

// True for texts that name something on the network: http://, https:// and hf:.
bool LooksLikeUrl(std::string_view text);

// hf:OWNER/REPO[@REVISION]/FILE and hf://... as the https address of that file; others unchanged.
StatusOr<std::string> ExpandUrl(std::string_view text);

// What `reference` (a Location field) means on the page `base`.
StatusOr<Url> ResolveUrl(const Url& base, std::string_view reference);

// Longest file name made or accepted; leaves room for the endings of the files beside it.
inline constexpr size_t kMaxFileName = 200;

// A harmless name from a hostile one: after the last slash, without leading dots and dashes, other
// than [A-Za-z0-9._+=@-] replaced by '_', shortened from the front, ending in `ending`. Empty when
// nothing is left.
std::string SafeFileName(std::string_view wish, std::string_view ending);

// The name in `target`'s last path segment, decoded, as SafeFileName makes it.
std::string FileNameOfUrl(const Url& url, std::string_view ending);

// The raw name in a Content-Disposition field (filename* before filename); empty: none.
std::string DispositionFileName(std::string_view field);

// Empty when `name` may be used as it is for a file in the models folder, else what is wrong.
std::string FileNameProblem(std::string_view name);

}  // namespace kvasir

#endif  // KVASIR_IO_DOWNLOAD_URL_H_
