// The header of one GGUF file: metadata and tensor table, every byte of it checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/file.h"

namespace lockstep::gguf {

inline constexpr uint64_t kDefaultAlignment = 32;
// Everything kept from the headers of all parts. The largest real vocabularies need some 30 MiB;
// the limit is for sparse files, where a lie about a length has bytes to point at.
inline constexpr uint64_t kMaxHeaderMemory = uint64_t{1} << 30;
// What to do about a file that breaks the format's rules.
inline constexpr std::string_view kMalformed = "the file is malformed, convert it again";

// A name from a file, fit to be quoted in a message.
std::string in_quotes(std::string_view text);

struct Part {
  uint32_t version = 0;
  uint64_t alignment = kDefaultAlignment;
  std::vector<std::pair<std::string, Value>> metadata;  // keys may repeat
  std::vector<Tensor> tensors;                          // names may repeat; data lies in `bytes`
};

// Every read is bounded by the bytes that are left, every allocation by memory_left, which all
// parts of a set share. Throws Error(bad_file): name, place, what, what to do.
Part parse_part(std::span<const std::byte> bytes, const std::string& name, uint64_t& memory_left);

}  // namespace lockstep::gguf
