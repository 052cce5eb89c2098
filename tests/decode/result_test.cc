#include "decode/result.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "arms.h"

namespace lockstep::decode::test {
namespace {

using lockstep::test::hooked_backend;

TEST(Result, HashesIdsAsLittleEndianInt32) {
  // printf '\x01\x00\x00\x00\x00\x01\x00\x00' | sha256sum
  EXPECT_EQ(token_sha256(Tokens{1, 256}),
            "242045e2f1bb37769b514f182fd91b3d215324cb57f187cced1e9c62921dbac3");
}

TEST(Result, SaysAllThatItsTextAndSpeedDependOn) {
  std::mt19937_64 rng(4);
  const Tokens prompt = random_prompt(rng, 40);
  SessionOptions options;
  options.max_tokens = 25;
  options.context = 200;
  options.k_type = state::KvType::q8_0;
  options.sampling.seed = 0xFFFFFFFFFFFFFFFFu;
  options.sampling.top_p = 0.9f;
  options.sampling.logit_bias = {{3, -INFINITY}, {4, 0.1f}};
  Session plain(tiny_model(kLlama), hooked_backend(), options);
  const Trace reference = run(plain, prompt);
  options.source = replay_source(joined(prompt, reference.tokens), 0.7);
  options.depth = {.n_max = 4, .n_min = 1, .p_min = 0.3f};
  Session session(tiny_model(kLlama), hooked_backend(), options);
  run(session, prompt);
  session.add_emit_ms(1.5);
  const Result result = make_result(session, {"lockstep test", "ab12"});
  const nlohmann::ordered_json json = to_json(result);

  EXPECT_EQ(json["prompt_tokens"], 40);
  EXPECT_EQ(json["cached_tokens"], 0);
  EXPECT_EQ(json["generated_tokens"], 25);
  EXPECT_EQ(json["token_sha256"], token_sha256(reference.tokens));
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["synthetic"], true);
  EXPECT_FALSE(json.contains("fault"));
  for (const char* field : {"ttft_ms", "decode_ms", "decode_tok_s", "wall_tok_s"}) {
    EXPECT_GT(json[field].get<double>(), 0.0) << field;
  }
  const auto& draft = json["draft"];
  EXPECT_EQ(draft["source"], "replay");
  EXPECT_EQ(draft["accepted"].get<int64_t>() + draft["steps"].get<int64_t>(), 25);
  EXPECT_LE(draft["per_position"].size(), 4u);
  ASSERT_EQ(draft["depths"].size(), 5u);
  int64_t steps = 0;
  for (const auto& n : draft["depths"]) steps += n.get<int64_t>();
  EXPECT_EQ(draft["steps"], steps);
  ASSERT_EQ(draft["parts"].size(), 1u);
  EXPECT_EQ(draft["parts"][0]["source"], "replay");
  EXPECT_EQ(draft["parts"][0]["drafted"], draft["drafted"]);
  EXPECT_EQ(draft["parts"][0]["accepted"], draft["accepted"]);
  EXPECT_EQ(draft["parts"][0]["per_position"], draft["per_position"]);
  EXPECT_NEAR(draft["mean_accepted_len"].get<double>(), 25.0 / draft["steps"].get<double>(), 1e-12);
  for (const char* phase : {"prompt", "draft", "verify", "sample", "commit", "emit"}) {
    EXPECT_GE(json["phases_ms"][phase].get<double>(), 0.0) << phase;
  }
  EXPECT_EQ(json["phases_ms"]["emit"], 1.5);

  const auto& identity = json["identity"];
  EXPECT_EQ(identity["law"], "ls1");
  EXPECT_EQ(identity["engine"], "lockstep test");
  EXPECT_EQ(identity["binary_sha256"], "ab12");
  EXPECT_EQ(identity["model_sha256"].get<std::string>().size(), 64u);
  EXPECT_FALSE(identity["model_name"].get<std::string>().empty());
  EXPECT_EQ(identity["device"], "cpu");
  EXPECT_FALSE(identity["isa"].get<std::string>().empty());
  EXPECT_EQ(identity["threads"], 1);
  EXPECT_EQ(identity["k_type"], "q8_0");
  EXPECT_EQ(identity["v_type"], "f16");
  EXPECT_EQ(identity["draft"]["source"], "replay");
  EXPECT_EQ(identity["depth"]["policy"], "fixed");
  EXPECT_EQ(identity["depth"]["n_max"], 4);
  EXPECT_EQ(identity["context"], 200);
  const auto& sampling = identity["sampling"];
  EXPECT_EQ(sampling["seed"].get<uint64_t>(), 0xFFFFFFFFFFFFFFFFu);
  EXPECT_EQ(sampling["top_p"].dump(), "0.9");  // as it was written, not 0.8999999761581421
  EXPECT_EQ(sampling["logit_bias"].dump(), "[[3,false],[4,0.1]]");
  EXPECT_EQ(sampling["samplers"].size(), 5u);
}

TEST(Result, AModelAsDrafterIsNamedByItsHash) {
  SessionOptions options;
  options.max_tokens = 3;
  const auto model = tiny_model(kLlamaOther);
  options.source = std::make_shared<draft::ModelSource>(model, hooked_backend(), kVocab);
  options.depth = {.n_max = 2, .automatic = true};
  Session session(tiny_model(kLlama), hooked_backend(), options);
  run(session, Tokens{1, 2, 3});
  const auto json = to_json(make_result(session, {}));
  EXPECT_EQ(json["identity"]["draft"]["sha256"], to_hex(model->file_sha256()));
  EXPECT_EQ(json["identity"]["depth"]["policy"], "auto");
  EXPECT_TRUE(json["identity"]["binary_sha256"].is_null()) << "not known is no empty hash";
}

TEST(Result, TheFirstStepsTokensAreNotCountedIntoTheDecodeRate) {
  Result result;
  result.generated_tokens = 21;
  result.timing = {.ttft_ms = 50, .decode_ms = 200, .wall_ms = 250, .first_tokens = 5};
  EXPECT_DOUBLE_EQ(result.decode_tok_s(), 80.0);
  EXPECT_DOUBLE_EQ(result.wall_tok_s(), 84.0);
  result.timing = {};
  EXPECT_EQ(result.decode_tok_s(), 0.0);
}

}  // namespace
}  // namespace lockstep::decode::test
