// The page model from committed data and from planted data; the renderers on hostile texts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/sha256.h"
#include "lab/report/assets.h"
#include "lab/report/render.h"
#include "lab/report/sources.h"
#include "lab/report/text_plot.h"
#include "lab/runs/runs.h"

namespace lockstep::lab::report {
namespace {

const std::string kData = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/data/lab/";

Input file(const std::string& name) {
  return {name, runs::read_file(kData + name)};
}

template <typename P>
const P* plot_of(const Page& page, std::string_view heading) {
  for (const Section& section : page.sections) {
    if (section.heading.find(heading) == std::string::npos) continue;
    return section.plot ? std::get_if<P>(&*section.plot) : nullptr;
  }
  return nullptr;
}

// Blocks of one start an arm; rate of block b of an arm is level * (1 + gain) * wiggle(b).
std::string runs_json(const std::string& arm, double gain, int blocks, double step_at = -1) {
  std::string out = R"({"schema":"lockstep.lab.runs/1","arm":")" + arm + R"(","blocks":[)";
  for (int b = 0; b < blocks; ++b) {
    const double wiggle = 1 + 0.001 * ((b * 7) % 5 - 2) + (step_at >= 0 && b >= step_at ? 0.05 : 0);
    const double rate = 100 * (1 + gain) * wiggle * (arm == "control" ? 1 : 1 + 0.0003 * (b % 3));
    out += (b ? "," : "") + std::string(R"({"block":")") + std::to_string(b) +
           R"(","starts":[{"start":")" + arm + std::to_string(b) +
           R"(","rows":[{"prompt":"p","decode_tok_s":)" + std::to_string(rate) + "}]}]}";
  }
  return out + "]}";
}

TEST(Report, TheGemmaTableHasItsLadderItsControlsAndItsRecipes) {
  Options options;
  options.reported = {98.617, 101.428, 101.482, 101.602, 103.299};
  const Page page = make_page(std::vector<Input>{file("gemma4-b70-runs.csv")}, options);
  const auto* promoted = plot_of<LadderPlot>(page, "promoted");
  ASSERT_NE(promoted, nullptr);
  ASSERT_EQ(promoted->rungs.size(), 3U);
  EXPECT_NEAR(promoted->rungs[0].value, 101.602, 0.0005);
  EXPECT_NEAR(promoted->rungs[2].value, 103.299, 0.0005);
  EXPECT_LT(promoted->rungs[0].x, promoted->rungs[1].x);
  // docs/lab-statistics.md: two rows differ by more than noise from about 2.65 tok/s on.
  EXPECT_NEAR(promoted->half_width, 2.65 / 2, 0.02);
  // Every row with a rate is a rung, a dot, or counted as too far away.
  EXPECT_EQ(promoted->rungs.size() + promoted->others.size() +
                static_cast<size_t>(promoted->others_outside),
            216U);
  const auto* reported = plot_of<LadderPlot>(page, "reported");
  ASSERT_NE(reported, nullptr);
  EXPECT_EQ(reported->rungs.size(), 5U);
  const auto* controls = plot_of<SeriesPlot>(page, "named control");
  ASSERT_NE(controls, nullptr);
  EXPECT_EQ(controls->values.size(), 18U);
  EXPECT_EQ(std::count(controls->outlier.begin(), controls->outlier.end(), true), 1);
  // Places of the levels cover the series once.
  size_t next = 0;
  for (const SeriesPlot::Level& level : controls->levels) {
    EXPECT_EQ(level.first, next);
    next = level.last + 1;
  }
  EXPECT_EQ(next, controls->values.size());
  const auto* recipes = plot_of<EffectPlot>(page, "Recipes");
  ASSERT_NE(recipes, nullptr);
  EXPECT_EQ(recipes->effects.size(), 13U);  // 14 ran more than once, one of them is the control
  for (const Effect& effect : recipes->effects) {
    EXPECT_LT(effect.interval.low, effect.estimate);
    EXPECT_GT(effect.interval.high, effect.estimate);
  }
}

// Whether two bars overlap is whether the step can't be told from noise: the caption says so.
TEST(Report, BarsOfALadderOverlapWhereTheStepIsNoise) {
  Options options;
  options.reported = {98.617, 101.428, 101.482, 101.602, 103.299, 100.1};
  const Page page = make_page(std::vector<Input>{file("gemma4-b70-runs.csv")}, options);
  const auto* plot = plot_of<LadderPlot>(page, "reported");
  ASSERT_NE(plot, nullptr);
  const auto section = std::find_if(
      page.sections.begin(), page.sections.end(),
      [](const Section& s) { return s.heading.find("reported") != std::string::npos; });
  int told = 0;
  for (size_t i = 1; i < plot->rungs.size(); ++i) {
    const bool overlap =
        std::abs(plot->rungs[i].value - plot->rungs[i - 1].value) <= 2 * plot->half_width;
    const std::string& says = section->tables[0].rows[i - 1][3];
    EXPECT_EQ(says == "can't be told from noise", overlap) << i << " " << says;
    told += !overlap;
  }
  EXPECT_EQ(told, 2);  // 98.617 -> 101.428, and the fall at the end
}

TEST(Report, ArmsAreJudgedAgainstTheControl) {
  const std::vector<Input> inputs = {{"b.json", runs_json("faster", 0.03, 10)},
                                     {"a.json", runs_json("control", 0, 10)},
                                     {"c.json", runs_json("same", 0, 10)}};
  const Page page = make_page(inputs, {});
  const auto* effects = plot_of<EffectPlot>(page, "Effects against");
  ASSERT_NE(effects, nullptr);
  ASSERT_EQ(effects->effects.size(), 2U);
  EXPECT_EQ(effects->effects[0].label, "faster");
  EXPECT_EQ(effects->effects[0].verdict, "better");
  EXPECT_NEAR(effects->effects[0].estimate, 3, 0.2);
  EXPECT_EQ(effects->effects[0].values.size(), 10U);
  EXPECT_LT(std::abs(effects->effects[1].estimate), 0.1);
  const auto* control = plot_of<SeriesPlot>(page, "in time");
  ASSERT_NE(control, nullptr);
  EXPECT_EQ(control->values.size(), 10U);
  EXPECT_EQ(page.sources.size(), 3U);
  EXPECT_EQ(page.sources[0].sha256.size(), 64U);
}

TEST(Report, AStepOfTheControlIsAChangePointAndNoneIsNone) {
  const Page moved = make_page(std::vector<Input>{{"a", runs_json("control", 0, 24, 12)}}, {});
  const auto* plot = plot_of<SeriesPlot>(moved, "in time");
  ASSERT_NE(plot, nullptr);
  ASSERT_EQ(plot->levels.size(), 2U);
  EXPECT_EQ(plot->levels[1].first, 12U);
  EXPECT_NEAR(plot->levels[1].value / plot->levels[0].value, 1.05, 0.005);
  const Page still = make_page(std::vector<Input>{{"a", runs_json("control", 0, 24)}}, {});
  EXPECT_EQ(plot_of<SeriesPlot>(still, "in time")->levels.size(), 1U);
}

TEST(Report, PositionsOfALogAndALogWithout) {
  const std::string with =
      R"({"schema":"lockstep.lab.log/1","generation":{"text":"x"},"totals":{"requests":2,"decode_tok_s":50.5,
         "draft":{"accepted":5,"per_position":[0.75,0.5,0.125]}},"contradictions_total":1,
         "contradictions":[{"id":"clock","line":7,"text":"goes back"}]})";
  const std::string without =
      R"({"schema":"lockstep.lab.log/1","totals":{"requests":1,"draft":{"accepted":5,"per_position":null}}})";
  const Page page = make_page(std::vector<Input>{{"l.json", with}, {"m.json", without}}, {});
  const auto* plot = plot_of<PositionPlot>(page, "position");
  ASSERT_NE(plot, nullptr);
  ASSERT_EQ(plot->traces.size(), 1U);
  EXPECT_EQ(plot->traces[0].shares, (std::vector<double>{0.75, 0.5, 0.125}));
  ASSERT_EQ(page.sections[0].notes.size(), 1U);
  EXPECT_NE(page.sections[0].notes[0].find("not at which place"), std::string::npos);
  EXPECT_NE(render_markdown(page).find("goes back"), std::string::npos);
}

TEST(Report, WhatIsNoSourceIsRefusedByName) {
  const auto refused = [](const std::string& bytes, std::string_view says, Options options = {}) {
    try {
      make_page(std::vector<Input>{{"some.file", bytes}}, options);
      ADD_FAILURE() << "taken: " << bytes;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  };
  refused("", "some.file");
  refused("{", "not JSON");
  refused("[1]", "without a schema");
  refused(R"({"schema":"lockstep.prove/1"})", "its schema is lockstep.prove/1");
  refused("a,b\n1,2\n", "some.file");
  refused(R"({"schema":"lockstep.lab.log/1","totals":{"draft":{"per_position":[2]}}})",
          "shares from 0 to 1");
  Options reported;
  reported.reported = {1, 2};
  refused(runs_json("control", 0, 4), "table of runs", reported);
}

const std::string kHostile =
    "<script>alert(1)</script> \" ' & </title> `x` | *y* [z](javascript:1) \x01\x1b[31m \xff \n# "
    "h\r\n- i";

Page hostile_page() {
  Page page;
  page.title = kHostile;
  page.findings = {kHostile};
  Section section;
  section.heading = kHostile;
  section.paragraphs = {kHostile};
  section.plot = EffectPlot{{{kHostile, kHostile, 1, {0, HUGE_VAL}, 0.95, {1}}}, 0.5};
  section.plot_caption = kHostile;
  section.tables = {{kHostile, {{kHostile, false}}, {{kHostile}}, 0}};
  section.notes = {kHostile};
  page.sections = {section};
  page.sections.push_back(
      {"s", {}, SeriesPlot{kHostile, {kHostile}, {1}, {false}, {{0, 0, 1}}}, "", {}, {}});
  page.sections.push_back({"p", {}, PositionPlot{{{kHostile, {0.5}}}}, "", {}, {}});
  page.sections.push_back(
      {"l", {}, LadderPlot{kHostile, {{kHostile, 1, 2}}, 1, {{1, 2}}, 0}, "", {}, {}});
  page.sources = {{kHostile, kHostile, kHostile, 1}};
  return page;
}

// Everything of the page but Chart.js and the page's own script and style.
std::string without_assets(std::string html) {
  for (const std::string_view asset : {kChartJs, kPageJs, kPageCss}) {
    const size_t at = html.find(asset);
    EXPECT_NE(at, std::string::npos);
    if (at != std::string::npos) html.erase(at, asset.size());
  }
  return html;
}

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(Report, HostileTextStaysTextInHtml) {
  const std::string html = without_assets(render_html(hostile_page()));
  // The page's own three script elements, and no other.
  EXPECT_EQ(count(html, "<script"), 3U);
  EXPECT_EQ(count(html, "</script"), 3U);
  EXPECT_EQ(count(html, "</title"), 1U);
  EXPECT_EQ(count(html, "alert(1)"), count(html, "&lt;script&gt;alert(1)&lt;/script&gt;") +
                                         count(html, "\\u003cscript\\u003ealert(1)"));
  for (const char c : html) {
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c);
  }
  EXPECT_EQ(html.find('\xff'), std::string::npos);
  // The figures come back as they were said, escaped only.
  const size_t begin = html.find("id=\"plots\">") + 11, end = html.find("</script>", begin);
  const auto plots = nlohmann::json::parse(html.substr(begin, end - begin));
  EXPECT_EQ(plots[0]["effects"][0]["label"], escape(kHostile));
  EXPECT_TRUE(plots[0]["effects"][0]["high"].is_null());  // infinite
}

TEST(Report, HostileTextStaysTextInMarkdown) {
  const std::string markdown = render_markdown(hostile_page());
  EXPECT_EQ(markdown.find("<script"), std::string::npos);
  EXPECT_EQ(count(markdown, "](javascript"), count(markdown, "\\](javascript"));
  EXPECT_EQ(markdown.find('\x1b'), std::string::npos);
  EXPECT_EQ(count(markdown, "\n# "), 0U);  // the one heading of that level begins the file
  EXPECT_EQ(markdown_text("a|b `c` *d* [e](f) <g>"), "a\\|b \\`c\\` \\*d\\* \\[e\\](f) &lt;g&gt;");
  EXPECT_EQ(markdown_text("MTP_P_MIN=0.136"), "MTP_P_MIN=0.136");
  EXPECT_EQ(markdown_text("_a_"), "\\_a\\_");
  EXPECT_EQ(markdown_text("- a"), "\\- a");
  EXPECT_EQ(markdown_text("1. a"), "1\\. a");
  EXPECT_EQ(markdown_text("1.5"), "1.5");
}

// The policy lets these two scripts run and no other; it holds no source of the network.
TEST(Report, ThePolicyNamesTheScripts) {
  const std::string html = render_html(hostile_page());
  const size_t begin = html.find("Content-Security-Policy");
  ASSERT_NE(begin, std::string::npos);
  const std::string policy = html.substr(begin, html.find('>', begin) - begin);
  EXPECT_NE(policy.find("default-src 'none'"), std::string::npos);
  EXPECT_EQ(count(policy, "'sha256-"), 2U);
  EXPECT_EQ(policy.find("http:"), std::string::npos);
  EXPECT_EQ(count(without_assets(html), "http"), 1U);  // of http-equiv
}

TEST(Report, TheSamePageGivesTheSameBytes) {
  const auto render = [] {
    return render_html(make_page(std::vector<Input>{file("gemma4-b70-runs.csv")}, {}));
  };
  EXPECT_EQ(render(), render());
}

TEST(Report, TextPlots) {
  const EffectPlot effects{
      {{"a", "", 1, {-1, 3}, 0.95, {}}, {"b", "", 2, {-HUGE_VAL, HUGE_VAL}, 0.9, {}}}, {}};
  const std::vector<std::string> lines = text_plot(effects);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].find('['), 4U);        // -1 is the least value
  EXPECT_EQ(lines[0].find('o'), 4U + 30U);  // 1 lies in the middle of -1 to 3
  EXPECT_EQ(lines[0].find(']'), 4U + 59U);
  EXPECT_EQ(lines[1].find('<'), 4U);
  EXPECT_EQ(text_plot(SeriesPlot{}).size(), 0U);
  const auto bars = text_plot(PositionPlot{{{"x", {0.5, 0}}}});
  ASSERT_EQ(bars.size(), 2U);
  EXPECT_EQ(std::count(bars[0].begin(), bars[0].end(), '#'), 25);
  EXPECT_EQ(std::count(bars[1].begin(), bars[1].end(), '#'), 0);
}

}  // namespace
}  // namespace lockstep::lab::report
