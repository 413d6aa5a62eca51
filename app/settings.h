// Settings: option values from a configuration file and from the environment, before anybody knows
// which command they are for.
//
// The file is lines of `key = value` under optional [command] headings, '#' and ';' start comments,
// values may be "quoted" (with \n \t \\ \" escapes), 'literal', bare, or a [list, of, them].
// docs/CLI.md describes it for users.
#ifndef KVASIR_APP_SETTINGS_H_
#define KVASIR_APP_SETTINGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvasir {

struct Setting {
  std::string section;  // The command it is meant for ("bench model"), empty for all.
  std::string name;     // Long option name without dashes: "top-p". '_' counts as '-'.
  std::vector<std::string> values;
  std::string source;  // For messages: "/etc/k.ini:12", "KVASIR_TOP_P".
};

// kInvalidArgument names file and line. `text` is the file's content, `path` names it.
StatusOr<std::vector<Setting>> ParseSettings(std::string_view text, const std::string& path);

// The file at `path`; kNotFound when it cannot be read, kInvalidArgument when it is a directory, a
// pipe or a device other than /dev/null.
StatusOr<std::vector<Setting>> ReadSettingsFile(const std::string& path);

// $XDG_CONFIG_HOME/kvasir/config.ini, else ~/.config/kvasir/config.ini; empty without a home.
std::string DefaultSettingsPath();

// "top-p" -> "KVASIR_TOP_P".
std::string EnvironmentName(std::string_view option);

}  // namespace kvasir

#endif  // KVASIR_APP_SETTINGS_H_
