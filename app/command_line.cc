#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "nearest_name.h"
#include "settings.h"

namespace kvasir {
namespace {

using Args = std::vector<std::string>;

constexpr const char* kVersion = "kvasir " KVASIR_VERSION;

std::string Join(const std::vector<std::string>& words, std::string_view delimiter = " ") {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += delimiter;
    text += word;
  }
  return text;
}

// The parser with every command registered. A fresh one is built for each parse, since CLI11 keeps
// what it has seen.
class CommandTree {
 public:
  CommandTree()
      : root_("An LLM inference server whose KV cache is never computed twice", "kvasir") {
    commands_ = MakeCommands();
    AddCommonFlags(root_);
    root_.require_subcommand(0, 1);
    root_.footer(
        "Options also come from KVASIR_<OPTION> variables and a configuration file "
        "(--config).\n`kvasir COMMAND --help` lists a command's options.");
    for (const std::unique_ptr<Command>& command : commands_) {
      apps_.push_back(AddCommand(*command));
    }
  }

  CLI::App& root() { return root_; }
  size_t size() const { return commands_.size(); }
  CLI::App& app(size_t i) { return *apps_[i]; }
  std::vector<std::string> path(size_t i) const { return commands_[i]->path(); }
  std::unique_ptr<Command> Take(size_t i) { return std::move(commands_[i]); }

 private:
  void AddCommonFlags(CLI::App& app) {
    app.set_help_flag("-h,--help", "Print this help and exit");
    app.set_version_flag("--version", kVersion, "Print the version and exit");
    app.add_option("--config", config_,
                   "Configuration file (default: $XDG_CONFIG_HOME/kvasir/config.ini)")
        ->type_name("FILE")
        ->configurable(false)
        ->take_last();
    app.get_formatter()->column_width(34);
  }

  static CLI::App* Child(CLI::App& parent, const std::string& name) {
    for (CLI::App* child : parent.get_subcommands([](CLI::App*) { return true; })) {
      if (child->get_name() == name) return child;
    }
    return nullptr;
  }

  CLI::App* AddCommand(Command& command) {
    const std::vector<std::string> path = command.path();
    CLI::App* parent = &root_;
    for (size_t depth = 0; depth + 1 < path.size(); ++depth) {
      CLI::App* next = Child(*parent, path[depth]);
      if (next == nullptr) {
        next = parent->add_subcommand(path[depth], "Measure speed: " + path[depth + 1]);
        AddCommonFlags(*next);
      } else {
        next->description(next->get_description() + ", " + path[depth + 1]);
      }
      parent = next;
    }
    CLI::App* app = parent->add_subcommand(path.back(), command.description());
    AddCommonFlags(*app);
    app->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    Options options(app);
    command.Register(options);
    app->footer(
        "Every option with a long name can also be set as KVASIR_<OPTION> in the environment or\n"
        "as `option = value` in the configuration file; the command line comes first.");
    // Unknown options are reported by us, with a hint.
    app->allow_extras();
    return app;
  }

  CLI::App root_;
  std::string config_;
  std::vector<std::unique_ptr<Command>> commands_;
  std::vector<CLI::App*> apps_;
};

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

// Where the command's name lies in the arguments and which it is; words that come before are the
// program's own options.
struct Located {
  size_t command = 0;     // Index in the tree.
  size_t options_at = 0;  // Index of the first argument after the command's words.
};

bool IsHelpOrVersion(const std::string& arg) {
  return arg == "-h" || arg == "--help" || arg == "--version";
}

std::vector<std::string> NextWords(CommandTree& tree, const Args& words) {
  std::vector<std::string> next;
  for (size_t i = 0; i < tree.size(); ++i) {
    const std::vector<std::string> path = tree.path(i);
    if (path.size() <= words.size() || !std::equal(words.begin(), words.end(), path.begin())) {
      continue;
    }
    const std::string& word = path[words.size()];
    if (std::find(next.begin(), next.end(), word) == next.end()) next.push_back(word);
  }
  return next;
}

// nullopt: help or version was asked for before a command was complete.
StatusOr<std::optional<Located>> Locate(CommandTree& tree, const Args& args) {
  Args words;
  for (size_t at = 0; at < args.size(); ++at) {
    const std::string& arg = args[at];
    if (IsHelpOrVersion(arg)) return std::optional<Located>();
    if (arg == "--config") {
      ++at;
      continue;
    }
    if (arg.rfind("--config=", 0) == 0) continue;
    if (arg.size() > 1 && arg[0] == '-') {
      std::vector<std::string> known = OptionNames(tree.root());
      return InvalidArgument("unknown option {} before a command{}", arg, DidYouMean(arg, known));
    }
    const std::vector<std::string> next = NextWords(tree, words);
    words.push_back(arg);
    if (std::find(next.begin(), next.end(), arg) == next.end()) {
      return InvalidArgument("unknown command '{}'{}", Join(words), DidYouMean(arg, next));
    }
    for (size_t i = 0; i < tree.size(); ++i) {
      if (tree.path(i) == words) return std::optional<Located>(Located{i, at + 1});
    }
  }
  const std::string so_far = words.empty() ? "kvasir" : "kvasir " + Join(words);
  return InvalidArgument("no command given; `{} --help` lists them ({})", so_far,
                         Join(NextWords(tree, words), ", "));
}

bool Settable(const CLI::Option& option) {
  return option.get_configurable() && !option.get_lnames().empty();
}

CLI::Option* FindSettable(CLI::App& app, const std::string& name) {
  CLI::Option* option = app.get_option_no_throw("--" + name);
  return option != nullptr && Settable(*option) ? option : nullptr;
}

std::vector<std::string> SettableNames(CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!Settable(*option)) continue;
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// The option as arguments that CLI11 reads back.
Args AsArguments(const CLI::Option& option, const Setting& setting) {
  Args args;
  const bool flag = option.get_expected_min() == 0;
  for (const std::string& value : setting.values) {
    if (flag) {
      args.push_back("--" + setting.name + "=" + value);
    } else {
      args.push_back("--" + setting.name);
      args.push_back(value);
    }
  }
  return args;
}

// Every section and key of the file must mean something to some command.
Status CheckSettingNames(CommandTree& tree, const std::vector<Setting>& settings) {
  for (const Setting& setting : settings) {
    bool section_known = setting.section.empty();
    bool name_known = false;
    std::vector<std::string> sections;
    std::vector<std::string> names;
    for (size_t i = 0; i < tree.size(); ++i) {
      sections.push_back(Join(tree.path(i)));
      if (!setting.section.empty() && setting.section != sections.back()) continue;
      section_known = true;
      name_known = name_known || FindSettable(tree.app(i), setting.name) != nullptr;
      for (const std::string& name : SettableNames(tree.app(i))) names.push_back(name);
    }
    if (!section_known) {
      return InvalidArgument("{}: no command is called [{}]{}", setting.source, setting.section,
                             DidYouMean(setting.section, sections));
    }
    if (!name_known) {
      return InvalidArgument("{}: unknown key {}{}", setting.source, setting.name,
                             DidYouMean(setting.name, names));
    }
  }
  return OkStatus();
}

// Parses the one setting with a tree of its own, to learn what is wrong with it alone.
Status CheckSettingValue(const std::vector<std::string>& path, const Args& setting_args,
                         const Setting& setting) {
  Args args(setting_args.rbegin(), setting_args.rend());
  args.insert(args.end(), path.rbegin(), path.rend());
  CommandTree tree;
  const auto refuse = [&setting](const CLI::ParseError& error) {
    return InvalidArgument("{}: {} = {} is refused ({})", setting.source, setting.name,
                           Join(setting.values, ", "), error.what());
  };
  try {
    tree.root().parse(args);
  } catch (const CLI::ConversionError& error) {
    return refuse(error);
  } catch (const CLI::ValidationError& error) {
    return refuse(error);
  } catch (const CLI::InvalidError& error) {
    return refuse(error);
  } catch (const CLI::ParseError&) {
    // Something else is missing, as it must be when there is nothing but this setting.
  }
  return OkStatus();
}

// Long names of the options that the command line itself gives, under whatever spelling or as a
// positional. Errors are the real parse's business.
std::vector<std::string> GivenOptions(size_t command, const Args& args) {
  CommandTree tree;
  Args stack(args.rbegin(), args.rend());
  try {
    tree.root().parse(stack);
  } catch (const CLI::ParseError&) {
  }
  std::vector<std::string> given;
  for (const CLI::Option* option : tree.app(command).get_options()) {
    if (option->count() > 0 && Settable(*option)) given.push_back(option->get_lnames().front());
  }
  return given;
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string ConfigPathGiven(const Args& args) {
  std::string path;
  for (size_t at = 0; at < args.size() && args[at] != "--"; ++at) {
    if (args[at] == "--config" && at + 1 < args.size()) path = args[++at];
    if (args[at].rfind("--config=", 0) == 0) path = args[at].substr(9);
  }
  if (!path.empty()) return path;
  const char* variable = std::getenv("KVASIR_CONFIG");
  return variable == nullptr ? std::string() : std::string(variable);
}

StatusOr<std::vector<Setting>> FileSettings(const Args& args) {
  std::string path = ConfigPathGiven(args);
  if (path.empty()) {
    path = DefaultSettingsPath();
    std::error_code ignored;
    if (path.empty() || !std::filesystem::exists(path, ignored)) return std::vector<Setting>();
  }
  return ReadSettingsFile(path);
}

std::vector<Setting> EnvironmentSettings(CLI::App& app) {
  std::vector<Setting> settings;
  for (const CLI::Option* option : app.get_options()) {
    if (!Settable(*option)) continue;
    const std::vector<std::string>& names = option->get_lnames();
    // Backwards: the last one counts, and of several names that should be the first.
    for (auto name = names.rbegin(); name != names.rend(); ++name) {
      const std::string variable = EnvironmentName(*name);
      const char* value = std::getenv(variable.c_str());
      if (value == nullptr || *value == '\0') continue;
      settings.push_back({"", names.front(), {value}, variable});
    }
  }
  return settings;
}

// The arguments that stand for file and environment: each option from the strongest source.
StatusOr<Args> SettingsAsArguments(CommandTree& tree, const Located& located, const Args& args) {
  CLI::App& app = tree.app(located.command);
  const std::vector<std::string> path = tree.path(located.command);
  KV_ASSIGN_OR_RETURN(std::vector<Setting> file, FileSettings(args));
  KV_RETURN_IF_ERROR(CheckSettingNames(tree, file));
  // A command's own section outranks what is set for all.
  std::stable_sort(file.begin(), file.end(), [](const Setting& a, const Setting& b) {
    return a.section.empty() && !b.section.empty();
  });
  std::vector<Setting> settings;
  for (Setting& setting : file) {
    const CLI::Option* option = FindSettable(app, setting.name);
    const bool ours = setting.section.empty() || setting.section == Join(path);
    if (!ours || option == nullptr) continue;  // Another command's.
    setting.name = option->get_lnames().front();
    settings.push_back(std::move(setting));
  }
  for (Setting& setting : EnvironmentSettings(app)) settings.push_back(std::move(setting));

  const std::vector<std::string> given = GivenOptions(located.command, args);
  Args result;
  for (size_t i = 0; i < settings.size(); ++i) {
    const Args setting_args = AsArguments(*FindSettable(app, settings[i].name), settings[i]);
    KV_RETURN_IF_ERROR(CheckSettingValue(path, setting_args, settings[i]));
    const bool overridden =
        std::any_of(settings.begin() + static_cast<ptrdiff_t>(i) + 1, settings.end(),
                    [&](const Setting& later) { return later.name == settings[i].name; });
    if (overridden || Contains(given, settings[i].name)) continue;
    result.insert(result.end(), setting_args.begin(), setting_args.end());
  }
  return result;
}

// "--name=" as two arguments, the second one empty: CLI11 would take the next argument for the
// value.
Args SplitEmptyValues(CommandTree& tree, const Located& located, const Args& args) {
  CLI::App& app = tree.app(located.command);
  const auto takes_value = [&app](const std::string& name) {
    if (name.size() < 2 || name[0] != '-') return false;
    const CLI::Option* option = app.get_option_no_throw(name);
    return option != nullptr && option->get_expected_min() > 0;
  };
  Args split(args.begin(), args.begin() + static_cast<ptrdiff_t>(located.options_at));
  for (size_t at = located.options_at; at < args.size(); ++at) {
    const std::string& arg = args[at];
    if (arg == "--") {
      split.insert(split.end(), args.begin() + static_cast<ptrdiff_t>(at), args.end());
      break;
    }
    const bool ends_empty = arg.rfind("--", 0) == 0 && arg.find('=') == arg.size() - 1;
    const std::string name = ends_empty ? arg.substr(0, arg.size() - 1) : arg;
    split.push_back(takes_value(name) ? name : arg);
    if (!takes_value(name)) continue;
    if (ends_empty) {
      split.emplace_back();
    } else if (at + 1 < args.size()) {
      split.push_back(args[++at]);  // Whatever it looks like.
    }
  }
  return split;
}

Status CheckExtras(CLI::App& app, const std::string& name) {
  const std::vector<std::string> extras = app.remaining();
  for (const std::string& extra : extras) {
    if (extra.size() < 2 || extra[0] != '-') continue;
    const std::string option = extra.substr(0, extra.find('='));
    return InvalidArgument("{}: unknown option {}{}", name, option,
                           DidYouMean(option, OptionNames(app)));
  }
  if (!extras.empty()) return InvalidArgument("{}: unexpected argument '{}'", name, extras[0]);
  return OkStatus();
}

// What is missing, by the name that help gives it: CLI11 would say "--model" for MODEL.
Status CheckRequired(CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    const std::string what =
        option->get_positional() ? option->get_name(true) : option->get_name(false);
    return InvalidArgument("{}: {} is missing; `kvasir {} --help` says more", name, what, name);
  }
  return OkStatus();
}

}  // namespace

StatusOr<ParsedCommandLine> ParseCommandLine(const Args& given) {
  CommandTree tree;
  KV_ASSIGN_OR_RETURN(const std::optional<Located> located, Locate(tree, given));
  const Args args = located.has_value() ? SplitEmptyValues(tree, *located, given) : given;
  Args all = args;
  std::string name = "kvasir";
  if (located.has_value()) {
    name = Join(tree.path(located->command));
    const auto options = args.begin() + static_cast<ptrdiff_t>(located->options_at);
    if (std::none_of(options, args.end(), IsHelpOrVersion)) {
      KV_ASSIGN_OR_RETURN(const Args settings, SettingsAsArguments(tree, *located, args));
      all.insert(all.begin() + static_cast<ptrdiff_t>(located->options_at), settings.begin(),
                 settings.end());
    }
  }
  std::reverse(all.begin(), all.end());  // CLI11 takes a stack.
  try {
    tree.root().parse(all);
  } catch (const CLI::CallForVersion&) {
    return ParsedCommandLine{nullptr, std::string(kVersion) + "\n"};
  } catch (const CLI::CallForHelp&) {
    CLI::App* app = &tree.root();
    std::string before;
    while (!app->get_subcommands().empty()) {
      before += (before.empty() ? "" : " ") + app->get_name();
      app = app->get_subcommands().front();
    }
    return ParsedCommandLine{nullptr, app->help(before, CLI::AppFormatMode::Normal)};
  } catch (const CLI::ArgumentMismatch&) {
    // Only the last argument can lack its value; any other takes the next one.
    return InvalidArgument("{}: {} needs a value", name, args.back());
  } catch (const CLI::ParseError& error) {
    // An unknown option often causes the rest: its value is taken for something else.
    if (located.has_value()) KV_RETURN_IF_ERROR(CheckExtras(tree.app(located->command), name));
    if (located.has_value()) KV_RETURN_IF_ERROR(CheckRequired(tree.app(located->command), name));
    return InvalidArgument("{}: {}", name, error.what());
  }
  if (!located.has_value()) return InvalidArgument("no command given");
  KV_RETURN_IF_ERROR(CheckExtras(tree.app(located->command), name));
  return ParsedCommandLine{tree.Take(located->command), ""};
}

}  // namespace kvasir
