// Files that no reader may accept, each with one thing wrong. The unit tests read them from memory;
// make_hostile writes them to disk for the tests of the command line.
#pragma once

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep::test {

struct HostileFile {
  std::string name;  // letters, digits and _: a test's name, and a file's
  std::string what;  // what is wrong, for people
  std::vector<std::byte> bytes;
  std::vector<std::string> expect;  // parts of the one-line message: what, and where
};
inline std::ostream& operator<<(std::ostream& out, const HostileFile& file) {
  return out << file.what;
}

// A small file that every reader must accept: four keys, two tensors.
std::vector<std::byte> sound_gguf();

// Broken as a container: framing, lengths, counts, types, offsets.
std::vector<HostileFile> hostile_containers();

}  // namespace lockstep::test
