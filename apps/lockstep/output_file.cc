#include "output_file.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/temporary_file.h"
#include "cli.h"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  if (fs::equivalent(a, b, error)) return true;
  // One that isn't there yet is known by where it would be.
  std::error_code error_a, error_b;
  const fs::path whole_a = fs::weakly_canonical(a, error_a),
                 whole_b = fs::weakly_canonical(b, error_b);
  return !error_a && !error_b && whole_a == whole_b;
}

bool is_ledger(const std::string& path) {
  constexpr std::string_view kMark = "SQLite format 3";
  char begin[kMark.size()] = {};
  return fs::is_regular_file(path) &&
         std::ifstream(path, std::ios::binary).read(begin, sizeof begin) &&
         std::string_view(begin, sizeof begin) == kMark;
}

}  // namespace

void check_outputs(std::initializer_list<OutputFile> outputs, std::span<const std::string> inputs) {
  for (const OutputFile& output : outputs) {
    if (!output.path) continue;
    const auto refuse = [&](std::string_view why) {
      bad_use(fmt::format("{} {}: {}; name another", output.flag, shorten(*output.path), why));
    };
    if (output.path->empty())
      bad_use(fmt::format("{}: the name is empty; name a file", output.flag));
    for (const std::string& input : inputs) {
      if (same_file(*output.path, input)) refuse("is what is read here");
    }
    if (is_ledger(*output.path)) refuse("is a database");
    for (const OutputFile& other : outputs) {
      if (&other != &output && other.path && same_file(*output.path, *other.path)) {
        refuse(fmt::format("is the file of {}, too", other.flag));
      }
    }
  }
}

void write_file(const std::string& path, std::string_view text) {
  TemporaryFile file(path, text.size());
  std::memcpy(file.bytes().data(), text.data(), text.size());
  file.keep();
}

}  // namespace lockstep::app
