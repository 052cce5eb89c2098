// What sessions share of what they remember: taking over beginnings, keeping them for others, and
// how much memory that leaves them to need.
#include <algorithm>

#include "decode/session_impl.h"

namespace lockstep::decode {

// Of the tokens, `kept` are remembered; more, where the tree has more. Returns how many are then.
int64_t Session::Impl::take_over(std::span<const int32_t> given, int64_t kept, Reuse how) {
  if (!options.prefixes || how == Reuse::none) return kept;
  const state::PrefixTree::Match match = options.prefixes->match(given, how == Reuse::whole_pages);
  if (match.positions <= kept) return kept;
  options.prefixes->give(match, lane.kv());
  return match.positions;
}

// What others have computed since: of those that begin alike and come together one goes ahead.
void Session::Impl::take_over_late() {
  const int64_t had = lane.kv().size();
  const int64_t most = size() - 1;
  if (reuse == Reuse::none || most / kernels::kPagePositions <= had / kernels::kPagePositions)
    return;
  // Whole pages alone: there may be no memory for a copy.
  const auto given = std::span(std::as_const(history)).first(static_cast<size_t>(most));
  const int64_t have = take_over(given, had, Reuse::whole_pages);
  if (have == had) return;
  cached_tokens += std::min(have, prompt_tokens) - std::min(had, prompt_tokens);
}

// Tells the tree of pages that have become whole.
void Session::Impl::keep_prefix() {
  const int64_t whole = lane.kv().size() / kernels::kPagePositions;
  if (!options.prefixes || reuse == Reuse::none || whole <= pages_kept) return;
  pages_kept = whole;
  options.prefixes->keep(
      std::span(std::as_const(history)).first(static_cast<size_t>(lane.kv().size())), lane.kv(),
      false);
}

// Where a generation of at most so many tokens ends.
int64_t Session::Impl::last_position(int64_t prompt, int64_t max) const {
  return max < 0 ? options.context : std::min(options.context, prompt + max);
}

void Session::set_reuse(Reuse reuse) {
  impl_->reuse = reuse;
}

void Session::release() {
  Impl& s = *impl_;
  state::KvCache& kv = s.lane.kv();
  if (s.options.prefixes && kv.size() > 0) {
    s.options.prefixes->keep(std::span(s.history).first(static_cast<size_t>(kv.size())), kv, true);
  }
  kv.truncate(0);
  s.history.clear();
  s.prompt_tokens = s.cached_tokens = s.pages_kept = 0;
  s.finish = Finish::stopped;
  s.fault.clear();
  if (s.control) s.control->forget_text();
  if (!s.options.source) return;
  s.options.source->release();
  s.options.source->truncate(0);
}

state::Claim Session::claim() const {
  const Impl& s = *impl_;
  if (s.finish != Finish::none) return {};
  const int64_t end = s.last_position(s.prompt_tokens, s.options.max_tokens);
  state::Claim claim = s.lane.kv().claim(end, s.most_rows());
  if (s.options.source) claim += s.options.source->claim(end);
  return claim;
}

int64_t Session::bytes_to_open(std::span<const int32_t> history, int64_t max_tokens,
                               Reuse how) const {
  const Impl& s = *impl_;
  const state::KvSpec& spec = s.lane.kv().spec();
  const int64_t end = s.last_position(static_cast<int64_t>(history.size()), max_tokens);
  state::Claim claim = state::whole_claim(spec, end, s.most_rows());
  if (s.options.source) claim += s.options.source->claim(end);
  int64_t bytes = claim.to_come + claim.windows;
  if (s.options.prefixes && how != Reuse::none && !history.empty()) {
    const auto match =
        s.options.prefixes->match(history.first(history.size() - 1), how == Reuse::whole_pages);
    bytes -= match.pinned_bytes;
    if (match.positions % kernels::kPagePositions != 0) {
      bytes += kernels::kPagePositions * state::bytes_per_position(spec);  // the copy
    }
  }
  return bytes;
}

}  // namespace lockstep::decode
