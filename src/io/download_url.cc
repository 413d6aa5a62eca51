#include "io/download_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "io/http_message.h"

namespace kvasir {
namespace {

bool IsAlnum(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = Lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

std::string PercentDecoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool whole = text[i] == '%' && i + 2 < text.size();
    const int high = whole ? HexValue(text[i + 1]) : -1;
    const int low = whole ? HexValue(text[i + 2]) : -1;
    if (high >= 0 && low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The scheme in front of "://" or ":", or empty. "a/b:c" has none.
std::string_view SchemeOf(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) return {};
  const std::string_view scheme = text.substr(0, colon);
  const bool good = std::all_of(scheme.begin(), scheme.end(), [](char c) {
    return IsAlnum(c) || c == '+' || c == '-' || c == '.';
  });
  return good && !(scheme[0] >= '0' && scheme[0] <= '9') ? scheme : std::string_view();
}

// `rest` has lost scheme and "//".
Status TakeAuthority(std::string_view whole, std::string_view authority, Url* url) {
  if (authority.find('@') != std::string_view::npos) {
    return InvalidArgument("{}: a name or password in front of @ is not supported", whole);
  }
  std::string_view port;
  if (!authority.empty() && authority[0] == '[') {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return InvalidArgument("{}: no ] after the address", whole);
    url->host = authority.substr(1, end - 1);
    if (url->host.find_first_not_of("0123456789abcdefABCDEF:.") != std::string::npos) {
      return InvalidArgument("{}: [{}] is not an address", whole, url->host);
    }
    authority.remove_prefix(end + 1);
    if (!authority.empty() && authority[0] != ':') {
      return InvalidArgument("{}: want a port after ]", whole);
    }
    port = authority.substr(std::min<size_t>(1, authority.size()));
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url->host = authority.substr(0, colon);
    port = authority.substr(std::min(colon + 1, authority.size()));
    const bool good = std::all_of(url->host.begin(), url->host.end(), [](char c) {
      return IsAlnum(c) || c == '-' || c == '.' || c == '_';
    });
    if (!good) return InvalidArgument("{}: {} is not a host name", whole, url->host);
  }
  if (url->host.empty() || url->host.size() > 253) {
    return InvalidArgument("{}: no host name after ://", whole);
  }
  std::transform(url->host.begin(), url->host.end(), url->host.begin(), Lower);
  url->port = url->tls ? 443 : 80;
  if (port.empty()) return OkStatus();
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), url->port);
  if (error != std::errc() || end != port.data() + port.size() || url->port == 0) {
    return InvalidArgument("{}: {} is not a port (1 to 65535)", whole, port);
  }
  return OkStatus();
}

// RFC 3986, 5.2.4, on a path that begins with '/'.
std::string WithoutDotSegments(std::string_view path) {
  std::vector<std::string_view> kept;
  bool folder = false;  // Whether the path ends in a slash.
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at + 1), path.size());
    const std::string_view segment = path.substr(at + 1, end - at - 1);
    folder = segment.empty() || segment == "." || segment == "..";
    if (segment == "..") {
      if (!kept.empty()) kept.pop_back();
    } else if (segment != "." && !(segment.empty() && end == path.size())) {
      kept.push_back(segment);
    }
    at = end;
  }
  std::string out;
  for (const std::string_view segment : kept) out += fmt::format("/{}", segment);
  return folder || out.empty() ? out + "/" : out;
}

}  // namespace

std::string Url::Full() const {
  const bool v6 = host.find(':') != std::string::npos;
  const std::string at = port == (tls ? 443 : 80) ? "" : fmt::format(":{}", port);
  return fmt::format("{}://{}{}{}{}{}", tls ? "https" : "http", v6 ? "[" : "", host, v6 ? "]" : "",
                     at, target);
}

std::string Url::Shown() const {
  const std::string full = Full();
  return full.substr(0, full.find('?'));
}

StatusOr<Url> ParseUrl(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      return InvalidArgument("a URL must not hold control characters");
    }
  }
  Url url;
  if (EqualsIgnoreCase(text.substr(0, 8), "https://")) {
    url.tls = true;
  } else if (!EqualsIgnoreCase(text.substr(0, 7), "http://")) {
    return InvalidArgument("{}: only http:// and https:// can be fetched", text);
  }
  std::string_view rest = text.substr(url.tls ? 8 : 7);
  rest = rest.substr(0, rest.find('#'));
  const size_t end = std::min(rest.find_first_of("/?"), rest.size());
  KV_RETURN_IF_ERROR(TakeAuthority(text, rest.substr(0, end), &url));
  url.target = rest.substr(end).rfind('/', 0) == 0 ? "" : "/";
  for (const char c : rest.substr(end)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte > 0x20 && byte < 0x7f && c != '"' && c != '<' && c != '>' && c != '\\';
    url.target += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return url;
}

bool LooksLikeUrl(std::string_view text) {
  return EqualsIgnoreCase(text.substr(0, 7), "http://") ||
         EqualsIgnoreCase(text.substr(0, 8), "https://") || text.rfind("hf:", 0) == 0;
}

StatusOr<std::string> ExpandUrl(std::string_view text) {
  if (text.rfind("hf:", 0) != 0) return std::string(text);
  std::string_view rest = text.substr(text.rfind("hf://", 0) == 0 ? 5 : 3);
  const size_t owner = rest.find('/');
  const size_t repo = owner == std::string_view::npos ? owner : rest.find('/', owner + 1);
  if (repo == std::string_view::npos || owner == 0 || repo == owner + 1 ||
      repo + 1 == rest.size()) {
    return InvalidArgument("{}: want hf:OWNER/REPO/FILE", text);
  }
  std::string_view name = rest.substr(0, repo);
  std::string_view revision = "main";
  if (const size_t at = name.find('@'); at != std::string_view::npos) {
    revision = name.substr(at + 1);
    name = name.substr(0, at);
    if (revision.empty() || at == owner + 1) {
      return InvalidArgument("{}: want hf:OWNER/REPO@REVISION/FILE", text);
    }
  }
  std::string file(rest.substr(repo + 1));
  if (file.find_first_of("?#") != std::string::npos) {
    return InvalidArgument("{}: a file's name cannot hold ? or #", text);
  }
  return fmt::format("https://huggingface.co/{}/resolve/{}/{}", name, revision, file);
}

StatusOr<Url> ResolveUrl(const Url& base, std::string_view reference) {
  reference = reference.substr(0, reference.find('#'));
  if (!SchemeOf(reference).empty()) return ParseUrl(reference);
  if (reference.rfind("//", 0) == 0) {
    return ParseUrl(fmt::format("{}:{}", base.tls ? "https" : "http", reference));
  }
  Url origin = base;
  origin.target.clear();
  const std::string_view base_path = std::string_view(base.target).substr(0, base.target.find('?'));
  if (reference.empty()) return base;
  if (reference[0] == '?')
    return ParseUrl(fmt::format("{}{}{}", origin.Full(), base_path, reference));
  const size_t query = std::min(reference.find('?'), reference.size());
  std::string path(reference.substr(0, query));
  if (path[0] != '/') path.insert(0, base_path.substr(0, base_path.rfind('/') + 1));
  return ParseUrl(origin.Full() + WithoutDotSegments(path) + std::string(reference.substr(query)));
}

std::string SafeFileName(std::string_view wish, std::string_view ending) {
  const size_t slash = wish.find_last_of("/\\");
  if (slash != std::string_view::npos) wish.remove_prefix(slash + 1);
  while (!wish.empty() && (wish[0] == '.' || wish[0] == '-' || wish[0] == ' ')) {
    wish.remove_prefix(1);
  }
  std::string name;
  for (const char c : wish) {
    const bool good = IsAlnum(c) || std::string_view("._+=@-").find(c) != std::string_view::npos;
    name += good ? c : '_';
  }
  if (name.empty()) return name;
  const bool ends =
      name.size() > ending.size() &&
      EqualsIgnoreCase(std::string_view(name).substr(name.size() - ending.size()), ending);
  if (!ends) name += ending;
  if (name.size() > kMaxFileName) {
    name.erase(0, name.size() - kMaxFileName);
    while (name.size() > ending.size() && (name[0] == '.' || name[0] == '-')) name.erase(0, 1);
    if (name.size() <= ending.size()) return {};
  }
  return name;
}

std::string FileNameOfUrl(const Url& url, std::string_view ending) {
  const std::string_view path = std::string_view(url.target).substr(0, url.target.find('?'));
  return SafeFileName(PercentDecoded(path.substr(path.rfind('/') + 1)), ending);
}

std::string DispositionFileName(std::string_view field) {
  std::string plain;
  std::string extended;
  size_t at = field.find(';');
  while (at != std::string_view::npos && at < field.size()) {
    const size_t begin = field.find_first_not_of("; \t", at);
    const size_t equals = begin == std::string_view::npos ? begin : field.find('=', begin);
    if (equals == std::string_view::npos) break;
    const std::string_view key = field.substr(begin, equals - begin);
    std::string value;
    at = equals + 1;
    if (at < field.size() && field[at] == '"') {
      for (++at; at < field.size() && field[at] != '"'; ++at) {
        if (field[at] == '\\' && at + 1 < field.size()) ++at;
        value += field[at];
      }
      at = field.find(';', std::min(at, field.size()));
    } else {
      const size_t end = std::min(field.find(';', at), field.size());
      value = field.substr(at, end - at);
      while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.pop_back();
      at = end;
    }
    if (EqualsIgnoreCase(key, "filename")) plain = value;
    if (EqualsIgnoreCase(key, "filename*")) {
      const size_t quote = value.rfind('\'');  // charset'language'encoded
      if (quote != std::string::npos) extended = PercentDecoded(value.substr(quote + 1));
    }
  }
  return extended.empty() ? plain : extended;
}

std::string FileNameProblem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxFileName) return fmt::format("is longer than {} bytes", kMaxFileName);
  if (name[0] == '.') return "begins with a dot";
  for (const char c : name) {
    if (c == '/' || c == '\\') return "must be a name, not a path";
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return "holds control characters";
  }
  for (const std::string_view ending : {".part", ".origin", ".lock", ".new"}) {
    if (name.size() >= ending.size() && name.substr(name.size() - ending.size()) == ending) {
      return fmt::format("must not end in {}", ending);
    }
  }
  return {};
}

}  // namespace kvasir
