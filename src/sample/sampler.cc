#include "sample/sampler.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/cpu/float_mode.h"
#include "kernels/math/elementary64.h"

namespace lockstep::sample {

const char* choice_fault_name(ChoiceFault fault) {
  switch (fault) {
    case ChoiceFault::none:
      return "none";
    case ChoiceFault::non_finite_logit:
      return "a logit that is not finite";
    case ChoiceFault::no_candidate:
      return "no token is left to choose from";
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
  // A library loaded into the process may have changed the mode of this thread.
  const kernels::CanonicalFloatMode mode;
  x_ = logits.data();
  return decide_row(history, position);
}

std::optional<int64_t> Sampler::candidates_needed() const {
  const Parameters& p = parameters_;
  if (!p.logit_bias.empty() || p.has_penalties()) return std::nullopt;
  // No stage removes the first candidate.
  const bool tempered =
      std::find(p.stages.begin(), p.stages.end(), Stage::temperature) != p.stages.end();
  if (tempered && p.temperature <= 0.0f) return 1;
  for (const Stage stage : p.stages) {
    if (stage == Stage::top_k && p.top_k > 0) return p.top_k;
    // min_p may come before: of its set and top_k's one holds the other, so that their order is
    // free.
    if (stage == Stage::top_p && p.top_p < 1.0f) break;
  }
  return std::nullopt;
}

Choice Sampler::choose_among(std::span<const Candidate> greatest, std::span<const int32_t> history,
                             int64_t position) {
  if (greatest.empty() || !candidates_needed()) {
    throw std::logic_error("Sampler::choose_among: the choice needs the whole row");
  }
  const kernels::CanonicalFloatMode mode;
  list_.assign(greatest.begin(), greatest.end());
  dense_ = false;
  return decide(history, position);
}

// Not inlined, as decide(): the compiler knows of no tie between arithmetic and the mode set above.
[[gnu::noinline]] Choice Sampler::decide_row(std::span<const int32_t> history, int64_t position) {
  removed_ = 0;
  dense_ = true;
  block_max_.resize(static_cast<size_t>(block_count(n_vocab_)));
  if (!row_ops().scan(x_, n_vocab_, block_max_.data())) {
    return {.token = -1, .fault = true, .reason = ChoiceFault::non_finite_logit};
  }
  apply_bias();
  if (survivors() == 0) {
    return {.token = -1, .fault = true, .reason = ChoiceFault::no_candidate};
  }
  return decide(history, position);
}

// The stages and the draw, over the row or a list.
[[gnu::noinline]] Choice Sampler::decide(std::span<const int32_t> history, int64_t position) {
  t_ = 1.0;
  // top_k, top_p and min_p never remove the first candidate, so that where only it is asked for,
  // the ones behind the last penalties need not run.
  const auto& stages = parameters_.stages;
  const auto penalties = std::find(stages.begin(), stages.end(), Stage::penalties);
  const auto temperature = std::find(stages.begin(), stages.end(), Stage::temperature);
  const bool greedy = temperature != stages.end() && parameters_.temperature <= 0.0f;
  const bool penalised_on_the_way = parameters_.has_penalties() && penalties < temperature;
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    const bool thins = *stage == Stage::top_k || *stage == Stage::top_p || *stage == Stage::min_p;
    if (greedy && thins && !(penalised_on_the_way && stage < penalties)) continue;
    switch (*stage) {
      case Stage::penalties:
        apply_penalties(history);
        break;
      case Stage::top_k:
        keep_top_k();
        break;
      case Stage::top_p:
        keep_top_p();
        break;
      case Stage::min_p:
        keep_min_p();
        break;
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
  const int64_t begin = id / kBlock * kBlock;
  row_ops().scan(x_ + begin, std::min(kBlock, n_vocab_ - begin),
                 &block_max_[static_cast<size_t>(id / kBlock)]);
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
    row_ops().scan(x_, n_vocab_, block_max_.data());
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

// Makes the list of the row's elements that keep(x) holds for. keep is monotone (of two elements
// the greater is kept if the smaller is), so that one look at a block's maximum may pass over the
// block.
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

// At least k elements are no less than this: those of the k greatest block maxima.
float Sampler::top_bound(int64_t k) {
  if (k > static_cast<int64_t>(block_max_.size())) return kRemoved;
  scratch_ = block_max_;
  const auto at = scratch_.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(scratch_.begin(), at, scratch_.end(), std::greater<float>());
  return *at;
}

void Sampler::keep_top_k() {
  const int64_t k = parameters_.top_k;
  if (k <= 0 || k >= survivors()) return;
  if (dense_) {
    list_from_row([least = top_bound(k)](float x) { return x >= least; });
  }
  if (static_cast<int64_t>(list_.size()) > k) {
    std::nth_element(list_.begin(), list_.begin() + k, list_.end(), before);
    list_.resize(static_cast<size_t>(k));
  }
}

// Fills weighted_ from list_; returns the sum.
uint64_t Sampler::weigh_list(float x_max) {
  scratch_.resize(list_.size());
  weights_.resize(list_.size());
  weighted_.resize(list_.size());
  for (size_t i = 0; i < list_.size(); ++i) scratch_[i] = list_[i].x;
  row_ops().weights(scratch_.data(), static_cast<int64_t>(list_.size()), x_max, t_,
                    weights_.data());
  uint64_t total = 0;
  for (size_t i = 0; i < list_.size(); ++i) {
    weighted_[i] = {list_[i], weights_[i]};
    total += weights_[i];
  }
  return total;
}

// Sum of the weights of all candidates of the row. Removed ids weigh nothing: exp(-inf) is 0.
uint64_t Sampler::row_weight(float x_max) {
  uint64_t weights[kBlock];
  uint64_t total = 0;
  for (size_t block = 0; block < block_max_.size(); ++block) {
    if (scaled(block_max_[block], x_max) < kWeightZeroBelow) continue;
    const int64_t begin = static_cast<int64_t>(block) * kBlock;
    const int64_t n = std::min(kBlock, n_vocab_ - begin);
    row_ops().weights(x_ + begin, n, x_max, t_, weights);
    for (int64_t i = 0; i < n; ++i) total += weights[i];
  }
  return total;
}

void Sampler::keep_top_p() {
  const float p = parameters_.top_p;
  if (p >= 1.0f) return;
  if (p <= 0.0f) return keep_first();
  using Wide = unsigned __int128;
  const uint64_t share = round_even(static_cast<double>(p) * 0x1p32);
  const float x_max = greatest();
  Wide wanted = 0;
  if (dense_) {
    // The prefix is short as a rule: look for it among the greatest elements first.
    const uint64_t total = row_weight(x_max);
    wanted = Wide{share} * total;
    for (const int64_t k : {int64_t{64}, int64_t{1024}, n_vocab_}) {
      const float least = k < n_vocab_ ? top_bound(k) : kRemoved;
      // What weighs nothing stands behind all that weighs, so that the prefix ends before it.
      list_from_row([&](float x) { return x >= least && scaled(x, x_max) >= kWeightZeroBelow; });
      if ((Wide{weigh_list(x_max)} << 32) >= wanted) break;
    }
  } else {
    wanted = Wide{share} * weigh_list(x_max);
  }
  // The end of the prefix by halving: only its set counts, not its order.
  const auto order = [](const Weighted& a, const Weighted& b) {
    return before(a.candidate, b.candidate);
  };
  const auto at = [&](size_t i) { return weighted_.begin() + static_cast<ptrdiff_t>(i); };
  uint64_t sum = 0;  // of the elements before `low`, which are all in the prefix
  size_t low = 0, high = weighted_.size();
  while (high - low > 32) {
    const size_t middle = low + (high - low) / 2;
    std::nth_element(at(low), at(middle), at(high), order);
    uint64_t half = 0;
    for (size_t i = low; i < middle; ++i) half += weighted_[i].weight;
    if ((Wide{sum + half} << 32) >= wanted) {
      high = middle;
    } else {
      sum += half;
      low = middle;
    }
  }
  std::sort(at(low), at(high), order);
  size_t kept = low;
  while (kept < high) {
    sum += weighted_[kept++].weight;
    if ((Wide{sum} << 32) >= wanted) break;
  }
  list_.clear();
  for (size_t i = 0; i < kept; ++i) list_.push_back(weighted_[i].candidate);
}

void Sampler::keep_min_p() {
  const double p = static_cast<double>(parameters_.min_p);
  if (p <= 0.0) return;
  if (p > 1.0) return keep_first();
  const uint64_t least = round_even(p * kWeightOne);
  if (least == 0) return;
  const float x_max = greatest();
  // Far enough below the border the weight need not be computed. 1 % is far more than exp's error
  // and the rounding to an integer can move, unless p is so small that its threshold is a small
  // integer.
  const double sure_below = p < 1e-9 ? kWeightZeroBelow : math::log(p) - 0.01;
  const auto near = [&](float x) { return scaled(x, x_max) >= sure_below; };
  if (dense_) {
    list_from_row(near);
  } else {
    std::erase_if(list_, [&](const Candidate& c) { return !near(c.x); });
  }
  weigh_list(x_max);
  list_.clear();
  for (const Weighted& w : weighted_) {
    if (w.weight >= least) list_.push_back(w.candidate);
  }
}

void Sampler::keep_first() {
  if (dense_) {
    const auto best = std::max_element(block_max_.begin(), block_max_.end());  // the first such
    int64_t i = (best - block_max_.begin()) * kBlock;
    while (x_[i] != *best) ++i;
    list_.assign(1, {x_[i], static_cast<int32_t>(i)});
    dense_ = false;
  } else {
    list_.assign(1, *std::min_element(list_.begin(), list_.end(), before));
  }
}

struct Sampler::Best {
  float x_max;
  double value = -std::numeric_limits<double>::infinity();
  int32_t id = -1;
};

void Sampler::offer(Best& best, float x, int32_t id, uint32_t word) const {
  const double s = scaled(x, best.x_max);
  if (s + noise_bound(word) < best.value) return;
  const double value = s + noise_of_word(word);
  if (value > best.value || (value == best.value && id < best.id)) {
    best.value = value;
    best.id = id;
  }
}

void Sampler::offer_block(Best& best, const NoiseKey& key, int64_t block) const {
  const int64_t begin = block * kBlock, n = std::min(kBlock, n_vocab_ - begin);
  // No element of the block can win with a word below this.
  const uint32_t least =
      least_word(best.value - scaled(block_max_[static_cast<size_t>(block)], best.x_max));
  uint32_t words[kBlock];
  const uint32_t greatest_word =
      row_ops().noise_words(key.key[0], key.key[1], key.position, static_cast<uint32_t>(begin / 4),
                            key.choice_index, words);
  if (greatest_word < least) return;
  for (int64_t i = 0; i < n; ++i) {
    if (words[i] < least || x_[begin + i] == kRemoved) continue;
    offer(best, x_[begin + i], static_cast<int32_t>(begin + i), words[i]);
  }
}

int32_t Sampler::draw(int64_t position) {
  const NoiseKey key(parameters_.seed, position, parameters_.choice_index);
  Best best{.x_max = greatest()};
  // Rounding is monotone, so what can't reach `best` with more noise than there is can't with its
  // own.
  const auto can_win = [&](float x) {
    return scaled(x, best.x_max) + kGreatestNoise >= best.value;
  };
  if (!dense_) {
    for (const Candidate& c : list_) {
      const auto id = static_cast<uint32_t>(c.id);
      if (can_win(c.x)) offer(best, c.x, c.id, key.words(id >> 2)[id & 3]);
    }
    return best.id;
  }
  // The block of the greatest logit first: `best` is near its end from the start.
  const auto first = std::max_element(block_max_.begin(), block_max_.end()) - block_max_.begin();
  offer_block(best, key, first);
  for (int64_t block = 0; block < static_cast<int64_t>(block_max_.size()); ++block) {
    if (block != first && can_win(block_max_[static_cast<size_t>(block)])) {
      offer_block(best, key, block);
    }
  }
  return best.id;
}

}  // namespace lockstep::sample
