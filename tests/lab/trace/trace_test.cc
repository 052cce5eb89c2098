// Exclusive times, kinds of passes and damaged files of traces.
#include "lab/trace/trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::lab::trace {
namespace {

std::string event(std::string_view category, std::string_view name, double begin_us, double dur_us,
                  int64_t rows = -1, int track = 1) {
  return fmt::format(
      R"({{"name":"{}","cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":1,"tid":{}{}}})", name,
      category, begin_us, dur_us, track,
      rows < 0 ? "" : fmt::format(R"(,"args":{{"rows":{}}})", rows));
}

std::string list(const std::vector<std::string>& events) {
  return fmt::format(R"({{"traceEvents":[{}],"displayTimeUnit":"ms"}})", fmt::join(events, ","));
}

const Group& group(const Trace& trace, std::string_view name) {
  for (const Group& g : trace.groups) {
    if (g.name == name) return g;
  }
  ADD_FAILURE() << "no " << name;
  return trace.groups.at(0);
}

ExitCode refused(std::string_view text, std::optional<int64_t> rows = {}) {
  try {
    read_trace_text("t.json", text, rows);
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
    return error.code();
  }
  return ExitCode::ok;
}

// Stamps of a machine that has been up for an hour: of two that touch, the end of the first comes
// out of its double after the begin of the second.
TEST(Trace, NeighboursThatTouchDoNotCross) {
  ASSERT_GT(4570116307.944 + 4.362, 4570116312.306);
  const auto of = [](double second) {
    return read_trace_text(
               "t",
               list({event("op", "norm", 4570116307.944, 4.362), event("op", "qkv", second, 8)}),
               {})
        .crossing;
  };
  EXPECT_EQ(of(4570116312.306), 0);
  EXPECT_EQ(of(4570116312.206), 1);
}

TEST(Trace, AnEnclosingRowIsNotAddedToItsParts) {
  // An operator of 4 ms that holds kernels of 1.5 and 1.39 ms: 2.89, and 1.11 of its own. Added up
  // the three rows are 6.89 ms, of 4 that passed.
  const Trace t =
      read_trace_text("t",
                      list({event("op", "moe", 0, 4000), event("kernel", "gate_up", 100, 1500),
                            event("kernel", "down", 1700, 1390)}),
                      {});
  EXPECT_EQ(t.events, 3);
  EXPECT_NEAR(t.busy_ms, 4, 1e-9);
  EXPECT_NEAR(t.sum_ms, 6.89, 1e-9);
  EXPECT_NEAR(group(t, "moe").ms, 4, 1e-9);
  EXPECT_NEAR(group(t, "moe").own_ms, 1.11, 1e-9);
  EXPECT_EQ(group(t, "moe").enclosing, 1);
  EXPECT_EQ(group(t, "down").enclosing, 0);
  double own = 0;
  for (const Group& g : t.groups) own += g.own_ms;
  EXPECT_NEAR(own, t.busy_ms, 1e-9);
  EXPECT_EQ(t.groups[0].name, "gate_up") << "by own time";
  const std::string text = trace_text(t);
  EXPECT_NE(text.find("6.89 ms, 172.2 % of the time (events that hold others: 1)"),
            std::string::npos)
      << text;
  // The control: side by side nothing is counted twice.
  const Trace flat =
      read_trace_text("t", list({event("op", "a", 0, 1000), event("op", "b", 1000, 1000)}), {});
  EXPECT_EQ(flat.sum_ms, flat.busy_ms);
  EXPECT_EQ(trace_text(flat).find("hold others"), std::string::npos);
}

TEST(Trace, PromptAndGenerationAreToldApart) {
  // A prompt of 588 and 66 verify passes of 8 rows: 1116 rows mixed, 528 of generation.
  std::vector<std::string> events = {event("pass", "pp", 0, 9000, 588),
                                     event("matmul", "up", 10, 8000, 588)};
  for (int i = 0; i < 66; ++i) {
    events.push_back(event("pass", "w", 10000 + 100 * i, 90, 8));
    events.push_back(event("matmul", "up", 10001 + 100 * i, 50, 8));
    events.push_back(event("sample", "argmax", 10060 + 100 * i, 5, 8));
  }
  const Trace mixed = read_trace_text("t", list(events), {});
  ASSERT_EQ(mixed.passes.size(), 2u);
  EXPECT_EQ(mixed.passes[0].rows, 8);
  EXPECT_EQ(mixed.passes[0].passes, 66);
  EXPECT_EQ(mixed.passes[0].rows * mixed.passes[0].passes, 528);
  EXPECT_EQ(mixed.passes[1].rows * mixed.passes[1].passes + 528, 1116);
  EXPECT_NE(trace_text(mixed).find("kinds of pass are mixed"), std::string::npos);
  EXPECT_NEAR(group(mixed, "up").own_ms, 8 + 66 * 0.05, 1e-9);
  const Trace one = read_trace_text("t", list(events), 8);
  EXPECT_NEAR(group(one, "up").own_ms, 66 * 0.05, 1e-9);
  EXPECT_EQ(one.left_out, 2);
  EXPECT_EQ(trace_text(one).find("are mixed"), std::string::npos);
  EXPECT_EQ(refused(list(events), 9), ExitCode::bad_use);
  // Live ops, by name or kind, of the passes that were asked for.
  EXPECT_TRUE(one.has("argmax") && one.has("matmul"));
  EXPECT_FALSE(read_trace_text("t", list(events), 588).has("argmax"));
  EXPECT_FALSE(one.has("gemv"));
}

TEST(Trace, TracksAndStampsSince1970) {
  const double now = 1.79e15;
  const Trace t =
      read_trace_text("t",
                      list({event("a", "outer", now, 10), event("a", "inner", now + 5, 5.25),
                            event("a", "elsewhere", now + 2, 10, -1, 2)}),
                      {});
  EXPECT_EQ(t.tracks, 2u);
  EXPECT_EQ(t.crossing, 0) << "a quarter of a microsecond is what a double rounds here";
  EXPECT_EQ(group(t, "outer").enclosing, 1);
  EXPECT_EQ(group(t, "elsewhere").enclosing, 0);
}

TEST(Trace, EventsThatCross) {
  const Trace t = read_trace_text("t", list({event("a", "x", 0, 10), event("a", "y", 5, 10)}), {});
  EXPECT_EQ(t.crossing, 1);
  EXPECT_NEAR(t.busy_ms, 0.015, 1e-12);
}

TEST(Trace, DamagedFiles) {
  for (const std::string_view text :
       {"", "  ", "hello", "{", "[]", "{}", "{\"traceEvents\":3}", "[1,2,[3]]", "[{\"ph\":\"M\"}]",
        "\xFF\xFE{\0", "\x1F\x8B\x08", "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":-1}]",
        "[{\"ph\":\"X\",\"name\":3,\"ts\":1,\"dur\":1}]",
        "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1e300,\"dur\":1}]"}) {
    EXPECT_EQ(refused(text), ExitCode::bad_file) << text;
  }
  EXPECT_EQ(refused(std::string(100'000, '[')), ExitCode::bad_file);
  // The good part of it is used.
  const std::string whole = "[" + event("a", "x", 0, 10) + "," + event("a", "y", 20, 10) + "]";
  EXPECT_FALSE(read_trace_text("t", whole, {}).cut_off);
  const Trace cut = read_trace_text("t", whole.substr(0, whole.size() - 5), {});
  EXPECT_TRUE(cut.cut_off);
  EXPECT_EQ(cut.events, 1);
  const Trace odd = read_trace_text(
      "t", "[" + event("a", "x", 0, 10) + R"(,7,{"ph":"B"},{"ph":"X","ts":0}])", {});
  EXPECT_EQ(odd.events, 1);
  EXPECT_EQ(odd.other, 1);
  EXPECT_EQ(odd.damaged, 1);
}

}  // namespace
}  // namespace lockstep::lab::trace
