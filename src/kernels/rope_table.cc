#include "kernels/rope_table.h"

#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/math/elementary64.h"

namespace lockstep::kernels {
namespace {

constexpr double kPi = 0x1.921fb54442d18p1;  // pi, rounded to binary64

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ExitCode::bad_file, "rotary parameters: " + what);
}

void require_positive(double value, const char* name) {
  if (!(value > 0.0) || !std::isfinite(value)) {
    refuse(std::string(name) + " must be positive and finite, not " + std::to_string(value));
  }
}

// Llama 3.1's rule as a factor: long waves are stretched by `factor`, short ones kept, those
// between mixed. Rounded to binary32, as a rope_freqs tensor holds it.
float llama3_factor(const RopeSpec& spec, double f) {
  const double context = static_cast<double>(spec.original_context);
  const double factor = spec.linear_factor;
  const double low = spec.low_freq_factor, high = spec.high_freq_factor;
  const double wave = (2.0 * kPi) / f;
  if (wave < context / high) return 1.0f;
  if (wave > context / low) return spec.linear_factor;
  const double smooth = (context / wave - low) / (high - low);
  return static_cast<float>(1.0 / ((1.0 - smooth) / factor + smooth));
}

// The pair (not rounded) that turns `beta` times in the original context.
double yarn_pair(const RopeSpec& spec, double beta) {
  const double turns = static_cast<double>(spec.original_context) / (beta * (2.0 * kPi));
  return (static_cast<double>(spec.n_rot) * math::log(turns)) /
         (2.0 * math::log(static_cast<double>(spec.base)));
}

}  // namespace

RopeFrequencies rope_frequencies(const RopeSpec& spec) {
  using Scaling = RopeSpec::Scaling;
  const int pairs = spec.n_rot / 2;
  if (spec.n_rot <= 0 || spec.n_rot % 2 != 0) {
    refuse("the number of rotated elements must be even and positive, not " +
           std::to_string(spec.n_rot));
  }
  require_positive(spec.base, "the frequency base");
  if (spec.scaling != Scaling::none) require_positive(spec.linear_factor, "the scaling factor");
  if (!spec.factors.empty() && spec.factors.size() < static_cast<size_t>(pairs)) {
    refuse("the factors tensor has " + std::to_string(spec.factors.size()) + " elements, " +
           std::to_string(pairs) + " are needed");
  }
  for (const float factor : spec.factors)
    require_positive(factor, "every element of the factors tensor");
  const bool llama3 = spec.scaling == Scaling::llama3 && spec.factors.empty();
  if (llama3) {
    require_positive(spec.low_freq_factor, "the low frequency factor");
    require_positive(spec.high_freq_factor, "the high frequency factor");
  }
  const bool yarn = spec.scaling == Scaling::yarn;
  const bool ramp = yarn && spec.ext_factor != 0.0f;
  if (llama3 || ramp)
    require_positive(static_cast<double>(spec.original_context), "the original context");
  double ramp_begin = 0.0, ramp_end = 0.0;
  if (ramp) {
    require_positive(spec.beta_fast, "beta_fast");
    require_positive(spec.beta_slow, "beta_slow");
    const double begin = std::floor(yarn_pair(spec, spec.beta_fast));
    const double end = std::ceil(yarn_pair(spec, spec.beta_slow));
    const double last = static_cast<double>(spec.n_rot) - 1.0;
    ramp_begin = begin > 0.0 ? begin : 0.0;
    ramp_end = end < last ? end : last;
  }

  RopeFrequencies out;
  out.f.resize(static_cast<size_t>(pairs));
  const double log2_base = math::log(static_cast<double>(spec.base)) / math::log(2.0);
  for (int i = 0; i < pairs; ++i) {
    const double share = static_cast<double>(2 * i) / static_cast<double>(spec.n_rot);
    double f = math::exp2(-share * log2_base);
    if (!spec.factors.empty()) {
      f = f / static_cast<double>(spec.factors[static_cast<size_t>(i)]);
    } else if (llama3) {
      f = f / static_cast<double>(llama3_factor(spec, f));
    }
    if (spec.scaling == Scaling::linear || yarn) {
      const double interpolated = f / static_cast<double>(spec.linear_factor);
      if (ramp) {
        const double width = ramp_end - ramp_begin;
        const double y = (static_cast<double>(i) - ramp_begin) / (width > 0.001 ? width : 0.001);
        const double clamped = y > 0.0 ? (y < 1.0 ? y : 1.0) : 0.0;
        const double mix = (1.0 - clamped) * static_cast<double>(spec.ext_factor);
        f = interpolated * (1.0 - mix) + f * mix;
      } else {
        f = interpolated;
      }
    }
    out.f[static_cast<size_t>(i)] = f;
  }
  if (yarn) {
    const double factor = spec.linear_factor;
    const bool stretched = ramp && factor > 1.0;
    const double magnitude = stretched ? 1.0 + 0.1 * math::log(factor) : 1.0;
    out.scaled = true;
    out.mscale = static_cast<float>(static_cast<double>(spec.attn_factor) * magnitude);
  }
  return out;
}

void rope_row(const RopeFrequencies& frequencies, int64_t position, float* cos, float* sin) {
  for (size_t i = 0; i < frequencies.f.size(); ++i) {
    const math::SinCos sc = math::sincos(static_cast<double>(position) * frequencies.f[i]);
    cos[i] = static_cast<float>(sc.cos);
    sin[i] = static_cast<float>(sc.sin);
    if (frequencies.scaled) {
      cos[i] = cos[i] * frequencies.mscale;
      sin[i] = sin[i] * frequencies.mscale;
    }
  }
}

}  // namespace lockstep::kernels
