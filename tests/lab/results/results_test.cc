// Result files as objects: what is read, what is marked as not known, what is skipped and refused.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

#include "base/error.h"
#include "lab/csv/csv.h"
#include "lab/results/catalog.h"
#include "lab/results/kinds.h"
#include "lab/results/reader.h"

using namespace lockstep;
using namespace lockstep::lab;

namespace {

std::string file(std::string_view name) {
  std::ifstream in(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/data/lab/" + std::string(name),
                   std::ios::binary);
  EXPECT_TRUE(in) << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string refusal(std::string_view bytes) {
  try {
    read_result("x", bytes);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_file);
    return error.what();
  }
  return "accepted";
}

std::string joined(const std::vector<Setting>& settings) {
  std::string out;
  for (const Setting& s : settings) out += (out.empty() ? "" : " ") + s.key + "=" + s.value;
  return out;
}

TEST(Fingerprint, OneSettingInEverySpelling) {
  for (const std::string_view text :
       {"MTP_P_MIN=0.136", "MTP_P_MIN=0.1360", "p_min=0.13600", "--spec-draft-p-min 0.136",
        "exact record threshold control, p_min=0.13600", "--draft-p-min=0.136", "p_min 0.136"}) {
    EXPECT_EQ(joined(settings_of_text(text)), "p_min=0.136") << text;
  }
  for (const std::string_view name :
       {"gemma4-q8-gpu0-recordcontrol-pmin0136-screen-20260626T0640Z", "x-pmin013600-y"}) {
    EXPECT_EQ(joined(settings_of_run_name(name)), "p_min=0.136") << name;
  }
  EXPECT_EQ(fingerprint(settings_of_text("THREADS=16, MTP_P_MIN=0.136")),
            fingerprint(settings_of_text("p_min=0.1360 --threads 16")));
  // The controls: another value, and one setting more, are something else.
  EXPECT_NE(fingerprint(settings_of_text("p_min=0.1361")),
            fingerprint(settings_of_text("p_min=0.136")));
  EXPECT_NE(fingerprint(settings_of_text("p_min=0.136")),
            fingerprint(settings_of_text("p_min=0.136, THREADS=16")));
}

TEST(Fingerprint, ThePhrasesOfTables) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"draft K/V q8_0/q8_0", "draft_k_type=q8_0 draft_v_type=q8_0"},
      {"B/U=512, THREADS=8", "batch=512 threads=8 ubatch=512"},
      {"BATCH/UBATCH=768", "batch=768 ubatch=768"},
      {"MTP_N_MAX=8, direct unroll 8", "n_max=8 unroll=8"},
      {"LLAMA_X=1, n=7, direct-unroll7", "llama_x=1 n_max=7 unroll=7"},
      {"Q4_K_M-MTP", "draft_quant=q4_k_m"},
      {"Q8_0 target / Q4_0 MTP current stack", "draft_quant=q4_0 target_quant=q8_0"},
      {"MTP_P_MIN=0.136, draft batch threads 36", "draft_threads_batch=36 p_min=0.136"},
      {"on q8_0/f16 q8_0/q8_0",
       "draft_k_type=q8_0 draft_v_type=q8_0 flash_attn=1 k_type=q8_0 v_type=f16"},
      {"-fa on -ctk q8_0 --no-mmap", "flash_attn=1 k_type=q8_0 no_mmap=1"},
      {"control repeat", ""},
      {"0.139", ""},
  };
  for (const auto& [text, settings] : cases)
    EXPECT_EQ(joined(settings_of_text(text)), settings) << text;
  EXPECT_EQ(joined(settings_of_run_name(
                "g-gpu0-b768u768-n8unroll8-th16-dtb36-psplit005-draftq4km-20260624T18Z")),
            "batch=768 draft_quant=q4_k_m draft_threads_batch=36 n_max=8 p_split=0.05 threads=16 "
            "ubatch=768 unroll=8");
}

TEST(Fingerprint, IsIdempotent) {
  for (const Setting& s :
       settings_of_text("MTP_P_MIN=0.10, -fa on, POLL=75, UR_L0_USE_COPY_ENGINE=0")) {
    EXPECT_EQ(canonical_key(s.key), s.key);
    EXPECT_EQ(canonical_value(s.value), s.value);
  }
}

TEST(Csv, Rfc4180) {
  const auto rows = read_csv("a,b\r\n\"x,\"\"1\"\"\",\"two\nlines\"\n\nlast,\n");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].cells, (std::vector<std::string>{"x,\"1\"", "two\nlines"}));
  EXPECT_EQ(rows[1].line, 2);
  EXPECT_EQ(rows[2].line, 5);
  EXPECT_EQ(rows[2].cells, (std::vector<std::string>{"last", ""}));
  EXPECT_EQ(read_csv("a,").back().cells.size(), 2u);
  EXPECT_NE(read_csv("a\n\"open").back().fault, "");
  EXPECT_NE(read_csv("\"a\"b,c").back().fault, "");
  EXPECT_NE(read_csv(std::string(2'000'000, 'x')).back().fault, "");
}

TEST(RunsCsv, TheGemmaTable) {
  const Reading reading = read_result("gemma", file("gemma4-b70-runs.csv"));
  EXPECT_EQ(reading.format, "runs-csv");
  EXPECT_EQ(reading.skipped, 0u);
  EXPECT_TRUE(reading.notes.empty()) << reading.notes[0];
  const Catalog catalog(reading);
  EXPECT_EQ(catalog.of(Kind::run).size(), 221u);
  EXPECT_EQ(catalog.of(Kind::row).size(), 221u);
  EXPECT_EQ(catalog.of(Kind::verdict).size(), 221u);
  EXPECT_EQ(catalog.of(Kind::claim).size(), 3u);
  std::map<std::string, int> verdicts;
  for (const auto* verdict : catalog.of(Kind::verdict))
    ++verdicts[verdict->object.value("verdict")];
  EXPECT_EQ(verdicts["not_better"], 191);
  EXPECT_EQ(verdicts["better"], 3);
  EXPECT_EQ(verdicts["invalid"], 2);
  EXPECT_EQ(verdicts["unknown"], 25);  // 12 wins of a screen, 8 controls, 3 diagnostics, 2 others
  // Two lanes: the target's quantisation is another.
  std::map<std::string, int> lanes;
  for (const auto* run : catalog.of(Kind::run)) ++lanes[run->object.value("lane")];
  EXPECT_EQ(lanes["gemma4-q80target"], 4);
  EXPECT_EQ(lanes["gemma4-q8"] + lanes["gemma4-q80target"], 221);
  for (const auto& item : catalog.items()) {
    EXPECT_EQ(fault_of(item.object), "");
    for (const Fact& fact : item.object.facts()) {
      // Somebody's table: nothing of it is measured here.
      EXPECT_TRUE(fact.provenance != Provenance::verified || fact.name == "artifact" ||
                  fact.name == "place" || fact.name == "format")
          << fact.name;
    }
  }
  // An empty cell is absent, and no zero.
  const auto* first = catalog.of(Kind::row)[0];
  EXPECT_EQ(first->object.find("ttft_ms")->type, FactType::absent);
  EXPECT_EQ(first->object.find("cached_tokens")->type, FactType::absent);
  EXPECT_EQ(first->object.find("decode_tok_s")->number(), 100.824);
}

TEST(RunsCsv, OtherColumnsAndBadLines) {
  EXPECT_NE(refusal("a,b,c\n1,2,3\n").find("without the column run"), std::string::npos);
  const Reading reading =
      read_result("x",
                  "verdict,run,change,fresh_tok_s,mood\nvalid_loss,a,X=1,fast,good\ncut,short\n"
                  "promoted,,X=2,3,ok\nsurely,b-gpu0-c,X=2,-3,ok\npromoted,c,X=3,,ok\n");
  EXPECT_EQ(reading.skipped, 2u);  // a line of two cells, a line without a name
  const Catalog catalog(reading);
  ASSERT_EQ(catalog.of(Kind::row).size(), 3u);
  EXPECT_EQ(catalog.of(Kind::row)[0]->object.find("decode_tok_s")->type, FactType::absent);
  EXPECT_EQ(catalog.of(Kind::row)[1]->object.find("decode_tok_s")->number(), -3);  // kept as it is
  EXPECT_EQ(catalog.of(Kind::verdict)[1]->object.value("verdict"), "unknown");
  EXPECT_EQ(catalog.of(Kind::claim).size(), 0u);  // promoted without a figure claims nothing
  EXPECT_GE(reading.notes.size(), 4u);
}

constexpr std::string_view kLlamaBench =
    R"([{"build_commit":"8cf427ff","build_number":5163,"cpu_info":"Ryzen","gpu_info":"RTX 4080","backends":"CUDA",)"
    R"("model_filename":"m.gguf","model_type":"qwen2 7B Q4_K - Medium","model_size":4677120000,"n_batch":2048,)"
    R"("n_threads":8,"type_k":"f16","type_v":"f16","n_prompt":0,"n_gen":128,"n_depth":0,)"
    R"("test_time":"2025-04-24T11:58:51Z","avg_ns":1076767880,"avg_ts":118.881588,"stddev_ts":1.0,)"
    R"("samples_ts":[119.03,120.178,119.43,118.307,117.464]}])";

TEST(LlamaBench, JsonJsonlAndCsvSayTheSame) {
  const std::string_view json = kLlamaBench;
  const std::string lines = std::string(json.substr(1, json.size() - 2)) + "\n{\"broken\n" +
                            std::string(json.substr(1, json.size() - 2)) + "\n";
  const std::string csv =
      "build_commit,build_number,cpu_info,gpu_info,backends,model_filename,model_type,model_size,n_"
      "prompt,n_gen,"
      "n_depth,test_time,avg_ns,avg_ts,stddev_ts\n\"8cf427ff\",\"5163\",\"Ryzen\",\"RTX "
      "4080\",\"CUDA\",\"m.gguf\","
      "\"qwen2 7B Q4_K - "
      "Medium\",\"4677120000\",\"0\",\"128\",\"0\",\"2025-04-24T11:58:51Z\",\"1076767880\","
      "\"118.881588\",\"1.0\"\n";
  for (const std::string& text : {std::string(json), lines, csv}) {
    const Reading reading = read_result("x", text);
    EXPECT_EQ(reading.format, "llama-bench");
    EXPECT_EQ(reading.skipped, text == lines ? 1u : 0u);
    const Catalog catalog(reading);
    ASSERT_EQ(catalog.of(Kind::row).size(), text == lines ? 2u : 1u);
    const Object& row = catalog.of(Kind::row)[0]->object;
    EXPECT_EQ(row.find("decode_tok_s")->number(), 118.881588);
    EXPECT_EQ(row.value("test"), "tg128");
    EXPECT_EQ(row.find("repetitions")->known(), text != csv);
    const auto* identity = catalog.identity_of(*catalog.of(Kind::row)[0]);
    ASSERT_TRUE(identity);
    EXPECT_EQ(identity->object.value("effective.engine.commit"), "8cf427ff");
    EXPECT_EQ(identity->object.value("effective.device"), "RTX 4080");
    // The file's name is no hash.
    const auto gaps = identity_gaps(identity->object);
    EXPECT_NE(std::find(gaps.begin(), gaps.end(), "model.sha256"), gaps.end());
  }
}

TEST(VllmBench, TotalsAndRequests) {
  const Reading reading = read_result(
      "x",
      R"({"date":"20260101-000000","backend":"vllm","label":null,"model_id":"m","tokenizer_id":"m",
      "num_prompts":2,"request_rate":"inf","max_concurrency":1,"duration":10.0,"completed":2,"failed":0,
      "total_input_tokens":20,"total_output_tokens":200,"request_throughput":0.2,"output_throughput":20.0,
      "median_ttft_ms":5.0,"median_tpot_ms":10.0,"input_lens":[10,10],"output_lens":[101,99],
      "ttfts":[0.005,0.006],"itls":[[0.5,0.5],[0.25,0.25,0.25]],"errors":["",""]})");
  EXPECT_EQ(reading.format, "vllm-bench");
  const Catalog catalog(reading);
  ASSERT_EQ(catalog.of(Kind::row).size(), 2u);
  const Object& row = catalog.of(Kind::row)[0]->object;
  EXPECT_EQ(row.find("decode_tok_s")->number(), 100);
  EXPECT_EQ(row.find("events")->integer(), 3);
  EXPECT_EQ(row.find("cached_tokens")->type, FactType::absent);
  EXPECT_EQ(catalog.of(Kind::run)[0]->object.value("concurrency"), "1");
}

TEST(LabLog, LivesAndRequests) {
  const Reading reading = read_result(
      "x",
      R"({"schema":"lockstep.lab.log/1","servers":[{"engine":"llama-server","started_here":true,"n_slots":1,
      "speculation":[{"type":"draft-mtp","n_max":7}],"draft_length":{"effective":5}},{"engine":"llama-server","started_here":false}],
      "requests":[{"server":0,"ordinal":1,"prompt_tokens":588,"cached_tokens":0,"evaluated_tokens":588,
      "generated_tokens":512,"decode_ms":5041.1,"decode_tok_s":101.37,"witnesses":["lru"],
      "draft":{"drafted":105,"accepted":47,"mean_accepted_len":3.24}},{"server":1,"ordinal":1,"generated_tokens":3},
      "garbage"],"contradictions":[{"id":"x","request":1,"text":"no sense"}]})");
  const Catalog catalog(reading);
  EXPECT_EQ(reading.skipped, 1u);
  ASSERT_EQ(catalog.of(Kind::row).size(), 2u);
  const auto* row = catalog.of(Kind::row)[0];
  EXPECT_EQ(row->object.find("index")->integer(), 0);
  EXPECT_EQ(identity_mismatches(catalog.identity_of(*row)->object),
            std::vector<std::string>{"n_max: requested 7, effective 5"});
  // The log begins in the middle of the second life: which request it was is not known.
  EXPECT_FALSE(catalog.of(Kind::row)[1]->object.find("index")->known());
  EXPECT_TRUE(catalog.of(Kind::row)[1]->object.find("contradictions"));
}

// What llama-server b11434 answered (tests/data/lab/logs/plain-np4.json), as a client keeps it.
TEST(ServerAnswer, TokensCachedIsNotReuse) {
  const Reading reading = read_result("answers", R"([
    {"content":"x","tokens_cached":59,"tokens_evaluated":20,"stop_type":"limit","truncated":false,
     "generation_settings":{"n_predict":40,"temperature":0.0},"model":"m.gguf","prompt":"The",
     "tokens":[1,2,70000],
     "timings":{"cache_n":19,"prompt_n":1,"prompt_ms":9.5,"predicted_n":40,"predicted_ms":163791.115,
                "predicted_per_second":0.23810815379088177}},
    {"tokens_cached":51,"tokens_evaluated":19,
     "timings":{"cache_n":0,"prompt_n":19,"predicted_n":32,"predicted_ms":72835.335}},
    {"tokens_cached":0,"timings":{"prompt_n":19,"predicted_n":32,"predicted_ms":72835.335,
                                  "draft_n":10,"draft_n_accepted":4}},
    {"timings":{"predicted_n":3}}])");
  EXPECT_EQ(reading.format, "server-answer");
  EXPECT_EQ(reading.skipped, 1u) << "without a time it is no answer that can be judged";
  const Catalog catalog(reading);
  const auto rows = catalog.of(Kind::row);
  ASSERT_EQ(rows.size(), 3u);
  const Object& warm = rows[0]->object;
  EXPECT_EQ(warm.find("cached_tokens")->integer(), 19);
  EXPECT_EQ(warm.find("prompt_tokens")->integer(), 20);
  EXPECT_EQ(warm.find("requested_tokens")->integer(), 40);
  EXPECT_NEAR(*warm.find("decode_tok_s")->number(), 39 / 163.791115, 1e-9);
  // 01000000 02000000 70110100, by sha256sum.
  EXPECT_EQ(warm.value("token_sha256"),
            "313a9de55e88265f756e61a8793c45193dade4a5b645f7f35082452e6b133604");
  // 51 positions are remembered, and none was taken over.
  EXPECT_EQ(rows[1]->object.find("cached_tokens")->integer(), 0);
  // Nothing says what was taken over; a tokens_cached of 0 does not.
  EXPECT_FALSE(rows[2]->object.find("cached_tokens")->known());
  EXPECT_EQ(rows[2]->object.find("draft.drafted")->integer(), 10);
  EXPECT_FALSE(rows[0]->object.find("draft.drafted")->known());
}

TEST(ServerAnswer, OfChatAndOfLockstep) {
  const Reading reading = read_result("chat", R"({
    "choices":[{"finish_reason":"length","message":{"content":"x"}}],
    "usage":{"prompt_tokens":21,"prompt_tokens_details":{"cached_tokens":2}},
    "timings":{"cache_n":0,"prompt_n":21,"predicted_n":8,"predicted_ms":80.0},
    "lockstep":{"token_sha256":"ab","draft":{"source":""},
                "identity":{"engine":"lockstep 0.1.0","binary_sha256":"cd","threads":2}}})");
  const Catalog catalog(reading);
  const auto* row = catalog.of(Kind::row).at(0);
  EXPECT_EQ(row->object.value("finish_reason"), "length");
  EXPECT_EQ(row->object.value("token_sha256"), "ab");
  EXPECT_EQ(row->object.value("witness.usage_cached_tokens"), "2") << "it contradicts cache_n";
  const Object& identity = catalog.identity_of(*row)->object;
  EXPECT_EQ(identity.value("effective.engine.binary_sha256"), "cd");
  EXPECT_EQ(identity.value("effective.engine.name"), "lockstep");
}

TEST(Reader, RefusesInOneLine) {
  EXPECT_NE(refusal("").find("empty"), std::string::npos);
  EXPECT_NE(refusal(" \n\t").find("blanks"), std::string::npos);
  EXPECT_NE(refusal(std::string_view("\xFF\xFE{\0", 4)).find("UTF-16"), std::string::npos);
  EXPECT_NE(refusal(std::string_view("ab\0cd", 5)).find("binary"), std::string::npos);
  EXPECT_NE(refusal("{\"schema\":\"lockstep.run/9\"}").find("lockstep.run/9"), std::string::npos);
  EXPECT_NE(refusal("{\"a\":1}").find("no result that is known"), std::string::npos);
  EXPECT_NE(refusal("{\"a\":").find("ends in the middle"), std::string::npos);
  EXPECT_NE(refusal("just words").find("neither JSON nor CSV"), std::string::npos);
  EXPECT_NE(refusal("[1,2]").find("no row"), std::string::npos);
  EXPECT_NE(refusal(std::string(100'000, '[')), "accepted");
  EXPECT_NE(refusal(std::string(10'000'000, 'x')), "accepted");
}

TEST(Object, TheSameContentHasTheSameId) {
  const Origin origin{Provenance::logged, "here"};
  const auto made = [&](double rate, Provenance provenance) {
    Object object(Kind::row);
    object.real({provenance, "here"}, "decode_tok_s", rate);
    return object.id();
  };
  EXPECT_EQ(made(100.5, Provenance::logged), made(100.5, Provenance::logged));
  EXPECT_NE(made(100.5, Provenance::logged), made(100.6, Provenance::logged));
  EXPECT_NE(made(100.5, Provenance::logged), made(100.5, Provenance::reported));
  Object absent(Kind::row), zero(Kind::row);
  absent.absent(origin, "cached_tokens", "");
  zero.integer(origin, "cached_tokens", 0);
  EXPECT_NE(absent.id(), zero.id());
  // Bytes that PostgreSQL would not take become U+FFFD.
  Object text(Kind::row);
  text.text(origin, "name", std::string_view("a\0\xFFz", 4));
  EXPECT_EQ(text.value("name"), "a\xEF\xBF\xBD\xEF\xBF\xBDz");
}

TEST(Identity, RetryConditions) {
  Object identity(Kind::identity);
  identity.text({Provenance::logged, ""}, "effective.engine.commit", "abc");
  EXPECT_EQ(retry_holds("never", &identity), false);
  EXPECT_EQ(retry_holds("when engine.commit != abc", &identity), false);
  EXPECT_EQ(retry_holds("when engine.commit != def", &identity), true);
  EXPECT_EQ(retry_holds("when engine.commit = abc", &identity), true);
  EXPECT_EQ(retry_holds("when driver != 1", &identity), std::nullopt);
  EXPECT_EQ(retry_holds("when somebody finds out why", &identity), std::nullopt);
  EXPECT_EQ(retry_holds("when engine.commit != def", nullptr), std::nullopt);
}

TEST(Kinds, RefuseWhatTheyDoNotHave) {
  const Origin origin;
  EXPECT_NE(fault_of(Object(Kind::row).text(origin, "mood", "good")), "");
  EXPECT_NE(fault_of(Object(Kind::row).text(origin, "cached_tokens", "0")), "");
  EXPECT_EQ(fault_of(Object(Kind::row).integer(origin, "decode_tok_s", 100)), "");
  EXPECT_NE(fault_of(Object(Kind::row).ref(origin, "run", "abc")), "");
  Object verdict(Kind::verdict);
  verdict.ref(origin, "candidate", std::string(64, '0'));
  EXPECT_NE(fault_of(verdict), "");
  EXPECT_NE(fault_of(verdict.text(origin, "verdict", "great")), "");
  EXPECT_EQ(fault_of(verdict.text(origin, "verdict", "better")), "");
  verdict.absent(origin, "verdict", "not said");
  EXPECT_NE(fault_of(verdict), "");
}

}  // namespace
