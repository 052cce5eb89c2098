#include <fmt/format.h>

#include <span>

#include "base/error.h"
#include "base/sha256.h"
#include "lab/html/html_text.h"
#include "lab/report/assets.h"
#include "lab/report/render.h"

namespace lockstep::lab::report {
namespace {

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? std::to_integer<uint32_t>(bytes[i + j]) : 0);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += i + j <= bytes.size() ? kDigits[group >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

// What a Content-Security-Policy calls a script by.
std::string hash_source(std::string_view script) {
  const auto digest = sha256(std::as_bytes(std::span(script)));
  return fmt::format("'sha256-{}'", base64(std::as_bytes(std::span(digest))));
}

// JSON inside a script element: no "<" may stand in it, whatever the strings hold.
std::string script_json(const nlohmann::ordered_json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', true)) {
    switch (c) {
      case '<':
        out += "\\u003c";
        break;
      case '>':
        out += "\\u003e";
        break;
      case '&':
        out += "\\u0026";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string table_html(const Table& table) {
  std::string out = "<div class=\"scroll\"><table>";
  if (!table.caption.empty()) out += fmt::format("<caption>{}</caption>", html_text(table.caption));
  out += "<thead><tr>";
  for (const Column& column : table.columns) {
    out += fmt::format("<th scope=\"col\"{}>{}</th>", column.number ? " class=\"n\"" : "",
                       html_text(column.name));
  }
  out += "</tr></thead>\n<tbody>";
  for (const std::vector<std::string>& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += fmt::format("<td{}>{}</td>",
                         i < table.columns.size() && table.columns[i].number ? " class=\"n\"" : "",
                         html_text(row[i]));
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
  if (table.left_out > 0) {
    out += fmt::format("<p class=\"note\">{} more rows are not shown.</p>\n", table.left_out);
  }
  return out;
}

// Room for what is drawn: a line an effect, a fixed height for the others.
int plot_height(const Plot& plot) {
  if (const auto* effects = std::get_if<EffectPlot>(&plot)) {
    return 90 + 34 * static_cast<int>(std::min<size_t>(effects->effects.size(), 60));
  }
  return 340;
}

std::string section_html(const Section& section, size_t index) {
  std::string out =
      fmt::format("<section id=\"s{}\">\n<h2>{}</h2>\n", index + 1, html_text(section.heading));
  for (const std::string& paragraph : section.paragraphs) {
    out += fmt::format("<p>{}</p>\n", html_text(paragraph, 8000));
  }
  if (section.plot) {
    out += fmt::format(
        "<figure>\n<div class=\"plot\" style=\"height:{}px\"><canvas data-section=\"{}\" "
        "role=\"img\" aria-label=\"{}\"></canvas></div>\n<figcaption>{}</figcaption>\n</figure>\n",
        plot_height(*section.plot), index, html_text(section.heading),
        html_text(section.plot_caption));
  }
  for (const Table& table : section.tables) out += table_html(table);
  for (const std::string& note : section.notes) {
    out += fmt::format("<p class=\"note\">{}</p>\n", html_text(note, 8000));
  }
  return out + "</section>\n";
}

}  // namespace

std::string render_html(const Page& page) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:; script-src {} {}\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<header>\n<h1>{}</h1>\n",
      hash_source(kChartJs), hash_source(kPageJs), html_text(page.title), kPageCss,
      html_text(page.title));
  if (!page.findings.empty()) {
    out += "<ul class=\"findings\">\n";
    for (const std::string& finding : page.findings) {
      out += fmt::format("<li>{}</li>\n", html_text(finding, 8000));
    }
    out += "</ul>\n";
  }
  out +=
      "<noscript><p class=\"note\">Plots need scripts; the tables hold the same figures.</p>"
      "</noscript>\n</header>\n<main>\n";
  for (size_t i = 0; i < page.sections.size(); ++i) out += section_html(page.sections[i], i);
  Table sources;
  sources.columns = {{"read", false}, {"as", false}, {"bytes", true}, {"SHA-256", false}};
  for (const Source& source : page.sources) {
    sources.rows.push_back({source.name, source.kind,
                            source.sha256.empty() ? "-" : fmt::format("{}", source.bytes),
                            source.sha256.empty() ? "-" : source.sha256});
  }
  out += "<section id=\"sources\">\n<h2>Sources</h2>\n" + table_html(sources) +
         "</section>\n</main>\n";
  nlohmann::ordered_json plots = nlohmann::ordered_json::array();
  auto whole = page_json(page);
  for (auto& section : whole["sections"]) plots.push_back(std::move(section["plot"]));
  out += fmt::format("<script type=\"application/json\" id=\"plots\">{}</script>\n",
                     script_json(plots));
  out += fmt::format("<script>{}</script>\n<script>{}</script>\n</body>\n</html>\n", kChartJs,
                     kPageJs);
  return out;
}

}  // namespace lockstep::lab::report
