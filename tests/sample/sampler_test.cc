#include "sample/sampler.h"

#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/error.h"
#include "sample/noise.h"
#include "tests/sample/definition.h"
#include "tests/sample/random_case.h"

namespace lockstep::sample {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::string describe(const RandomCase& c) {
  const Parameters& p = c.parameters;
  std::string text = "n " + std::to_string(c.row.size()) + " T " + std::to_string(p.temperature) +
                     " k " + std::to_string(p.top_k) + " p " + std::to_string(p.top_p) + " min_p " +
                     std::to_string(p.min_p) + " last_n " + std::to_string(p.repeat_last_n) +
                     " bias " + std::to_string(p.logit_bias.size()) + " stages";
  for (const Stage s : p.stages) text += std::string(" ") + stage_name(s);
  return text;
}

TEST(Sampler, EqualsTheDefinitionOnHostileRows) {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 20000; ++i) {
    const RandomCase c = random_case(rng, 1 + rng() % (i % 10 == 0 ? 700 : 150));
    Sampler sampler(c.parameters, static_cast<int64_t>(c.row.size()));
    const Choice fast = sampler.choose(c.row, c.history, c.position);
    const Choice plain = definition::choose(c.parameters, c.row, c.history, c.position);
    ASSERT_EQ(fast.token, plain.token) << "case " << i << ": " << describe(c);
    ASSERT_EQ(fast.fault, plain.fault);
  }
}

TEST(Sampler, EqualsTheDefinitionOnLongRows) {
  std::mt19937_64 rng(2);
  for (int i = 0; i < 150; ++i) {
    const RandomCase c = random_case(rng, 5000 + rng() % 8000);
    Sampler sampler(c.parameters, static_cast<int64_t>(c.row.size()));
    ASSERT_EQ(sampler.choose(c.row, c.history, c.position).token,
              definition::choose(c.parameters, c.row, c.history, c.position).token)
        << "case " << i << ": " << describe(c);
  }
}

// A choice from the greatest elements alone is the row's, wherever the sampler says that they are
// enough; with one fewer it is another often enough to be seen.
TEST(Sampler, TheGreatestElementsDecideWhereItSaysSo) {
  std::mt19937_64 rng(12);
  int decided = 0, by_more_than_one = 0, too_few = 0;
  for (int i = 0; i < 40000; ++i) {
    RandomCase c = random_case(rng, 1 + rng() % 200);
    if (rng() % 2 != 0) c.parameters.logit_bias.clear();
    if (rng() % 2 != 0) c.parameters.repeat_last_n = 0;
    Sampler sampler(c.parameters, static_cast<int64_t>(c.row.size()));
    const auto needed = sampler.candidates_needed();
    const Choice whole = sampler.choose(c.row, c.history, c.position);
    if (!needed || whole.fault) continue;
    ++decided;
    if (*needed > 1) ++by_more_than_one;
    std::vector<Candidate> sorted;
    for (size_t id = 0; id < c.row.size(); ++id) {
      sorted.push_back({c.row[id], static_cast<int32_t>(id)});
    }
    std::sort(sorted.begin(), sorted.end(), before);
    const auto n = std::min(sorted.size(), static_cast<size_t>(*needed) + rng() % 3);
    std::vector<Candidate> greatest;
    for (const Candidate& x : sorted) {
      if (x.x >= sorted[n - 1].x) greatest.push_back(x);
    }
    std::shuffle(greatest.begin(), greatest.end(), rng);
    ASSERT_EQ(sampler.choose_among(greatest, c.history, c.position).token, whole.token)
        << "case " << i << ": " << describe(c);
    const size_t few = std::min(sorted.size(), static_cast<size_t>(*needed)) - 1;
    if (few == 0) continue;
    sorted.resize(few);
    if (sampler.choose_among(sorted, c.history, c.position).token != whole.token) ++too_few;
  }
  EXPECT_GT(decided, 5000);
  EXPECT_GT(by_more_than_one, 1000);
  EXPECT_GT(too_few, 20);
}

TEST(Sampler, SaysWhatAChoiceNeedsOfARow) {
  const auto needed = [](auto&& change) {
    Parameters p;
    change(p);
    return Sampler(p, 100).candidates_needed();
  };
  EXPECT_EQ(needed([](Parameters&) {}), 40);
  EXPECT_EQ(needed([](Parameters& p) { p.temperature = 0; }), 1);
  EXPECT_EQ(needed([](Parameters& p) { p.stages = {Stage::min_p, Stage::top_k}; }), 40);
  EXPECT_EQ(needed([](Parameters& p) { p.stages = {Stage::top_k}; }), 40);
  EXPECT_EQ(needed([](Parameters& p) { p.top_k = 0; }), std::nullopt);
  EXPECT_EQ(needed([](Parameters& p) { p.stages = {Stage::top_p, Stage::top_k}; }), std::nullopt);
  EXPECT_EQ(needed([](Parameters& p) { p.presence_penalty = 1; }), std::nullopt);
  EXPECT_EQ(needed([](Parameters& p) { p.logit_bias = {{3, 1.0f}}; }), std::nullopt);
  Parameters whole;
  whole.top_k = 0;
  const std::array<Candidate, 1> one{{{1.0f, 2}}};
  EXPECT_THROW(Sampler(whole, 100).choose_among(one, {}, 0), std::logic_error);
}

// The case that the skipping in draw() is for: everything may win.
TEST(Sampler, WholeVocabularyAtTemperatureOneSkipsNoWinner) {
  std::mt19937_64 rng(3);
  Parameters p;
  p.stages = {Stage::temperature};
  for (int i = 0; i < 400; ++i) {
    const std::vector<float> row = random_row(rng, 3000);
    p.temperature = pick(rng, {1.0f, 0.7f, 2.0f, 30.0f});
    p.seed = rng();
    Sampler sampler(p, 3000);
    ASSERT_EQ(sampler.choose(row, {}, i).token, definition::choose(p, row, {}, i).token) << i;
  }
}

TEST(Sampler, OneObjectGivesWhatAFreshOneGives) {
  std::mt19937_64 rng(4);
  RandomCase first = random_case(rng, 200);
  first.parameters.stages = default_stages();
  first.parameters.logit_bias.clear();
  first.parameters.repeat_last_n = 64;
  first.parameters.presence_penalty = 1000.0f;
  first.parameters.temperature = 0.0f;
  first.parameters.frequency_penalty = 0.5f;
  Sampler kept(first.parameters, 200);
  for (int i = 0; i < 300; ++i) {
    const RandomCase c = random_case(rng, 200);
    Sampler fresh(first.parameters, 200);
    ASSERT_EQ(kept.choose(c.row, c.history, c.position).token,
              fresh.choose(c.row, c.history, c.position).token);
  }
}

// As a library may leave it behind.
TEST(Sampler, TheThreadsFloatModeDoesNotMatter) {
  std::mt19937_64 rng(9);
  const unsigned usual = _mm_getcsr();
  const unsigned modes[] = {usual | 0x8040u /* flush to zero, denormals are zero */,
                            (usual & ~0x6000u) | 0x4000u /* upward */,
                            usual | 0x6000u /* to zero */};
  for (int i = 0; i < 1500; ++i) {
    const RandomCase c = random_case(rng, 100);
    const Choice plain = definition::choose(c.parameters, c.row, c.history, c.position);
    const double logprob = definition::logprob(c.row, 3);
    Sampler sampler(c.parameters, 100);
    _mm_setcsr(modes[i % 3]);
    const Choice choice = sampler.choose(c.row, c.history, c.position);
    const double other_logprob = logprob_of(c.row, 3);
    const unsigned after = _mm_getcsr() & ~0x3Fu;  // without the sticky flags
    _mm_setcsr(usual);
    ASSERT_EQ(choice.token, plain.token) << i << ": " << describe(c);
    ASSERT_EQ(logprob, other_logprob);
    ASSERT_EQ(after, modes[i % 3] & ~0x3Fu);
  }
}

TEST(Sampler, DoesNotWriteToTheRow) {
  std::mt19937_64 rng(5);
  for (int i = 0; i < 300; ++i) {
    const RandomCase c = random_case(rng, 150);
    const std::vector<float> copy = c.row;
    Sampler sampler(c.parameters, 150);
    sampler.choose(c.row, c.history, c.position);
    ASSERT_EQ(0, std::memcmp(copy.data(), c.row.data(), copy.size() * sizeof(float)));
  }
}

TEST(Sampler, ANonFiniteLogitIsAFaultWhereverItStands) {
  for (const float bad : {kInf, -kInf, std::numeric_limits<float>::quiet_NaN()}) {
    for (const size_t at : {0u, 1u, 63u, 64u, 127u, 128u, 129u}) {
      std::vector<float> row(130, 1.0f);
      row[at] = bad;
      Parameters p;
      // A bias on the id must not hide it.
      p.logit_bias = {{static_cast<int32_t>(at), -kInf}};
      Sampler sampler(p, 130);
      const Choice choice = sampler.choose(row, {}, 0);
      EXPECT_TRUE(choice.fault);
      EXPECT_EQ(choice.reason, ChoiceFault::non_finite_logit);
      EXPECT_EQ(choice.token, -1);
      row[at] = 0.0f;
      EXPECT_FALSE(sampler.choose(row, {}, 0).fault);
    }
  }
}

// The words of docs/numerics/sampling.md, and of the law in Python.
TEST(Sampler, FaultsHaveTheLawsWords) {
  EXPECT_STREQ(choice_fault_name(ChoiceFault::non_finite_logit), "a logit that is not finite");
  EXPECT_STREQ(choice_fault_name(ChoiceFault::no_candidate), "no token is left to choose from");
}

TEST(Sampler, GreedyTakesTheLowestOfEqualIds) {
  Parameters p;
  p.temperature = 0.0f;
  std::vector<float> row(300, -1.0f);
  row[70] = row[71] = row[299] = 2.0f;
  EXPECT_EQ(Sampler(p, 300).choose(row, {}, 0).token, 70);
  row.assign(300, -0.0f);
  row[5] = 0.0f;  // equal as reals
  EXPECT_EQ(Sampler(p, 300).choose(row, {}, 0).token, 0);
}

TEST(Sampler, TheDrawFollowsTheDistribution) {
  // 3 : 1 by logits; 4000 positions, three standard deviations are 0.0205.
  Parameters p;
  p.temperature = 1.0f;
  p.stages = {Stage::temperature};
  p.seed = 11;
  const std::vector<float> row = {std::log(3.0f), 0.0f};
  Sampler sampler(p, 2);
  int first = 0;
  for (int position = 0; position < 4000; ++position) {
    first += sampler.choose(row, {}, position).token == 0;
  }
  EXPECT_NEAR(first / 4000.0, 0.75, 0.0205);
}

TEST(Sampler, SeedPositionAndChoiceIndexMatter) {
  Parameters p;
  p.temperature = 1.0f;
  p.stages = {Stage::temperature};
  const std::vector<float> row(1000, 0.0f);
  const auto token = [&](uint64_t seed, uint32_t choice, int64_t position) {
    p.seed = seed;
    p.choice_index = choice;
    return Sampler(p, 1000).choose(row, {}, position).token;
  };
  const int32_t base = token(1, 0, 10);
  EXPECT_NE(base, token(2, 0, 10));
  EXPECT_NE(base, token(uint64_t{1} << 32 | 1, 0, 10));
  EXPECT_NE(base, token(1, 1, 10));
  EXPECT_NE(base, token(1, 0, 11));
  EXPECT_EQ(base, token(1, 0, 10));
}

TEST(Philox, KnownAnswers) {  // Random123's kat_vectors
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32_10({f, f, f, f}, {f, f}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Noise, BoundsHold) {
  EXPECT_LT(noise_of_word(0xFFFFFFFFu), kGreatestNoise);
  std::mt19937_64 rng(6);
  std::vector<uint32_t> words = {0, 1, 0xFFFFFFFFu, 0xFFFFFFFEu};
  for (int bit = 0; bit < 32; ++bit) {
    for (const uint32_t around :
         {uint32_t{1} << bit, ~(uint32_t{1} << bit), ~(0xFFFFFFFFu >> bit)}) {
      for (const uint32_t step : {0u, 1u, 0xFFFFFFFFu}) words.push_back(around + step);
    }
  }
  for (int i = 0; i < 200000; ++i) {
    words.push_back(static_cast<uint32_t>(rng()) | ~(0xFFFFFFFFu >> (rng() % 32)));
  }
  for (const uint32_t w : words) {
    const double g = noise_of_word(w);
    ASSERT_TRUE(std::isfinite(g));
    ASSERT_LE(g, kGreatestNoise);
    ASSERT_LE(g, noise_bound(w)) << w;
    ASSERT_LE(least_word(g), w) << w;
  }
}

TEST(RowOps, TheFastOnesEqualThePortableOnes) {
  std::mt19937_64 rng(7);
  const RowOps& fast = row_ops();
  for (int i = 0; i < 2000; ++i) {
    const size_t n = 1 + rng() % 400;
    std::vector<float> row = random_row(rng, n);
    if (i % 5 == 0) row[rng() % n] = pick(rng, {kInf, -kInf, std::nanf("")});
    const auto blocks = static_cast<size_t>(block_count(static_cast<int64_t>(n)));
    std::vector<float> a(blocks), b(blocks);
    const bool finite = fast.scan(row.data(), static_cast<int64_t>(n), a.data());
    ASSERT_EQ(finite, kRowOpsPortable.scan(row.data(), static_cast<int64_t>(n), b.data()));
    ASSERT_EQ(finite,
              std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }));
    if (!finite) continue;
    ASSERT_EQ(a, b);
    const float x_max = *std::max_element(row.begin(), row.end());
    ASSERT_EQ(x_max, *std::max_element(a.begin(), a.end()));
    const double t = static_cast<double>(pick(rng, {1.0f, 0.8f, 1e-30f, 50.0f}));
    if (i % 3 == 0) row[0] = kRemoved;
    std::vector<uint64_t> wa(n), wb(n);
    fast.weights(row.data(), static_cast<int64_t>(n), x_max, t, wa.data());
    kRowOpsPortable.weights(row.data(), static_cast<int64_t>(n), x_max, t, wb.data());
    ASSERT_EQ(wa, wb);
    for (size_t j = 0; j < n; ++j) ASSERT_EQ(wa[j], definition::weight(row[j], x_max, t));

    const NoiseKey key(rng(), static_cast<int64_t>(static_cast<uint32_t>(rng())),
                       static_cast<uint32_t>(rng()));
    const auto group = static_cast<uint32_t>(rng() % 70000 * 16);
    std::array<uint32_t, kBlock> x{}, y{};
    const uint32_t most =
        fast.noise_words(key.key[0], key.key[1], key.position, group, key.choice_index, x.data());
    ASSERT_EQ(most, kRowOpsPortable.noise_words(key.key[0], key.key[1], key.position, group,
                                                key.choice_index, y.data()));
    ASSERT_EQ(x, y);
    ASSERT_EQ(most, *std::max_element(x.begin(), x.end()));
    for (size_t g = 0; g < 16; ++g) {
      const auto words = key.words(group + static_cast<uint32_t>(g));
      for (size_t j = 0; j < 4; ++j) ASSERT_EQ(words[j], x[4 * g + j]);
    }
  }
}

TEST(Weights, RoundToZeroBelowTheCutOff) {
  for (float d = -28.45f; d > -200.0f; d = std::nextafter(d, -kInf) - 1e-4f) {
    ASSERT_EQ(definition::weight(d, 0.0f, 1.0), 0u) << d;
  }
  EXPECT_EQ(definition::weight(-kInf, 0.0f, 1.0), 0u);
  EXPECT_EQ(definition::weight(0.0f, 0.0f, 1.0), uint64_t{1} << 40);
}

TEST(Logprobs, EqualTheDefinitionAndSumToOne) {
  std::mt19937_64 rng(8);
  for (int i = 0; i < 300; ++i) {
    const size_t n = 1 + rng() % 2000;
    const std::vector<float> row = random_row(rng, n);
    double sum = 0;
    const auto top = top_logprobs(row, static_cast<int>(n) + 3);
    ASSERT_EQ(top.size(), n);
    for (size_t k = 0; k < n; ++k) {
      sum += std::exp(top[k].logprob);
      if (k > 0) {
        const float before_x = row[static_cast<size_t>(top[k - 1].id)];
        const float x = row[static_cast<size_t>(top[k].id)];
        ASSERT_TRUE(before_x > x || (before_x == x && top[k - 1].id < top[k].id));
      }
    }
    ASSERT_NEAR(sum, 1.0, 1e-5);
    const auto id = static_cast<int32_t>(rng() % n);
    ASSERT_EQ(logprob_of(row, id), definition::logprob(row, id));
    const auto few = top_logprobs(row, 5);
    for (size_t k = 0; k < few.size(); ++k) {
      ASSERT_EQ(few[k].id, top[k].id);
      ASSERT_EQ(few[k].logprob, top[k].logprob);
    }
  }
  const std::vector<float> bad = {1.0f, kInf};
  EXPECT_TRUE(std::isnan(logprob_of(bad, 0)));
  EXPECT_TRUE(top_logprobs(bad, 2).empty());
}

void expect_refused(const std::function<void(Parameters&)>& change, const std::string& words) {
  Parameters p;
  change(p);
  try {
    p.validate(100);
    FAIL() << "accepted: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_use);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Parameters, RefusesWhatTheLawDoesNotDefine) {
  Parameters().validate(100);
  expect_refused([](Parameters& p) { p.temperature = kInf; }, "temperature");
  expect_refused([](Parameters& p) { p.top_p = std::nanf(""); }, "top_p");
  expect_refused([](Parameters& p) { p.min_p = kInf; }, "min_p");
  expect_refused([](Parameters& p) { p.repeat_last_n = -2; }, "repeat_last_n");
  expect_refused([](Parameters& p) { p.repeat_penalty = 0.0f; }, "repeat_penalty");
  expect_refused([](Parameters& p) { p.repeat_penalty = -1.0f; }, "repeat_penalty");
  expect_refused([](Parameters& p) { p.frequency_penalty = 2e6f; }, "frequency_penalty");
  expect_refused([](Parameters& p) { p.presence_penalty = std::nanf(""); }, "presence_penalty");
  expect_refused([](Parameters& p) { p.logit_bias = {{100, 1.0f}}; }, "ids 0 to 99");
  expect_refused([](Parameters& p) { p.logit_bias = {{-1, 1.0f}}; }, "token -1");
  expect_refused([](Parameters& p) { p.logit_bias = {{3, kInf}}; }, "token 3");
  expect_refused([](Parameters& p) { p.logit_bias = {{3, std::nanf("")}}; }, "token 3");
  expect_refused(
      [](Parameters& p) {
        p.stages = {Stage::top_k, Stage::top_p, Stage::top_k};
      },
      "top_k");
  expect_refused(
      [](Parameters& p) {
        for (int32_t id = 0; id < 100; ++id) p.logit_bias.emplace_back(id, -kInf);
      },
      "every token");
}

TEST(Stages, ReadsLlamaCppsSpellings) {
  const std::vector<Stage> all = {Stage::penalties, Stage::top_k, Stage::top_p, Stage::min_p,
                                  Stage::temperature};
  EXPECT_EQ(parse_stages("penalties;top_k;top_p;min_p;temperature"), all);
  EXPECT_EQ(parse_stages("penalties;top-k;topp;Min-P;temp"), all);
  EXPECT_EQ(parse_stages("nucleus"), std::vector<Stage>{Stage::top_p});
  EXPECT_TRUE(parse_stages("").empty());
  EXPECT_EQ(Parameters().stages, all);
  for (const char* bad : {"top_k;;top_p", "top_k;", "greedy", "top_k;topk", "top_k top_p"}) {
    EXPECT_THROW(parse_stages(bad), Error) << bad;
  }
  for (const char* elsewhere : {"dry", "xtc", "typ_p", "top-n-sigma", "infill", "adaptive_p"}) {
    try {
      parse_stages(std::string("top_k;") + elsewhere);
      ADD_FAILURE() << elsewhere;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("not supported"), std::string::npos) << error.what();
    }
  }
}

TEST(ParseParameter, RoundsTwiceAsTheLawSays) {
  EXPECT_EQ(parse_parameter("0.95"), 0.95f);
  EXPECT_EQ(parse_parameter("-1"), -1.0f);
  EXPECT_EQ(parse_parameter("1e-3"), 1e-3f);
  // Just above a tie of binary32: binary64 rounds it onto the tie, which then goes to even.
  EXPECT_EQ(parse_parameter("1.00000005960464477540"), 1.0f);
  for (const char* bad : {"", " 1", "1 ", "0.8x", "zero", "+1", "1,5"}) {
    EXPECT_FALSE(parse_parameter(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace lockstep::sample
