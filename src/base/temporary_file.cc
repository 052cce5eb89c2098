#include "base/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace lockstep {
namespace {

// The file that a name stands for: a link is written through, never replaced.
std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int kLinks = 40;  // as many as Linux follows
  std::error_code error;
  for (int i = 0; i < kLinks && std::filesystem::is_symlink(path, error); ++i) {
    const std::filesystem::path to = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / to;  // an absolute one stands alone
  }
  return path;
}

// Removes a named temporary file when a signal ends the program. Needed only where the file system
// has no unnamed files, and against SIGKILL it can do nothing.
class RemoveOnSignal {
 public:
  explicit RemoveOnSignal(const std::filesystem::path& path) {
    const std::string& name = path.native();
    if (name.size() >= sizeof name_) return;
    std::memcpy(name_, name.c_str(), name.size() + 1);
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      if (::sigaction(kSignals[i], nullptr, &before_[i]) != 0) continue;
      // Whoever ignores a signal or handles it has decided already.
      if (before_[i].sa_handler != SIG_DFL) continue;
      struct sigaction action {};
      action.sa_handler = remove;
      action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
      installed_[i] = ::sigaction(kSignals[i], &action, nullptr) == 0;
    }
  }
  ~RemoveOnSignal() {
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      if (installed_[i]) ::sigaction(kSignals[i], &before_[i], nullptr);
    }
  }
  RemoveOnSignal(const RemoveOnSignal&) = delete;
  RemoveOnSignal& operator=(const RemoveOnSignal&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

  static void remove(int signal) {
    ::unlink(name_);
    ::raise(signal);  // its default action again
  }

  inline static char name_[PATH_MAX];
  struct sigaction before_[std::size(kSignals)]{};
  bool installed_[std::size(kSignals)] = {};
};

// No signal ends the program in here.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct TemporaryFile::Impl {
  Impl(const std::filesystem::path& target, uint64_t size)
      : target_(behind_links(target)), size_(size) {
    if (target.empty()) throw Error(ExitCode::bad_use, "no name for the file to write");
    const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
    std::error_code unknown;
    if (!std::filesystem::is_directory(folder, unknown)) {
      throw Error(ExitCode::resource,
                  fmt::format("{}: cannot be written: {} is no directory that can be seen; make it "
                              "first",
                              target_.string(), folder.string()));
    }
    // Renaming needs no right on the file itself, so it is asked for here.
    if (::access(target_.c_str(), F_OK) == 0 &&
        ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0) {
      fail(errno);
    }
    // Asked first: where the file system cannot reserve space, posix_fallocate writes all of it.
    const auto space = std::filesystem::space(folder, unknown);
    if (!unknown && space.available < size) fail(ENOSPC);
    path_ = target_;
    path_ += fmt::format(".partial-{}", ::getpid());
    fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
      remove_on_signal_.emplace(path_);
      fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      named_ = fd_ >= 0;
    }
    if (fd_ < 0) fail(errno);
    // Space is taken now: a full disk is an error here, and not a bus error in the middle of a
    // fill.
    if (const int error = ::posix_fallocate(fd_, 0, static_cast<off_t>(size_)); error != 0)
      abandon(error);
    void* address = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (address == MAP_FAILED) abandon(errno);
    data_ = static_cast<std::byte*>(address);
  }
  ~Impl() { release(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::span<std::byte> bytes() { return {data_, size_}; }

  void keep() {
    // linkat cannot replace a file and rename can, so there is a second name for a moment, in which
    // only SIGKILL could leave it; the file is whole by then.
    const SignalsBlocked blocked;
    if (!named_) {
      const std::string open_file = fmt::format("/proc/self/fd/{}", fd_);
      if (::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, target_.c_str(), AT_SYMLINK_FOLLOW) == 0)
        return;
      if (errno != EEXIST) fail(errno);
      if (::linkat(AT_FDCWD, open_file.c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0)
        fail(errno);
      named_ = true;
    }
    if (::rename(path_.c_str(), target_.c_str()) != 0) fail(errno);
    named_ = false;
  }

 private:
  [[noreturn]] void fail(int error) const {
    const bool no_room = error == ENOSPC || error == EFBIG || error == EDQUOT;
    throw Error(ExitCode::resource,
                fmt::format("{}: cannot be written: {}{}", target_.string(), std::strerror(error),
                            no_room ? fmt::format("; it needs {} bytes of disk", size_)
                                    : "; name another file, or change its rights"));
  }
  [[noreturn]] void abandon(int error) {
    release();
    fail(error);
  }
  void release() {
    if (data_) ::munmap(data_, size_);
    if (fd_ >= 0) ::close(fd_);
    if (named_) ::unlink(path_.c_str());
    data_ = nullptr;
    fd_ = -1;
    named_ = false;
  }

  std::filesystem::path target_, path_;
  uint64_t size_;
  int fd_ = -1;
  std::byte* data_ = nullptr;
  bool named_ = false;  // as path_
  std::optional<RemoveOnSignal> remove_on_signal_;
};

TemporaryFile::TemporaryFile(const std::filesystem::path& target, uint64_t size)
    : impl_(std::make_unique<Impl>(target, size)) {}
TemporaryFile::~TemporaryFile() = default;

std::span<std::byte> TemporaryFile::bytes() {
  return impl_->bytes();
}
void TemporaryFile::keep() {
  impl_->keep();
}

}  // namespace lockstep
