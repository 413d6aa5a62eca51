// Options: how a command says which options it has, without the parser's headers, which take many
// seconds to compile: only options.cc and command_line.cc see CLI11.
//
// Add binds a variable; its value at that time is the default. The handle that Add returns says the
// rest and is used at once: options.Add("-n,--max-tokens", &n, "...").Range(1, 100).Type("N").
// A name without dashes ("MODEL,--model") also takes a positional argument.
#ifndef KVASIR_APP_OPTIONS_H_
#define KVASIR_APP_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kvasir {

class OptionHandle {
 public:
  explicit OptionHandle(CLI::Option* option) : option_(option) {}

  OptionHandle& Type(const char* name);    // What help calls the value: "FILE".
  OptionHandle& Group(const char* title);  // The heading in help.
  OptionHandle& Range(double low, double high);
  // `problem` says what is wrong with a value; empty: nothing.
  OptionHandle& Check(std::string (*problem)(const std::string&));
  OptionHandle& Required();
  OptionHandle& ShowDefault();
  OptionHandle& ManyValues();       // One mention takes all values up to the next option.
  OptionHandle& CommandLineOnly();  // Not from file or environment.

 private:
  CLI::Option* option_;
};

class Options {
 public:
  explicit Options(CLI::App* app) : app_(app) {}

  OptionHandle Add(const char* names, std::string* value, const char* description);
  OptionHandle Add(const char* names, int* value, const char* description);
  OptionHandle Add(const char* names, uint32_t* value, const char* description);
  OptionHandle Add(const char* names, float* value, const char* description);
  OptionHandle Add(const char* names, std::optional<std::string>* value, const char* description);
  OptionHandle Add(const char* names, std::optional<uint32_t>* value, const char* description);
  OptionHandle Add(const char* names, std::optional<uint64_t>* value, const char* description);
  // May be given several times, one value each time.
  OptionHandle Add(const char* names, std::vector<std::string>* values, const char* description);
  OptionHandle AddFlag(const char* names, bool* value, const char* description);

 private:
  CLI::App* app_;
};

}  // namespace kvasir

#endif  // KVASIR_APP_OPTIONS_H_
