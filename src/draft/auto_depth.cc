#include "draft/auto_depth.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::draft {
namespace {

// Until passes were seen: a row more costs so much of a pass of one row. Low, so that widths are
// tried; a pass of eight rows that costs 1.3 times one row is a good kernel's.
constexpr double kRowSlope = 0.04;

// What is thought of a source that has not drafted yet.
constexpr double kPriorRight = 0.6;
// Outcomes that an estimate starts with from what it is a part of: a bucket from its part, a place
// from its bucket. They fade as own ones come: old ones are forgotten, so that there never are
// many, and a lasting share would make the hopeless look worth a little.
constexpr double kParentWeight = 3.0;
// An outcome's weight after another step, up to kIdleSteps of them at once: what was known before a
// pause is worth less, but one look does not outweigh it all.
constexpr double kRecency = 0.98;
constexpr int64_t kIdleSteps = 4;

// Tokens and time that make up the present rate: the last 50 steps or so.
constexpr double kRateRecency = 0.98;

// Of all time, what may go into finding out, and so many passes at the start.
constexpr double kProbeShare = 0.006, kProbePasses = 2.0;
// A width is tried for a gain of this much at best.
constexpr double kProbeGain = 0.02;
// A longer draft costs nothing to speak of below this part of a token.
constexpr double kFreeDraft = 0.003;
// A draft's time is a mean of so many, in which one counts no more than this many times the mean.
constexpr int64_t kDraftsKept = 24;
constexpr double kMostRise = 4.0;
constexpr int kFirstAsk = 4;  // when nothing is known
constexpr int kLook = 2;      // when a source that lost is looked at

double leaning(double right, double all, double parent) {
  const double weight =
      kParentWeight * kParentWeight * kParentWeight / (kParentWeight * kParentWeight + all * all);
  return (right + weight * parent) / (all + weight);
}

bool is_time(double ms) {
  return std::isfinite(ms) && ms >= 0.0;
}

}  // namespace

AcceptanceTable::Key AcceptanceTable::key_of(const Proposal& proposal, size_t i) {
  Key key;
  if (i < proposal.part.size()) key.part = proposal.part[i];
  if (i < proposal.confidence.size() && !std::isnan(proposal.confidence[i])) {
    constexpr float kEdges[] = {0.2f, 0.4f, 0.6f, 0.75f, 0.85f, 0.93f, 0.98f};
    const auto edge =
        std::upper_bound(std::begin(kEdges), std::end(kEdges), proposal.confidence[i]);
    key.bucket = static_cast<uint8_t>(1 + (edge - std::begin(kEdges)));
  } else if (i < proposal.match.size()) {
    constexpr int32_t kEdges[] = {3, 4, 6, 9, 14, 22, 32};
    const auto edge = std::upper_bound(std::begin(kEdges), std::end(kEdges), proposal.match[i]);
    key.bucket = static_cast<uint8_t>(16 + (edge - std::begin(kEdges)));
  }
  constexpr uint8_t kPlaces[] = {0, 1, 2, 3, 3, 4, 4, 4};
  key.place = kPlaces[std::min<size_t>(i, std::size(kPlaces) - 1)];
  return key;
}

namespace {

// 0 is for "any"; the part is never "any".
uint32_t packed(const AcceptanceTable::Key& key, bool bucket, bool place) {
  return uint32_t{key.part} << 16 | (bucket ? (key.bucket + 1u) << 8 : 0u) |
         (place ? key.place + 1u : 0u);
}

}  // namespace

void AcceptanceTable::add(Count& count, bool accepted, int64_t step) {
  const int64_t idle = std::clamp<int64_t>(step - count.step, 0, kIdleSteps);
  const double kept = std::pow(kRecency, static_cast<double>(idle));
  count.right = count.right * kept + (accepted ? 1.0 : 0.0);
  count.all = count.all * kept + 1.0;
  count.step = step;
}

void AcceptanceTable::observe(const Key& key, bool accepted, int64_t step) {
  add(counts_[packed(key, false, false)], accepted, step);
  add(counts_[packed(key, true, false)], accepted, step);
  add(counts_[packed(key, true, true)], accepted, step);
}

double AcceptanceTable::probability(const Key& key) const {
  double p = kPriorRight;
  for (const uint32_t at :
       {packed(key, false, false), packed(key, true, false), packed(key, true, true)}) {
    const auto found = counts_.find(at);
    if (found != counts_.end()) p = leaning(found->second.right, found->second.all, p);
  }
  return p;
}

AutoDepth::AutoDepth() : passes_(kMaxDepth + 2, 1, kRowSlope) {}

// The rate that another millisecond would be spent at: that of late, and never less than plain
// decoding's, which is always to be had.
double AutoDepth::tokens_per_ms() const {
  const double plain = passes_.at(1);
  const double lower = plain > 0.0 ? 1.0 / plain : 0.0;
  return recent_ms_ > 0.0 ? std::max(lower, recent_tokens_ / recent_ms_) : lower;
}

double AutoDepth::expected_tokens(std::span<const double> probabilities, int depth) const {
  double reach = 1.0, tokens = 1.0;
  for (int i = 0; i < depth; ++i) {
    reach *= probabilities[static_cast<size_t>(i)];
    tokens += reach;
  }
  return tokens;
}

bool AutoDepth::affords(double ms) const {
  return spent_ms_ + ms <= kProbeShare * all_ms_ + kProbePasses * passes_.at(1);
}

// What a pass without a draft costs is what all is held against. To see it costs no more than that
// pass, whatever is given up for it.
bool AutoDepth::plain_wanted() const {
  return !passes_.known() || (passes_.uncertain(1) && affords(passes_.at(1)));
}

void AutoDepth::begin_step() {
  ++step_;
  step_ms_ = 0;
  passed_ = false;
  probe_expected_ = -1;
  looking_ = false;
}

// That a token is right there, where those before it are: of all proposals so far.
std::array<double, AutoDepth::kMaxDepth> AutoDepth::right_by_place() const {
  std::array<double, kMaxDepth> p{};
  for (size_t i = 0; i < p.size(); ++i) {
    p[i] = leaning(place_right_[i], place_all_[i], i > 0 ? p[i - 1] : kPriorRight);
  }
  return p;
}

std::vector<double> AutoDepth::right_of(const Proposal& proposal, int most) const {
  std::vector<double> p;
  for (int i = 0; i < most; ++i) {
    p.push_back(acceptance_.probability(AcceptanceTable::key_of(proposal, static_cast<size_t>(i))));
  }
  return p;
}

AutoDepth::Prospect AutoDepth::begin_shared(int room) {
  begin_step();
  const std::array<double, kMaxDepth> p = right_by_place();
  return {.known = drafts_seen_ > 0,
          .draft_token_ms = draft_token_ms_,
          .right = {p.begin(), p.begin() + std::clamp(room, 0, kMaxDepth)}};
}

std::vector<double> AutoDepth::follow_shared(const Proposal& proposal, int asked) {
  if (asked > 0) followed_.push_back({proposal, asked, 0});
  const int most = std::min({static_cast<int>(proposal.tokens.size()), asked, kMaxDepth});
  return right_of(proposal, most);
}

int AutoDepth::ask(int room) {
  begin_step();
  const int most = std::clamp(room, 0, kMaxDepth);
  if (most == 0) return 0;
  // choose() will take none, to see what plain decoding costs: a look is enough. (That costs no
  // more than a plain pass, whatever it gives up.)
  if (!passes_.known() || (passes_.uncertain(1) && affords(passes_.at(1)))) return 1;
  if (drafts_seen_ == 0) return std::min(most, kFirstAsk);
  const std::array<double, kMaxDepth> p = right_by_place();
  const double rate = tokens_per_ms();
  const auto draft_ms = [&](int n) { return draft_token_ms_ * n; };
  // What a step is worth beyond the time it takes, in tokens.
  std::array<double, kMaxDepth + 1> worth{};
  double verified = -1e300;
  int best = 0;
  for (int n = 0; n <= most; ++n) {
    const auto i = static_cast<size_t>(n);
    verified = std::max(verified, expected_tokens(p, n) - rate * passes_.at(1 + n));
    worth[i] = verified - rate * draft_ms(n);
    if (worth[i] > worth[static_cast<size_t>(best)]) best = n;
  }
  const double sure = worth[static_cast<size_t>(best)];
  const double gain = kProbeGain * expected_tokens(p, best);
  int probe = best;
  bool saves = false;
  double least_loss = std::numeric_limits<double>::infinity();
  for (int n = 1; n <= most; ++n) {
    if (n == best || !passes_.uncertain(1 + n)) continue;
    const double tokens = expected_tokens(p, n) - rate * draft_ms(n);
    const double loss = std::max(0.0, sure - tokens + rate * passes_.at(1 + n)) / rate;
    const bool hopeful = tokens - rate * passes_.at_least(1 + n) > sure + gain;
    if (!hopeful || loss >= least_loss) continue;
    saves |= !affords(loss);
    if (!affords(loss)) continue;
    least_loss = loss;
    probe = n;
  }
  if (probe != best) {
    spent_ms_ += std::max(0.0, draft_ms(probe) - draft_ms(best));
    return probe;
  }
  int n = best;
  while (n < most &&
         worth[static_cast<size_t>(n + 1)] >= worth[static_cast<size_t>(best)] - kFreeDraft) {
    ++n;
  }
  if (n > 0) return n;
  // Plain decoding wins. Now and then see whether it still would: at a bounded share of all time.
  // (A source that has to read what it missed may take more at once; it is looked at so much later
  // then.)
  // A width that could be better is saved for: looks, which cost less, would never let it come.
  const int look = std::min(most, kLook);
  if (saves || !affords(draft_ms(look))) return 0;
  looking_ = true;
  return look;
}

void AutoDepth::observe_draft(int asked, double ms) {
  if (asked < 1 || !is_time(ms)) return;
  step_ms_ += ms;
  if (looking_) spent_ms_ += ms;
  // A source that was not asked for a while reads first what it missed: its time counts only where
  // it is less than was thought.
  const double token_ms = ms / asked;
  const bool caught_up = last_asked_ == step_ - 1;
  if (!catching_up_ && (caught_up || drafts_seen_ == 0 || token_ms < draft_token_ms_)) {
    // A mean, since a source may do much work or none (a chain); one disturbance counts for little.
    const double counted =
        drafts_seen_ > 0 ? std::min(token_ms, kMostRise * draft_token_ms_ + 1e-6) : token_ms;
    drafts_seen_ = std::min<int64_t>(drafts_seen_ + 1, kDraftsKept);
    draft_token_ms_ += (counted - draft_token_ms_) / static_cast<double>(drafts_seen_);
  }
  catching_up_ = false;
  last_asked_ = step_;
}

int AutoDepth::choose(const Proposal& proposal, int asked) {
  const int most = std::min({static_cast<int>(proposal.tokens.size()), asked, kMaxDepth});
  if (asked > 0) followed_.push_back({proposal, asked, 0});
  if (most < 1) return 0;
  if (!passes_.known()) return 0;
  const std::vector<double> p = right_of(proposal, most);
  const double rate = tokens_per_ms();
  const auto worth = [&](int depth, double ms) { return expected_tokens(p, depth) - rate * ms; };
  int best = 0;
  for (int depth = 1; depth <= most; ++depth) {
    if (worth(depth, passes_.at(1 + depth)) > worth(best, passes_.at(1 + best))) best = depth;
  }
  const double sure = worth(best, passes_.at(1 + best));
  int probe = best;
  if (plain_wanted()) {
    probe = 0;
  } else {
    // A width whose cost is a guess may be worth a try: of those that could be better, the one that
    // loses least where it is not.
    const double gain = kProbeGain * expected_tokens(p, best);
    double least_loss = std::numeric_limits<double>::infinity();
    for (int depth = 1; depth <= most; ++depth) {
      if (depth == best || !passes_.uncertain(1 + depth)) continue;
      if (worth(depth, passes_.at_least(1 + depth)) <= sure + gain) continue;
      const double loss = std::max(0.0, sure - worth(depth, passes_.at(1 + depth))) / rate;
      if (loss < least_loss && affords(loss)) {
        least_loss = loss;
        probe = depth;
      }
    }
  }
  if (probe != best) probe_expected_ = expected_tokens(p, probe) - sure;
  return probe;
}

void AutoDepth::observe_pass(int width, double ms) {
  if (!is_time(ms)) return;
  passes_.observe(width, ms);
  step_ms_ += ms;
  passed_ = true;
  // What a probe cost above what the sure choice would have: its time, less what it was worth.
  if (probe_expected_ >= 0.0) {
    spent_ms_ += std::max(0.0, ms - probe_expected_ / tokens_per_ms());
    probe_expected_ = -1;
  }
}

void AutoDepth::observe_tokens(std::span<const int32_t> tokens) {
  if (passed_) {
    recent_tokens_ = recent_tokens_ * kRateRecency + static_cast<double>(tokens.size());
    recent_ms_ = recent_ms_ * kRateRecency + step_ms_;
    all_ms_ += step_ms_;
    passed_ = false;
  }
  // Every proposal is followed until the text leaves it, so that places beyond the depth chosen,
  // and drafts that were not verified at all, are learned from for nothing.
  for (Followed& f : followed_) {
    const Proposal& proposal = f.proposal;
    for (const int32_t token : tokens) {
      if (f.asked == 0) break;
      const size_t i = f.matched;
      const bool there = i < proposal.tokens.size();
      const bool right = there && proposal.tokens[i] == token;
      if (there) acceptance_.observe(AcceptanceTable::key_of(proposal, i), right, step_);
      place_right_[i] = place_right_[i] * kRecency + (right ? 1.0 : 0.0);
      place_all_[i] = place_all_[i] * kRecency + 1.0;
      ++f.matched;
      if (!right || f.matched == static_cast<size_t>(f.asked)) f.asked = 0;  // done
    }
  }
  std::erase_if(followed_, [](const Followed& f) { return f.asked == 0; });
}

void AutoDepth::forget_text() {
  followed_.clear();
  catching_up_ = true;
}

}  // namespace lockstep::draft
