#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

int64_t written_ns(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const auto fail = [&](const std::string& why) {
    throw Error(ExitCode::bad_file, path_.string() + ": " + why);
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(std::string("cannot open: ") + std::strerror(errno) + "; check the path");
  struct stat info {};
  std::string problem;
  if (::fstat(fd, &info) != 0) {
    problem = std::string("cannot read its size: ") + std::strerror(errno);
  } else if (!S_ISREG(info.st_mode)) {
    problem = "is not a regular file; name the model file itself";
  } else if (info.st_size == 0) {
    problem = "is empty; fetch it again";
  } else {
    size_ = static_cast<size_t>(info.st_size);
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) {
      problem = std::string("cannot be mapped: ") + std::strerror(errno);
    } else {
      data_ = static_cast<const std::byte*>(address);
    }
  }
  if (!problem.empty()) {
    ::close(fd);
    fail(problem);
  }
  file_ = fd;
  written_ns_ = written_ns(info);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  if (file_ >= 0) ::close(file_);
}

bool MappedFile::changed() const {
  struct stat info {};
  return ::fstat(file_, &info) != 0 || static_cast<size_t>(info.st_size) != size_ ||
         written_ns(info) != written_ns_;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      file_(std::exchange(other.file_, -1)),
      written_ns_(other.written_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(file_, other.file_);
  std::swap(written_ns_, other.written_ns_);
  return *this;
}

void release_mapped(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace lockstep
