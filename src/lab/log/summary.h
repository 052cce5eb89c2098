// Figures over many requests: totals, depth buckets, correlation and slope.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "lab/log/record.h"

namespace lockstep::lab::log {

// Correlation and least-squares slope of y over x, in one pass (Welford's update for the two means
// and the three centred sums; Chan, Golub, LeVeque, "Algorithms for computing the sample variance",
// The American Statistician 37(3), 1983).
class Fit {
 public:
  void add(double x, double y) {
    ++n_;
    const double dx = x - mean_x_, dy = y - mean_y_;
    mean_x_ += dx / static_cast<double>(n_);
    mean_y_ += dy / static_cast<double>(n_);
    sxx_ += dx * (x - mean_x_);
    syy_ += dy * (y - mean_y_);
    sxy_ += dx * (y - mean_y_);
  }
  int64_t n() const { return n_; }
  double mean_x() const { return mean_x_; }
  double mean_y() const { return mean_y_; }
  // nullopt below 3 points or where all x (for correlation all y, too) are the same.
  std::optional<double> correlation() const;
  std::optional<double> slope() const;
  // Standard error of the slope, residuals taken as independent.
  std::optional<double> slope_error() const;

 private:
  bool spread(double s, double mean) const {
    return s > 1e-18 * (1 + mean * mean) * static_cast<double>(n_);
  }
  int64_t n_ = 0;
  double mean_x_ = 0, mean_y_ = 0, sxx_ = 0, syy_ = 0, sxy_ = 0;
};

// Sums over requests; rates are sums over sums, so that long requests weigh as much as their time.
class Totals {
 public:
  void add(const Request& request);
  void add(const Interval& interval);

  int64_t requests = 0;  // with a decode timing
  int64_t warm = 0, cold = 0, unknown_warmth = 0;
  int64_t beside_other_slots = 0;
  int64_t after_fault = 0;
  int64_t prompt_tokens_evaluated = 0, cached_tokens = 0;
  double prompt_ms = 0;
  int64_t generated_tokens = 0;
  int64_t decode_tokens = 0;  // generated less the first of each request
  double decode_ms = 0;
  // Requests of which the steps are known.
  int64_t step_requests = 0, steps = 0, step_tokens = 0;
  int64_t one_token = 0;  // requests of a single token, which have no step
  double step_ms = 0;
  // Drafting; intervals too.
  int64_t draft_requests = 0, drafted = 0, accepted = 0;
  int64_t verify_low = 0, verify_high = 0;
  // Positions, weighted by verify steps; requests without them stay out.
  int64_t position_requests = 0;
  std::vector<double> position_accepted;  // steps in which the i-th was accepted
  std::vector<double> position_steps;     // of requests whose drafts could have an i-th
  double draft_ms = 0;  // where statistics lines give it, with what was drafted in that time
  int64_t draft_ms_drafted = 0;

  std::optional<double> prompt_tok_s() const;
  std::optional<double> decode_tok_s() const;      // (n - 1) / t
  std::optional<double> decode_tok_s_all() const;  // n / t
  std::optional<double> acceptance() const;
  std::optional<double> mean_accepted_len() const;  // 1 + a / v; needs v
  std::optional<double> tokens_per_step() const;
  std::optional<double> ms_per_step() const;
  std::vector<double> per_position() const;
};

// Whether a request reused earlier work; nullopt where nothing says.
std::optional<bool> is_warm(const Request& request);
// Mean number of positions attended to while it decoded: the prompt and half of what it generated.
std::optional<double> mean_context(const Request& request);

// Requests grouped by mean context: below 1k, and from each power of two to the next.
struct Bucket {
  double from = 0, to = 0;  // positions; to = infinity in the last
  Totals totals;
};
class Depths {
 public:
  void add(const Request& request);
  std::vector<Bucket> buckets() const;                   // those that hold a request
  const Fit& rate() const { return rate_; }              // tok/s over context
  const Fit& step_ms() const { return step_ms_; }        // ms a step over context
  const Fit& acceptance() const { return acceptance_; }  // share accepted over context
  const Fit& rate_by_acceptance() const { return rate_by_acceptance_; }

 private:
  static constexpr size_t kBuckets = 9;
  Totals totals_[kBuckets];
  Fit rate_, step_ms_, acceptance_, rate_by_acceptance_;
};

}  // namespace lockstep::lab::log
