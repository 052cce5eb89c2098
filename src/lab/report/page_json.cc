#include <cmath>

#include "base/error.h"
#include "lab/report/render.h"

namespace lockstep::lab::report {
namespace {

using Json = nlohmann::ordered_json;

// Texts are bytes of files: what isn't UTF-8, and what a terminal obeys, is escaped.
std::string clean(const std::string& text) {
  return escape(text, 2000);
}
Json texts(const std::vector<std::string>& list) {
  Json out = Json::array();
  for (const std::string& text : list) out.push_back(clean(text));
  return out;
}
// JSON has no infinity: null.
Json number(double x) {
  return std::isfinite(x) ? Json(x) : Json(nullptr);
}
Json numbers(const std::vector<double>& list) {
  Json out = Json::array();
  for (const double x : list) out.push_back(number(x));
  return out;
}

Json plot_json(const EffectPlot& plot) {
  Json effects = Json::array();
  for (const Effect& effect : plot.effects) {
    effects.push_back({{"label", clean(effect.label)},
                       {"verdict", clean(effect.verdict)},
                       {"percent", number(effect.estimate)},
                       {"low", number(effect.interval.low)},
                       {"high", number(effect.interval.high)},
                       {"level", effect.level},
                       {"values", numbers(effect.values)}});
  }
  return {{"kind", "effects"},
          {"effects", std::move(effects)},
          {"provable_percent", plot.provable ? number(*plot.provable) : Json(nullptr)}};
}

Json plot_json(const SeriesPlot& plot) {
  Json levels = Json::array();
  for (const SeriesPlot::Level& level : plot.levels) {
    levels.push_back(
        {{"first", level.first}, {"last", level.last}, {"value", number(level.value)}});
  }
  return {{"kind", "series"},           {"unit", clean(plot.unit)},
          {"names", texts(plot.names)}, {"values", numbers(plot.values)},
          {"outlier", plot.outlier},    {"levels", std::move(levels)}};
}

Json plot_json(const PositionPlot& plot) {
  Json traces = Json::array();
  for (const PositionPlot::Trace& trace : plot.traces) {
    traces.push_back({{"label", clean(trace.label)}, {"shares", numbers(trace.shares)}});
  }
  return {{"kind", "positions"}, {"traces", std::move(traces)}};
}

Json plot_json(const LadderPlot& plot) {
  Json rungs = Json::array(), others = Json::array();
  for (const LadderPlot::Rung& rung : plot.rungs) {
    rungs.push_back(
        {{"label", clean(rung.label)}, {"x", number(rung.x)}, {"value", number(rung.value)}});
  }
  for (const LadderPlot::Point& point : plot.others) {
    others.push_back({number(point.x), number(point.value)});
  }
  return {{"kind", "ladder"},
          {"unit", clean(plot.unit)},
          {"rungs", std::move(rungs)},
          {"half_width", number(plot.half_width)},
          {"others", std::move(others)},
          {"others_outside", plot.others_outside}};
}

Json table_json(const Table& table) {
  Json columns = Json::array(), rows = Json::array();
  for (const Column& column : table.columns) columns.push_back(clean(column.name));
  for (const std::vector<std::string>& row : table.rows) rows.push_back(texts(row));
  return {{"caption", clean(table.caption)},
          {"columns", std::move(columns)},
          {"rows", std::move(rows)},
          {"left_out", table.left_out}};
}

}  // namespace

Json page_json(const Page& page) {
  Json sections = Json::array(), sources = Json::array();
  for (const Section& section : page.sections) {
    Json tables = Json::array();
    for (const Table& table : section.tables) tables.push_back(table_json(table));
    sections.push_back(
        {{"heading", clean(section.heading)},
         {"paragraphs", texts(section.paragraphs)},
         {"plot", section.plot
                      ? std::visit([](const auto& plot) { return plot_json(plot); }, *section.plot)
                      : Json(nullptr)},
         {"plot_caption", clean(section.plot_caption)},
         {"tables", std::move(tables)},
         {"notes", texts(section.notes)}});
  }
  for (const Source& source : page.sources) {
    sources.push_back(
        {{"name", clean(source.name)},
         {"kind", clean(source.kind)},
         {"sha256", source.sha256.empty() ? Json(nullptr) : Json(clean(source.sha256))},
         {"bytes", source.bytes}});
  }
  return {{"schema", "lockstep.lab.report/1"},
          {"title", clean(page.title)},
          {"findings", texts(page.findings)},
          {"sections", std::move(sections)},
          {"sources", std::move(sources)}};
}

}  // namespace lockstep::lab::report
