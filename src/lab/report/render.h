// A page as HTML, Markdown and JSON. The same page gives the same bytes: no time, no path of its
// own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "lab/report/page.h"

namespace lockstep::lab::report {

// What html_text.h does for HTML, for a line of Markdown (CommonMark, and GitHub's tables): nothing in it begins a list, a
// heading, a table cell, emphasis, code, a link or HTML.
std::string markdown_text(std::string_view text, size_t max_bytes = 2000);

// One file that needs no other and asks no network: Chart.js and the page's script are in it, and a
// Content-Security-Policy names the hashes of these scripts and refuses everything else. The
// figures of every plot stand in tables too.
std::string render_html(const Page& page);
std::string render_markdown(const Page& page);

// lockstep.lab.report/1 (docs/lab-report.md).
nlohmann::ordered_json page_json(const Page& page);

}  // namespace lockstep::lab::report
