// docs/numerics/sampling.md written out as plainly as it goes: no shortcut, no shared code with
// src/sample but the parameters. The fast sampler is compared with this by equality.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/philox.h"
#include "kernels/math/elementary.h"
#include "kernels/math/elementary64.h"
#include "sample/sampler.h"

namespace lockstep::sample::definition {

struct Entry {
  int32_t id;
  float x;
};

inline float sat(float x) {
  if (std::isinf(x)) return std::copysign(FLT_MAX, x);
  return x;
}

inline double gumbel(uint64_t seed, int64_t position, uint32_t choice_index, int32_t id) {
  const auto words = philox4x32_10(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(id / 4), choice_index, 0},
      {static_cast<uint32_t>(seed & 0xFFFFFFFFu), static_cast<uint32_t>(seed >> 32)});
  const double u = (static_cast<double>(words[static_cast<size_t>(id % 4)]) + 0.5) * 0x1p-32;
  return -math::log(-math::log(u));
}

inline bool sorted_before(const Entry& a, const Entry& b) {
  if (a.x != b.x) return a.x > b.x;
  return a.id < b.id;
}

inline uint64_t weight(float x, float x_max, double t) {
  const float d = x - x_max;
  const float e = math::exp(static_cast<float>(static_cast<double>(d) / t));
  return static_cast<uint64_t>(std::nearbyint(static_cast<double>(e) * 0x1p40));
}

// candidates, where not null: the ids among which step 5 draws, sorted.
inline Choice choose(const Parameters& p, std::span<const float> raw,
                     std::span<const int32_t> history, int64_t position,
                     std::vector<int32_t>* candidates = nullptr) {
  for (const float x : raw) {
    if (!std::isfinite(x)) return {-1, true, ChoiceFault::non_finite_logit};
  }
  std::map<int32_t, float> all;
  for (size_t i = 0; i < raw.size(); ++i) all[static_cast<int32_t>(i)] = raw[i];
  for (const auto& [id, b] : p.logit_bias) {
    if (b == -INFINITY) {
      all.erase(id);
    } else if (all.count(id) != 0) {
      all[id] = sat(all[id] + b);
    }
  }
  if (all.empty()) return {-1, true, ChoiceFault::no_candidate};
  std::vector<Entry> s;  // always sorted
  for (const auto& [id, x] : all) s.push_back({id, x});
  std::sort(s.begin(), s.end(), sorted_before);

  double t = 1.0;
  for (const Stage stage : p.stages) {
    const float x_max = s.front().x;
    switch (stage) {
      case Stage::penalties: {
        if (p.repeat_last_n == 0 || (p.repeat_penalty == 1.0f && p.frequency_penalty == 0.0f &&
                                     p.presence_penalty == 0.0f)) {
          break;
        }
        if (t != 1.0) {
          for (Entry& e : s) e.x = sat(static_cast<float>(static_cast<double>(e.x) / t));
          t = 1.0;
        }
        std::map<int32_t, int> count;
        const size_t n =
            p.repeat_last_n < 0
                ? history.size()
                : std::min<size_t>(history.size(), static_cast<size_t>(p.repeat_last_n));
        for (size_t i = history.size() - n; i < history.size(); ++i) ++count[history[i]];
        for (Entry& e : s) {
          const int c = count[e.id];
          if (c == 0) continue;
          e.x = sat(e.x <= 0.0f ? e.x * p.repeat_penalty : e.x / p.repeat_penalty);
          const float amount = static_cast<float>(c) * p.frequency_penalty;
          e.x = sat(e.x - (amount + p.presence_penalty));
        }
        std::sort(s.begin(), s.end(), sorted_before);
        break;
      }
      case Stage::top_k:
        if (p.top_k > 0 && s.size() > static_cast<size_t>(p.top_k)) {
          s.resize(static_cast<size_t>(p.top_k));
        }
        break;
      case Stage::top_p: {
        if (p.top_p >= 1.0f) break;
        const unsigned __int128 share =
            p.top_p < 0.0f
                ? 0
                : static_cast<uint64_t>(std::nearbyint(static_cast<double>(p.top_p) * 0x1p32));
        unsigned __int128 total = 0, sum = 0;
        for (const Entry& e : s) total += weight(e.x, x_max, t);
        size_t kept = 0;
        do {
          sum += weight(s[kept].x, x_max, t);
          ++kept;
        } while ((sum << 32) < share * total);
        s.resize(kept);
        break;
      }
      case Stage::min_p: {
        if (p.min_p <= 0.0f) break;
        if (p.min_p > 1.0f) {
          s.resize(1);
          break;
        }
        const auto least =
            static_cast<uint64_t>(std::nearbyint(static_cast<double>(p.min_p) * 0x1p40));
        std::erase_if(s, [&](const Entry& e) { return weight(e.x, x_max, t) < least; });
        break;
      }
      case Stage::temperature:
        if (p.temperature <= 0.0f) {
          s.resize(1);
        } else {
          t = static_cast<double>(p.temperature);
        }
        break;
    }
  }

  if (candidates != nullptr) {
    candidates->clear();
    for (const Entry& e : s) candidates->push_back(e.id);
  }
  const float x_max = s.front().x;
  double best = -INFINITY;
  int32_t chosen = -1;
  for (const Entry& e : s) {
    const double v =
        static_cast<double>(e.x - x_max) / t + gumbel(p.seed, position, p.choice_index, e.id);
    if (chosen < 0 || v > best || (v == best && e.id < chosen)) {
      best = v;
      chosen = e.id;
    }
  }
  return {chosen, false, ChoiceFault::none};
}

inline double logprob(std::span<const float> raw, int32_t id) {
  const float x_max = *std::max_element(raw.begin(), raw.end());
  uint64_t total = 0;
  for (const float x : raw) total += weight(x, x_max, 1.0);
  return static_cast<double>(raw[static_cast<size_t>(id)] - x_max) -
         math::log(static_cast<double>(total) * 0x1p-40);
}

}  // namespace lockstep::sample::definition
