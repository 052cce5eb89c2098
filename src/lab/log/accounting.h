// The arithmetic that holds in every log of a speculative decoder. With a accepted of g drafted
// tokens, v verify steps with a draft, u steps without one, N generated tokens and c accepted
// tokens that a length limit or a stop cut off:
//   N = 1 + a + v + u - c        the first token is the prompt's
//   mean length = 1 + a / v
//   g = v * n                    with a fixed draft length n and no draft cut short
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lab/log/record.h"

namespace lockstep::lab::log {

// Which division of n tokens by ms milliseconds gives the printed rate (tokens a second, 2
// decimals; ms has 2 decimals too).
Denominator find_denominator(int64_t n, double ms, double printed_rate);

// Tokens a second that this project calls the decode rate: (n - 1) / t. nullopt where there is no
// step or no time.
std::optional<double> decode_rate(int64_t n, double ms);

// The verify steps v with 1 + a / v printed as `mean` with 2 decimals. Without a mean, or with a =
// 0, only bounds: at least a / 64 (no server drafts more), g / 64 and 1; at most g (a step has at
// least one drafted token), and N - 1 - a + (the longest draft) where N is known. low > high: no v
// fits.
constexpr int64_t kMaxDraft = 64;
Range steps_from(const Drafting& draft, std::optional<int64_t> generated_tokens);

// Steps of a request: v + u, by N - 1 - a = v + u - c. c is 0 unless v is larger, so that the count
// is max(N - 1 - a, v). nullopt where N is not known or v, being needed, isn't.
std::optional<int64_t> decode_steps(const Request& request);

// Draft lengths that the requests of one life allow. All counts are over requests with a draft.
class DraftLengths {
 public:
  void add(const Drafting& draft);
  int64_t requests() const { return requests_; }
  int64_t gcd() const { return gcd_; }
  // Requests with g = n * v for a v that their own line allows; and those whose last drafts were
  // cut, since a draft is never longer than what is left to generate: n v - g <= 1 + 2 + ... + (n -
  // 1), and no more than a third of n v.
  int64_t exact(int64_t n) const { return exact_[static_cast<size_t>(n)]; }
  int64_t cut(int64_t n) const { return cut_[static_cast<size_t>(n)]; }

  struct Found {
    int64_t length = 0;
    // All requests agree, at least 3 of them; and, where means give the steps, most are whole
    // multiples or no other length explains them all; else all are multiples by a chance below
    // 1e-3.
    bool proved = false;
    int64_t agree = 0;        // requests that are whole multiples
    int64_t with_cut = 0;     // and those that are but for drafts cut at the end
    double log10_chance = 0;  // that unrelated counts would all divide: n^-agree
    bool by_steps = false;    // known from printed means or counts, not from divisibility alone
  };
  // The length that explains the requests: the one most of them agree with, exactly or but for
  // drafts cut at the end; nullopt where fewer than nine in ten do.
  std::optional<Found> find() const;

 private:
  int64_t requests_ = 0;
  int64_t with_steps_ = 0;
  int64_t gcd_ = 0;
  std::array<int64_t, kMaxDraft + 1> exact_{}, cut_{};
};

// Narrows the steps of a request that drafted a whole multiple of the length found for its life.
void narrow_steps(Drafting& draft, int64_t length);

// The identities of one request that fail, as (id, text). longest: the draft length in force where
// it is known.
struct Failure {
  std::string id, text;
};
std::vector<Failure> check_request(const Request& request, std::optional<int64_t> longest);
std::vector<Failure> check_drafting(const Drafting& draft);

}  // namespace lockstep::lab::log
