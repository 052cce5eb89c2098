// Files that appear whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace lockstep {

// A file of a known size, mapped for writing, that disappears unless it is kept. It has no name
// until then, so that not even SIGKILL leaves a part of it (where the file system has no unnamed
// files, all but SIGKILL).
class TemporaryFile {
 public:
  // size >= 1. Throws Error(resource), with path and reason, where target cannot be written or
  // there is no room for size bytes. A link is written through; a file that may not be written is
  // not replaced.
  TemporaryFile(const std::filesystem::path& target, uint64_t size);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::span<std::byte> bytes();
  // Gives it its name. Throws Error(resource).
  void keep();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
