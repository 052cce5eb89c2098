// What a report says, before anybody decides how it looks: sections of paragraphs, one plot and
// tables. Every text may hold whatever a file held; the renderers escape it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lab/stats/distributions.h"

namespace lockstep::lab::report {

// Effects against a control, with their intervals, in per cent.
struct Effect {
  std::string label, verdict;
  double estimate = 0;
  stats::Interval interval;    // either side may be infinite
  double level = 0;            // that the interval attains, 0 to 1
  std::vector<double> values;  // what it was computed from: one a block, or empty
};
struct EffectPlot {
  std::vector<Effect> effects;
  std::optional<double>
      provable;  // per cent: the smallest effect that the noise floor lets through
};

// One level a server start (or a row), in time.
struct SeriesPlot {
  std::string unit;
  std::vector<std::string> names;
  std::vector<double> values;
  std::vector<bool> outlier;
  // Between change points: places first to last, and the median there.
  struct Level {
    size_t first = 0, last = 0;
    double value = 0;
  };
  std::vector<Level> levels;
};

// The share of verify steps that accepted the token at each place of a draft.
struct PositionPlot {
  struct Trace {
    std::string label;
    std::vector<double> shares;  // each 0 to 1
  };
  std::vector<Trace> traces;
};

// Claimed records in their order.
struct LadderPlot {
  std::string unit;
  struct Rung {
    std::string label;
    double x = 0, value = 0;
  };
  std::vector<Rung> rungs;
  // Half the difference from which on two single rows differ by more than noise: two bars of this
  // half width overlap exactly where the step between them can't be told from noise. 0: not known.
  double half_width = 0;
  struct Point {
    double x = 0, value = 0;
  };
  std::vector<Point> others;   // rows beside which the ladder was climbed, in time
  int64_t others_outside = 0;  // of them, too far from the ladder to be drawn
};

using Plot = std::variant<EffectPlot, SeriesPlot, PositionPlot, LadderPlot>;

struct Column {
  std::string name;
  bool number = false;
};
struct Table {
  std::string caption;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // each as wide as columns
  int64_t left_out = 0;                        // rows that are not shown
};

struct Section {
  std::string heading;
  std::vector<std::string> paragraphs;
  std::optional<Plot> plot;
  std::string plot_caption;  // how to read it
  std::vector<Table> tables;
  std::vector<std::string> notes;
};

// A file or ledger that was read.
struct Source {
  std::string name, kind, sha256;  // sha256 "" for a ledger, whose head is in `kind`
  int64_t bytes = 0;
};

struct Page {
  std::string title;
  std::vector<std::string> findings;  // the page in a few lines
  std::vector<Section> sections;
  std::vector<Source> sources;
};

}  // namespace lockstep::lab::report
