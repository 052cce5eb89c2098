#include "lab/log/line_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace lockstep::lab::log {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr std::string_view kMark = "\xEF\xBB\xBF";

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view why) {
  throw Error(ExitCode::bad_file, fmt::format("{}: {}", shorten(path.string()), why));
}

struct Magic {
  std::string_view bytes;
  std::string_view what;
};

constexpr Magic kMagics[] = {
    {"\x1F\x8B", "compressed by gzip; unpack it first (zcat FILE > server.log)"},
    {"\x28\xB5\x2F\xFD", "compressed by zstd; unpack it first (zstdcat FILE > server.log)"},
    {"\xFD\x37zXZ", "compressed by xz; unpack it first (xzcat FILE > server.log)"},
    {"BZh", "compressed by bzip2; unpack it first (bzcat FILE > server.log)"},
    {"PK\x03\x04", "a zip archive; unpack it first"},
    {"GGUF", "a model file and no log; see lockstep inspect"},
    {"\x7F"
     "ELF",
     "a program and no log"},
    {"SQLite format 3", "a database and no log"},
};

}  // namespace

std::string why_no_text(std::string_view bytes) {
  for (const Magic& magic : kMagics) {
    if (bytes.starts_with(magic.bytes)) return std::string(magic.what);
  }
  constexpr std::string_view kUtf16 =
      "UTF-16 text; convert it first (iconv -f UTF-16 -t UTF-8 FILE > server.log)";
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) return std::string(kUtf16);
  const size_t text = bytes.find_first_not_of('\0');
  if (text == std::string_view::npos) return "nothing but NUL bytes; there is no log in it";
  // A rotated log may begin with NULs; what comes then decides.
  const std::string_view sample = bytes.substr(text, 64 << 10);
  // Runs of NULs are holes that a crash or a rotation left; single ones are no text.
  constexpr size_t kHole = 64;
  size_t nul = 0, single_nul = 0, run = 0, other = 0;
  size_t nul_at[2] = {0, 0};
  for (size_t i = 0; i < sample.size(); ++i) {
    const auto byte = static_cast<unsigned char>(sample[i]);
    if (byte == 0) {
      ++nul;
      ++nul_at[i % 2];
      ++run;
      continue;
    }
    if (run < kHole) single_nul += run;
    run = 0;
    if (byte < 0x20 && !std::strchr("\t\n\v\f\r\b\x1B", byte)) ++other;
  }
  // Without a mark: every second byte is NUL, and nearly all NULs are at those places.
  if (sample.size() >= 16 && nul * 10 > sample.size() * 4 &&
      std::min(nul_at[0], nul_at[1]) * 20 < nul) {
    return std::string(kUtf16);
  }
  constexpr size_t kFew = 16;  // damaged bytes of a short log are no binary
  if (single_nul + other > kFew && (single_nul + other) * 25 > sample.size())
    return "binary; give the server's log as text";
  return "";
}

std::string_view LineCutter::skip_start(std::string_view bytes) {
  while (!bytes.empty()) {
    if (mark_.empty() && bytes[0] == '\0') {
      bytes.remove_prefix(1);
      continue;
    }
    if (bytes[0] == kMark[mark_.size()]) {
      mark_ += bytes[0];
      bytes.remove_prefix(1);
      if (mark_.size() < kMark.size()) continue;
      counts_.byte_order_mark = true;
      mark_.clear();
    }
    at_start_ = false;
    if (!mark_.empty()) keep(mark_);  // the beginning of a mark, and no mark
    return bytes;
  }
  return bytes;
}

void LineCutter::keep(std::string_view part) {
  const size_t room = kMaxLine - std::min(kMaxLine, carry_.size());
  if (part.size() > room) cut_ = true;
  carry_ += part.substr(0, room);
}

std::string_view LineCutter::finished(std::string_view line) {
  ++counts_.lines;
  counts_.cut += cut_;
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
    ++counts_.crlf;
  }
  if (line.find('\0') != std::string_view::npos) ++counts_.with_nul;
  return line;
}

FilePieces::FilePieces(const std::filesystem::path& path) : path_(path), buffer_(kPiece) {
  file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file_ < 0) fail(path, std::strerror(errno));
  struct stat status {};
  if (::fstat(file_, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(file_);
    fail(path, "is a directory; give a log file");
  }
}

FilePieces::~FilePieces() {
  if (file_ >= 0) ::close(file_);
}

std::string_view FilePieces::next() {
  // A pipe gives little at a time; the first piece should be long enough to judge.
  size_t size = 0;
  while (size < buffer_.size()) {
    const ssize_t n = ::read(file_, buffer_.data() + size, buffer_.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, std::strerror(errno));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  const std::string_view piece(buffer_.data(), size);
  if (first_) {
    first_ = false;
    if (piece.empty()) fail(path_, "is empty");
    const std::string why = why_no_text(piece);
    if (!why.empty()) fail(path_, why);
  }
  return piece;
}

}  // namespace lockstep::lab::log
