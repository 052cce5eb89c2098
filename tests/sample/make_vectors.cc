// Writes tests/law/vectors/sampling.json from the definition:
//   sampling_vectors > tests/law/vectors/sampling.json
// To be run again only when the law gains a case: what it wrote before must not change.
#include <fmt/format.h>

#include <bit>
#include <iostream>
#include <nlohmann/json.hpp>

#include "sample/noise.h"
#include "tests/sample/definition.h"
#include "tests/sample/random_case.h"

using namespace lockstep;
using namespace lockstep::sample;
using Json = nlohmann::ordered_json;

namespace {

std::string hex(float x) {
  return fmt::format("{:08x}", std::bit_cast<uint32_t>(x));
}
std::string hex(double x) {
  return fmt::format("{:016x}", std::bit_cast<uint64_t>(x));
}

std::string hex_row(const std::vector<float>& row) {
  std::string text;
  for (const float x : row) {
    if (!text.empty()) text += ' ';
    text += hex(x);
  }
  return text;
}

Json parameters_json(const Parameters& p) {
  Json bias = Json::array();
  for (const auto& [id, b] : p.logit_bias) {
    bias.push_back(b == kRemoved ? Json{id, false} : Json{id, hex(b)});
  }
  Json stages = Json::array();
  for (const Stage s : p.stages) stages.push_back(stage_name(s));
  return {{"seed", fmt::format("{:016x}", p.seed)},
          {"choice_index", p.choice_index},
          {"temperature", hex(p.temperature)},
          {"top_k", p.top_k},
          {"top_p", hex(p.top_p)},
          {"min_p", hex(p.min_p)},
          {"repeat_last_n", p.repeat_last_n},
          {"repeat_penalty", hex(p.repeat_penalty)},
          {"frequency_penalty", hex(p.frequency_penalty)},
          {"presence_penalty", hex(p.presence_penalty)},
          {"logit_bias", bias},
          {"stages", stages}};
}

Json choice_json(const std::string& name, const RandomCase& c) {
  std::vector<int32_t> candidates;
  const Choice choice = definition::choose(c.parameters, c.row, c.history, c.position, &candidates);
  Json json = {{"name", name},
               {"parameters", parameters_json(c.parameters)},
               {"position", c.position},
               {"history", c.history},
               {"row", hex_row(c.row)}};
  if (choice.fault) {
    json["fault"] = choice_fault_name(choice.reason);
  } else {
    json["candidates"] = candidates;
    json["token"] = choice.token;
  }
  return json;
}

// Cases that a random draw would seldom give.
std::vector<std::pair<std::string, RandomCase>> special_cases(std::mt19937_64& rng) {
  std::vector<std::pair<std::string, RandomCase>> cases;
  const auto add = [&](const std::string& name, size_t n, auto change) {
    RandomCase c;
    c.row.resize(n);
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (float& x : c.row) x = normal(rng);
    for (int i = 0; i < 12; ++i) c.history.push_back(static_cast<int32_t>(rng() % n));
    c.position = 12;
    c.parameters.seed = 42;
    change(c);
    cases.emplace_back(name, c);
  };
  add("defaults", 300, [](RandomCase&) {});
  add("greedy", 100, [](RandomCase& c) { c.parameters.temperature = 0.0f; });
  add("greedy, ties to the lowest id", 40, [](RandomCase& c) {
    c.parameters.temperature = 0.0f;
    c.row[7] = c.row[9] = c.row[31] = 9.5f;
  });
  add("minus zero equals zero", 8, [](RandomCase& c) {
    c.row = {-0.0f, 0.0f, -0.0f, 0.0f, -1.0f, -1.0f, -0.0f, 0.0f};
    c.parameters.top_k = 3;
    c.parameters.top_p = 1.0f;
  });
  add("temperature one, all ids", 300, [](RandomCase& c) {
    c.parameters.temperature = 1.0f;
    c.parameters.stages = {Stage::temperature};
  });
  add("no stages: temperature one", 64, [](RandomCase& c) {
    c.parameters.temperature = 0.0f;
    c.parameters.stages.clear();
  });
  add("removed ids don't count for top_k", 30, [](RandomCase& c) {
    c.parameters.top_k = 3;
    c.parameters.top_p = 1.0f;
    c.parameters.min_p = 0.0f;
    const auto best = std::max_element(c.row.begin(), c.row.end()) - c.row.begin();
    c.parameters.logit_bias = {{static_cast<int32_t>(best), kRemoved}};
  });
  add("a bias that stands twice", 16, [](RandomCase& c) {
    c.parameters.logit_bias = {{3, 4.0f}, {3, 4.0f}, {5, 100.0f}, {5, kRemoved}, {5, 100.0f}};
  });
  add("bias saturates", 10, [](RandomCase& c) {
    c.row[2] = 3e38f;
    c.row[4] = -3e38f;
    c.parameters.logit_bias = {{2, 3e38f}, {4, -3e38f}};
    c.parameters.stages = {Stage::temperature};
  });
  add("top_p zero keeps one", 20, [](RandomCase& c) { c.parameters.top_p = 0.0f; });
  add("top_p below zero keeps one", 20, [](RandomCase& c) { c.parameters.top_p = -3.0f; });
  add("top_p exactly met", 8, [](RandomCase& c) {
    c.row.assign(8, 1.0f);
    c.parameters.top_p = 0.5f;
    c.parameters.min_p = 0.0f;
  });
  add("min_p one keeps the equals of the first", 12, [](RandomCase& c) {
    c.row[1] = c.row[6] = c.row[11] = 8.0f;
    c.parameters.min_p = 1.0f;
    c.parameters.top_p = 1.0f;
  });
  add("min_p above one keeps the first", 12, [](RandomCase& c) {
    c.row[1] = c.row[6] = c.row[11] = 8.0f;
    c.parameters.min_p = 1.5f;
    c.parameters.top_p = 1.0f;
  });
  add("penalties", 24, [](RandomCase& c) {
    c.parameters.repeat_penalty = 1.3f;
    c.parameters.frequency_penalty = 0.2f;
    c.parameters.presence_penalty = 0.4f;
    c.history = {1, 1, 1, 2, 3, 5, 8, 13, 21, 1};
  });
  add("penalties over the last three", 24, [](RandomCase& c) {
    c.parameters.repeat_penalty = 5.0f;
    c.parameters.repeat_last_n = 3;
    c.history = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  });
  add("penalties over the whole history", 24, [](RandomCase& c) {
    c.parameters.presence_penalty = 3.0f;
    c.parameters.repeat_last_n = -1;
    c.history.clear();
    for (int32_t i = 0; i < 200; ++i) c.history.push_back(i * 7 % 20);
  });
  add("penalties of a zero logit", 8, [](RandomCase& c) {
    c.row = {0.0f, -0.0f, 0.5f, -0.5f, 0.0f, -0.0f, 0.5f, -0.5f};
    c.parameters.repeat_penalty = 2.0f;
    c.history = {0, 1, 2, 3};
    c.parameters.temperature = 0.0f;
  });
  add("penalties off by repeat_last_n", 24, [](RandomCase& c) {
    c.parameters.presence_penalty = 100.0f;
    c.parameters.repeat_last_n = 0;
  });
  add("penalties behind the temperature", 40, [](RandomCase& c) {
    c.parameters.temperature = 0.3f;
    c.parameters.presence_penalty = 2.0f;
    c.parameters.stages = {Stage::temperature, Stage::penalties, Stage::top_p};
  });
  add("top_p behind the temperature", 40, [](RandomCase& c) {
    c.parameters.temperature = 2.0f;
    c.parameters.stages = {Stage::temperature, Stage::top_p};
    c.parameters.top_p = 0.6f;
  });
  add("greedy first, penalties behind change nothing", 20, [](RandomCase& c) {
    c.parameters.temperature = 0.0f;
    c.parameters.presence_penalty = 50.0f;
    c.parameters.repeat_last_n = -1;
    for (int32_t i = 0; i < 20; ++i) c.history.push_back(i);
    c.parameters.stages = {Stage::temperature, Stage::penalties};
  });
  add("greedy behind top_k and penalties", 20, [](RandomCase& c) {
    c.parameters.temperature = 0.0f;
    c.parameters.top_k = 2;
    c.parameters.presence_penalty = 50.0f;
    const auto best = std::max_element(c.row.begin(), c.row.end()) - c.row.begin();
    c.history = {static_cast<int32_t>(best)};
    c.parameters.stages = {Stage::top_k, Stage::penalties, Stage::temperature};
  });
  add("a range that leaves binary32", 9, [](RandomCase& c) {
    c.row = {FLT_MAX, -FLT_MAX, 0.0f, FLT_MAX, -FLT_MAX, 1.0f, 2.0f, 3.0f, 3.4e38f};
    c.parameters.stages = {Stage::temperature};
    c.parameters.temperature = 1.0f;
  });
  add("a tiny temperature", 50, [](RandomCase& c) {
    c.parameters.temperature = 1e-30f;
    c.parameters.stages = {Stage::temperature, Stage::min_p};
  });
  add("choice index 5, a wide seed, a far position", 100, [](RandomCase& c) {
    c.parameters.choice_index = 5;
    c.parameters.seed = 0xFEDCBA9876543210u;
    c.parameters.temperature = 1.0f;
    c.parameters.stages = {Stage::temperature};
    c.position = 4000000000;
  });
  add("fault: infinity under a bias", 12, [](RandomCase& c) {
    c.row[4] = -kRemoved;
    c.parameters.logit_bias = {{4, kRemoved}};
  });
  add("fault: NaN", 12, [](RandomCase& c) { c.row[11] = std::nanf(""); });
  return cases;
}

}  // namespace

int main() {
  std::mt19937_64 rng(20261129);
  Json json;
  json["law"] = "ls1";
  json["about"] =
      "docs/numerics/sampling.md. Numbers in hexadecimal without 0x: 8 digits are binary32 bits or "
      "a "
      "32-bit word, 16 digits binary64 bits or the seed. candidates: the ids step 5 draws among, "
      "sorted.";

  Json philox = Json::array();
  for (int i = 0; i < 4; ++i) {
    std::array<uint32_t, 4> counter{};
    std::array<uint32_t, 2> key{};
    if (i > 0) {
      for (uint32_t& c : counter) c = i == 1 ? 0xFFFFFFFFu : static_cast<uint32_t>(rng());
      for (uint32_t& k : key) k = i == 1 ? 0xFFFFFFFFu : static_cast<uint32_t>(rng());
    }
    Json c = Json::array(), k = Json::array(), w = Json::array();
    for (const uint32_t v : counter) c.push_back(fmt::format("{:08x}", v));
    for (const uint32_t v : key) k.push_back(fmt::format("{:08x}", v));
    for (const uint32_t v : philox4x32_10(counter, key)) w.push_back(fmt::format("{:08x}", v));
    philox.push_back({{"counter", c}, {"key", k}, {"words", w}});
  }
  json["philox"] = philox;

  Json words = Json::array();
  for (const uint32_t w :
       {0u, 1u, 2u, 0x7FFFFFFFu, 0x80000000u, 0x5E2D58D8u, 0xFFFFFFFEu, 0xFFFFFFFFu}) {
    words.push_back({{"word", fmt::format("{:08x}", w)}, {"g", hex(noise_of_word(w))}});
  }
  json["noise_of_word"] = words;
  Json noises = Json::array();
  for (int i = 0; i < 16; ++i) {
    const uint64_t seed = i < 4 ? static_cast<uint64_t>(i) : rng();
    const auto position = static_cast<int64_t>(i % 3 == 0 ? rng() % 0xFFFFFFFF : rng() % 5000);
    const uint32_t choice = i % 4 == 3 ? static_cast<uint32_t>(rng() % 8) : 0;
    const auto id = static_cast<int32_t>(i < 8 ? i : rng() % 262144);
    noises.push_back({{"seed", fmt::format("{:016x}", seed)},
                      {"position", position},
                      {"choice_index", choice},
                      {"id", id},
                      {"g", hex(definition::gumbel(seed, position, choice, id))}});
  }
  json["noise"] = noises;

  Json weights = Json::array();
  for (const float d : {0.0f, -0.0f, -1.0f, -1e-7f, -27.0f, -27.7f, -28.3f, -28.42f, -28.43f,
                        -28.45f, -100.0f, kRemoved, -3.1415927f, -10.5f}) {
    for (const float t : {1.0f, 0.8f}) {
      weights.push_back({{"d", hex(d)},
                         {"t", hex(t)},
                         {"w", definition::weight(d, 0.0f, static_cast<double>(t))}});
    }
  }
  json["weights"] = weights;

  Json logprobs = Json::array();
  for (const size_t n : {1u, 8u, 50u}) {
    const std::vector<float> row = random_row(rng, n);
    const auto id = static_cast<int32_t>(rng() % n);
    logprobs.push_back(
        {{"row", hex_row(row)}, {"id", id}, {"logprob", hex(definition::logprob(row, id))}});
  }
  json["logprobs"] = logprobs;

  Json choices = Json::array();
  for (const auto& [name, c] : special_cases(rng)) choices.push_back(choice_json(name, c));
  for (int i = 0; i < 36; ++i) {
    choices.push_back(choice_json(fmt::format("random {}", i),
                                  random_case(rng, 8 + rng() % (i % 6 == 0 ? 290 : 60))));
  }
  json["choices"] = choices;
  std::cout << json.dump(1) << "\n";
  return 0;
}
