// Whole files through the line cutter and the parser.
#include "lab/log/analysis.h"
#include "lab/log/line_reader.h"
#include "lab/log/parser.h"

namespace lockstep::lab::log {
namespace {

void add_file(Collector& collector, const Parser& parser, std::string path,
              const LineCounts& lines) {
  FileFacts facts;
  facts.path = std::move(path);
  facts.lines = lines;
  facts.used = parser.used();
  facts.garbled = parser.garbled();
  facts.garbled_lines = parser.garbled_lines();
  collector.add_file(std::move(facts));
}

}  // namespace

Analysis read_logs(std::span<const std::filesystem::path> files, void (*progress)(int64_t bytes)) {
  Collector collector;
  Parser parser(collector);
  for (const std::filesystem::path& path : files) {
    parser.begin_file();
    FilePieces pieces(path);
    LineCutter cutter;
    const auto each = [&parser](std::string_view line) { parser.line(line); };
    for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      cutter.feed(piece, each);
      if (progress) progress(cutter.counts().bytes);
    }
    cutter.finish(each);
    parser.end_file();
    add_file(collector, parser, path.string(), cutter.counts());
  }
  return collector.finish();
}

Analysis read_log_text(std::string_view text, std::string name) {
  Collector collector;
  Parser parser(collector);
  parser.begin_file();
  LineCutter cutter;
  const auto each = [&parser](std::string_view line) { parser.line(line); };
  cutter.feed(text, each);
  cutter.finish(each);
  parser.end_file();
  add_file(collector, parser, std::move(name), cutter.counts());
  return collector.finish();
}

}  // namespace lockstep::lab::log
