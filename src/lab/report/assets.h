// The files that go into every page, compiled in (CMakeLists.txt makes the definitions).
#pragma once

#include <string_view>

namespace lockstep::lab::report {

extern const std::string_view kChartJs;  // Chart.js, with its licence's notice
extern const std::string_view kPageJs;   // page.js
extern const std::string_view kPageCss;  // page.css

}  // namespace lockstep::lab::report
