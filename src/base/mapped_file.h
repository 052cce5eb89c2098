// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace lockstep {

class MappedFile {
 public:
  // Throws Error(bad_file) naming the path and the system's reason; directories and empty files
  // too.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Tells the system that the pages inside `bytes`, which must lie in a MappedFile, needn't stay in
// this process's memory; they come back when they are touched.
void release_mapped(std::span<const std::byte> bytes);

}  // namespace lockstep
