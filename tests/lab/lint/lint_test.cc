// V1 to V12: each rule that holds, fails, and can't be judged, on rows made for it.
#include "lab/lint/lint.h"

#include <gtest/gtest.h>

#include "lab/lint/row_context.h"
#include "lab/results/reader.h"

using namespace lockstep::lab;

namespace {

const Origin kLogged{Provenance::logged, "test"};

// A run with its identity, candidate and rows, out of facts that a test names.
struct Result {
  Object identity{Kind::identity}, candidate{Kind::candidate}, run{Kind::run}, row{Kind::row};
  bool with_identity = true, with_candidate = false;
  std::vector<Object> more_rows;

  Result() {
    for (const std::string_view key : kIdentityKeys) effective(key, std::string(key));
    effective("draft.source", "");
  }
  Result& effective(std::string_view key, std::string_view value) {
    identity.text(kLogged, "effective." + std::string(key), value);
    return *this;
  }
  Result& requested(std::string_view key, std::string_view value) {
    identity.text(kLogged, "requested." + std::string(key), value);
    return *this;
  }
  Result& count(std::string_view name, int64_t value) {
    row.integer(kLogged, name, value);
    return *this;
  }
  Result& real(std::string_view name, double value) {
    row.real(kLogged, name, value);
    return *this;
  }
  Result& text(std::string_view name, std::string_view value) {
    row.text(kLogged, name, value);
    return *this;
  }
  Result& json(std::string_view name, std::string_view value) {
    row.json(kLogged, name, value);
    return *this;
  }
  Result& flag(std::string_view name, bool value) {
    row.boolean(kLogged, name, value);
    return *this;
  }
  Result& run_count(std::string_view name, int64_t value) {
    run.integer(kLogged, name, value);
    return *this;
  }
  Result& setting(std::string_view key, std::string_view value) {
    candidate.text(kLogged, "setting." + std::string(key), value);
    candidate.text(kLogged, "fingerprint", fingerprint(settings_of(candidate)));
    with_candidate = true;
    return *this;
  }

  Catalog catalog() const {
    Catalog out;
    Object r = run;
    if (with_identity) {
      out.add(identity.id(), identity);
      r.ref(kLogged, "identity", identity.id());
    }
    if (with_candidate) {
      out.add(candidate.id(), candidate);
      r.ref(kLogged, "candidate", candidate.id());
    }
    out.add(r.id(), r);
    Object first = row;
    first.ref(kLogged, "run", r.id());
    out.add(first.id(), first);
    for (Object other : more_rows) {
      other.ref(kLogged, "run", r.id());
      out.add(other.id(), other);
    }
    return out;
  }
};

Finding judge(const Result& result, size_t rule, LintOptions options = {}) {
  const Catalog catalog = result.catalog();
  const auto rows = lint(catalog, options);
  EXPECT_FALSE(rows.empty());
  return rows.at(0).findings.at(rule - 1);
}

#define EXPECT_OUTCOME(result, rule, expected, says)                                     \
  do {                                                                                   \
    const Finding finding = judge(result, rule);                                         \
    EXPECT_EQ(name_of(finding.outcome), name_of(Outcome::expected)) << finding.sentence; \
    EXPECT_NE(finding.sentence.find(says), std::string::npos) << finding.sentence;       \
    EXPECT_EQ(finding.advice.empty(), finding.outcome == Outcome::holds);                \
  } while (false)

Object suite_row(int i, int64_t cached) {
  Object row(Kind::row);
  row.integer(kLogged, "index", i);
  row.integer(kLogged, "cached_tokens", cached);
  row.text(kLogged, "prompt_sha256", "prompt " + std::to_string(i));
  return row;
}

TEST(V1First, Holds) {
  EXPECT_OUTCOME(Result().count("index", 0), 1, holds, "first row");
}
TEST(V1First, HoldsInAColdSuite) {
  Result result;
  result.row = suite_row(1, 0);
  for (int i = 2; i <= 12; ++i) result.more_rows.push_back(suite_row(i, 0));
  EXPECT_OUTCOME(result, 1, holds, "cold suite of 12");
  result.more_rows.back() = suite_row(12, 1);  // one warm row, and it is no cold suite
  EXPECT_OUTCOME(result, 1, fails, "row 2 since");
  result.more_rows.back() = suite_row(11, 0);  // the same prompt twice
  EXPECT_OUTCOME(result, 1, fails, "row 2 since");
}
TEST(V1First, Fails) {
  EXPECT_OUTCOME(Result().count("index", 1), 1, fails, "row 2 since");
  EXPECT_OUTCOME(Result().flag("warmed", true).count("repetitions", 5), 1, fails, "5 repetitions");
}
TEST(V1First, Unknown) {
  EXPECT_OUTCOME(Result(), 1, unknown, "not known");
}

TEST(V2Fresh, HoldsWithTwoWitnesses) {
  EXPECT_OUTCOME(Result().count("cached_tokens", 0).count("index", 0), 2, holds, "2 witnesses");
  EXPECT_OUTCOME(
      Result().count("cached_tokens", 0).count("prompt_tokens", 588).count("evaluated_tokens", 588),
      2, holds, "588 of 588");
}
TEST(V2Fresh, FailsOnAnyContradiction) {
  EXPECT_OUTCOME(Result().count("cached_tokens", 1).count("index", 0), 2, fails,
                 "cached_tokens = 1");
  // A false zero: the count says nothing was reused, the evaluated tokens say otherwise.
  EXPECT_OUTCOME(
      Result().count("cached_tokens", 0).count("prompt_tokens", 588).count("evaluated_tokens", 12),
      2, fails, "12 of 588");
  EXPECT_OUTCOME(
      Result().count("cached_tokens", 0).count("index", 0).json("witnesses", R"(["similarity"])"),
      2, fails, "begins alike");
  EXPECT_OUTCOME(
      Result().count("cached_tokens", 0).count("index", 3).text("draft.source", "ngram-mod"), 2,
      fails, "n-gram");
}
TEST(V2Fresh, UnknownWithOneOrNone) {
  EXPECT_OUTCOME(Result(), 2, unknown, "missing is not zero");
  EXPECT_OUTCOME(Result().count("cached_tokens", 0), 2, unknown, "one witness alone");
  // The absent field is no witness.
  Result absent;
  absent.row.absent(kLogged, "cached_tokens", "not in the file");
  absent.count("index", 0);
  EXPECT_OUTCOME(absent, 2, unknown, "one witness alone");
  // The line that says zero and the zero that was read there are one.
  EXPECT_OUTCOME(Result()
                     .count("cached_tokens", 0)
                     .text("cached_from", "log")
                     .json("witnesses", R"(["cached_zero"])"),
                 2, unknown, "one witness alone");
  // A zero worked out from the evaluated tokens is the same witness as they are.
  EXPECT_OUTCOME(Result()
                     .count("cached_tokens", 0)
                     .text("cached_from", "prompt")
                     .count("prompt_tokens", 9)
                     .count("evaluated_tokens", 9),
                 2, unknown, "one witness alone");
}

TEST(V3Canaries, Holds) {
  Result result;
  result.run_count("canary.passed", 1536)
      .run_count("canary.total", 1536)
      .run_count("canary.max_tokens", 512);
  result.count("generated_tokens", 512);
  EXPECT_OUTCOME(result, 3, holds, "0.2 %");  // 3 / 1536
}
TEST(V3Canaries, Fails) {
  EXPECT_OUTCOME(Result().run_count("canary.passed", 127).run_count("canary.total", 128), 3, fails,
                 "1 of 128");
  Result shorter;
  shorter.run_count("canary.passed", 9)
      .run_count("canary.total", 9)
      .run_count("canary.max_tokens", 16);
  shorter.count("generated_tokens", 512);
  EXPECT_OUTCOME(shorter, 3, fails, "16 tokens");
  Result plain;
  plain.run_count("canary.passed", 9).run_count("canary.total", 9);
  plain.run.boolean(kLogged, "canary.drafting", false);
  plain.text("draft.source", "draft-mtp");
  EXPECT_OUTCOME(plain, 3, fails, "without drafting");
}
TEST(V3Canaries, Unknown) {
  EXPECT_OUTCOME(Result(), 3, unknown, "no canaries");
  EXPECT_OUTCOME(Result().run_count("canary.passed", 128).run_count("canary.total", 128), 3,
                 unknown, "not recorded");
}

TEST(V4Identity, Holds) {
  EXPECT_OUTCOME(Result(), 4, holds, "complete");
  EXPECT_OUTCOME(Result().requested("threads", "8").effective("threads", "8"), 4, holds,
                 "complete");
}
TEST(V4Identity, SaysWhereTheEnvironmentIsNotRecorded) {
  EXPECT_OUTCOME(Result(), 4, holds, "environment variables are not recorded");
  const auto sentence = [](const Result& result) { return judge(result, 4).sentence; };
  EXPECT_EQ(sentence(Result().effective("env.GGML_CUDA_GRAPHS", "unset")).find("environment"),
            std::string::npos);
  Result receipt;
  receipt.identity.text(kLogged, "receipt.environ", "/proc/4711/environ");
  EXPECT_EQ(sentence(receipt).find("environment"), std::string::npos);
  Result own;
  own.identity = Object(Kind::identity);
  for (const std::string_view key : kIdentityKeys) own.effective(key, std::string(key));
  own.effective("draft.source", "").effective("engine.name", "lockstep");
  EXPECT_EQ(sentence(own).find("environment"), std::string::npos) << sentence(own);
}
TEST(V4Identity, Fails) {
  EXPECT_OUTCOME(Result().requested("n_max", "7").effective("n_max", "5"), 4, fails,
                 "n_max: requested 7, effective 5");
  Result lacks;
  lacks.identity.absent(kLogged, "effective.engine.binary_sha256", "not in the file");
  EXPECT_OUTCOME(lacks, 4, fails, "lacks engine.binary_sha256");
  Result none;
  none.with_identity = false;
  EXPECT_OUTCOME(none, 4, fails, "no identity");
}
TEST(V4Identity, Unknown) {
  Result client;
  client.identity = Object(Kind::identity);
  client.requested("model.name", "m");
  EXPECT_OUTCOME(client, 4, unknown, "only what was asked for");
}
TEST(V4Identity, AgainstAControl) {
  const Catalog control = Result().effective("device", "gpu0").catalog();
  LintOptions options;
  options.control = &control;
  options.control_item = control.of(Kind::run)[0];
  EXPECT_EQ(judge(Result().effective("device", "gpu0"), 4, options).outcome, Outcome::holds);
  const Finding other = judge(Result().effective("device", "gpu1"), 4, options);
  EXPECT_EQ(other.outcome, Outcome::fails);
  EXPECT_NE(other.sentence.find("gpu0 there, gpu1 here"), std::string::npos) << other.sentence;
  // Declared as what is changed, it may differ.
  EXPECT_EQ(
      judge(
          Result().effective("threads", "16").effective("device", "gpu0").setting("threads", "16"),
          4, options)
          .outcome,
      Outcome::holds);
}

Result exact_row(std::string_view tokens) {
  return Result()
      .text("prompt_sha256", "p")
      .text("token_sha256", tokens)
      .count("generated_tokens", 512)
      .effective("model.sha256", "m");
}
TEST(V5Exact, AgainstAnOracle) {
  const Catalog oracle = exact_row("aaa").catalog();
  LintOptions options;
  options.oracle = &oracle;
  EXPECT_EQ(judge(exact_row("aaa"), 5, options).outcome, Outcome::holds);
  const Finding differs = judge(exact_row("bbb"), 5, options);
  EXPECT_EQ(differs.outcome, Outcome::fails);
  EXPECT_NE(differs.sentence.find("not the oracle's"), std::string::npos);
}
TEST(V5Exact, FailsWhereTheSamePromptGivesOtherTokens) {
  Result result = exact_row("aaa");
  Object second = exact_row("bbb").row;
  second.integer(kLogged, "index", 1);
  result.more_rows.push_back(second);
  EXPECT_OUTCOME(result, 5, fails, "same prompt gave other tokens");
}
TEST(V5Exact, UnknownWithoutAFittingOracle) {
  EXPECT_OUTCOME(Result(), 5, unknown, "tokens are not recorded");
  EXPECT_OUTCOME(exact_row("aaa"), 5, unknown, "no oracle");
  LintOptions options;
  const auto says = [&](const Result& made_from, std::string_view what) {
    const Catalog oracle = made_from.catalog();
    options.oracle = &oracle;
    const Finding finding = judge(exact_row("aaa").effective("law", "ls1"), 5, options);
    EXPECT_EQ(finding.outcome, Outcome::unknown);
    EXPECT_NE(finding.sentence.find(what), std::string::npos) << finding.sentence;
  };
  says(exact_row("bbb").text("draft.source", "ngram"), "drafting on");
  says(exact_row("bbb").effective("model.sha256", "other"), "another model");
  says(exact_row("bbb").effective("law", "other"), "other kernels");
  says(exact_row("bbb").count("generated_tokens", 100), "100 tokens");
}

// 445 of 462 in 66 steps: 512 tokens, mean length 7.74.
Result s0() {
  return Result()
      .count("draft.accepted", 445)
      .count("draft.drafted", 462)
      .real("draft.mean_len", 7.74)
      .count("generated_tokens", 512)
      .effective("n_max", "7");
}
TEST(V6Closed, Holds) {
  EXPECT_OUTCOME(s0(), 6, holds, "66 steps");
  EXPECT_OUTCOME(
      Result().count("prompt_tokens", 10).count("cached_tokens", 4).count("evaluated_tokens", 6), 6,
      holds, "6 evaluated + 4 cached = 10");
}
TEST(V6Closed, GoldenMeans) {
  // 47 of 105 gives 3.24, 64 of 170 gives 2.88, 828 of 2050 gives 3.02: all with drafts of 5.
  struct Case {
    int64_t accepted, drafted;
    double mean;
  };
  for (const Case c : {Case{47, 105, 3.24}, Case{64, 170, 2.88}, Case{828, 2050, 3.02}}) {
    Result result = Result()
                        .count("draft.accepted", c.accepted)
                        .count("draft.drafted", c.drafted)
                        .real("draft.mean_len", c.mean)
                        .effective("n_max", "5");
    EXPECT_OUTCOME(result, 6, holds, "drafted in");
    EXPECT_EQ(judge(result.real("draft.mean_len", c.mean + 3), 6).outcome, Outcome::fails);
  }
}
TEST(V6Closed, AMeanThatIsRoundedToOne) {
  Result rare = Result()
                    .count("draft.accepted", 1)
                    .count("draft.drafted", 400)
                    .real("draft.mean_len", 1.00)
                    .count("generated_tokens", 402);
  EXPECT_OUTCOME(rare, 6, unknown, "no two of its counts");
  EXPECT_OUTCOME(rare.real("draft.mean_len", 0.9), 6, fails, "mean length 0.90");
}
TEST(V6Closed, Fails) {
  EXPECT_OUTCOME(s0().effective("n_max", "5"), 6, fails, "at most 5");
  EXPECT_OUTCOME(s0().count("draft.accepted", 463), 6, fails, "463 accepted of 462");
  EXPECT_OUTCOME(s0().json("draft.per_position", "[0.9,0.95]"), 6, fails, "rises");
  EXPECT_OUTCOME(
      Result().count("prompt_tokens", 10).count("cached_tokens", 4).count("evaluated_tokens", 7), 6,
      fails, "is not 10");
  EXPECT_OUTCOME(Result().real("decode_tok_s", 100).real("wall_tok_s", 130), 6, fails, "is above");
  EXPECT_OUTCOME(Result().real("decode_ms", -5), 6, fails, "decode_ms = -5");
  EXPECT_OUTCOME(s0().count("draft.accepted", INT64_MAX), 6, fails, "draft.accepted = 9");
  EXPECT_OUTCOME(Result().json("samples_tok_s", "[10,20]").real("tok_s", 12), 6, fails,
                 "samples is");
  EXPECT_OUTCOME(Result().json("contradictions", R"(["the log says so"])"), 6, fails,
                 "the log says so");
}
TEST(V6Closed, Unknown) {
  EXPECT_OUTCOME(Result().count("draft.accepted", 445), 6, unknown, "no two of its counts");
}

TEST(V7Metric, TellsTheDenominators) {
  // 511 / 5.0411 s = 101.37; 512 / 5.0411 s = 101.57.
  EXPECT_EQ(denominator_of(512, 5041.10, 101.37, false), Denominator::steps);
  EXPECT_EQ(denominator_of(512, 5041.10, 101.57, false), Denominator::all);
  EXPECT_EQ(denominator_of(512, 5041.10, 101.47, false), Denominator::neither);
  EXPECT_EQ(denominator_of(100000, 5041.10, 19836.9, false), Denominator::neither);
}
TEST(V7Metric, Holds) {
  Result row = Result().count("generated_tokens", 512).real("decode_ms", 5041.10);
  EXPECT_OUTCOME(row.real("decode_tok_s", 101.37), 7, holds, "n - 1 after");
  EXPECT_OUTCOME(row.real("decode_tok_s", 101.57), 7, holds, "(n - 1) / t is 101.37");
}
TEST(V7Metric, Fails) {
  Result row = Result().count("generated_tokens", 512).real("decode_ms", 5041.10);
  EXPECT_OUTCOME(row.real("decode_tok_s", 90), 7, fails, "neither");
  Result mixed = row.real("decode_tok_s", 101.37);
  Object other = row.real("decode_tok_s", 101.57).row;
  mixed.more_rows.push_back(other);
  EXPECT_OUTCOME(mixed, 7, fails, "divide different things");
  const Catalog control = row.catalog();  // all n
  LintOptions options;
  options.control = &control;
  options.control_item = control.of(Kind::run)[0];
  const Finding finding = judge(row.real("decode_tok_s", 101.37), 7, options);
  EXPECT_EQ(finding.outcome, Outcome::fails);
  EXPECT_NE(finding.sentence.find("the control's rate"), std::string::npos);
}
TEST(V7Metric, Unknown) {
  EXPECT_OUTCOME(Result().real("decode_tok_s", 100), 7, unknown, "not recorded");
  EXPECT_OUTCOME(Result()
                     .count("generated_tokens", 512)
                     .count("events", 120)
                     .real("decode_ms", 5110)
                     .real("decode_tok_s", 100),
                 7, unknown, "512 tokens came in 120 events");
}

TEST(V8Whole, Holds) {
  EXPECT_OUTCOME(Result().count("requested_tokens", 512).count("generated_tokens", 512), 8, holds,
                 "512");
  EXPECT_OUTCOME(Result().count("generated_tokens", 24).text("finish_reason", "length"), 8, holds,
                 "24");
}
TEST(V8Whole, Fails) {
  EXPECT_OUTCOME(Result().count("requested_tokens", 512).count("generated_tokens", 146), 8, fails,
                 "512 tokens were asked for, 146 came");
  EXPECT_OUTCOME(Result().count("generated_tokens", 5).text("finish_reason", "cancelled"), 8, fails,
                 "cancelled");
  EXPECT_OUTCOME(Result().flag("truncated", true), 8, fails, "context was full");
  EXPECT_OUTCOME(Result().run_count("suite.size", 12), 8, fails, "1 rows of a suite of 12");
  EXPECT_OUTCOME(Result().run_count("requests.asked", 10).run_count("requests.completed", 9), 8,
                 fails, "9 of 10");
}
TEST(V8Whole, Unknown) {
  EXPECT_OUTCOME(Result().count("generated_tokens", 146), 8, unknown, "how many were asked for");
}

TEST(V7Metric, AFirstStepOfSeveralTokens) {
  // 5 of 105 tokens came with the first step: 100 in 2 s are 50 tok/s, and neither 52.5 nor 52.
  const auto row = [] {
    return Result().count("generated_tokens", 105).real("decode_ms", 2000).real("decode_tok_s", 50);
  };
  EXPECT_OUTCOME(row(), 7, fails, "neither");
  EXPECT_OUTCOME(row().count("first_tokens", 5), 7, holds, "n - 1");
  EXPECT_OUTCOME(row().count("first_tokens", 4), 7, fails, "neither");
  EXPECT_OUTCOME(row().count("first_tokens", 1), 7, fails, "neither");
}

TEST(V9Alone, Holds) {
  EXPECT_OUTCOME(Result().run_count("slots", 1).run_count("other_processes", 0), 9, holds,
                 "one slot");
}
TEST(V9Alone, Fails) {
  EXPECT_OUTCOME(Result().run_count("slots", 4), 9, fails, "4 slots");
  EXPECT_OUTCOME(Result().run_count("concurrency", 32), 9, fails, "32 requests at a time");
  EXPECT_OUTCOME(Result().run_count("lanes_beside", 3), 9, fails, "3 other lanes");
  EXPECT_OUTCOME(Result().flag("other_slot", true), 9, fails, "another slot");
  EXPECT_OUTCOME(Result().flag("after_fault", true), 9, fails, "fault of the device");
  EXPECT_OUTCOME(Result().flag("after_fault", false), 9, unknown, "not recorded");
  EXPECT_OUTCOME(Result().flag("synthetic", true), 9, fails, "made up");
  EXPECT_OUTCOME(Result().requested("spec_synth_len", "8"), 9, fails, "makes acceptance up");
  EXPECT_OUTCOME(Result().effective("env.ONEAPI_PROFILER", "1"), 9, fails, "profiles");
}
TEST(V9Alone, Unknown) {
  EXPECT_OUTCOME(Result().run_count("slots", 1), 9, unknown, "other processes");
}

TEST(V10Treated, Holds) {
  EXPECT_OUTCOME(Result(), 10, holds, "plain decoding");
  EXPECT_OUTCOME(s0().text("draft.source", "draft-mtp"), 10, holds, "462 tokens were drafted");
  Result receipt = Result().setting("threads", "16");
  receipt.run.text(kLogged, "treatment.receipt", "n_threads = 16");
  EXPECT_OUTCOME(receipt, 10, holds, "n_threads = 16");
}
TEST(V10Treated, Fails) {
  EXPECT_OUTCOME(Result().text("draft.source", "draft-mtp"), 10, fails, "absent is not 100 %");
  EXPECT_OUTCOME(Result().text("draft.source", "draft-mtp").count("draft.drafted", 0), 10, fails,
                 "nothing was drafted");
  Result knob = Result().setting("p_split", "0.05");
  knob.run.text(kLogged, "lane", "gemma4-q8");
  Catalog ledger = knob.catalog();
  Object verdict(Kind::verdict);
  verdict.text(kLogged, "verdict", "not_better").boolean(kLogged, "inert", true);
  verdict.text(kLogged, "lane", "gemma4-q8");
  verdict.ref(kLogged, "candidate", knob.candidate.id());
  ledger.add(verdict.id(), verdict);
  LintOptions options;
  options.ledger = &ledger;
  const Finding finding = judge(knob, 10, options);
  EXPECT_EQ(finding.outcome, Outcome::fails);
  EXPECT_NE(finding.sentence.find("p_split is inert"), std::string::npos) << finding.sentence;
}
TEST(V10Treated, Unknown) {
  EXPECT_OUTCOME(Result().setting("p_min", "0.136"), 10, unknown, "nothing shows that p_min=0.136");
  EXPECT_OUTCOME(Result()
                     .text("draft.source", "ngram-mod")
                     .count("draft.drafted", 3493)
                     .count("draft.accepted", 3493),
                 10, unknown, "every one of 3493");
}

TEST(V11Possible, Holds) {
  // 17.6 GB at 640 GB/s: 36.4 tok/s is the most.
  LintOptions options;
  options.bandwidth_gb_s = 640, options.bytes_per_pass = 17.6e9;
  const Finding finding = judge(Result().real("decode_tok_s", 30), 11, options);
  EXPECT_EQ(finding.outcome, Outcome::holds);
  EXPECT_NE(finding.sentence.find("36.4 tok/s at 1.00"), std::string::npos) << finding.sentence;
  // A drafted row may be faster by its mean length.
  EXPECT_EQ(judge(s0().real("decode_tok_s", 200), 11, options).outcome, Outcome::holds);
}
TEST(V11Possible, Fails) {
  LintOptions options;
  options.bandwidth_gb_s = 640, options.bytes_per_pass = 17.6e9;
  EXPECT_EQ(judge(Result().real("decode_tok_s", 40), 11, options).outcome, Outcome::fails);
  const Finding spilled = judge(Result().real("decode_tok_s", 0.38), 11, options);
  EXPECT_EQ(spilled.outcome, Outcome::fails);
  EXPECT_NE(spilled.sentence.find("below a twentieth"), std::string::npos);
  EXPECT_OUTCOME(Result().real("decode_tok_s", 10).real("ttft_ms", -1), 11, fails, "ttft_ms = -1");
  EXPECT_OUTCOME(Result().real("decode_tok_s", 0), 11, fails, "0 tok/s");
}
TEST(V11Possible, Unknown) {
  EXPECT_OUTCOME(Result().real("decode_tok_s", 30), 11, unknown, "the bandwidth");
}

class V12New : public testing::Test {
 protected:
  // A ledger in which p_min = 0.136 was judged under a lane.
  Catalog ledger(std::string_view verdict_name, std::string_view retry,
                 std::string_view lane = "gemma4-q8") {
    Catalog out = tried_.catalog();
    Object verdict(Kind::verdict);
    verdict.text(kLogged, "verdict", verdict_name).text(kLogged, "lane", lane);
    verdict.ref(kLogged, "candidate", tried_.candidate.id());
    if (retry.empty()) {
      verdict.absent(kLogged, "retry", "not said");
    } else {
      verdict.text(kLogged, "retry", retry);
    }
    out.add(verdict.id(), verdict);
    return out;
  }
  Finding ask(const Catalog& catalog) {
    LintOptions options;
    options.ledger = &catalog;
    Result row = Result().setting("p_min", "0.136").effective("engine.commit", "aaaa");
    row.run.text(kLogged, "lane", "gemma4-q8");
    return judge(row, 12, options);
  }
  Result tried_ = Result().setting("p_min", "0.136");
};
TEST_F(V12New, Holds) {
  EXPECT_EQ(ask(Catalog()).outcome, Outcome::holds);
  EXPECT_EQ(ask(ledger("better", "")).outcome, Outcome::holds);
  EXPECT_EQ(ask(ledger("not_better", "", "another lane")).outcome, Outcome::holds);
  EXPECT_EQ(ask(ledger("not_better", "when engine.commit != bbbb")).outcome, Outcome::holds);
}
TEST_F(V12New, Fails) {
  EXPECT_NE(ask(ledger("not_better", "")).sentence.find("no retry condition"), std::string::npos);
  EXPECT_EQ(ask(ledger("inexact", "")).outcome, Outcome::fails);
  EXPECT_EQ(ask(ledger("fault", "never")).outcome, Outcome::fails);
  EXPECT_EQ(ask(ledger("not_better", "when engine.commit != aaaa")).outcome, Outcome::fails);
}
TEST_F(V12New, Unknown) {
  EXPECT_EQ(ask(ledger("not_better", "when someone has a faster card")).outcome, Outcome::unknown);
  EXPECT_EQ(ask(ledger("not_better", "when law != ls1")).outcome,
            Outcome::unknown);  // law not known
  EXPECT_OUTCOME(Result().setting("p_min", "0.136"), 12, unknown, "no ledger");
}

TEST(Lint, ARunWithoutRowsIsJudgedItself) {
  Catalog catalog;
  Object run(Kind::run);
  run.integer(kLogged, "concurrency", 32);
  catalog.add(run.id(), run);
  const auto rows = lint(catalog, {});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].findings[8].outcome, Outcome::fails);
}

}  // namespace
