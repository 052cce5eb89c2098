#include "sample/sampler.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "sample/noise.h"

namespace lockstep::sample {

const char* choice_fault_name(ChoiceFault fault) {
  switch (fault) {
    case ChoiceFault::none: return "none";
    case ChoiceFault::non_finite_logit: return "a logit that is not finite";
    case ChoiceFault::no_candidate: return "no token is left to choose from";
  }
  return "";
}

Sampler::Sampler(Parameters parameters, int64_t n_vocab)
    : parameters_(std::move(parameters)), n_vocab_(n_vocab) {
  parameters_.validate(n_vocab);
}

Choice Sampler::choose(std::span<const float> logits, std::span<const int32_t> history,
                       int64_t position) {
  if (static_cast<int64_t>(logits.size()) != n_vocab_) {
    throw std::logic_error("Sampler::choose: the row's length is not the vocabulary's");
  }
  x_ = logits.data();
  removed_ = 0;
  dense_ = true;
  t_ = 1.0;
  if (!scan_row(x_, n_vocab_, block_max_)) {
    return {.token = -1, .fault = true, .reason = ChoiceFault::non_finite_logit};
  }
  apply_bias();
  if (survivors() == 0) {
    return {.token = -1, .fault = true, .reason = ChoiceFault::no_candidate};
  }

  // top_k, top_p and min_p never remove the first candidate, so that where only it is asked for, the
  // ones behind the last penalties need not run.
  const auto& stages = parameters_.stages;
  const auto penalties = std::find(stages.begin(), stages.end(), Stage::penalties);
  const auto temperature = std::find(stages.begin(), stages.end(), Stage::temperature);
  const bool greedy = temperature != stages.end() && parameters_.temperature <= 0.0f;
  const bool penalised_on_the_way = parameters_.has_penalties() && penalties < temperature;
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    const bool thins = *stage == Stage::top_k || *stage == Stage::top_p || *stage == Stage::min_p;
    if (greedy && thins && !(penalised_on_the_way && stage < penalties)) continue;
    switch (*stage) {
      case Stage::penalties: apply_penalties(history); break;
      case Stage::top_k: keep_top_k(); break;
      case Stage::top_p: keep_top_p(); break;
      case Stage::min_p: keep_min_p(); break;
      case Stage::temperature:
        if (greedy) {
          keep_first();
        } else {
          t_ = static_cast<double>(parameters_.temperature);
        }
        break;
    }
    if (!dense_ && list_.size() == 1) return {.token = list_[0].id};
  }
  return {.token = draw(position)};
}

void Sampler::own_row() {
  if (x_ == row_.data()) return;
  row_.assign(x_, x_ + n_vocab_);
  x_ = row_.data();
}

void Sampler::set_element(int32_t id, float x) {
  const auto i = static_cast<size_t>(id);
  if (x == kRemoved && row_[i] != kRemoved) ++removed_;
  row_[i] = x;
  const int64_t block = id / kBlock;
  block_max_[static_cast<size_t>(block)] = block_maximum(x_, n_vocab_, block);
}

int64_t Sampler::survivors() const {
  return dense_ ? n_vocab_ - removed_ : static_cast<int64_t>(list_.size());
}

float Sampler::greatest() const {
  if (dense_) return *std::max_element(block_max_.begin(), block_max_.end());
  float greatest = list_[0].x;
  for (const Candidate& c : list_) greatest = c.x > greatest ? c.x : greatest;
  return greatest;
}

double Sampler::scaled(float x, float x_max) const {
  return static_cast<double>(x - x_max) / t_;
}

void Sampler::apply_bias() {
  if (parameters_.logit_bias.empty()) return;
  own_row();
  for (const auto& [id, bias] : parameters_.logit_bias) {
    const float x = row_[static_cast<size_t>(id)];
    if (x != kRemoved) set_element(id, bias == kRemoved ? kRemoved : saturate(x + bias));
  }
}

float Sampler::penalised(float x, int32_t count) const {
  const float r = parameters_.repeat_penalty;
  x = saturate(x <= 0.0f ? x * r : x / r);
  return saturate(x - (static_cast<float>(count) * parameters_.frequency_penalty +
                       parameters_.presence_penalty));
}

void Sampler::divide_by_temperature() {
  if (t_ == 1.0) return;
  const auto divide = [&](float& x) {
    x = saturate(static_cast<float>(static_cast<double>(x) / t_));
  };
  if (dense_) {
    own_row();
    for (float& x : row_) {
      if (x != kRemoved) divide(x);
    }
    scan_row(x_, n_vocab_, block_max_);
  } else {
    for (Candidate& c : list_) divide(c.x);
  }
  t_ = 1.0;
}

void Sampler::apply_penalties(std::span<const int32_t> history) {
  if (!parameters_.has_penalties()) return;
  divide_by_temperature();
  const auto last_n = static_cast<size_t>(parameters_.repeat_last_n);
  if (parameters_.repeat_last_n > 0 && history.size() > last_n) history = history.last(last_n);
  count_.resize(static_cast<size_t>(n_vocab_));
  for (const int32_t id : history) {
    if (count_[static_cast<size_t>(id)]++ == 0) counted_.push_back(id);
  }
  if (dense_) {
    if (!counted_.empty()) own_row();
    for (const int32_t id : counted_) {
      const float x = row_[static_cast<size_t>(id)];
      if (x != kRemoved) set_element(id, penalised(x, count_[static_cast<size_t>(id)]));
    }
  } else {
    for (Candidate& c : list_) {
      const int32_t count = count_[static_cast<size_t>(c.id)];
      if (count > 0) c.x = penalised(c.x, count);
    }
  }
  for (const int32_t id : counted_) count_[static_cast<size_t>(id)] = 0;
  counted_.clear();
}

// Makes the list of the row's elements that keep(x) holds for. keep is monotone (of two elements the
// greater is kept if the smaller is), so that one look at a block's maximum may pass over the block.
template <typename Keep>
void Sampler::list_from_row(Keep keep) {
  list_.clear();
  for (size_t block = 0; block < block_max_.size(); ++block) {
    if (block_max_[block] == kRemoved || !keep(block_max_[block])) continue;
    const int64_t begin = static_cast<int64_t>(block) * kBlock;
    const int64_t end = std::min(n_vocab_, begin + kBlock);
    for (int64_t i = begin; i < end; ++i) {
      if (x_[i] != kRemoved && keep(x_[i])) list_.push_back({x_[i], static_cast<int32_t>(i)});
    }
  }
  dense_ = false;
}

void Sampler::keep_top_k() {
  const int64_t k = parameters_.top_k;
  if (k <= 0 || k >= survivors()) return;
  if (dense_) {
    // At least k elements are no less than the k-th greatest block maximum.
    float least = kRemoved;
    if (k <= static_cast<int64_t>(block_max_.size())) {
      scratch_ = block_max_;
      std::nth_element(scratch_.begin(), scratch_.begin() + (k - 1), scratch_.end(),
                       std::greater<float>());
      least = scratch_[static_cast<size_t>(k - 1)];
    }
    list_from_row([least](float x) { return x >= least; });
  }
  if (static_cast<int64_t>(list_.size()) > k) {
    std::nth_element(list_.begin(), list_.begin() + k, list_.end(), before);
    list_.resize(static_cast<size_t>(k));
  }
}

void Sampler::keep_top_p() {
  const float p = parameters_.top_p;
  if (p >= 1.0f) return;
  if (p <= 0.0f) return keep_first();
  const float x_max = greatest();
  if (dense_) {
    // What is left out weighs zero and stands behind all that is not, so that the prefix ends before.
    list_from_row([&](float x) { return scaled(x, x_max) >= kWeightZeroBelow; });
  }
  using Wide = unsigned __int128;
  weighted_.clear();
  uint64_t total = 0;
  for (const Candidate& c : list_) {
    const uint64_t weight = weight_of(c.x - x_max, t_);
    weighted_.push_back({c, weight});
    total += weight;
  }
  const Wide wanted = Wide{round_even(static_cast<double>(p) * 0x1p32)} * total;
  // Sorted in growing parts: the prefix is short as a rule, the list may be the whole vocabulary.
  const auto order = [](const Weighted& a, const Weighted& b) {
    return before(a.candidate, b.candidate);
  };
  list_.clear();
  uint64_t sum = 0;
  size_t sorted = 0, part = 64;
  for (size_t i = 0; i < weighted_.size(); ++i) {
    if (i == sorted) {
      const size_t end = std::min(weighted_.size(), sorted + part);
      const auto at = [&](size_t k) { return weighted_.begin() + static_cast<ptrdiff_t>(k); };
      if (end < weighted_.size()) std::nth_element(at(sorted), at(end), weighted_.end(), order);
      std::sort(at(sorted), at(end), order);
      sorted = end;
      part *= 4;
    }
    list_.push_back(weighted_[i].candidate);
    sum += weighted_[i].weight;
    if ((Wide{sum} << 32) >= wanted) break;
  }
}

void Sampler::keep_min_p() {
  const double p = static_cast<double>(parameters_.min_p);
  if (p <= 0.0) return;
  if (p > 1.0) return keep_first();
  const uint64_t least = round_even(p * kWeightOne);
  if (least == 0) return;
  const float x_max = greatest();
  // Away from the border the weight need not be computed. The margin of 1 % is far more than exp and
  // the rounding to an integer can move, unless p is so small that its threshold is a small integer.
  const bool tiny = p < 1e-9;
  const double sure_below = tiny ? kWeightZeroBelow : math::log(p) - 0.01;
  const double sure_above = tiny ? 0.0 : math::log(p) + 0.01;
  const auto keep = [&](float x) {
    const double s = scaled(x, x_max);
    if (s < sure_below) return false;
    return s > sure_above || weight_of(x - x_max, t_) >= least;
  };
  if (dense_) {
    // Near the border exp need not be monotone to the last bit: take a superset first.
    list_from_row([&](float x) { return scaled(x, x_max) >= sure_below; });
  }
  std::erase_if(list_, [&](const Candidate& c) { return !keep(c.x); });
}

void Sampler::keep_first() {
  if (dense_) {
    const auto best = std::max_element(block_max_.begin(), block_max_.end());   // the first such
    int64_t i = (best - block_max_.begin()) * kBlock;
    while (x_[i] != *best) ++i;
    list_.assign(1, {x_[i], static_cast<int32_t>(i)});
    dense_ = false;
  } else {
    list_.assign(1, *std::min_element(list_.begin(), list_.end(), before));
  }
}

int32_t Sampler::draw(int64_t position) const {
  const NoiseKey key(parameters_.seed, position, parameters_.choice_index);
  const float x_max = greatest();
  double best = -std::numeric_limits<double>::infinity();
  int32_t best_id = -1;
  // Rounding is monotone, so what can't reach `best` with more noise than it has can't with its own.
  const auto can_win = [&](float x) { return scaled(x, x_max) + kGreatestNoise >= best; };
  const auto offer = [&](float x, int32_t id, uint32_t word) {
    const double s = scaled(x, x_max);
    if (s + noise_bound(word) < best) return;
    const double value = s + noise_of_word(word);
    if (value > best || (value == best && id < best_id)) {
      best = value;
      best_id = id;
    }
  };
  if (!dense_) {
    for (const Candidate& c : list_) {
      if (!can_win(c.x)) continue;
      const auto i = static_cast<uint32_t>(c.id);
      offer(c.x, c.id, key.words(i >> 2)[i & 3]);
    }
    return best_id;
  }
  const auto offer_block = [&](int64_t block) {
    const int64_t end = std::min(n_vocab_, (block + 1) * kBlock);
    for (int64_t i = block * kBlock; i < end; i += 4) {
      const int64_t n = std::min<int64_t>(4, end - i);
      float greatest_here = x_[i];
      for (int64_t j = 1; j < n; ++j) greatest_here = std::max(greatest_here, x_[i + j]);
      if (!can_win(greatest_here)) continue;
      const auto words = key.words(static_cast<uint32_t>(i >> 2));
      for (int64_t j = 0; j < n; ++j) {
        if (x_[i + j] == kRemoved) continue;
        offer(x_[i + j], static_cast<int32_t>(i + j), words[static_cast<size_t>(j)]);
      }
    }
  };
  // The block of the greatest logit first: `best` is near its end from the start.
  const auto first = std::max_element(block_max_.begin(), block_max_.end()) - block_max_.begin();
  offer_block(first);
  for (int64_t block = 0; block < static_cast<int64_t>(block_max_.size()); ++block) {
    if (block != first && can_win(block_max_[static_cast<size_t>(block)])) offer_block(block);
  }
  return best_id;
}

}  // namespace lockstep::sample
