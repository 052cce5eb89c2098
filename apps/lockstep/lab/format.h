// How the lab's commands print log ratios and intervals.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "lab/stats/distributions.h"
#include "lab/stats/effect.h"
#include "output.h"

namespace lockstep::app {

// "+1.02 %" of a log ratio; "any" where it is infinite.
inline std::string percent_text(double log_ratio) {
  return std::isfinite(log_ratio) ? fmt::format("{:+.2f} %", lab::stats::percent(log_ratio))
                                  : "any";
}
// A size rather than a change: "0.92 %".
inline std::string size_text(double log_ratio) {
  return std::isfinite(log_ratio) ? fmt::format("{:.2f} %", lab::stats::percent(log_ratio)) : "-";
}
inline std::string interval_text(lab::stats::Interval interval) {
  return fmt::format("[{}, {}]", percent_text(interval.low), percent_text(interval.high));
}
// JSON has no infinity: null.
inline Json number_json(double x) {
  return std::isfinite(x) ? Json(x) : Json(nullptr);
}
inline Json percent_json(double log_ratio) {
  return std::isfinite(log_ratio) ? number_json(lab::stats::percent(log_ratio)) : Json(nullptr);
}
inline Json interval_json(lab::stats::Interval interval) {
  return Json::array({percent_json(interval.low), percent_json(interval.high)});
}

}  // namespace lockstep::app
