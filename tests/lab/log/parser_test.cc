// The parser on lines of every generation, and on damaged ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lab/log/accounting.h"
#include "lab/log/analysis.h"
#include "lab/log/names.h"

namespace lockstep::lab::log {
namespace {

bool has(const Analysis& a, std::string_view id) {
  return std::any_of(a.contradictions.begin(), a.contradictions.end(),
                     [id](const auto& c) { return c.id == id; });
}
bool noticed(const Analysis& a, std::string_view id) {
  return std::any_of(a.notices.begin(), a.notices.end(),
                     [id](const auto& n) { return n.id == id; });
}

// 101 tokens in 2000 ms: 50 tok/s over n - 1, 50.5 over n.
constexpr std::string_view kOld =
    "slot launch_slot_: id  0 | task 5 | processing task\n"
    "slot update_slots: id  0 | task 5 | new prompt, n_ctx_slot = 4096, n_keep = 0, "
    "n_prompt_tokens = 50\n"
    "slot update_slots: id  0 | task 5 | kv cache rm [10, end)\n"
    "slot print_timing: id  0 | task 5 | \n"
    "prompt eval time =     400.00 ms /    40 tokens (   10.00 ms per token,   100.00 tokens per "
    "second)\n"
    "       eval time =    2000.00 ms /   101 tokens (   19.80 ms per token,    50.50 tokens per "
    "second)\n"
    "      total time =    2400.00 ms /   141 tokens\n";

TEST(Parser, Generation1) {
  const Analysis a = read_log_text(
      std::string(kOld) +
      "draft acceptance rate = 0.57143 (   60 accepted /   105 generated)\n"
      "slot      release: id  0 | task 5 | stop processing: n_past = 150, truncated = 0\n");
  ASSERT_EQ(a.requests.size(), 1u);
  const Request& r = a.requests[0];
  EXPECT_EQ(r.slot, 0);
  EXPECT_EQ(r.task, 5);
  EXPECT_EQ(r.prompt_tokens, 50);
  EXPECT_EQ(r.cached_tokens, 10);
  EXPECT_EQ(r.cached_from, CachedFrom::log);
  EXPECT_EQ(r.evaluated_tokens, 40);
  EXPECT_EQ(r.generated_tokens, 101);
  EXPECT_EQ(r.end_tokens, 150);
  EXPECT_EQ(r.denominator, Denominator::all);
  EXPECT_EQ(r.draft->line, DraftLine::gen1);
  EXPECT_EQ(r.draft->accepted, 60);
  EXPECT_EQ(r.other_slot, false);
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  EXPECT_EQ(a.files[0].garbled, 0);
  EXPECT_NE(generation_text(a).find("generation 1, decode rates over all n"), std::string::npos)
      << generation_text(a);
}

TEST(Parser, NoDraftLineIsNoDraft) {
  const Analysis a = read_log_text(kOld);
  EXPECT_FALSE(a.requests.at(0).draft);
  EXPECT_EQ(a.totals.draft_requests, 0);
  EXPECT_FALSE(a.totals.acceptance());
  EXPECT_EQ(decode_steps(a.requests[0]), 100);
}

std::string newer(int slot, int task, std::string_view draft,
                  std::string_view time = "0.10.000.000 I ") {
  const std::string head =
      fmt::format("{}slot print_timing: id {:2d} | task {} | ", time, slot, task);
  return head +
         "prompt eval time =     400.00 ms /    40 tokens (   10.00 ms per token,   100.00 tokens "
         "per second)\n" +
         head +
         "       eval time =    2000.00 ms /   101 tokens (   20.00 ms per token,    50.00 tokens "
         "per second)\n" +
         head + "      total time =    2400.00 ms /   141 tokens\n" + head +
         "   graphs reused =         64\n" +
         (draft.empty() ? "" : head + std::string(draft) + "\n");
}

TEST(Parser, Generations2And2bAnd3) {
  struct Case {
    const char* line;
    DraftLine generation;
    Range steps;
    size_t positions;
  };
  // 60 accepted, 1 + 60/40 = 2.50; 120 drafted in 40 steps are 3 each.
  const Case cases[] = {
      {"draft acceptance = 0.50000 (   60 accepted /   120 generated)",
       DraftLine::gen2,
       {2, 104},
       0},
      {"draft acceptance = 0.50000 (   60 accepted /   120 generated), mean acceptance length =  "
       "2.50, acceptance rate per "
       "position = (0.750, 0.450, 0.300)",
       DraftLine::gen2b,
       {40, 40},
       3},
      {"draft acceptance = 0.50000 (   60 accepted /   120 generated), mean acceptance length =  "
       "2.50",
       DraftLine::gen2b,
       {40, 40},
       0},
      {"draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  2.50",
       DraftLine::gen3,
       {40, 40},
       0},
      {"draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  2.50, verify = "
       "3.4 ms",
       DraftLine::gen3,
       {40, 40},
       0},
  };
  for (const Case& c : cases) {
    const Analysis a = read_log_text(newer(0, 1, c.line));
    ASSERT_EQ(a.requests.size(), 1u) << c.line;
    const Request& r = a.requests[0];
    ASSERT_TRUE(r.draft) << c.line;
    EXPECT_EQ(r.draft->line, c.generation) << c.line;
    EXPECT_EQ(r.draft->per_position.size(), c.positions) << c.line;
    EXPECT_EQ(r.denominator, Denominator::steps);
    EXPECT_EQ(r.graphs_reused, 64);
    EXPECT_EQ(a.contradiction_count, 0) << c.line << a.contradictions[0].text;
    if (c.steps.known()) {
      EXPECT_EQ(r.draft->steps, c.steps) << c.line;
    }
  }
}

TEST(Parser, PositionsOfGeneration3AndStatistics) {
  std::string text =
      "0.00.100.000 I srv    load_model: loading model '/models/x.gguf'\n" +
      newer(0, 1,
            "draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  2.50") +
      "0.10.000.001 I slot print_timing: id  0 | task 1 |      acc per pos = (0.750, 0.450, "
      "0.300)\n"
      "0.10.000.002 I spec  print_stats: statistics        draft-mtp: #calls(b,g,a) =    1     40  "
      "   40, #gen drafts =     40, "
      "#acc drafts =    30, #gen tokens =    120, #acc tokens =    60, #mean acc len = 2.50, #acc "
      "rate/pos = (0.750, 0.450, 0.300), "
      "dur(b,g,a) = 0.004, 84.000, 0.030 ms\n";
  // Without a launch line nobody knows of other slots, and the statistics stay unused.
  Analysis a = read_log_text(text);
  ASSERT_EQ(a.requests.size(), 1u);
  EXPECT_EQ(a.requests[0].draft->per_position, (std::vector<double>{0.75, 0.45, 0.3}));
  EXPECT_FALSE(a.requests[0].draft->counted_steps);
  text.insert(text.find('\n') + 1,
              "0.07.000.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n");
  a = read_log_text(text);
  EXPECT_EQ(a.requests.at(0).draft->counted_steps, 40);
  EXPECT_DOUBLE_EQ(*a.requests[0].draft_ms, 84);
  EXPECT_EQ(a.totals.per_position().size(), 3u);
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
}

TEST(Parser, InterleavedSlots) {
  const std::string text =
      "0.01.000.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n"
      "0.02.000.000 I slot launch_slot_: id  1 | task 2 | processing task, is_child = 0\n" +
      newer(1, 2,
            "draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  2.50") +
      "0.10.000.100 I slot      release: id  1 | task 2 | stop processing: n_tokens = 140, "
      "truncated = 0\n" +
      newer(0, 1, "") +
      "0.10.000.100 I slot      release: id  0 | task 1 | stop processing: n_tokens = 140, "
      "truncated = 0\n"
      "0.11.000.000 I slot launch_slot_: id  0 | task 3 | processing task, is_child = 0\n" +
      newer(0, 3, "", "0.20.000.000 I ") +
      "0.20.000.100 I slot      release: id  0 | task 3 | stop processing: n_tokens = 140, "
      "truncated = 0\n"
      "0.21.000.000 I slot launch_slot_: id  0 | task 4 | processing task, is_child = 0\n"
      "0.22.000.000 I slot      release: id  0 | task 4 | stop processing: n_tokens = 50, "
      "truncated = 0\n";
  const Analysis a = read_log_text(text);
  ASSERT_EQ(a.requests.size(), 3u);
  EXPECT_EQ(a.requests[0].task, 2);
  EXPECT_TRUE(a.requests[0].draft);
  EXPECT_EQ(a.requests[0].other_slot, true);
  EXPECT_EQ(a.requests[1].other_slot, true);
  EXPECT_FALSE(a.requests[1].draft);
  EXPECT_EQ(a.requests[2].other_slot, false);
  EXPECT_EQ(a.without_timing, 1);
  // The prompt by the end of the context: 140 - (101 - 1) = 40, all of them evaluated.
  EXPECT_EQ(a.requests[1].cached_tokens, 0);
  EXPECT_EQ(a.requests[1].cached_from, CachedFrom::end);
  EXPECT_EQ(a.requests[0].cached_tokens, 0) << "nothing is left for a cut draft";
  EXPECT_EQ(a.requests[2].cached_tokens, 0);
}

TEST(Parser, WarmRows) {
  const std::string text =
      "0.01.000.000 I slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, "
      "f_sim_best = 0.983 (> 0.100 thold), f_keep = 0.500\n"
      "0.01.000.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n"
      "0.01.000.010 I slot update_slots: id  0 | task 1 | restored context checkpoint (pos_min = "
      "0, pos_max = 9, n_tokens = 10, n_past = 10, size = 0.1 MiB)\n" +
      newer(0, 1, "") +
      "0.10.000.100 I slot      release: id  0 | task 1 | stop processing: n_tokens = 152, "
      "truncated = 0\n";
  const Analysis a = read_log_text(text);
  ASSERT_EQ(a.requests.size(), 1u);
  EXPECT_EQ(a.requests[0].cached_tokens, 12);
  EXPECT_DOUBLE_EQ(*a.requests[0].similarity, 0.983);
  EXPECT_EQ(a.requests[0].witnesses.size(), 2u);
  EXPECT_EQ(is_warm(a.requests[0]), true);
  EXPECT_EQ(a.totals.warm, 1);
  EXPECT_FALSE(is_warm(Request{})) << "nothing said is not cold";
}

TEST(Parser, Restarts) {
  const std::string life =
      "0.00.100.000 I srv    load_model: loading model '/models/x.gguf'\n"
      "0.00.500.000 I srv  llama_server: model loaded\n" +
      newer(0, 1, "");
  Analysis a = read_log_text(life + life);
  EXPECT_EQ(a.lives.size(), 2u);
  EXPECT_EQ(a.requests.at(1).life, 1);
  EXPECT_EQ(a.requests[1].ordinal, 1);
  EXPECT_FALSE(has(a, "clock"));
  // The control: the same without the lines of a start is a clock that goes back.
  a = read_log_text(newer(0, 1, "", "0.30.000.000 I ") + newer(0, 2, "", "0.10.000.000 I "));
  EXPECT_EQ(a.lives.size(), 1u);
  EXPECT_TRUE(has(a, "clock"));
}

TEST(Parser, SeveralServersInOneFile) {
  std::string text;
  for (const char* name : {"llama-1  | ", "llama-2  | "}) {
    text +=
        name +
        std::string(
            "0.01.000.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n");
  }
  for (const char* name : {"llama-2  | ", "llama-1  | "}) {
    const std::string block = newer(0, 1, "");
    for (size_t at = 0; at < block.size();) {
      const size_t end = block.find('\n', at) + 1;
      text += name + block.substr(at, end - at);
      at = end;
    }
  }
  text +=
      "(APIServer pid=1) INFO 05-30 07:49:21 [metrics.py:101] SpecDecoding metrics: Mean "
      "acceptance length: 3.07, Accepted throughput: "
      "1.05 tokens/s, Drafted throughput: 1.52 tokens/s, Accepted: 141 tokens, Drafted: 204 "
      "tokens, Per-position acceptance rate: "
      "0.897, 0.676, 0.500, Avg Draft acceptance rate: 69.1%\n";
  const Analysis a = read_log_text(text);
  EXPECT_EQ(a.requests.size(), 2u);
  EXPECT_EQ(a.lives.size(), 3u);
  EXPECT_EQ(a.requests[0].other_slot, false) << "another server's slot is not this one's";
  ASSERT_EQ(a.intervals.size(), 1u);
  // 141 / 68 = 2.0735; 204 / 68 = 3; 0.897 + 0.676 + 0.500 = 2.073.
  EXPECT_EQ(a.intervals[0].draft.steps, (Range{68, 68}));
  EXPECT_EQ(a.lives[a.intervals[0].life].engine, "vllm");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
}

TEST(Parser, Contradictions) {
  const auto of = [](std::string_view draft) { return read_log_text(newer(0, 1, draft)); };
  EXPECT_TRUE(
      has(of("draft acceptance = 0.60000 (   60 accepted /   120 generated), mean len =  2.50"),
          "acceptance_ratio"));
  EXPECT_TRUE(
      has(of("draft acceptance = 1.50000 (  180 accepted /   120 generated), mean len =  2.50"),
          "accepted_above_drafted"));
  EXPECT_TRUE(
      has(of("draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  0.50"),
          "mean_length"));
  EXPECT_TRUE(
      has(of("draft acceptance = 0.50000 (   60 accepted /   120 generated), mean acceptance "
             "length =  2.50, acceptance rate per position = (0.450, 0.750, 0.300)"),
          "positions_rise"));
  EXPECT_TRUE(
      has(of("draft acceptance = 0.50000 (   60 accepted /   120 generated), mean acceptance "
             "length =  2.50, acceptance rate per position = (0.750, 0.450, 0.100)"),
          "positions_sum"));
  EXPECT_FALSE(
      has(of("draft acceptance = 0.50000 (   60 accepted /   120 generated), mean acceptance "
             "length =  2.50, acceptance rate per position = (0.750, 0.450, 0.300)"),
          "positions_sum"));
  const auto edited = [](std::string_view from, std::string_view to) {
    std::string text = newer(0, 1, "");
    text.replace(text.find(from), from.size(), to);
    return read_log_text(text);
  };
  EXPECT_TRUE(has(edited("   50.00 tokens", "   50.25 tokens"), "decode_rate"));
  EXPECT_TRUE(has(edited("  100.00 tokens", "  110.00 tokens"), "prompt_rate"));
  EXPECT_TRUE(has(edited("2400.00 ms /   141", "2500.00 ms /   141"), "total_time"));
  EXPECT_TRUE(has(edited("/   141", "/   142"), "total_tokens"));
  EXPECT_TRUE(has(edited("    400.00 ms /    40", "   -400.00 ms /    40"), "negative"));
  EXPECT_FALSE(has(edited("400.00 ms", "400.00 ms"), "negative"));
}

TEST(Parser, TimesThatDoNotFitTheClock) {
  const std::string launch =
      "0.09.500.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n";
  EXPECT_TRUE(has(read_log_text(launch + newer(0, 1, "")), "clock")) << "2.4 s timed within 0.5 s";
  EXPECT_FALSE(has(read_log_text("0.07.500.000" + launch.substr(12) + newer(0, 1, "")), "clock"));
}

TEST(Parser, GarbledLinesAreCountedAndNeverFatal) {
  std::string text = newer(0, 1, "draft acceptance = 0.50000 (   60 accepted /");
  text += "slot print_timing: id  0 | task 2 |        eval time = two ms / 3 tokens\n" +
          newer(0, 3, "");
  text.resize(text.size() - 20);
  const Analysis a = read_log_text(text);
  EXPECT_EQ(a.files[0].garbled, 2);
  EXPECT_EQ(a.requests.size(), 2u);
  EXPECT_TRUE(a.files[0].lines.unfinished);
  EXPECT_FALSE(a.requests[0].draft);
}

TEST(Parser, Notices) {
  EXPECT_TRUE(noticed(read_log_text("W spec  init: synthetic speculative acceptance is enabled for "
                                    "benchmarking; generated output is not valid\n"),
                      "synthetic_acceptance"));
  EXPECT_TRUE(
      noticed(read_log_text("E load: failed to load draft model, 'x'\n"), "draft_model_failed"));
  const Analysis a = read_log_text(
      "I adding speculative implementation 'draft-dflash'\nW requested draft size (n_max=16, "
      "n_min=0) exceeds the trained block size 8 -- clamping to 7\n");
  EXPECT_TRUE(noticed(a, "draft_clamped"));
  EXPECT_EQ(a.lives.at(0).speculation.at(0).clamped_to, 7);
  EXPECT_FALSE(noticed(read_log_text(newer(0, 1, "")), "synthetic_acceptance"));
  // The same words in two servers: one gives the drafter up, the other drafts on.
  const std::string vocabs = "the target and draft vocabs are not compatible";
  const Analysis refused = read_log_text("E spec  init: " + vocabs + "\n");
  EXPECT_TRUE(noticed(refused, "draft_model_failed"));
  EXPECT_FALSE(noticed(refused, "draft_translated"));
  const Analysis translated =
      read_log_text(vocabs + " - tokens will be translated between the two\n");
  EXPECT_TRUE(noticed(translated, "draft_translated"));
  EXPECT_FALSE(noticed(translated, "draft_model_failed"));
}

// Lines of ik_llama.cpp 8337e4cd3; its timings come through another thread than its keyed lines.
constexpr std::string_view kIkTimes =
    "slot print_timing: id  0 | task 3 | \n"
    "prompt eval time =     400.00 ms /    40 tokens (   10.00 ms per token,   100.00 tokens per "
    "second)\n"
    "       eval time =    2000.00 ms /   101 tokens (   19.80 ms per token,    50.50 tokens per "
    "second)\n"
    "      total time =    2400.00 ms /   141 tokens\n"
    "draft acceptance rate = 0.57143 (   60 accepted /   105 generated)\n";

TEST(Parser, KeyedLinesInEitherOrder) {
  const std::string head =
      "INFO [                    main] build info | build=4711 commit=\"8337e4cd3\" tid=\"1\" "
      "timestamp=1\n"
      "INFO [                    init] initializing slots | n_slots=1 tid=\"1\" timestamp=1\n"
      "INFO [   launch_slot_with_task] slot is processing task | id_slot=0 id_task=3 tid=\"1\" "
      "timestamp=1\n"
      "======== Cache: cache_size = 0, n_past =  0, n_past_prompt = 0\n"
      "INFO [    batch_pending_prompt] kv cache rm [p0, end) | id_slot=0 id_task=3 p0=12 tid=\"1\" "
      "timestamp=1\n";
  const std::string release =
      "INFO [           release_slots] slot released | id_slot=0 id_task=3 n_cache_tokens=152 "
      "n_ctx=2048 n_past=152 n_system_tokens=0 tid=\"1\" timestamp=1 truncated=false\n";
  for (const bool late : {false, true}) {
    const Analysis a = read_log_text(late ? head + release + std::string(kIkTimes)
                                          : head + std::string(kIkTimes) + release);
    EXPECT_EQ(a.files[0].garbled, 0);
    EXPECT_EQ(a.without_timing, 0) << late;
    EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
    ASSERT_EQ(a.requests.size(), 1u) << late;
    const Request& r = a.requests[0];
    EXPECT_EQ(r.slot, 0);
    EXPECT_EQ(r.task, 3);
    EXPECT_EQ(r.cached_tokens, 12);
    EXPECT_EQ(r.prompt_tokens, 52);
    EXPECT_EQ(r.end_tokens, 152);
    EXPECT_EQ(r.truncated, false);
    EXPECT_EQ(r.draft->accepted, 60);
    ASSERT_EQ(a.lives.size(), 1u);
    EXPECT_EQ(a.lives[0].engine, "ik_llama.cpp");
    EXPECT_EQ(a.lives[0].build, "4711 (8337e4cd3)");
    EXPECT_EQ(a.lives[0].n_slots, 1);
  }
}

TEST(Parser, KeyedLinesAsJson) {
  const Analysis a = read_log_text(
      R"json({"build":4711,"commit":"8337e4cd3","function":"main","level":"INFO","line":488,"msg":"build info","tid":"1","timestamp":1}
{"function":"init","level":"INFO","line":282,"msg":"initializing slots","n_slots":2,"tid":"1","timestamp":1}
{"function":"launch_slot_with_task","id_slot":0,"id_task":3,"level":"INFO","line":2017,"msg":"slot is processing task","tid":"1","timestamp":1}
{"function":"batch_pending_prompt","id_slot":0,"id_task":3,"level":"INFO","line":4081,"msg":"kv cache rm [p0, end)","p0":12,"tid":"1","timestamp":1}
)json" +
      std::string(kIkTimes) +
      R"json({"function":"release_slots","id_slot":0,"id_task":3,"level":"INFO","line":3429,"msg":"slot released","n_past":152,"tid":"1","timestamp":1,"truncated":false}
)json");
  EXPECT_EQ(a.files[0].garbled, 0);
  ASSERT_EQ(a.requests.size(), 1u);
  EXPECT_EQ(a.requests[0].cached_tokens, 12);
  EXPECT_EQ(a.requests[0].end_tokens, 152);
  EXPECT_EQ(a.lives.at(0).engine, "ik_llama.cpp");
  EXPECT_EQ(a.lives[0].build, "4711 (8337e4cd3)");
  EXPECT_EQ(a.lives[0].n_slots, 2);
}

// Of ik_llama.cpp: what is printed at once, and what comes through its log's thread.
std::string ik_line(std::string_view words, int slot, int task, std::string_view more = "") {
  return fmt::format("INFO [  f] {} | tid=\"1\" timestamp=1 id_slot={} id_task={}{}\n", words, slot,
                     task, more);
}
std::string ik_launch(int slot, int task) {
  return ik_line("slot is processing task", slot, task) +
         ik_line("kv cache rm [p0, end)", slot, task, " p0=0");
}
std::string ik_release(int slot, int task) {
  return ik_line("slot released", slot, task, " n_ctx=2048 n_past=140 truncated=false");
}
// `drafted` and `steps` are of the whole life of the slot in the statistics line.
std::string ik_timing(int slot, int task, int accepted, int drafted, const char* statistics) {
  std::string out = fmt::format("slot print_timing: id {:2d} | task {} | \n", slot, task);
  out += kIkTimes.substr(kIkTimes.find('\n') + 1,
                         kIkTimes.find("draft acc") - kIkTimes.find('\n') - 1);
  out += fmt::format("draft acceptance rate = {:0.5f} ({:5d} accepted / {:5d} generated)\n",
                     static_cast<double>(accepted) / drafted, accepted, drafted);
  return out + "statistics draft: #calls(b,g,a) = " + statistics + "\n";
}

TEST(Parser, ATimingAfterTheNextLaunch) {
  // The second request waited for the only slot: it begins before the log's thread has printed the
  // first one's timing.
  const std::string first = ik_launch(0, 3) + ik_release(0, 3), second = ik_launch(0, 5);
  const std::string times[] = {
      ik_timing(0, 3, 60, 105,
                "1 40 40, #gen drafts = 40, #acc drafts = 30, #gen tokens = 105, #acc tokens = 60, "
                "dur(b,g,a) = 0.1, 80.0, 0.1 ms"),
      ik_timing(0, 5, 50, 150,
                "2 90 90, #gen drafts = 90, #acc drafts = 60, #gen tokens = 255, #acc tokens = "
                "110, dur(b,g,a) = 0.1, 180.0, 0.1 ms")};
  const size_t middle = times[0].find("       eval time");
  for (const std::string& text : {first + times[0] + second + times[1] + ik_release(0, 5),
                                  first + second + times[0] + times[1] + ik_release(0, 5),
                                  first + second + times[0] + ik_release(0, 5) + times[1],
                                  // Between the lines of a block too.
                                  first + times[0].substr(0, middle) + second +
                                      times[0].substr(middle) + times[1] + ik_release(0, 5)}) {
    const Analysis a =
        read_log_text("INFO [ main] build info | tid=\"1\" build=1 commit=\"x\"\n" + text);
    ASSERT_EQ(a.requests.size(), 2u) << text;
    EXPECT_EQ(a.without_timing, 0) << text;
    EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
    for (size_t i = 0; i < 2; ++i) {
      const Request& r = a.requests[i];
      EXPECT_EQ(r.task, i ? 5 : 3) << text;
      EXPECT_EQ(r.cached_tokens, 0) << text;
      EXPECT_EQ(r.end_tokens, 140) << text;
      ASSERT_TRUE(r.draft) << text;
      EXPECT_EQ(r.draft->accepted, i ? 50 : 60) << text;
      EXPECT_EQ(r.draft->counted_steps, i ? 50 : 40) << text;
      EXPECT_EQ(r.other_slot, false);
    }
  }
  // The control: a request that was cancelled has no timing, and takes none from the next.
  const Analysis a = read_log_text(first + second + times[1] + ik_release(0, 5));
  ASSERT_EQ(a.requests.size(), 1u);
  EXPECT_EQ(a.requests[0].task, 5);
  EXPECT_EQ(a.without_timing, 1);
}

TEST(Parser, RowsOfTwoSlotsStayInTheirOrder) {
  // Both are released before their timings are printed: the one of slot 1 is done before task 7's.
  const char* const none =
      "1 0 0, #gen drafts = 0, #acc drafts = 0, #gen tokens = 0, #acc tokens = 0";
  const Analysis a =
      read_log_text("INFO [ main] build info | tid=\"1\" build=1 commit=\"x\"\n" + ik_launch(0, 3) +
                    ik_launch(1, 5) + ik_release(0, 3) + ik_release(1, 5) +
                    ik_timing(0, 3, 60, 105, none) + ik_timing(1, 5, 50, 90, none) +
                    ik_launch(0, 7) + ik_release(0, 7) + ik_timing(0, 7, 40, 80, none));
  ASSERT_EQ(a.requests.size(), 3u);
  const int64_t tasks[] = {3, 5, 7}, accepted[] = {60, 50, 40};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(a.requests[i].task, tasks[i]);
    EXPECT_EQ(a.requests[i].ordinal, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(a.requests[i].end_tokens, 140);
    ASSERT_TRUE(a.requests[i].draft);
    EXPECT_EQ(a.requests[i].draft->accepted, accepted[i]);
  }
}

TEST(Parser, StatisticsOfEachSlot) {
  // ik_llama.cpp has a drafter a slot: the second slot's counts are smaller, and don't go back.
  // From its source: 8337e4cd3 refuses more than one slot with drafts.
  const std::string text = "INFO [ main] build info | tid=\"1\" build=1 commit=\"x\"\n" +
                           ik_launch(0, 3) + ik_launch(1, 5) +
                           ik_timing(0, 3, 60, 105,
                                     "1 40 40, #gen drafts = 40, #acc drafts = 30, #gen tokens = "
                                     "105, #acc tokens = 60, dur(b,g,a) = 0.1, 80.0, 0.1 ms") +
                           ik_release(0, 3) +
                           ik_timing(1, 5, 50, 90,
                                     "1 30 30, #gen drafts = 30, #acc drafts = 25, #gen tokens = "
                                     "90, #acc tokens = 50, dur(b,g,a) = 0.1, 70.0, 0.1 ms") +
                           ik_release(1, 5);
  const Analysis a = read_log_text(text);
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  ASSERT_EQ(a.requests.size(), 2u);
  EXPECT_EQ(a.requests[0].draft->counted_steps, 40);
  EXPECT_EQ(a.requests[1].draft->counted_steps, 30);
  EXPECT_DOUBLE_EQ(*a.requests[1].draft_ms, 70);
  EXPECT_EQ(a.requests[1].other_slot, true);
  // The control: counts of one slot that go back.
  EXPECT_TRUE(
      has(read_log_text(text + ik_launch(0, 7) +
                        ik_timing(0, 7, 50, 90,
                                  "1 30 30, #gen drafts = 30, #acc drafts = 25, #gen tokens = 90, "
                                  "#acc tokens = 50, dur(b,g,a) = 0.1, 70.0, 0.1 ms")),
          "statistics"));
}

TEST(Parser, DraftsThatWereCutToWhatIsLeft) {
  // Its statistics count the whole draft, its draft line what was tried: 110 - 3 - 2 = 105.
  const auto with = [](std::string_view cuts) {
    return read_log_text("INFO [ main] build info | tid=\"1\" build=1 commit=\"x\"\n" +
                         ik_launch(0, 3) + std::string(cuts) +
                         ik_timing(0, 3, 60, 105,
                                   "1 40 40, #gen drafts = 40, #acc drafts = 30, #gen tokens = "
                                   "110, #acc tokens = 60, dur(b,g,a) = 0.1, 80.0, 0.1 ms") +
                         ik_release(0, 3));
  };
  constexpr std::string_view kCuts =
      "slot add_sampled_: id  0 | task 3 | draft size 6 exceeds max 3, truncating\n"
      "slot add_sampled_: id  0 | task 3 | draft size 6 exceeds max 4, truncating\n";
  EXPECT_EQ(with(kCuts).requests.at(0).draft->counted_steps, 40);
  EXPECT_EQ(with(kCuts).files[0].garbled, 0);
  EXPECT_FALSE(with("").requests.at(0).draft->counted_steps) << "they are another's, then";
  EXPECT_EQ(
      with("slot add_sampled_: id  0 | task 3 | draft size 6 exceeds max many\n").files[0].garbled,
      1);
}

TEST(Parser, TheOldestServer) {
  // llama-server before September 2024: keyed lines, "runs" that are tokens, a total without any.
  const Analysis a = read_log_text(
      "INFO [   launch_slot_with_task] slot is processing task | tid=\"1\" timestamp=1 id_slot=0 "
      "id_task=3\n"
      "INFO [            update_slots] kv cache rm [p0, end) | tid=\"1\" timestamp=1 id_slot=0 "
      "id_task=3 p0=0\n"
      "INFO [           print_timings] prompt eval time     =     400.00 ms /    40 tokens (   "
      "10.00 "
      "ms per token,   100.00 tokens per second) | tid=\"1\" timestamp=1 id_slot=0 id_task=3\n"
      "INFO [           print_timings] generation eval time =    2000.00 ms /   101 runs   (   "
      "19.80 "
      "ms per token,    50.50 tokens per second) | tid=\"1\" timestamp=1 id_slot=0 id_task=3\n"
      "INFO [           print_timings]           total time =    2400.00 ms | tid=\"1\" "
      "timestamp=1 "
      "id_slot=0 id_task=3\n"
      "INFO [            update_slots] slot released | tid=\"1\" timestamp=1 id_slot=0 id_task=3 "
      "n_ctx=512 n_past=140 n_system_tokens=0 n_cache_tokens=140 truncated=false\n");
  EXPECT_EQ(a.files[0].garbled, 0);
  ASSERT_EQ(a.requests.size(), 1u);
  EXPECT_EQ(a.requests[0].generated_tokens, 101);
  EXPECT_EQ(a.requests[0].denominator, Denominator::all);
  EXPECT_EQ(a.requests[0].cached_tokens, 0);
  EXPECT_EQ(a.requests[0].total_ms, 2400);
  EXPECT_FALSE(a.requests[0].total_tokens);
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  EXPECT_EQ(a.lives.at(0).engine, "llama-server");
}

constexpr std::string_view kStart =
    "0.00.100.000 I srv    load_model: loading model '/models/x.gguf'\n";
constexpr std::string_view kLaunch =
    "0.07.000.000 I slot launch_slot_: id  0 | task 1 | processing task, is_child = 0\n";

TEST(Parser, RowsAfterAFaultAreMarked) {
  const std::string start(kStart), fault = "0.11.000.000 E CUDA error: an illegal memory access\n";
  Analysis a = read_log_text(start + newer(0, 1, "") + fault + newer(0, 2, "", "0.20.000.000 I ") +
                             start + newer(0, 1, ""));
  ASSERT_EQ(a.requests.size(), 3u);
  EXPECT_FALSE(a.requests[0].after_fault) << "it was over before";
  EXPECT_TRUE(a.requests[1].after_fault);
  EXPECT_TRUE(a.requests[2].after_fault) << "another server on the same device";
  EXPECT_EQ(a.totals.after_fault, 2);
  EXPECT_TRUE(noticed(a, "fault"));
  // The control: without the line none is.
  a = read_log_text(start + newer(0, 1, "") + newer(0, 2, "", "0.20.000.000 I ") + start +
                    newer(0, 1, ""));
  EXPECT_EQ(a.totals.after_fault, 0);
}

TEST(Parser, AServerThatEndsInTheMiddleOfARequest) {
  const std::string start(kStart), launch(kLaunch);
  EXPECT_TRUE(noticed(read_log_text(start + launch + start + newer(0, 1, "")), "ended_abruptly"));
  // It said that it ends; it had finished; the log just ends: each is something else.
  EXPECT_FALSE(noticed(
      read_log_text(start + launch +
                    "0.09.000.000 I srv    operator(): operator(): cleaning up before exit...\n" +
                    start + newer(0, 1, "")),
      "ended_abruptly"));
  EXPECT_FALSE(noticed(read_log_text(start + launch + newer(0, 1, "") + start + newer(0, 1, "")),
                       "ended_abruptly"));
  EXPECT_FALSE(noticed(read_log_text(start + newer(0, 1, "") + launch), "ended_abruptly"));
}

TEST(Parser, EverythingAccepted) {
  std::string all, most;
  for (int i = 0; i < 10; ++i) {
    all += newer(0, i,
                 "draft acceptance = 1.00000 (   60 accepted /    60 generated), mean len =  3.00");
    most += newer(
        0, i,
        i ? "draft acceptance = 1.00000 (   60 accepted /    60 generated), mean len =  3.00"
          : "draft acceptance = 0.98333 (   59 accepted /    60 generated), mean len =  2.97");
  }
  EXPECT_TRUE(noticed(read_log_text(all), "all_accepted"));
  EXPECT_FALSE(noticed(read_log_text(most), "all_accepted"));
  EXPECT_FALSE(noticed(read_log_text(all.substr(0, all.size() / 2)), "all_accepted"))
      << "too few to wonder";
}

TEST(Parser, JsonLines) {
  std::string text;
  const std::string block = newer(
      0, 1, "draft acceptance = 0.50000 (   60 accepted /   120 generated), mean len =  2.50", "");
  for (size_t at = 0; at < block.size();) {
    const size_t end = block.find('\n', at);
    text += "{\"type\":\"log\",\"time\":10000000,\"level\":\"info\",\"msg\":\"" +
            block.substr(at, end - at) + "\\n\"}\n";
    at = end + 1;
  }
  const Analysis a = read_log_text(text);
  ASSERT_EQ(a.requests.size(), 1u);
  EXPECT_EQ(a.requests[0].draft->steps, (Range{40, 40}));
  EXPECT_EQ(a.files[0].garbled, 0);
}

TEST(Parser, LlamaPerfRuns) {
  // llama-cli: runs are passes, so that one more token was generated.
  const Analysis a = read_log_text(
      "llama_perf_context_print: prompt eval time =     400.00 ms /    40 tokens (   10.00 ms per "
      "token,   100.00 tokens per second)\n"
      "llama_perf_context_print:        eval time =    2000.00 ms /   100 runs   (   20.00 ms per "
      "token,    50.00 tokens per second)\n"
      "llama_perf_context_print:       total time =    2500.00 ms /   140 tokens\n");
  ASSERT_EQ(a.requests.size(), 1u);
  EXPECT_EQ(a.requests[0].generated_tokens, 101);
  EXPECT_EQ(a.requests[0].denominator, Denominator::steps);
}

TEST(Parser, DepthBuckets) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    // ms a step = 20 + context / 1000: prompts of 1,000 to 40,000, 101 tokens each.
    const int prompt = 1000 * (i + 1);
    const double ms = 100 * (20 + (prompt + 50.5) / 1000);
    text += fmt::format(
        "slot launch_slot_: id  0 | task {0} | processing task, is_child = 0\n"
        "slot update_slots: id  0 | task {0} | new prompt, n_ctx_slot = 65536, n_keep = 0, "
        "task.n_tokens = {1}\n"
        "slot print_timing: id  0 | task {0} | prompt eval time = {2:10.2f} ms / {1:5d} tokens "
        "({3:8.2f} ms per token, {4:8.2f} tokens per second)\n"
        "slot print_timing: id  0 | task {0} |        eval time = {5:10.2f} ms /   101 tokens "
        "({6:8.2f} ms per token, {7:8.2f} tokens per second)\n"
        "slot release: id  0 | task {0} | stop processing: n_tokens = {8}, truncated = 0\n",
        i, prompt, prompt * 1.0, 1.0, 1000.0, ms, ms / 100, 100000 / ms, prompt + 100);
  }
  const Analysis a = read_log_text(text);
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  EXPECT_EQ(a.totals.cold, 40);
  const Fit& fit = a.depths.step_ms();
  EXPECT_EQ(fit.n(), 40);
  EXPECT_NEAR(*fit.slope(), 0.001, 1e-6);
  EXPECT_NEAR(*fit.correlation(), 1, 1e-6);
  EXPECT_LT(*a.depths.rate().correlation(), -0.9);
  const auto buckets = a.depths.buckets();
  ASSERT_EQ(buckets.size(), 6u);
  int64_t all = 0;
  for (const Bucket& b : buckets) all += b.totals.requests;
  EXPECT_EQ(all, 40);
  EXPECT_EQ(buckets.back().from, 32768);
  EXPECT_EQ(buckets.back().totals.requests, 8);
}

}  // namespace
}  // namespace lockstep::lab::log
