#include <fmt/format.h>

#include <cctype>

#include "base/error.h"
#include "lab/report/render.h"
#include "lab/report/text_plot.h"

namespace lockstep::lab::report {
namespace {

bool word(std::string_view text, size_t i) {
  return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])) != 0;
}

std::string table_markdown(const Table& table) {
  std::string out;
  if (!table.caption.empty()) out += markdown_text(table.caption) + "\n\n";
  out += "|";
  for (const Column& column : table.columns) out += " " + markdown_text(column.name) + " |";
  out += "\n|";
  for (const Column& column : table.columns) out += column.number ? " ---: |" : " --- |";
  out += "\n";
  for (const std::vector<std::string>& row : table.rows) {
    out += "|";
    for (const std::string& cell : row) out += " " + markdown_text(cell) + " |";
    out += "\n";
  }
  if (table.left_out > 0) out += fmt::format("\n{} more rows are not shown.\n", table.left_out);
  return out + "\n";
}

}  // namespace

std::string markdown_text(std::string_view text, size_t max_bytes) {
  const std::string clean = escape(text, max_bytes);
  std::string out;
  for (size_t i = 0; i < clean.size(); ++i) {
    const char c = clean[i];
    switch (c) {
      case '&':
        out += "&amp;";
        continue;
      case '<':
        out += "&lt;";
        continue;
      case '>':
        out += "&gt;";
        continue;
      case '\\':
      case '`':
      case '*':
      case '[':
      case ']':
      case '|':
      case '~':
      case '#':
      case '!':
        out += '\\';
        break;
      case '_':  // inside a word it means nothing
        if (!(i > 0 && word(clean, i - 1) && word(clean, i + 1))) out += '\\';
        break;
      case '-':
      case '+':
      case '=':  // a list or a heading's line, where it begins a line
        if (i == 0) out += '\\';
        break;
      case '.':
      case ')':  // "1." begins a list
        if (i > 0 && clean.find_first_not_of("0123456789") == i &&
            (i + 1 == clean.size() || clean[i + 1] == ' ')) {
          out += '\\';
        }
        break;
      default:
        break;
    }
    out += c;
  }
  return out;
}

std::string render_markdown(const Page& page) {
  std::string out = "# " + markdown_text(page.title) + "\n\n";
  for (const std::string& finding : page.findings)
    out += "- " + markdown_text(finding, 8000) + "\n";
  for (const Section& section : page.sections) {
    out += "\n## " + markdown_text(section.heading) + "\n\n";
    for (const std::string& paragraph : section.paragraphs) {
      out += markdown_text(paragraph, 8000) + "\n\n";
    }
    if (section.plot) {
      out += "```\n";
      for (const std::string& line : text_plot(*section.plot)) out += line + "\n";
      out += "```\n\n";
      if (!section.plot_caption.empty()) out += markdown_text(section.plot_caption) + "\n\n";
    }
    for (const Table& table : section.tables) out += table_markdown(table);
    for (const std::string& note : section.notes) out += markdown_text(note, 8000) + "\n\n";
  }
  out += "\n## Sources\n\n";
  for (const Source& source : page.sources) {
    out += fmt::format("- {}: {}", markdown_text(source.name), markdown_text(source.kind));
    if (!source.sha256.empty()) {
      out += fmt::format(", {} bytes, SHA-256 {}", source.bytes, markdown_text(source.sha256));
    }
    out += "\n";
  }
  return out;
}

}  // namespace lockstep::lab::report
