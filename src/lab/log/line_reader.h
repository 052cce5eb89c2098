// Lines of a log file of any size, in a fixed amount of memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lab::log {

// What is kept of a line; the rest of a longer one is skipped and counted. The longest line that
// the parser reads (a draft line with 64 positions) has under 1,000 bytes.
constexpr size_t kMaxLine = 64 << 10;

// What was odd about a file's lines.
struct LineCounts {
  int64_t bytes = 0;
  int64_t lines = 0;
  int64_t cut = 0;       // longer than kMaxLine
  int64_t with_nul = 0;  // among what was kept
  int64_t crlf = 0;      // ended in \r\n
  bool byte_order_mark = false;
  bool unfinished = false;  // the last line has no newline
};

// Cuts bytes into lines. Bytes come in pieces of any size (feed), the last line by finish(). CR
// before LF, a UTF-8 byte-order mark, and a run of NULs before the first byte (a log that was
// rotated by truncation while its writer stayed at its place) are no part of a line.
class LineCutter {
 public:
  // each: called with every line, valid until it returns.
  template <typename Each>
  void feed(std::string_view bytes, Each&& each) {
    counts_.bytes += static_cast<int64_t>(bytes.size());
    if (at_start_) bytes = skip_start(bytes);
    while (!bytes.empty()) {
      const size_t end = bytes.find('\n');
      if (end == std::string_view::npos) {
        keep(bytes);
        return;
      }
      if (carry_.empty() && !cut_ && end <= kMaxLine) {
        each(finished(bytes.substr(0, end)));
      } else {
        keep(bytes.substr(0, end));
        each(finished(carry_));
        carry_.clear();
        cut_ = false;
      }
      bytes.remove_prefix(end + 1);
    }
  }
  template <typename Each>
  void finish(Each&& each) {
    if (carry_.empty() && !cut_) return;
    counts_.unfinished = true;
    each(finished(carry_));
    carry_.clear();
    cut_ = false;
  }
  const LineCounts& counts() const { return counts_; }

 private:
  std::string_view skip_start(std::string_view bytes);
  std::string_view finished(std::string_view line);
  void keep(std::string_view part);

  LineCounts counts_;
  std::string carry_;  // the beginning of a line that a piece ended in
  std::string mark_;   // of a byte-order mark, what was seen
  bool at_start_ = true;
  bool cut_ = false;  // the line in carry_ is longer than what was kept
};

// Why the first bytes of a file cannot be a log's text, with what to do: "UTF-16 text; convert it
// with ..."; "" where they can.
std::string why_no_text(std::string_view first_bytes);

// Reads a file in pieces and hands its lines to `each`. Throws Error(bad_file) naming the path:
// cannot be read, a directory, empty, UTF-16, binary.
template <typename Each>
LineCounts read_lines(const std::filesystem::path& path, Each&& each);

// The reading behind read_lines: pieces of a file, into one buffer.
class FilePieces {
 public:
  explicit FilePieces(const std::filesystem::path& path);  // throws as read_lines says
  ~FilePieces();
  FilePieces(const FilePieces&) = delete;
  FilePieces& operator=(const FilePieces&) = delete;
  // The next piece, empty at the end. Throws Error(bad_file).
  std::string_view next();

 private:
  std::filesystem::path path_;
  int file_ = -1;
  bool first_ = true;
  std::vector<char> buffer_;
};

template <typename Each>
LineCounts read_lines(const std::filesystem::path& path, Each&& each) {
  FilePieces pieces(path);
  LineCutter cutter;
  for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
    cutter.feed(piece, each);
  }
  cutter.finish(each);
  return cutter.counts();
}

}  // namespace lockstep::lab::log
