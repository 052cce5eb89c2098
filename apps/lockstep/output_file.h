// Files that a command writes beside standard output.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::app {

struct OutputFile {
  std::string_view flag;  // "--html"
  const std::optional<std::string>& path;
};

// Before anything is read: throws Error(bad_use), naming the flag, for an output that is an input,
// a ledger, another output, or has no name. Files are compared, not their names' spelling. inputs
// that are no files (a connection string) are no output's.
void check_outputs(std::initializer_list<OutputFile> outputs, std::span<const std::string> inputs);

// The file appears whole or not at all. Throws Error(resource).
void write_file(const std::string& path, std::string_view text);

}  // namespace lockstep::app
