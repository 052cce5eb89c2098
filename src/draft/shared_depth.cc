#include "draft/shared_depth.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::draft {
namespace {

// As in auto_depth.cc, where they are explained.
constexpr double kRowSlope = 0.04;
constexpr double kRateRecency = 0.98;
constexpr double kProbeShare = 0.006, kProbePasses = 2.0, kProbeGain = 0.02;
constexpr double kFreeDraft = 0.003;
constexpr int kFirstAsk = 4, kLook = 2;

}  // namespace

SharedDepth::SharedDepth() : passes_(kMostRows, 1, kRowSlope) {}

// The rate that another millisecond would be spent at.
double SharedDepth::tokens_per_ms(int plain_rows) const {
  const double plain = passes_.at(plain_rows);
  const double lower = plain > 0.0 ? plain_rows / plain : 0.0;
  const Rate& rate = rates_[static_cast<size_t>(std::min(plain_rows, kMostRows - 1))];
  return rate.ms > 0.0 ? std::max(lower, rate.tokens / rate.ms) : lower;
}

bool SharedDepth::affords(double ms) const {
  return spent_ms_ + ms <= kProbeShare * all_ms_ + kProbePasses * passes_.at(1);
}

// A row more goes where it is most likely to be a token: within a draft each is less likely than
// the one before, so that taking the best next token again and again gives the best sum for any
// number of rows.
SharedDepth::Split SharedDepth::split(std::span<const std::vector<double>> right,
                                      std::span<const double> token_ms, int plain_rows) const {
  const double rate = tokens_per_ms(plain_rows);
  std::vector<double> next;  // what the next token of each stream would bring
  std::vector<size_t> taken(right.size(), 0);
  std::vector<double> reach(right.size(), 1.0);
  const auto look = [&](size_t i) {
    if (taken[i] == right[i].size()) return -std::numeric_limits<double>::infinity();
    return reach[i] * right[i][taken[i]] - (token_ms.empty() ? 0.0 : rate * token_ms[i]);
  };
  for (size_t i = 0; i < right.size(); ++i) next.push_back(look(i));

  Split split;
  double brought = 0;
  split.worth.push_back(-rate * passes_.at(plain_rows));
  while (plain_rows + std::ssize(split.order) + 1 < kMostRows) {
    const auto best = std::max_element(next.begin(), next.end());
    if (best == next.end() || !std::isfinite(*best)) break;
    const auto i = static_cast<size_t>(best - next.begin());
    brought += *best;
    reach[i] *= right[i][taken[i]++];
    next[i] = look(i);
    split.order.push_back(i);
    const int rows = plain_rows + static_cast<int>(split.order.size());
    split.worth.push_back(brought - rate * passes_.at(rows));
    if (split.worth.back() > split.worth[split.best]) split.best = split.order.size();
  }
  split.depths.assign(right.size(), 0);
  split.take(split.best);
  return split;
}

void SharedDepth::Split::take(size_t tokens) {
  std::fill(depths.begin(), depths.end(), 0);
  for (size_t k = 0; k < tokens; ++k) ++depths[order[k]];
}

double SharedDepth::loss_of(const Split& split, size_t tokens, double rate) {
  return std::max(0.0, split.worth[split.best] - split.worth[tokens]) / rate;
}

// Of numbers of rows whose cost is a guess, and which could be better, the one that loses least
// where it is not.
std::optional<size_t> SharedDepth::probe_of(const Split& split, int plain_rows, double rate) const {
  std::optional<size_t> probe;
  double least = std::numeric_limits<double>::infinity();
  for (size_t k = 1; k < split.worth.size(); ++k) {
    const int rows = plain_rows + static_cast<int>(k);
    if (k == split.best || !passes_.uncertain(rows)) continue;
    const double hoped = split.worth[k] + rate * (passes_.at(rows) - passes_.at_least(rows));
    const double loss = loss_of(split, k, rate);
    if (hoped <= split.worth[split.best] + kProbeGain * plain_rows || loss >= least) continue;
    least = loss;
    probe = k;
  }
  return probe;
}

std::vector<int> SharedDepth::ask(std::span<const AutoDepth::Prospect> streams, int plain_rows) {
  std::vector<int> asked(streams.size(), 0);
  // Without a pass to hold others against nothing is verified: a look is enough.
  if (!passes_.known()) {
    for (size_t i = 0; i < streams.size(); ++i) asked[i] = streams[i].right.empty() ? 0 : 1;
    return asked;
  }
  const double rate = tokens_per_ms(plain_rows);
  std::vector<std::vector<double>> right;
  std::vector<double> token_ms;
  for (const AutoDepth::Prospect& stream : streams) {
    right.push_back(stream.known ? stream.right : std::vector<double>{});
    token_ms.push_back(stream.draft_token_ms);
  }
  Split best = split(right, token_ms, plain_rows);
  // To draft for a width that is only to be tried costs what more it drafts; what the pass then
  // loses is counted when it has been chosen.
  const std::optional<size_t> probe = probe_of(best, plain_rows, rate);
  if (probe && affords(loss_of(best, *probe, rate))) {
    const auto draft_ms = [&](size_t tokens) {
      double ms = 0;
      for (size_t k = 0; k < tokens; ++k) ms += token_ms[best.order[k]];
      return ms;
    };
    spent_ms_ += std::max(0.0, draft_ms(*probe) - draft_ms(best.best));
    best.take(*probe);
  }
  asked = std::move(best.depths);
  for (size_t i = 0; i < streams.size(); ++i) {
    const AutoDepth::Prospect& stream = streams[i];
    const auto most = static_cast<int>(stream.right.size());
    if (!stream.known) {
      asked[i] = std::min(most, kFirstAsk);
      continue;
    }
    // More costs nothing to speak of: what it is worth is seen when it is there.
    while (asked[i] < most &&
           rate * stream.draft_token_ms * (most - asked[i]) <= kFreeDraft * most) {
      ++asked[i];
    }
    const int look = std::min(most, kLook);
    const double look_ms = stream.draft_token_ms * look;
    // A width that could be better is saved for: looks, which cost less, would never let it come.
    if (asked[i] > 0 || look == 0 || probe || !affords(look_ms)) continue;
    asked[i] = look;
    spent_ms_ += look_ms;
  }
  return asked;
}

std::vector<int> SharedDepth::choose(std::span<const std::vector<double>> right, int plain_rows) {
  probe_worth_ = -1;
  if (!passes_.known()) return std::vector<int>(right.size(), 0);
  const double rate = tokens_per_ms(plain_rows);
  if (!(rate > 0.0)) return std::vector<int>(right.size(), 0);
  Split best = split(right, {}, plain_rows);
  std::optional<size_t> probe;
  if (plain_rows < kMostRows && best.best > 0 && passes_.uncertain(plain_rows) &&
      affords(loss_of(best, 0, rate))) {
    probe = 0;
  } else {
    probe = probe_of(best, plain_rows, rate);
    if (probe && !affords(loss_of(best, *probe, rate))) probe.reset();
  }
  if (probe) {
    probe_worth_ = best.worth[*probe] + rate * passes_.at(plain_rows + static_cast<int>(*probe)) -
                   best.worth[best.best];
    best.take(*probe);
  }
  return best.depths;
}

void SharedDepth::observe(int plain_rows, int rows, double pass_ms, double draft_ms,
                          int64_t tokens) {
  if (!std::isfinite(pass_ms) || pass_ms < 0.0 || !std::isfinite(draft_ms)) return;
  if (probe_worth_ >= 0.0) {
    const double rate = tokens_per_ms(plain_rows);
    if (rate > 0.0) spent_ms_ += std::max(0.0, pass_ms - probe_worth_ / rate);
    probe_worth_ = -1;
  }
  passes_.observe(rows, pass_ms);
  const double ms = pass_ms + std::max(0.0, draft_ms);
  all_ms_ += ms;
  if (plain_rows < 1 || plain_rows >= kMostRows) return;
  Rate& rate = rates_[static_cast<size_t>(plain_rows)];
  rate.tokens = rate.tokens * kRateRecency + static_cast<double>(tokens);
  rate.ms = rate.ms * kRateRecency + ms;
}

}  // namespace lockstep::draft
