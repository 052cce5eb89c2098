// From argv to a command's variables: the flag table says which names exist, CLI11 writes the help.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "flag_table.h"

namespace lockstep::app {

// A value, and what messages call it. Errors about a value that an environment variable gave name
// the variable: nobody finds a flag that they did not write.
struct Given {
  std::string value;
  std::string name;   // "-ctk", or "LLAMA_ARG_CACHE_TYPE_K (environment)"
  std::string shown;  // "-ctk junk", or "LLAMA_ARG_CACHE_TYPE_K=junk (environment)"
  bool from_environment = false;
};

// Binds the flags of one command. Every name is a row of the table that lists this command; its
// help, value name and environment variable come from there. Values are checked here, so that every
// command refuses in the same words.
class Flags {
 public:
  Flags(CLI::App& app, std::string_view command);

  void text(std::string_view name, std::optional<std::string>& target);
  void text(std::string_view name, std::optional<Given>& target);  // for values that messages quote
  void texts(std::string_view name, std::vector<std::string>& target);
  void integer(std::string_view name, std::optional<int64_t>& target, int64_t min, int64_t max);
  // A number, or a word in its place, which leaves no number.
  void integer_or(std::string_view word, std::string_view name, std::optional<int64_t>& target,
                  int64_t min, int64_t max);
  void number(std::string_view name, std::optional<double>& target, double min, double max);
  // Numbers with commas between them; with `none` that word too, which is an empty list.
  void integers(std::string_view name, std::optional<std::vector<int64_t>>& target, int64_t min,
                int64_t max, bool none = false);
  // A flag whose number may be left out; given says whether it was there at all.
  void number_or_none(std::string_view name, std::optional<double>& target, bool& given, double min,
                      double max);
  void toggle(std::string_view name, bool& target);
  // One argument without a name.
  void positional(std::string_view name, std::string_view help, std::string& target);
  void describe(std::string_view description, std::string_view example);

  // Reads the command's arguments into what was bound. Every flag with a value takes exactly one
  // word, whatever it looks like; after "--" there are no flags. Noted flags are dropped with a
  // note; refused ones, names that no table row has and words that nothing takes throw
  // Error(bad_use), and so do environment variables of refused flags. False: help was asked for.
  bool parse(const std::vector<std::string>& arguments);

 private:
  using Setter = std::function<void(const Given& given)>;
  struct Binding {
    std::string_view name;  // the flag's long name
    std::string_view env;
    Setter set;
    bool repeats;  // every value counts, not only the last
  };
  Binding& bind(std::string_view name, Setter set);
  struct Typed {
    std::string name, value;  // as on the command line
  };
  void apply(const Binding& binding, const std::vector<Typed>& values);

  CLI::App& app_;
  std::string command_;
  std::vector<Binding> bindings_;
  std::vector<std::string*> positionals_;
};

// Strict readings of a whole text; nullopt when it is anything else.
std::optional<int64_t> parse_integer(std::string_view text);
std::optional<double> parse_number(std::string_view text);  // "inf" too, never "nan"

[[noreturn]] void bad_use(std::string_view message);
// read(value); an Error in it is said of the variable where the value came from one.
template <typename Read>
auto naming_environment(const Given& given, Read read) {
  try {
    return read(given.value);
  } catch (const Error& error) {
    if (!given.from_environment) throw;
    throw Error(error.code(), given.name + ": " + error.what());
  }
}
// Whether the command has the flag.
bool has_flag(std::string_view command, std::string_view name);

// A command: binds its flags, and returns what runs it (its return value is the exit code).
using Runner = std::function<ExitCode()>;
struct Command {
  std::string_view name;
  std::string_view summary;
  Runner (*set_up)(Flags& flags);
};

Runner set_up_run(Flags& flags);
Runner set_up_prove(Flags& flags);
Runner set_up_eval(Flags& flags);
Runner set_up_bench(Flags& flags);
Runner set_up_inspect(Flags& flags);
Runner set_up_tokenize(Flags& flags);
Runner set_up_synth(Flags& flags);
Runner set_up_flags(Flags& flags);

}  // namespace lockstep::app
