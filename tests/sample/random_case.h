// Random rows, histories and parameters for sampler tests: mostly hostile ones.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <random>
#include <vector>

#include "sample/sampler.h"

namespace lockstep::sample {

struct RandomCase {
  std::vector<float> row;
  std::vector<int32_t> history;
  Parameters parameters;
  int64_t position = 0;
};

inline float pick(std::mt19937_64& rng, std::initializer_list<float> values) {
  return *(values.begin() + rng() % values.size());
}

inline std::vector<float> random_row(std::mt19937_64& rng, size_t n) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> row(n);
  switch (rng() % 8) {
    case 0:  // as a model's: a bell and some peaks
      for (float& x : row) x = 3.0f * normal(rng);
      for (int k = 0; k < 5; ++k) row[rng() % n] += 12.0f;
      break;
    case 1:  // many ties
      for (float& x : row) x = static_cast<float>(static_cast<int>(rng() % 5)) - 2.0f;
      break;
    case 2:  // zeros of both signs among small values
      for (float& x : row) x = pick(rng, {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-38f});
      break;
    case 3:  // the whole range
      for (float& x : row) x = pick(rng, {FLT_MAX, -FLT_MAX, 1e30f, -1e30f, 0.0f, 5.0f}) * 0.999f;
      break;
    case 4:  // near the border where weights round to zero
      for (float& x : row) x = -28.4f - 0.2f * static_cast<float>(rng() % 1000) * 1e-3f;
      row[rng() % n] = 0.0f;
      break;
    case 5:  // all equal
      std::fill(row.begin(), row.end(), pick(rng, {0.0f, -0.0f, 7.25f, -1e20f}));
      break;
    case 6:  // ascending by ulps
      for (size_t i = 0; i < n; ++i) {
        row[i] = i == 0 ? 20.0f : std::nextafter(row[i - 1], rng() % 3 != 0 ? 100.0f : -100.0f);
      }
      break;
    default:  // flat
      for (float& x : row) x = 0.25f * normal(rng);
  }
  return row;
}

inline RandomCase random_case(std::mt19937_64& rng, size_t n) {
  RandomCase c;
  c.row = random_row(rng, n);
  const size_t length = rng() % 200;
  const size_t alphabet = 1 + rng() % std::min<size_t>(n, 40);
  for (size_t i = 0; i < length; ++i) {
    c.history.push_back(static_cast<int32_t>((rng() % alphabet) * (n / alphabet)));
  }
  c.position = static_cast<int64_t>(rng() % 3 == 0 ? rng() % 100000 : c.history.size());
  Parameters& p = c.parameters;
  p.seed = rng() % 4 == 0 ? rng() % 3 : rng();
  p.choice_index = rng() % 4 == 0 ? static_cast<uint32_t>(rng()) : 0;
  p.temperature = pick(rng, {0.8f, 1.0f, 0.0f, -1.0f, 1.5f, 0.1f, 1e-30f, 1e30f, 100.0f});
  p.top_k = static_cast<int32_t>(rng() % 3 == 0 ? rng() % (2 * n) : rng() % 50) - 1;
  p.top_p =
      pick(rng, {0.95f, 0.5f, 1.0f, 0.0f, -1.0f, 0.999999f, 0.05f, 1e-12f, 2.0f, 0.99999994f});
  p.min_p = pick(rng, {0.05f, 0.0f, -1.0f, 1.0f, 1.5f, 1e-13f, 1e-12f, 1e-9f, 1e-6f, 0.5f, 0.9f});
  p.repeat_last_n = rng() % 4 == 0 ? -1 : static_cast<int32_t>(rng() % 100);
  if (rng() % 2 == 0) {
    p.repeat_penalty = pick(rng, {1.0f, 1.1f, 0.5f, 1e-30f, 1e30f, 1.5f});
    p.frequency_penalty = pick(rng, {0.0f, 0.1f, -0.5f, 1e6f, -1e6f});
    p.presence_penalty = pick(rng, {0.0f, 0.3f, -2.0f, 1e6f});
  }
  if (rng() % 3 == 0) {
    const size_t entries = 1 + rng() % 8;
    for (size_t i = 0; i < entries; ++i) {
      const auto id = static_cast<int32_t>(rng() % n);
      p.logit_bias.emplace_back(id, pick(rng, {-INFINITY, 1.5f, -1.5f, 100.0f, FLT_MAX, -FLT_MAX}));
    }
    // The best ids removed, and sometimes all but one.
    if (rng() % 3 == 0) {
      const auto best = std::max_element(c.row.begin(), c.row.end()) - c.row.begin();
      p.logit_bias.emplace_back(static_cast<int32_t>(best), -INFINITY);
    }
    std::vector<bool> gone(n, false);
    for (const auto& [id, b] : p.logit_bias) {
      if (std::isinf(b)) gone[static_cast<size_t>(id)] = true;
    }
    if (std::count(gone.begin(), gone.end(), true) == static_cast<ptrdiff_t>(n))
      p.logit_bias.clear();
  }
  if (rng() % 2 == 0) {
    std::shuffle(p.stages.begin(), p.stages.end(), rng);
    p.stages.resize(rng() % (p.stages.size() + 1));
  }
  return c;
}

}  // namespace lockstep::sample
