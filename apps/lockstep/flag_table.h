// Every flag that any command knows, in one table: what the help, docs/flags.md and the parser say
// comes from here.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

enum class FlagKind : uint8_t {
  used,     // does here what it does in llama.cpp (or is Lockstep's own)
  noted,    // accepted with a note: it means nothing here, and the answer stays what it is
  refused,  // would change the answer, or asks for something that is not there
};

struct Flag {
  std::string_view names;  // separated by spaces; the first long one is the flag's name
  std::string_view value;  // what stands for the value in help; "" takes none; "[...]" may have one
  std::string_view env;    // environment variable that stands for it, or ""
  FlagKind kind;
  std::string_view commands;  // those that take it; "": all do
  std::string_view text;  // used: help; noted: why it means nothing; refused: what to do instead
  std::string_view off = "";  // refused: values that switch the feature off and are accepted
};

std::span<const Flag> flag_table();

// The first long name, dashes included: "--ctx-size".
std::string_view flag_name(const Flag& flag);
std::vector<std::string_view> split_names(std::string_view names);

// The table as the Markdown of docs/flags.md.
std::string flags_markdown();

}  // namespace lockstep::app
