#include "options.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <limits>
#include <system_error>

namespace kvasir {
namespace {

// CLI11 reads "-1" into an unsigned number, and what is too large into the largest.
template <typename Unsigned>
std::string UnsignedProblem(const std::string& text) {
  Unsigned value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return {};
  return "must be a whole number from 0 to " +
         std::to_string(std::numeric_limits<Unsigned>::max()) + ", is " + text;
}

std::string NumberProblem(const std::string& text) {
  double value = 0.0;
  return CLI::detail::lexical_cast(text, value) ? std::string() : "must be a number, is " + text;
}

}  // namespace

OptionHandle& OptionHandle::Type(const char* name) {
  option_->type_name(name);
  return *this;
}

OptionHandle& OptionHandle::Group(const char* title) {
  option_->group(title);
  return *this;
}

OptionHandle& OptionHandle::Range(double low, double high) {
  // transform() puts it before the check for a whole number, whose range is the wider one.
  const auto problem = [low, high](std::string& text) {
    double value = 0.0;
    const bool number = CLI::detail::lexical_cast(text, value);
    if (number && value >= low && value <= high) return std::string();
    return "must be from " + CLI::detail::to_string(static_cast<int64_t>(low)) + " to " +
           CLI::detail::to_string(static_cast<int64_t>(high)) + ", is " + text;
  };
  option_->transform(CLI::Validator(problem, ""));
  return *this;
}

OptionHandle& OptionHandle::Check(std::string (*problem)(const std::string&)) {
  option_->check(problem);
  return *this;
}

OptionHandle& OptionHandle::Required() {
  option_->required();
  return *this;
}

OptionHandle& OptionHandle::ShowDefault() {
  option_->capture_default_str();
  return *this;
}

OptionHandle& OptionHandle::ManyValues() {
  option_->allow_extra_args(true);
  return *this;
}

OptionHandle& OptionHandle::CommandLineOnly() {
  option_->configurable(false);
  return *this;
}

OptionHandle Options::Add(const char* names, std::string* value, const char* description) {
  return OptionHandle(app_->add_option(names, *value, description));
}

OptionHandle Options::Add(const char* names, int* value, const char* description) {
  return OptionHandle(app_->add_option(names, *value, description));
}

OptionHandle Options::Add(const char* names, uint32_t* value, const char* description) {
  CLI::Option* option = app_->add_option(names, *value, description);
  option->check(UnsignedProblem<uint32_t>);
  return OptionHandle(option);
}

OptionHandle Options::Add(const char* names, float* value, const char* description) {
  CLI::Option* option = app_->add_option(names, *value, description);
  option->check(NumberProblem);
  return OptionHandle(option);
}

OptionHandle Options::Add(const char* names, std::optional<std::string>* value,
                          const char* description) {
  return OptionHandle(app_->add_option(names, *value, description));
}

OptionHandle Options::Add(const char* names, std::optional<uint32_t>* value,
                          const char* description) {
  CLI::Option* option = app_->add_option(names, *value, description);
  option->check(UnsignedProblem<uint32_t>);
  return OptionHandle(option);
}

OptionHandle Options::Add(const char* names, std::optional<uint64_t>* value,
                          const char* description) {
  CLI::Option* option = app_->add_option(names, *value, description);
  option->check(UnsignedProblem<uint64_t>);
  return OptionHandle(option);
}

OptionHandle Options::Add(const char* names, std::vector<std::string>* values,
                          const char* description) {
  CLI::Option* option = app_->add_option(names, *values, description);
  option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return OptionHandle(option);
}

OptionHandle Options::AddFlag(const char* names, bool* value, const char* description) {
  return OptionHandle(app_->add_flag(names, *value, description));
}

}  // namespace kvasir
