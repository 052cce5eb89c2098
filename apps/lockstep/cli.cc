#include "cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "output.h"

namespace lockstep::app {
namespace {

constexpr size_t kMaxList = 64;  // numbers of a list

bool takes(const Flag& flag, std::string_view command) {
  if (flag.commands.empty()) return true;
  const std::vector<std::string_view> commands = split_names(flag.commands);
  return std::find(commands.begin(), commands.end(), command) != commands.end();
}

bool has_name(const Flag& flag, std::string_view name) {
  const std::vector<std::string_view> names = split_names(flag.names);
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The row that `name` means for this command; null when none does.
const Flag* find_flag(std::string_view name, std::string_view command) {
  for (const Flag& flag : flag_table()) {
    if (takes(flag, command) && has_name(flag, name)) return &flag;
  }
  return nullptr;
}

[[noreturn]] void unknown_flag(const std::string& name, std::string_view command) {
  std::string elsewhere;
  for (const Flag& flag : flag_table()) {
    if (!has_name(flag, name) || flag.commands.empty()) continue;
    elsewhere += (elsewhere.empty() ? "" : ",") + std::string(flag.commands);
  }
  if (!elsewhere.empty()) {
    std::replace(elsewhere.begin(), elsewhere.end(), ' ', ',');
    bad_use(fmt::format("{}: not a flag of {}, but of: {}; see lockstep {} --help", name, command,
                        elsewhere, command));
  }
  bad_use(fmt::format("{}: no such flag; see lockstep {} --help", shorten(name), command));
}

// What messages call a flag: its short form where it has one.
std::string_view shown_name(std::string_view name, std::string_view command) {
  const Flag* flag = find_flag(name, command);
  return flag ? split_names(flag->names).front() : name;
}

bool is_off(const Flag& flag, std::string_view value) {
  if (flag.off.empty()) return false;
  if (value == flag.off) return true;
  const std::optional<double> given = parse_number(value), off = parse_number(flag.off);
  return given && off && *given == *off;
}

void refuse(const Flag& flag, std::string_view name) {
  bad_use(fmt::format("{}: not supported: {}", name, flag.text));
}

// Values that an optional "[on|off|auto]" takes along.
bool is_switch(std::string_view text) {
  return text == "on" || text == "off" || text == "auto" || text == "0" || text == "1" ||
         text == "true" || text == "false" || text == "enabled" || text == "disabled";
}

// Whether an optional value takes the next word along.
bool fits_optional(const Flag& flag, std::string_view word) {
  return flag.value == "[on|off|auto]" ? is_switch(word) : parse_number(word).has_value();
}

double checked_number(const Given& given, double min, double max) {
  const std::optional<double> number = parse_number(given.value);
  if (!number) bad_use(fmt::format("{}: not a number", given.shown));
  if (*number < min || *number > max) {
    bad_use(fmt::format("{}: out of range; give {} to {}", given.shown, min, max));
  }
  return *number;
}

// CLI11 writes the help. It knows short names of one letter only; help shows the table's names and
// variables.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::string command) : command_(std::move(command)) { column_width(34); }

  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const Flag* flag = positional ? nullptr : find_flag(option->get_name(), command_);
    if (!flag) return CLI::Formatter::make_option_name(option, positional);
    std::string names;
    for (const std::string_view name : split_names(flag->names)) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    }
    return flag->value.empty() ? names : fmt::format("{} {}", names, flag->value);
  }
  std::string make_option_opts(const CLI::Option*) const override { return ""; }
  std::string make_option_desc(const CLI::Option* option) const override {
    const Flag* flag = find_flag(option->get_name(), command_);
    if (!flag) return option->get_description();
    return flag->env.empty() ? std::string(flag->text)
                             : fmt::format("{} [{}]", flag->text, flag->env);
  }
  std::string make_usage(const CLI::App* app, std::string) const override {
    std::string usage = fmt::format("\nUsage: lockstep {} [flags]", command_);
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) usage += " " + option->get_name(true);
    }
    return usage + "\n";
  }

 private:
  std::string command_;
};

}  // namespace

void bad_use(std::string_view message) {
  throw Error(ExitCode::bad_use, message);
}

std::optional<int64_t> parse_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || std::isnan(value)) {
    return std::nullopt;
  }
  return value;
}

bool has_flag(std::string_view command, std::string_view name) {
  return find_flag(name, command) != nullptr;
}

Flags::Flags(CLI::App& app, std::string_view command) : app_(app), command_(command) {
  app_.formatter(std::make_shared<HelpFormatter>(command_));
  app_.set_help_flag("--help", "print this help");
}

bool Flags::parse(const std::vector<std::string>& arguments) {
  std::map<std::string, std::vector<std::string>, std::less<>> given;
  std::vector<std::string> words;
  bool help = false, flags_ended = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    if (flags_ended || name.size() < 2 || name[0] != '-') {
      words.push_back(name);
      continue;
    }
    if (name == "--") {
      flags_ended = true;
      continue;
    }
    if (name == "-h" || name == "--help" || name == "--usage") {
      help = true;
      continue;
    }
    std::optional<std::string> value;
    if (name.starts_with("--")) {
      const size_t equals = name.find('=');
      if (equals != std::string::npos) {
        value = name.substr(equals + 1);
        name.resize(equals);
      }
      std::replace(name.begin() + 2, name.end(), '_', '-');
    }
    const Flag* flag = find_flag(name, command_);
    if (!flag) unknown_flag(name, command_);
    if (flag->value.empty()) {
      if (value) bad_use(fmt::format("{}: takes no value", name));
    } else if (!value) {
      if (!flag->value.starts_with('[')) {
        if (i + 1 >= arguments.size()) {
          bad_use(fmt::format("{}: needs a value: {} {}", name, name, flag->value));
        }
        value = arguments[++i];
      } else if (i + 1 < arguments.size() && fits_optional(*flag, arguments[i + 1])) {
        value = arguments[++i];
      }
    }
    switch (flag->kind) {
      case FlagKind::noted:
        note(fmt::format("{} is accepted and does nothing: {}", name, flag->text));
        break;
      case FlagKind::refused:
        if (!value || !is_off(*flag, *value)) refuse(*flag, name);
        break;
      case FlagKind::used:
        given[std::string(flag_name(*flag))].push_back(value.value_or(""));
        break;
    }
  }
  for (const Flag& flag : flag_table()) {
    if (flag.kind != FlagKind::refused || flag.env.empty() || !takes(flag, command_)) continue;
    const char* value = std::getenv(std::string(flag.env).c_str());
    if (value && *value && !is_off(flag, value)) {
      refuse(flag, fmt::format("{}={} (environment)", flag.env, shorten(value)));
    }
  }
  if (help) return false;
  if (words.size() > positionals_.size()) {
    bad_use(fmt::format("{}: not expected; see lockstep {} --help",
                        shorten(words[positionals_.size()]), command_));
  }
  for (size_t i = 0; i < words.size(); ++i) *positionals_[i] = words[i];
  for (const Binding& binding : bindings_) apply(binding, given[std::string(binding.name)]);
  return true;
}

// The flag goes before its variable; of a flag given twice the last counts, unless it may be given
// again.
void Flags::apply(const Binding& binding, const std::vector<std::string>& values) {
  if (!values.empty()) {
    const size_t first = binding.repeats ? 0 : values.size() - 1;
    for (size_t i = first; i < values.size(); ++i) {
      const std::string name(shown_name(binding.name, command_));
      binding.set({values[i], name, fmt::format("{} {}", name, shorten(values[i])), false});
    }
    return;
  }
  if (binding.env.empty()) return;
  const char* value = std::getenv(std::string(binding.env).c_str());
  if (value && *value) {
    binding.set({value, fmt::format("{} (environment)", binding.env),
                 fmt::format("{}={} (environment)", binding.env, shorten(value)), true});
  }
}

Flags::Binding& Flags::bind(std::string_view name, Setter set) {
  const Flag* flag = find_flag(name, command_);
  if (!flag || flag->kind != FlagKind::used) {
    throw std::logic_error(fmt::format("flag table: no {} for {}", name, command_));
  }
  // For the help alone; parse() reads the arguments. CLI11's own reading lets a flag take every
  // word up to the next flag, and sees lists in values like "{}" and "[a,b]".
  app_.add_option_function<std::string>(std::string(flag_name(*flag)), [](const std::string&) {});
  return bindings_.emplace_back(Binding{flag_name(*flag), flag->env, std::move(set), false});
}

void Flags::text(std::string_view name, std::optional<std::string>& target) {
  bind(name, [&target](const Given& given) { target = given.value; });
}

void Flags::text(std::string_view name, std::optional<Given>& target) {
  bind(name, [&target](const Given& given) { target = given; });
}

void Flags::texts(std::string_view name, std::vector<std::string>& target) {
  bind(name, [&target](const Given& given) { target.push_back(given.value); }).repeats = true;
}

void Flags::integer(std::string_view name, std::optional<int64_t>& target, int64_t min,
                    int64_t max) {
  bind(name, [&target, min, max](const Given& given) {
    target = parse_integer(given.value);
    if (!target) bad_use(fmt::format("{}: not a whole number", given.shown));
    if (*target < min || *target > max) {
      bad_use(fmt::format("{}: out of range; give {} to {}", given.shown, min, max));
    }
  });
}

void Flags::integer_or(std::string_view word, std::string_view name, std::optional<int64_t>& target,
                       int64_t min, int64_t max) {
  bind(name, [&target, word, min, max](const Given& given) {
    target.reset();
    if (given.value == word) return;
    target = parse_integer(given.value);
    if (!target) bad_use(fmt::format("{}: neither a whole number nor {}", given.shown, word));
    if (*target < min || *target > max) {
      bad_use(fmt::format("{}: out of range; give {} to {}, or {}", given.shown, min, max, word));
    }
  });
}

void Flags::number(std::string_view name, std::optional<double>& target, double min, double max) {
  bind(name, [&target, min, max](const Given& given) { target = checked_number(given, min, max); });
}

void Flags::integers(std::string_view name, std::optional<std::vector<int64_t>>& target,
                     int64_t min, int64_t max, bool none) {
  bind(name, [&target, min, max, none](const Given& given) {
    const std::string_view value = given.value;
    target.emplace();
    if (none && value == "none") return;
    for (size_t begin = 0; begin <= value.size();) {
      const size_t end = std::min(value.find(',', begin), value.size());
      const std::optional<int64_t> number = parse_integer(value.substr(begin, end - begin));
      if (!number) {
        bad_use(fmt::format("{}: not a list of whole numbers with commas between them, as in 1,2,4",
                            given.shown));
      }
      if (*number < min || *number > max) {
        bad_use(
            fmt::format("{}: {} is out of range; give {} to {}", given.shown, *number, min, max));
      }
      if (target->size() == kMaxList) {
        bad_use(fmt::format("{}: more than {} numbers; give fewer", given.shown, kMaxList));
      }
      target->push_back(*number);
      begin = end + 1;
    }
  });
}

void Flags::number_or_none(std::string_view name, std::optional<double>& target, bool& given,
                           double min, double max) {
  bind(name, [&target, &given, min, max](const Given& value) {
    given = true;
    target.reset();
    if (!value.value.empty()) target = checked_number(value, min, max);
  });
}

void Flags::toggle(std::string_view name, bool& target) {
  const Flag* flag = find_flag(name, command_);
  if (!flag || !flag->value.empty()) {
    throw std::logic_error(fmt::format("flag table: no switch {} for {}", name, command_));
  }
  bind(name, [&target](const Given&) { target = true; });
}

void Flags::positional(std::string_view name, std::string_view help, std::string& target) {
  app_.add_option(std::string(name), target, std::string(help));
  positionals_.push_back(&target);
}

void Flags::describe(std::string_view description, std::string_view example) {
  app_.description(std::string(description));
  app_.footer(
      fmt::format("Example:\n  {}\n\nllama.cpp's other common flags are accepted with a note "
                  "or refused by name: docs/flags.md.\nExit codes: 0 ok, 1 the check failed, "
                  "2 bad use, 3 bad input file, 4 resource, 5 a negative control failed, "
                  "130 and 143 stopped by SIGINT and SIGTERM.",
                  example));
}

}  // namespace lockstep::app
