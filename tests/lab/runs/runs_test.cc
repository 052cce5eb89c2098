#include "lab/runs/runs.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/runs/table.h"

namespace lockstep::lab::runs {
namespace {

std::string refusal(std::string_view text) {
  try {
    parse_runs(text, "x.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_file);
    return error.what();
  }
  return "";
}

const char* kGood = R"({"schema": "lockstep.lab.runs/1", "arm": "control", "metric": "m",
  "exactness": "tokens", "blocks": [{"block": 7, "starts": [{"start": "s1", "rows": [
    {"prompt": "p", "class": "code", "prompt_tokens": 5, "cached_tokens": 0, "generated_tokens": 512,
     "decode_ms": 5041.1, "decode_tok_s": 101.37, "token_sha256": "ab",
     "draft": {"steps": 66, "drafted": 462, "accepted": 445}},
    {"generated_tokens": 11, "decode_ms": 100}]}]}]})";

TEST(Runs, ReadsTheResultObjectsFields) {
  const Runs runs = parse_runs(kGood, "x.json");
  ASSERT_EQ(runs.rows.size(), 2u);
  EXPECT_EQ(runs.metric, "m");
  EXPECT_EQ(runs.exactness, "tokens");
  const Row& row = runs.rows[0];
  EXPECT_EQ(row.block, "7");
  EXPECT_EQ(row.arm, "control");
  EXPECT_EQ(row.prompt_class, "code");
  EXPECT_EQ(row.accepted, 445);
  EXPECT_EQ(row.cached_tokens, 0);
  // The notes' row: 66 steps of 76.38 ms, 7.74 tokens each.
  const stats::Speed speed = row.speed();
  EXPECT_NEAR(*speed.ms_per_step, 5041.1 / 66, 1e-9);
  EXPECT_NEAR(*speed.tokens_per_step, 7.74, 0.005);
  EXPECT_NEAR(*speed.tokens_per_step / *speed.ms_per_step * 1000, row.tok_s, 1e-9);
  // A rate that is not there is made from tokens and time; what is missing stays missing.
  EXPECT_NEAR(runs.rows[1].tok_s, 100, 1e-9);
  EXPECT_FALSE(runs.rows[1].cached_tokens);
  EXPECT_EQ(runs.rows[1].order, 1);
}

TEST(Runs, TellsTheDenominator) {
  Row row;
  row.generated_tokens = 512;
  row.decode_ms = 5041.10;
  row.tok_s = 101.37;
  EXPECT_EQ(denominator(row), Denominator::after_first);
  row.tok_s = 101.57;
  EXPECT_EQ(denominator(row), Denominator::all_tokens);
  row.tok_s = 90;
  EXPECT_EQ(denominator(row), Denominator::other);
  row.decode_ms.reset();
  EXPECT_EQ(denominator(row), Denominator::unknown);
}

TEST(Runs, RefusesWithThePlace) {
  EXPECT_NE(refusal("{").find("not JSON"), std::string::npos);
  EXPECT_NE(refusal("[1]").find("not a lockstep.lab.runs/1 object"), std::string::npos);
  EXPECT_NE(refusal(R"({"schema": "lockstep.run/1"})").find("lockstep.run/1"), std::string::npos);
  EXPECT_NE(refusal(R"({"schema": "lockstep.lab.runs/1"})").find("has no \"blocks\""),
            std::string::npos);
  const auto with_row = [](const std::string& row) {
    return R"({"schema": "lockstep.lab.runs/1", "blocks": [{"starts": [{"rows": [)" + row +
           "]}]}]}";
  };
  for (const char* row :
       {R"({"decode_tok_s": 0})", R"({"decode_tok_s": -3})", R"({"decode_tok_s": "fast"})",
        R"({"decode_tok_s": 1, "prompt_tokens": 1.5})", R"({"decode_tok_s": 1, "decode_ms": -1})",
        R"({"decode_tok_s": 1, "draft": []})", R"({"decode_tok_s": 1e300})", R"({})", "7"}) {
    EXPECT_NE(refusal(with_row(row)).find("blocks[0].starts[0].rows[0]"), std::string::npos) << row;
  }
  EXPECT_NE(refusal(with_row("")).find("has no rows"), std::string::npos);
  EXPECT_EQ(refusal(with_row(R"({"decode_tok_s": 1})")), "");
  EXPECT_NE(refusal(std::string(100000, '[')).find("not JSON"), std::string::npos);
}

TEST(Csv, QuotesEndingsAndBadLines) {
  const Csv csv =
      parse_csv("\xEF\xBB\xBFName , b\r\n\"x, \"\"y\"\"\n\",2\r\n\nonly one\n3,4", "t.csv");
  ASSERT_EQ(csv.header, (std::vector<std::string>{"name", "b"}));
  ASSERT_EQ(csv.records.size(), 2u);
  EXPECT_EQ(csv.records[0].fields[0], "x, \"y\"\n");
  EXPECT_EQ(csv.records[1].line, 6);
  EXPECT_EQ(csv.skipped, 1);
  EXPECT_EQ(csv.first_skipped_line, 5);
  EXPECT_EQ(csv.column("b"), 1);
  EXPECT_EQ(csv.column("c"), -1);
  EXPECT_EQ(parse_csv("a\n\"open", "t").skipped, 1);
  EXPECT_THROW(parse_csv("\xFF\xFE"
                         "a",
                         "t"),
               Error);
  EXPECT_THROW(parse_csv(std::string_view("a\0b", 3), "t"), Error);
  EXPECT_THROW(parse_csv("\n\n", "t"), Error);
  EXPECT_THROW(parse_csv(std::string(100, ','), "t"), Error);
}

TEST(Runs, TableKeepsTheGoodRowsAndCountsTheOthers) {
  const Runs runs = parse_runs(
      "block,arm,start,prompt,tok_s,steps,decode_ms,cached_tokens\n"
      "1,a,s1,p,100,66,5000,0\n1,a,s1,q,101,,,\n1,b,s2,p,fast,,,\n1,b,s2,p,-1,,,\n"
      "1,b,,p,100,,,\n1,b,s2,p,100,x,,\n1,b,s2\n2,b,s2,p,nan,,,\n",
      "t.csv");
  EXPECT_EQ(runs.rows.size(), 2u);
  EXPECT_EQ(runs.skipped, 6);
  EXPECT_EQ(runs.rows[1].order, 1);
  EXPECT_EQ(runs.rows[0].steps, 66);
  EXPECT_FALSE(runs.rows[1].steps);
  EXPECT_NE(refusal("block,start\n1,2\n").find("no columns"), std::string::npos);
  EXPECT_NE(refusal("block,start,tok_s\n").find("no rows"), std::string::npos);
  EXPECT_NE(refusal("block,start,tok_s\n1,s,x\n").find("none of its 1 rows"), std::string::npos);
  EXPECT_NE(refusal("block,start,tok_s,metric\n1,s,1,m\n1,s,1,n\n").find("V7"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::lab::runs
