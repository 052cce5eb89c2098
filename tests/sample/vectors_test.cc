// The law's sampling vectors against the fast sampler and against the definition.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sample/noise.h"
#include "tests/sample/definition.h"

namespace lockstep::sample {
namespace {

using Json = nlohmann::json;

uint64_t bits(const Json& json) {
  return std::stoull(json.get<std::string>(), nullptr, 16);
}
float f32(const Json& json) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits(json)));
}

std::vector<float> row_of(const Json& json) {
  std::vector<float> row;
  std::istringstream in(json.get<std::string>());
  for (std::string word; in >> word;) {
    row.push_back(std::bit_cast<float>(static_cast<uint32_t>(std::stoul(word, nullptr, 16))));
  }
  return row;
}

Parameters parameters_of(const Json& json) {
  Parameters p;
  p.seed = bits(json["seed"]);
  p.choice_index = json["choice_index"];
  p.temperature = f32(json["temperature"]);
  p.top_k = json["top_k"];
  p.top_p = f32(json["top_p"]);
  p.min_p = f32(json["min_p"]);
  p.repeat_last_n = json["repeat_last_n"];
  p.repeat_penalty = f32(json["repeat_penalty"]);
  p.frequency_penalty = f32(json["frequency_penalty"]);
  p.presence_penalty = f32(json["presence_penalty"]);
  for (const Json& entry : json["logit_bias"]) {
    p.logit_bias.emplace_back(entry[0].get<int32_t>(),
                              entry[1].is_boolean() ? kRemoved : f32(entry[1]));
  }
  p.stages.clear();
  for (const Json& name : json["stages"]) {
    p.stages.push_back(parse_stages(name.get<std::string>()).at(0));
  }
  return p;
}

Json load() {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/tests/law/vectors/sampling.json");
  return Json::parse(in);
}

TEST(SamplingVectors, Philox) {
  const Json json = load();
  ASSERT_FALSE(json["philox"].empty());
  for (const Json& v : json["philox"]) {
    std::array<uint32_t, 4> counter{};
    std::array<uint32_t, 2> key{};
    for (size_t i = 0; i < 4; ++i) counter[i] = static_cast<uint32_t>(bits(v["counter"][i]));
    for (size_t i = 0; i < 2; ++i) key[i] = static_cast<uint32_t>(bits(v["key"][i]));
    const auto words = philox4x32_10(counter, key);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(words[i], bits(v["words"][i]));
  }
}

TEST(SamplingVectors, Noise) {
  const Json json = load();
  ASSERT_FALSE(json["noise"].empty());
  for (const Json& v : json["noise_of_word"]) {
    EXPECT_EQ(std::bit_cast<uint64_t>(noise_of_word(static_cast<uint32_t>(bits(v["word"])))),
              bits(v["g"]));
  }
  for (const Json& v : json["noise"]) {
    const NoiseKey key(bits(v["seed"]), v["position"], v["choice_index"]);
    EXPECT_EQ(std::bit_cast<uint64_t>(noise(key, v["id"])), bits(v["g"]));
  }
}

TEST(SamplingVectors, WeightsAndLogprobs) {
  const Json json = load();
  ASSERT_FALSE(json["weights"].empty());
  for (const Json& v : json["weights"]) {
    const float d = f32(v["d"]);
    uint64_t weight = 0;
    row_ops().weights(&d, 1, 0.0f, static_cast<double>(f32(v["t"])), &weight);
    EXPECT_EQ(weight, v["w"].get<uint64_t>());
  }
  for (const Json& v : json["logprobs"]) {
    EXPECT_EQ(std::bit_cast<uint64_t>(logprob_of(row_of(v["row"]), v["id"])), bits(v["logprob"]));
  }
}

TEST(SamplingVectors, Choices) {
  const Json json = load();
  ASSERT_GE(json["choices"].size(), 60u);
  for (const Json& v : json["choices"]) {
    SCOPED_TRACE(v["name"].get<std::string>());
    const std::vector<float> row = row_of(v["row"]);
    const std::vector<int32_t> history = v["history"];
    const Parameters parameters = parameters_of(v["parameters"]);
    Sampler sampler(parameters, static_cast<int64_t>(row.size()));
    const Choice choice = sampler.choose(row, history, v["position"]);
    std::vector<int32_t> candidates;
    const Choice plain = definition::choose(parameters, row, history, v["position"], &candidates);
    if (v.contains("fault")) {
      EXPECT_TRUE(choice.fault);
      EXPECT_EQ(choice_fault_name(choice.reason), v["fault"]);
      EXPECT_TRUE(plain.fault);
    } else {
      EXPECT_EQ(choice.token, v["token"].get<int32_t>());
      EXPECT_EQ(plain.token, v["token"].get<int32_t>());
      EXPECT_EQ(candidates, v["candidates"].get<std::vector<int32_t>>());
    }
  }
}

}  // namespace
}  // namespace lockstep::sample
