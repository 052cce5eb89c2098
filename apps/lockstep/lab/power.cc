// lockstep lab power: what a number of blocks can prove, and how many a gain needs.
#include "lab/stats/power.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli.h"
#include "lab/format.h"
#include "lab/lab.h"
#include "lab/looks.h"
#include "lab/stats/group_sequential.h"
#include "lab/stats/mixture.h"
#include "lab/stats/stopping.h"
#include "output.h"

namespace lockstep::app {
namespace {

namespace stats = lab::stats;

constexpr int64_t kLookAhead = 200;      // of an always-valid prediction without a budget
constexpr int64_t kMostPredicted = 400;  // blocks: a prediction's cost rises with their square

struct PowerOptions {
  std::optional<double> sd, gain, alpha, power;
  std::optional<int64_t> blocks;
  std::optional<std::vector<int64_t>> looks;
  bool always_valid = false, json = false;
};

struct Sequential {
  std::string method;
  stats::StoppingProfile profile;
};

// Effects and SDs in units of the SD, as the prediction takes them.
Sequential predict(const PowerOptions& options, double effect, double alpha) {
  const auto decide = [](stats::Interval interval) {
    return interval.low > 0    ? stats::Stop::high
           : interval.high < 0 ? stats::Stop::low
                               : stats::Stop::go_on;
  };
  if (options.looks) {
    const stats::GroupSequential plan(*options.looks, stats::planned_alpha(alpha));
    return {fmt::format("group-sequential, looks after {}", fmt::join(*options.looks, ", ")),
            stats::stopping_profile(*options.looks, effect,
                                    [&](size_t look, int64_t, double mean, double sd) {
                                      return decide(plan.repeated_interval(look, mean, sd));
                                    })};
  }
  const stats::TMixture mixture{effect, alpha};
  const int64_t last = options.blocks.value_or(kLookAhead);
  std::vector<int64_t> looks;
  for (int64_t n = 2; n <= last; ++n) looks.push_back(n);
  return {fmt::format("always-valid, a look after every block up to {}", last),
          stats::stopping_profile(looks, effect, [&](size_t, int64_t n, double mean, double sd) {
            return decide(mixture.interval(n, mean, sd));
          })};
}

std::string count_text(int64_t blocks) {
  return blocks < 0 ? "over a million" : std::to_string(blocks);
}
Json count_json(int64_t blocks) {
  return blocks < 0 ? Json(nullptr) : Json(blocks);
}

ExitCode power(const PowerOptions& options) {
  if (!options.sd) {
    bad_use("no --sd; lab noise measures it: the SD of a block's log ratio, in per cent");
  }
  if ((options.looks || options.always_valid) && !options.gain) {
    bad_use("--looks and --always-valid predict when a gain is found; give it with --gain");
  }
  if (options.looks && options.always_valid)
    bad_use("--looks and --always-valid exclude each other");
  const double alpha = options.alpha.value_or(0.05), target = options.power.value_or(0.8);
  if (options.always_valid && options.blocks &&
      (*options.blocks < 2 || *options.blocks > kMostPredicted)) {
    bad_use(
        fmt::format("--always-valid is predicted for budgets of 2 to {} blocks", kMostPredicted));
  }
  if (options.looks) check_looks(*options.looks);
  const double sd = stats::log_of_percent(*options.sd);
  const int64_t floor = stats::signed_rank_floor(alpha);

  Json json{{"schema", "lockstep.lab.power/1"},
            {"sd_percent", *options.sd},
            {"alpha", alpha},
            {"power", target},
            {"floor_blocks", floor}};
  std::string out = fmt::format(
      "SD of a block's log ratio {:.4g} %, {:.4g} % two-sided, power {:.4g} %; exact "
      "rank intervals take {} blocks\n",
      *options.sd, 100 * alpha, 100 * target, floor);

  std::vector<double> gains = {0.25, 0.5, 1, 2, 5};
  if (options.gain) gains = {*options.gain};
  out += "\n  gain      blocks, normal   blocks, signed-rank\n";
  Json by_gain = Json::array();
  for (const double gain : gains) {
    const double effect = stats::log_of_percent(gain);
    const int64_t normal = stats::blocks_normal(sd, effect, alpha, target);
    const int64_t exact = stats::blocks_signed_rank(sd, effect, alpha, target);
    out += fmt::format("  {:<8} {:>15} {:>21}\n", fmt::format("{:.4g} %", gain), count_text(normal),
                       count_text(exact));
    by_gain.push_back({{"gain_percent", gain},
                       {"blocks_normal", count_json(normal)},
                       {"blocks_signed_rank", count_json(exact)}});
  }
  json["by_gain"] = std::move(by_gain);

  std::vector<int64_t> budgets = {6, 8, 10, 12, 16, 20, 30, 40, 50};
  if (options.blocks) budgets = {*options.blocks};
  out += "\n  blocks    smallest provable gain, normal   signed-rank\n";
  Json by_blocks = Json::array();
  for (const int64_t blocks : budgets) {
    const double normal = stats::smallest_effect_normal(blocks, sd, alpha, target);
    const double exact = stats::smallest_effect_signed_rank(blocks, sd, alpha, target);
    out += fmt::format("  {:<8} {:>31} {:>13}\n", blocks, size_text(normal), size_text(exact));
    by_blocks.push_back({{"blocks", blocks},
                         {"gain_percent_normal", percent_json(normal)},
                         {"gain_percent_signed_rank", percent_json(exact)}});
  }
  if (options.blocks && *options.blocks < floor) {
    out +=
        fmt::format("  fewer than {} blocks cannot reach {:.4g} % two-sided, whatever the gain\n",
                    floor, 100 * alpha);
  }
  json["by_blocks"] = std::move(by_blocks);

  if (options.looks || options.always_valid) {
    const Sequential found = predict(options, stats::log_of_percent(*options.gain) / sd, alpha);
    const stats::StoppingProfile& profile = found.profile;
    out += fmt::format(
        "\n{}: a gain of {:.4g} % is found with {:.1f} %, after {:.1f} blocks on the "
        "mean of all campaigns ({:.1f} of those that find it)\n",
        found.method, *options.gain, 100 * profile.p_high, profile.expected_n,
        profile.expected_n_high);
    json["sequential"] = {{"method", found.method},
                          {"gain_percent", *options.gain},
                          {"found", profile.p_high},
                          {"mean_blocks", profile.expected_n},
                          {"mean_blocks_found", profile.expected_n_high}};
  }
  if (options.json) {
    print_json(json);
  } else {
    print(out);
  }
  return ExitCode::ok;
}

}  // namespace

void check_looks(const std::vector<int64_t>& looks) {
  for (size_t i = 1; i < looks.size(); ++i) {
    if (looks[i] <= looks[i - 1]) bad_use("--looks: numbers of blocks that rise, as in 6,12,18,24");
  }
}

Runner set_up_lab_power(Flags& flags) {
  const auto options = std::make_shared<PowerOptions>();
  flags.number("--sd", options->sd, 1e-6, 100);
  flags.number("--gain", options->gain, 1e-6, 1000);
  flags.integer("--blocks", options->blocks, 1, 1'000'000);
  flags.number("--alpha", options->alpha, 1e-6, 0.5);
  flags.number("--power", options->power, 0.5, 0.9999);
  flags.integers("--looks", options->looks, 2, kMostPredicted);
  flags.toggle("--always-valid", options->always_valid);
  flags.toggle("--json", options->json);
  flags.describe(
      "Says how many blocks a gain needs at a block SD, and the smallest gain that a number of "
      "blocks "
      "can prove: by the normal approximation, and for the exact signed-rank interval that lab ab "
      "uses. "
      "With --looks or --always-valid, when a campaign that may stop early will find the gain.",
      "lockstep lab power --sd 0.9 --gain 1 --looks 6,12,18,24");
  return [options] { return power(*options); };
}

}  // namespace lockstep::app
