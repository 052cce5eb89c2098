#include "lab/log/whatif.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "lab/log/accounting.h"

namespace lockstep::lab::log {
namespace {

constexpr size_t kClusters =
    1000;  // more rows are put together, so that a long log takes no longer
constexpr int kResamples = 2000;
constexpr size_t kFewRows = 8;  // below this a resample of rows says little

[[noreturn]] void cannot(std::string_view why) {
  throw Error(ExitCode::check_failed,
              fmt::format("what other depths give cannot be said: {}", why));
}

// What a row (or several) adds to the sums that a prediction is made of.
struct Cluster {
  double verify = 0;  // steps with a draft
  double steps = 0;   // all steps
  double ms = 0;
  double accepted = 0;
  std::vector<double> by_position;  // steps with the i-th accepted
  std::vector<double> could;        // steps of rows whose drafts could have an i-th

  void add(const Cluster& other) {
    verify += other.verify;
    steps += other.steps;
    ms += other.ms;
    accepted += other.accepted;
    if (by_position.size() < other.by_position.size()) {
      by_position.resize(other.by_position.size());
      could.resize(other.by_position.size());
    }
    for (size_t i = 0; i < other.by_position.size(); ++i) {
      by_position[i] += other.by_position[i];
      could[i] += other.could[i];
    }
  }
};

std::vector<Cluster> clusters_of(const Analysis& analysis, bool positions) {
  std::vector<Cluster> out;
  for (const Request& r : analysis.requests) {
    if (!r.draft || !r.draft->steps.known() || r.draft->steps.low < 1 || !r.decode_ms ||
        *r.decode_ms <= 0)
      continue;
    if (positions && r.draft->per_position.empty()) continue;
    const std::optional<int64_t> n_steps = decode_steps(r);
    if (!n_steps || *n_steps < 1) continue;
    Cluster c;
    c.verify = static_cast<double>(r.draft->steps.low);
    c.steps = static_cast<double>(*n_steps);
    c.ms = *r.decode_ms;
    c.accepted = static_cast<double>(r.draft->accepted);
    for (const double share : r.draft->per_position) c.by_position.push_back(share * c.verify);
    c.could.assign(c.by_position.size(), c.verify);
    out.push_back(std::move(c));
  }
  if (out.size() > kClusters) {
    std::vector<Cluster> merged(kClusters);
    for (size_t i = 0; i < out.size(); ++i) merged[i % kClusters].add(out[i]);
    out = std::move(merged);
  }
  return out;
}

Cluster sum_of(const std::vector<Cluster>& clusters) {
  Cluster sum;
  for (const Cluster& c : clusters) sum.add(c);
  return sum;
}

// How acceptance goes on beyond the drafts of the log.
enum class Tail { ratio, none, same };

std::vector<double> shares(const Cluster& sum, int64_t depth, Tail tail) {
  std::vector<double> out;
  for (size_t i = 0; i < sum.by_position.size(); ++i) {
    out.push_back(sum.could[i] > 0 ? std::min(1.0, sum.by_position[i] / sum.could[i]) : 0);
  }
  // Positions that nothing was ever drafted for are trailing zeros of a longer limit.
  while (!out.empty() && out.back() <= 0) out.pop_back();
  const size_t known = out.size();
  const double last = known > 0 ? out[known - 1] : 0;
  const double ratio =
      known > 1 && out[known - 2] > 0 ? std::min(1.0, last / out[known - 2]) : last;
  double next = last;
  while (static_cast<int64_t>(out.size()) < depth) {
    next = tail == Tail::none ? 0 : tail == Tail::same ? next : next * ratio;
    out.push_back(next);
  }
  return out;
}

std::vector<double> assumed_shares(double mean, int64_t n, int64_t depth, bool geometric) {
  std::vector<double> out;
  const double q = geometric ? geometric_ratio(mean, n) : 0;
  const double flat = std::min(1.0, mean / static_cast<double>(n));
  for (int64_t i = 1; i <= depth; ++i)
    out.push_back(geometric ? std::pow(q, static_cast<double>(i)) : flat);
  return out;
}

struct Model {
  double verify_ms = 0, draft_ms = 0, row_ms = 0;
  double ms(double depth, double drafted_share) const {
    return verify_ms + drafted_share * depth * (draft_ms + row_ms);
  }
};

double rate_at(std::span<const double> per_position, int64_t depth, double drafted_share,
               const Model& model) {
  const double tokens = 1 + drafted_share * (tokens_at(per_position, depth) - 1);
  return tokens * 1000 / model.ms(static_cast<double>(depth), drafted_share);
}

// Uniform whole numbers below n, the same at every run.
class Draws {
 public:
  size_t below(size_t n) {
    if (used_ == 4) {
      block_ = philox4x32_10({counter_++, 0, 0, 0}, {0x6C6F67u, 0x776966u});
      used_ = 0;
    }
    return static_cast<size_t>(uint64_t{block_[used_++]} * n >> 32);
  }

 private:
  std::array<uint32_t, 4> block_{};
  uint32_t counter_ = 0;
  size_t used_ = 4;
};

// The step's cost by ordinary least squares over rows with several mean draft lengths.
std::optional<Model> fitted_cost(const Analysis& analysis) {
  Fit fit;
  double least = INFINITY, most = 0;
  for (const Request& r : analysis.requests) {
    const std::optional<int64_t> steps = decode_steps(r);
    if (!steps || *steps < 16 || !r.decode_ms || *r.decode_ms <= 0) continue;
    const double drafted =
        r.draft ? static_cast<double>(r.draft->drafted) / static_cast<double>(*steps) : 0;
    least = std::min(least, drafted);
    most = std::max(most, drafted);
    fit.add(drafted, *r.decode_ms / static_cast<double>(*steps));
  }
  // Lengths that differ by chance alone (a cut draft here and there) make no line.
  if (fit.n() < 4 || most - least < 1 || !fit.slope() || *fit.slope() <= 0) return std::nullopt;
  if (*fit.slope() < 2 * *fit.slope_error()) return std::nullopt;
  Model model;
  model.draft_ms = *fit.slope();
  model.verify_ms = fit.mean_y() - *fit.slope() * fit.mean_x();
  if (model.verify_ms <= 0) return std::nullopt;
  return model;
}

Model cost_model(const Analysis& analysis, const StepCost& given, double ms_per_step,
                 double drafted_per_step, std::vector<std::string>& assumptions) {
  Model model;
  const std::optional<Model> fitted = fitted_cost(analysis);
  const Totals& t = analysis.totals;
  bool drafting_fitted = false;
  if (given.draft_ms) {
    model.draft_ms = *given.draft_ms;
  } else if (t.draft_ms_drafted > 0) {
    model.draft_ms = t.draft_ms / static_cast<double>(t.draft_ms_drafted);
    assumptions.push_back(
        fmt::format("drafting a token costs {:.3f} ms, as the statistics lines of the log say",
                    model.draft_ms));
  } else if (fitted) {
    model.draft_ms = fitted->draft_ms;
    drafting_fitted = true;
    assumptions.push_back(
        fmt::format("a drafted token costs {:.3f} ms, its row in the pass included, by the rows "
                    "of different lengths in the log",
                    model.draft_ms));
  } else {
    cannot(
        "the log has one draft length and no statistics lines, so that the cost of another is not "
        "in it; "
        "give --draft-ms (drafting one token) and --verify-ms (a pass of one row)");
  }
  if (given.row_ms) {
    model.row_ms = *given.row_ms;
  } else if (!drafting_fitted) {
    assumptions.push_back("a pass takes as long for many rows as for one (else give --row-ms)");
  }
  if (given.verify_ms) {
    model.verify_ms = *given.verify_ms;
  } else if (drafting_fitted && fitted) {
    model.verify_ms = fitted->verify_ms;
  } else {
    model.verify_ms = ms_per_step - drafted_per_step * (model.draft_ms + model.row_ms);
    if (model.verify_ms <= 0) {
      cannot(fmt::format(
          "a step of the log takes {:.3f} ms, less than its {:.2f} drafted tokens at {:.3f} ms; "
          "check --draft-ms",
          ms_per_step, drafted_per_step, model.draft_ms + model.row_ms));
    }
    assumptions.push_back(fmt::format(
        "a pass costs what the log's step leaves after drafting: {:.3f} ms", model.verify_ms));
  }
  return model;
}

}  // namespace

double tokens_at(std::span<const double> per_position, int64_t depth) {
  double tokens = 1;
  for (int64_t i = 0; i < depth && i < static_cast<int64_t>(per_position.size()); ++i) {
    tokens += per_position[static_cast<size_t>(i)];
  }
  return tokens;
}

double geometric_ratio(double mean, int64_t n) {
  double low = 0, high = 1;
  for (int i = 0; i < 200; ++i) {
    const double q = (low + high) / 2;
    double sum = 0, power = 1;
    for (int64_t k = 0; k < n; ++k) sum += power *= q;
    (sum < mean ? low : high) = q;
  }
  return (low + high) / 2;
}

Whatif predict(const Analysis& analysis, std::span<const int64_t> depths, const StepCost& given) {
  const Totals& totals = analysis.totals;
  if (totals.drafted == 0) cannot("the log has no drafts");
  if (totals.requests == 0)
    cannot("the log has no requests with a time (vLLM's intervals have none)");
  Whatif out;
  out.positions_known = totals.position_requests > 0;
  const std::vector<Cluster> clusters = clusters_of(analysis, out.positions_known);
  if (clusters.empty()) {
    cannot(
        "the number of verify steps is not known: no mean length is printed, and no draft length "
        "proved");
  }
  const Cluster sum = sum_of(clusters);
  out.verify_steps = static_cast<int64_t>(sum.verify);
  out.drafted_share = sum.verify / sum.steps;
  out.mean_accepted = sum.accepted / sum.verify;
  for (const Life& life : analysis.lives) {
    if (!life.draft_length) continue;
    if (out.log_depth != 0 && out.log_depth != *life.draft_length && !out.positions_known) {
      cannot("the log has several draft lengths and no acceptance by position");
    }
    out.log_depth = std::max(out.log_depth, *life.draft_length);
  }
  if (out.positions_known) {
    const auto known = static_cast<int64_t>(shares(sum, 0, Tail::none).size());
    out.log_depth = std::max<int64_t>(1, known);
  } else if (out.log_depth == 0) {
    cannot(
        "its drafts have no fixed length, and it has no acceptance by position (llama-server -lv 4 "
        "prints it)");
  }
  const double ms_per_step = sum.ms / sum.steps;
  double drafted = 0, drafted_steps = 0;
  for (const Request& r : analysis.requests) {
    const std::optional<int64_t> steps = decode_steps(r);
    if (!r.draft || !r.draft->steps.known() || !steps) continue;
    drafted += static_cast<double>(r.draft->drafted);
    drafted_steps += static_cast<double>(*steps);
  }
  const double drafted_per_step = drafted_steps > 0 ? drafted / drafted_steps : 0;
  const Model model = cost_model(analysis, given, ms_per_step, drafted_per_step, out.assumptions);
  out.verify_ms = model.verify_ms;
  out.draft_ms = model.draft_ms;
  out.row_ms = model.row_ms;
  out.measured_tok_s = (sum.steps + sum.accepted) * 1000 / sum.ms;
  if (out.drafted_share < 0.999) {
    out.assumptions.push_back(fmt::format("{:.1f} % of the steps have a draft, at other depths too",
                                          out.drafted_share * 100));
  }
  std::vector<int64_t> all{0};
  all.insert(all.end(), depths.begin(), depths.end());
  const int64_t deepest = *std::max_element(all.begin(), all.end());

  // Two readings of what is not known; both are the same where the positions are known.
  std::vector<double> central, lower, upper;
  if (out.positions_known) {
    central = shares(sum, deepest, Tail::ratio);
    lower = shares(sum, deepest, Tail::none);
    upper = shares(sum, deepest, Tail::same);
    if (deepest > out.log_depth) {
      out.assumptions.push_back(
          fmt::format("beyond {} drafted tokens acceptance falls on as at the last one; the "
                      "interval goes from none to as "
                      "many as there",
                      out.log_depth));
    }
  } else {
    central = assumed_shares(out.mean_accepted, out.log_depth, deepest, true);
    const std::vector<double> flat =
        assumed_shares(out.mean_accepted, out.log_depth, deepest, false);
    int64_t best[2] = {0, 0};
    double best_rate[2] = {0, 0};
    for (const int64_t depth : all) {
      for (const int which : {0, 1}) {
        const double rate = rate_at(which ? flat : central, depth, out.drafted_share, model);
        if (rate > best_rate[which]) best_rate[which] = rate, best[which] = depth;
      }
    }
    if (best[0] != best[1]) {
      cannot(fmt::format(
          "the log has no acceptance by position, and that decides: if it falls geometrically "
          "depth {} is best ({:.2f} tok/s), if drafts are accepted whole or not at all depth {} "
          "({:.2f}); record a log with llama-server -lv 4",
          best[0], best_rate[0], best[1], best_rate[1]));
    }
    out.assumptions.push_back(
        "acceptance by position is not in the log: the figures are for a geometric fall, the "
        "interval reaches to "
        "drafts that are accepted whole or not at all; the best depth is the same for both");
    lower = central;
    upper = flat;
  }
  out.per_position.assign(central.begin(), central.begin() + std::min(out.log_depth, deepest));

  // Sampling error of every depth's rate.
  std::vector<std::vector<double>> low_draws(all.size()), high_draws(all.size());
  if (clusters.size() >= kFewRows) {
    out.assumptions.push_back(
        fmt::format("intervals: 95 %, {} resamples of {} rows", kResamples, clusters.size()));
    Draws draws;
    for (int i = 0; i < kResamples; ++i) {
      Cluster again;
      for (size_t k = 0; k < clusters.size(); ++k)
        again.add(clusters[draws.below(clusters.size())]);
      Model costs = model;
      if (!given.verify_ms) {
        costs.verify_ms = std::max(1e-6, model.verify_ms * (again.ms / again.steps) / ms_per_step);
      }
      const double share = again.verify / again.steps;
      std::vector<double> a, b;
      if (out.positions_known) {
        a = shares(again, deepest, Tail::none);
        b = shares(again, deepest, Tail::same);
      } else {
        const double mean = again.accepted / again.verify;
        a = assumed_shares(mean, out.log_depth, deepest, true);
        b = assumed_shares(mean, out.log_depth, deepest, false);
      }
      for (size_t d = 0; d < all.size(); ++d) {
        const double x = rate_at(a, all[d], share, costs), y = rate_at(b, all[d], share, costs);
        low_draws[d].push_back(std::min(x, y));
        high_draws[d].push_back(std::max(x, y));
      }
    }
  } else {
    out.assumptions.push_back(
        fmt::format("intervals: 95 %, by the spread of the accepted length over {} verify "
                    "steps; {} rows are too few to say how rows differ",
                    out.verify_steps, clusters.size()));
  }
  double best_rate = 0;
  for (size_t d = 0; d < all.size(); ++d) {
    Prediction p;
    p.depth = all[d];
    p.beyond = p.depth > out.log_depth;
    p.tokens_per_step = 1 + out.drafted_share * (tokens_at(central, p.depth) - 1);
    p.ms_per_step = model.ms(static_cast<double>(p.depth), out.drafted_share);
    p.tok_s = p.tokens_per_step * 1000 / p.ms_per_step;
    if (!low_draws[d].empty()) {
      const auto quantile = [](std::vector<double>& values, double q) {
        const auto at = values.begin() +
                        static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
        std::nth_element(values.begin(), at, values.end());
        return *at;
      };
      p.tok_s_low = std::min(p.tok_s, quantile(low_draws[d], 0.025));
      p.tok_s_high = std::max(p.tok_s, quantile(high_draws[d], 0.975));
    } else {
      const auto bound = [&](std::span<const double> s, double sign) {
        // Accepted length L of a step: E L = sum p_i, E L^2 = sum (2 i - 1) p_i.
        double mean = 0, square = 0;
        for (int64_t i = 1; i <= p.depth; ++i) {
          mean += s[static_cast<size_t>(i - 1)];
          square += static_cast<double>(2 * i - 1) * s[static_cast<size_t>(i - 1)];
        }
        const double error = std::sqrt(std::max(0.0, square - mean * mean) / sum.verify);
        const double accepted =
            std::clamp(mean + sign * 1.96 * error, 0.0, static_cast<double>(p.depth));
        return (1 + out.drafted_share * accepted) * 1000 / p.ms_per_step;
      };
      p.tok_s_low = std::min({p.tok_s, bound(lower, -1), bound(upper, -1)});
      p.tok_s_high = std::max({p.tok_s, bound(lower, 1), bound(upper, 1)});
    }
    if (p.tok_s > best_rate) best_rate = p.tok_s, out.best = p.depth;
    out.predictions.push_back(p);
  }
  return out;
}

std::string whatif_text(const Whatif& w) {
  std::string out = fmt::format(
      "the log: drafts of {}, {:.3f} accepted a verify step in {} of them, {:.2f} tok/s\n",
      w.log_depth, w.mean_accepted, w.verify_steps, w.measured_tok_s);
  out += fmt::format(
      "a step: {:.3f} ms a pass, {:.3f} ms a drafted token, {:.3f} ms a further row\n\n",
      w.verify_ms, w.draft_ms, w.row_ms);
  out += "  depth  tok/step  ms/step     tok/s  95 % interval\n";
  for (const Prediction& p : w.predictions) {
    out += fmt::format("  {:>5} {:>9.3f} {:>8.3f} {:>9.2f}  {:.2f} .. {:.2f}{}{}\n", p.depth,
                       p.tokens_per_step, p.ms_per_step, p.tok_s, p.tok_s_low, p.tok_s_high,
                       p.depth == w.best ? "  best" : "", p.beyond ? "  beyond the log" : "");
  }
  out += "\nthis assumes that\n";
  for (const std::string& line : w.assumptions) out += "  - " + line + "\n";
  return out;
}

}  // namespace lockstep::lab::log
