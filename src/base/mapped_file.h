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
  // Whether the file was written to or cut since it was mapped. A file put in its place under the
  // same name doesn't matter: the mapping keeps the old one.
  bool changed() const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int file_ = -1;           // kept open for changed()
  int64_t written_ns_ = 0;  // when it was last written to, at mapping
};

// Tells the system that the pages inside `bytes`, which must lie in a MappedFile, needn't stay in
// this process's memory; they come back when they are touched.
void release_mapped(std::span<const std::byte> bytes);

}  // namespace lockstep
