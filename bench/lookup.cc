// Time of one step of the lookup sources over a long history: one token more, then a proposal.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "draft/ngram.h"
#include "draft/suffix.h"

using namespace lockstep;

namespace {

// Text-like: words drawn with a skew, and passages that come again.
std::vector<int32_t> make_text(size_t length, bool repetitive) {
  std::mt19937_64 rng(1);
  std::vector<int32_t> tokens;
  while (tokens.size() < length) {
    if (tokens.size() > 200 && rng() % (repetitive ? 8 : 60) == 0) {
      const size_t from = rng() % (tokens.size() - 100), n = 10 + rng() % 80;
      for (size_t i = 0; i < n; ++i) tokens.push_back(tokens[from + i]);
    } else {
      const double u = static_cast<double>(rng() >> 11) * 0x1p-53;
      tokens.push_back(static_cast<int32_t>(150000.0 * u * u * u * u));
    }
  }
  tokens.resize(length);
  return tokens;
}

void measure(draft::Source& source, const std::vector<int32_t>& text) {
  constexpr size_t kPrompt = 4096;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto us = [](auto from, auto to) {
    return std::chrono::duration<double, std::micro>(to - from).count();
  };
  const std::span all(text);
  const auto start = now();
  source.propose(all.first(kPrompt), 8);
  const double prompt = us(start, now());
  std::vector<double> times;
  size_t proposed = 0;
  for (size_t size = kPrompt + 1; size <= text.size(); ++size) {
    const auto before = now();
    proposed += source.propose(all.first(size), 8).tokens.size();
    source.observe(all.first(size), 0);
    times.push_back(us(before, now()));
  }
  std::sort(times.begin(), times.end());
  fmt::print(
      "  {:7} prompt of {} tokens {:8.1f} us; a step: median {:5.2f}, 99 % {:5.2f}, greatest "
      "{:7.1f} us"
      " ({:.1f} tokens proposed)\n",
      source.name(), kPrompt, prompt, times[times.size() / 2], times[times.size() * 99 / 100],
      times.back(), static_cast<double>(proposed) / static_cast<double>(times.size()));
}

}  // namespace

int main() {
  for (const bool repetitive : {false, true}) {
    const std::vector<int32_t> text = make_text(32768, repetitive);
    fmt::print("{} text, 32768 tokens\n", repetitive ? "repetitive" : "ordinary");
    draft::NgramSource ngram;
    measure(ngram, text);
    draft::SuffixSource suffix;
    measure(suffix, text);
  }
  const std::vector<int32_t> same(32768, 7);
  fmt::print("one token, 32768 times\n");
  draft::NgramSource ngram;
  measure(ngram, same);
  draft::SuffixSource suffix;
  measure(suffix, same);
  return 0;
}
