#include "settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "text_input.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlank = " \t\r";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// Reads one value from the front of `rest`; `enders` end a bare one.
class ValueReader {
 public:
  explicit ValueReader(std::string_view rest) : rest_(rest) {}

  StatusOr<std::vector<std::string>> ReadAll() {
    std::vector<std::string> values;
    SkipBlank();
    if (Take('[')) {
      SkipBlank();
      while (!Take(']')) {
        KV_ASSIGN_OR_RETURN(std::string value, ReadOne(",]"));
        values.push_back(std::move(value));
        SkipBlank();
        if (Take(',')) {
          SkipBlank();
        } else if (rest_.empty() || rest_.front() != ']') {
          return InvalidArgument("a list needs ',' between values and ']' at its end");
        }
      }
    } else {
      KV_ASSIGN_OR_RETURN(std::string value, ReadOne(""));
      values.push_back(std::move(value));
    }
    SkipBlank();
    if (!rest_.empty() && rest_.front() != '#' && rest_.front() != ';') {
      return InvalidArgument("unexpected '{}' after the value", rest_);
    }
    return values;
  }

 private:
  void SkipBlank() {
    while (!rest_.empty() && kBlank.find(rest_.front()) != std::string_view::npos) {
      rest_.remove_prefix(1);
    }
  }

  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  StatusOr<std::string> ReadOne(std::string_view enders) {
    if (Take('\'')) return ReadQuoted('\'', /*escapes=*/false);
    if (Take('"')) return ReadQuoted('"', /*escapes=*/true);
    size_t end = 0;
    while (end < rest_.size() && enders.find(rest_[end]) == std::string_view::npos) {
      // A comment needs a blank before it, so that "a#b" is a value.
      const bool comment = rest_[end] == '#' || rest_[end] == ';';
      if (comment && (end == 0 || kBlank.find(rest_[end - 1]) != std::string_view::npos)) break;
      ++end;
    }
    const std::string value(Trim(rest_.substr(0, end)));
    rest_.remove_prefix(end);
    if (value.empty()) return InvalidArgument("a value is missing; write \"\" for an empty one");
    return value;
  }

  StatusOr<std::string> ReadQuoted(char quote, bool escapes) {
    std::string value;
    while (!rest_.empty()) {
      char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == quote) return value;
      if (escapes && c == '\\' && !rest_.empty()) {
        c = rest_.front();
        rest_.remove_prefix(1);
        constexpr std::string_view kNames = "ntr\\\"";
        constexpr std::string_view kMeanings = "\n\t\r\\\"";
        const size_t which = kNames.find(c);
        if (which == std::string_view::npos) return InvalidArgument("unknown escape \\{}", c);
        c = kMeanings[which];
      }
      value.push_back(c);
    }
    return InvalidArgument("a quoted value has no closing {}", quote);
  }

  std::string_view rest_;
};

StatusOr<Setting> ParseLine(std::string_view line) {
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) {
    return InvalidArgument("'{}' is neither 'key = value' nor '[command]'", line);
  }
  Setting setting;
  setting.name = std::string(Trim(line.substr(0, equals)));
  std::replace(setting.name.begin(), setting.name.end(), '_', '-');
  if (setting.name.empty()) return InvalidArgument("a key is missing before '='");
  StatusOr<std::vector<std::string>> values = ValueReader(line.substr(equals + 1)).ReadAll();
  if (!values.ok()) return WithPrefix(values.status(), setting.name);
  setting.values = *std::move(values);
  return setting;
}

StatusOr<std::string> ParseHeading(std::string_view line) {
  const size_t close = line.find(']');
  if (close == std::string_view::npos) return InvalidArgument("'{}' has no closing ]", line);
  const std::string_view rest = Trim(line.substr(close + 1));
  if (!rest.empty() && rest.front() != '#' && rest.front() != ';') {
    return InvalidArgument("unexpected '{}' after ]", rest);
  }
  std::string section(Trim(line.substr(1, close - 1)));
  std::replace(section.begin(), section.end(), '.', ' ');
  return section;
}

}  // namespace

StatusOr<std::vector<Setting>> ParseSettings(std::string_view text, const std::string& path) {
  std::vector<Setting> settings;
  std::string section;
  int line_number = 0;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    text.remove_prefix(kByteOrderMark.size());  // Some editors write one.
  }
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string source = fmt::format("{}:{}", path, ++line_number);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      StatusOr<std::string> heading = ParseHeading(line);
      if (!heading.ok()) return WithPrefix(heading.status(), source);
      section = *std::move(heading);
      continue;
    }
    StatusOr<Setting> setting = ParseLine(line);
    if (!setting.ok()) return WithPrefix(setting.status(), source);
    setting->section = section;
    setting->source = source;
    for (const Setting& earlier : settings) {
      if (earlier.section == section && earlier.name == setting->name) {
        return InvalidArgument("{}: {} was already set at {}", source, setting->name,
                               earlier.source);
      }
    }
    settings.push_back(*std::move(setting));
  }
  return settings;
}

StatusOr<std::vector<Setting>> ReadSettingsFile(const std::string& path) {
  // A pipe without a writer would keep every command waiting, a device might never end.
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status) &&
      !std::filesystem::is_regular_file(status) && path != "/dev/null") {
    return InvalidArgument("{}: the configuration file must be a regular file", path);
  }
  const StatusOr<std::string> text = ReadText(path);
  if (!text.ok()) return text.status();
  return ParseSettings(*text, path);
}

std::string DefaultSettingsPath() {
  const char* config_home = std::getenv("XDG_CONFIG_HOME");
  if (config_home != nullptr && *config_home != '\0') {
    return std::string(config_home) + "/kvasir/config.ini";
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::string(home) + "/.config/kvasir/config.ini";
}

std::string EnvironmentName(std::string_view option) {
  std::string name = "KVASIR_";
  for (const char c : option) {
    name.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return name;
}

}  // namespace kvasir
