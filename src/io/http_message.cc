#include "io/http_message.h"

#include <algorithm>

namespace kvasir {
namespace {

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

std::string_view TrimSpace(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

bool EqualsIgnoreCase(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return Lower(x) == Lower(y); });
}

const std::string* HttpHeaders::Find(std::string_view name) const {
  for (const auto& [key, value] : fields_) {
    if (EqualsIgnoreCase(key, name)) return &value;
  }
  return nullptr;
}

size_t HttpHeaders::Count(std::string_view name) const {
  return static_cast<size_t>(
      std::count_if(fields_.begin(), fields_.end(),
                    [name](const auto& field) { return EqualsIgnoreCase(field.first, name); }));
}

bool HttpHeaders::HasToken(std::string_view name, std::string_view token) const {
  for (const auto& [key, value] : fields_) {
    if (!EqualsIgnoreCase(key, name)) continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (EqualsIgnoreCase(TrimSpace(rest.substr(0, comma)), token)) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

}  // namespace kvasir
