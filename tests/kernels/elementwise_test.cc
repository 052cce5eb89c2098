// embed, rms_norm, rope, add, gated_act, softcap, select_rows, check_logits, by bits: the law
// written a second time, rows alone against rows together, any partition, every instruction set.
#include <gtest/gtest.h>

#include "harness.h"
#include "plain_law.h"
#include "quant/dequantize.h"

namespace lockstep::kernels::test {
namespace {

// Runs make(kernels, rows, first row) for all rows at once on every instruction set, and row by row
// on the scalar one; every way must give the bits of want.
template <typename Make>
void expect_everywhere(Tally& tally, const std::vector<float>& want, int64_t rows, Make&& make) {
  const int64_t width = static_cast<int64_t>(want.size()) / rows;
  for (const CpuKernels* kernels : usable_kernels()) {
    ASSERT_TRUE(same_bits(make(*kernels, rows, int64_t{0}), want)) << kernels->isa;
    tally.count(rows * width);
    const int64_t row = rows / 2;
    const std::vector<float> alone = make(*kernels, int64_t{1}, row);
    ASSERT_TRUE(same_bits(alone.data(), want.data() + row * width, width)) << kernels->isa;
    tally.count(width);
  }
}

TEST(Embed, IsTheLaw) {
  Tally tally("embed");
  Random random(61);
  std::vector<TensorType> types(std::begin(kFloatTypes), std::end(kFloatTypes));
  types.insert(types.end(), std::begin(kQuantTypes), std::end(kQuantTypes));
  for (const TensorType type : types) {
    for (int trial = 0; trial < 20; ++trial) {
      const int64_t n = 256 * random.between(1, 3), vocab = random.between(1, 40),
                    rows = random.between(1, 33);
      const OwnedWeight table = random_weight(random, type, n, vocab);
      const float scale = trial % 2 ? 1.0f : random.uniform() * 40.0f;
      std::vector<int32_t> tokens;
      for (int64_t i = 0; i < rows; ++i)
        tokens.push_back(static_cast<int32_t>(random.below(vocab)));
      std::vector<float> want(static_cast<size_t>(rows * n));
      for (int64_t i = 0; i < rows; ++i) {
        float* row = want.data() + i * n;
        quant::dequantize_row(
            type, table.weight.data + tokens[static_cast<size_t>(i)] * table.weight.row_bytes, row,
            n);
        for (int64_t j = 0; j < n; ++j) row[j] = row[j] * scale;
      }
      expect_everywhere(
          tally, want, rows, [&](const CpuKernels& kernels, int64_t count, int64_t first) {
            std::vector<float> out(static_cast<size_t>(count * n));
            const EmbedArgs args{&table.weight, tokens.data() + first, scale, count, out.data()};
            in_pieces(random, args.items(), [&](Range range) { kernels.embed(args, range); });
            return out;
          });
    }
  }
}

TEST(RmsNorm, IsTheLaw) {
  Tally tally("rms_norm");
  Control lanes("rms_norm 128 lanes"), order("rms_norm x·(r·w)"),
      short_tree("rms_norm tree of short groups");
  Random random(62);
  for (int trial = 0; trial < 600; ++trial) {
    const int64_t group = random.below(3) ? random.between(1, 700) : 64 * random.between(1, 40);
    const int64_t groups = random.between(1, 3), rows = random.between(1, 6),
                  width = group * groups;
    const Kind kind = kAllKinds[trial % 6];
    const auto x = random_floats(random, rows * width, kind),
               weight = random_floats(random, group, Kind::plain);
    const float eps = trial % 3 ? 1e-5f : 1e-6f;
    std::vector<float> want, wrong_lanes, wrong_order, wrong_tree;
    for (int64_t item = 0; item < rows * groups; ++item) {
      const float* at = x.data() + item * group;
      int power = 1;
      while (power < group && power < 256) power *= 2;
      const auto norm = [&](std::vector<float>& out, float ss, bool right_order) {
        const float r = 1.0f / std::sqrt(ss / static_cast<float>(group) + eps);
        for (int64_t i = 0; i < group; ++i) {
          const float w = weight[static_cast<size_t>(i)];
          out.push_back(right_order ? (at[i] * r) * w : at[i] * (r * w));
        }
      };
      norm(want, plain_sum_of_squares(at, group), true);
      norm(wrong_lanes, plain_sum_of_squares(at, group, 128), true);
      norm(wrong_order, plain_sum_of_squares(at, group), false);
      norm(wrong_tree, plain_sum_of_squares(at, group, power), true);
    }
    if (kind == Kind::plain && width > 300) {
      lanes.trial(!same_bits(wrong_lanes, want));
      order.trial(!same_bits(wrong_order, want));
    }
    // Fewer lanes for a short group only drop additions of +0 to sums of squares: the same bits.
    ASSERT_TRUE(same_bits(wrong_tree, want));
    const bool overflow =
        std::any_of(want.begin(), want.end(), [](float y) { return !std::isfinite(y); });
    ASSERT_FALSE(overflow);
    expect_everywhere(
        tally, want, rows, [&](const CpuKernels& kernels, int64_t count, int64_t first) {
          std::vector<float> y(x.begin() + first * width,
                               x.begin() + (first + count) * width);  // in place
          std::vector<uint8_t> fault(static_cast<size_t>(count));
          const RmsNormArgs args{y.data(), weight.data(), y.data(), count,
                                 width,    group,         eps,      {fault.data()}};
          in_pieces(random, args.items(), [&](Range range) { kernels.rms_norm(args, range); });
          for (const uint8_t f : fault) EXPECT_EQ(f, 0);
          return y;
        });
  }
  EXPECT_TRUE(lanes.seen(0.3));
  EXPECT_TRUE(order.seen(0.9));
}

TEST(RmsNorm, ASumThatIsNotFiniteIsAFaultOfItsRow) {
  Random random(63);
  for (const CpuKernels* kernels : usable_kernels()) {
    for (const float bad : {INFINITY, -INFINITY, NAN, 3e38f}) {
      auto x = random_floats(random, 3 * 64, Kind::plain);
      const std::vector<float> weight(32, 1.0f);
      x[64 + 40] = bad;
      std::vector<uint8_t> fault(3);
      const RmsNormArgs args{x.data(), weight.data(), x.data(), 3, 64, 32, 1e-5f, {fault.data()}};
      kernels->rms_norm(args, {0, args.items()});
      EXPECT_EQ(fault, (std::vector<uint8_t>{0, 1, 0}));
    }
  }
}

TEST(Rope, IsTheLaw) {
  Tally tally("rope");
  Control swapped("rope other pairing"), contracted("rope one product rounded less");
  Random random(64);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t n_head = random.between(1, 5), half = random.between(1, 40), n_rot = 2 * half;
    const int64_t head_dim = n_rot + random.below(20), rows = random.between(1, 9),
                  width = n_head * head_dim;
    const bool halves = trial % 2;
    const auto x = random_floats(random, rows * width, kAllKinds[trial % 6]);
    const auto cos = random_floats(random, rows * half, Kind::plain),
               sin = random_floats(random, rows * half, Kind::plain);
    const auto rotate = [&](bool as_halves, bool exact_product) {
      std::vector<float> y = x;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t h = 0; h < n_head; ++h) {
          for (int64_t i = 0; i < half; ++i) {
            float* at = y.data() + r * width + h * head_dim;
            float& a = at[as_halves ? i : 2 * i];
            float& b = at[as_halves ? i + half : 2 * i + 1];
            const float c = cos[static_cast<size_t>(r * half + i)],
                        s = sin[static_cast<size_t>(r * half + i)];
            const float x0 = a, x1 = b;
            a = exact_product ? std::fma(-x1, s, x0 * c) : std::fma(x0, c, -(x1 * s));
            b = std::fma(x1, c, x0 * s);
          }
        }
      }
      return y;
    };
    const auto want = rotate(halves, false);
    if (trial % 6 == 0 && half > 1) {
      swapped.trial(!same_bits(rotate(!halves, false), want));
      contracted.trial(!same_bits(rotate(halves, true), want));
    }
    expect_everywhere(
        tally, want, rows, [&](const CpuKernels& kernels, int64_t count, int64_t first) {
          std::vector<float> y(x.begin() + first * width, x.begin() + (first + count) * width);
          const RopeArgs args{y.data(),
                              cos.data() + first * half,
                              sin.data() + first * half,
                              count,
                              n_head,
                              head_dim,
                              n_rot,
                              halves};
          in_pieces(random, args.items(), [&](Range range) { kernels.rope(args, range); });
          return y;
        });
  }
  EXPECT_TRUE(swapped.seen(0.9));
  EXPECT_TRUE(contracted.seen(0.5));
}

TEST(Elementwise, AddGatedActAndSoftcapAreTheLaw) {
  Tally tally("add, gated_act, softcap");
  Control fused("softcap by a product with 1 ÷ cap"), late("gated_act (gate·up)·sigmoid(gate)");
  Random random(65);
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t width = random.between(1, 900), rows = random.between(1, 7);
    const auto a = random_floats(random, rows * width, kAllKinds[trial % 6]);
    const auto b = random_floats(random, rows * width, kAllKinds[random.below(6)]);
    const float cap = random.below(2) ? 30.0f : 7.5f;
    const bool gelu = random.below(2);
    std::vector<float> sum, gated, capped, wrong_cap, wrong_gated;
    for (size_t i = 0; i < a.size(); ++i) {
      sum.push_back(a[i] + b[i]);
      gated.push_back((gelu ? math::gelu(a[i]) : math::silu(a[i])) * b[i]);
      capped.push_back(cap * math::tanh(a[i] / cap));
      wrong_cap.push_back(cap * math::tanh(a[i] * (1.0f / cap)));
      wrong_gated.push_back((a[i] * b[i]) * math::sigmoid(a[i]));
    }
    if (trial % 6 == 0 && a.size() > 100) {
      fused.trial(!same_bits(wrong_cap, capped));
      if (!gelu) late.trial(!same_bits(wrong_gated, gated));
    }
    std::vector<uint8_t> fault(static_cast<size_t>(rows));
    expect_everywhere(
        tally, sum, rows, [&](const CpuKernels& kernels, int64_t count, int64_t first) {
          std::vector<float> y(a.begin() + first * width, a.begin() + (first + count) * width);
          const AddArgs args{y.data(), b.data() + first * width, y.data(), count,
                             width};  // out is a
          in_pieces(random, args.items(), [&](Range range) { kernels.add(args, range); });
          return y;
        });
    expect_everywhere(
        tally, gated, rows, [&](const CpuKernels& kernels, int64_t count, int64_t first) {
          std::vector<float> y(b.begin() + first * width, b.begin() + (first + count) * width);
          const GatedActArgs args{a.data() + first * width,
                                  y.data(),
                                  y.data(),
                                  count,
                                  width,
                                  gelu,
                                  {fault.data()}};  // out is up
          in_pieces(random, args.items(), [&](Range range) { kernels.gated_act(args, range); });
          return y;
        });
    expect_everywhere(
        tally, capped, rows, [&](const CpuKernels& kernels, int64_t count, int64_t first) {
          std::vector<float> y(a.begin() + first * width, a.begin() + (first + count) * width);
          const SoftcapArgs args{y.data(), count, width, cap, {fault.data()}};
          in_pieces(random, args.items(), [&](Range range) { kernels.softcap(args, range); });
          return y;
        });
    for (const uint8_t f : fault) ASSERT_EQ(f, 0);
  }
  EXPECT_TRUE(fused.seen(0.9));
  EXPECT_TRUE(late.seen(0.9));
}

TEST(Elementwise, FaultsStayInTheirRow) {
  Random random(66);
  const std::vector<uint8_t> second = {0, 1, 0};
  for (const CpuKernels* kernels : usable_kernels()) {
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      for (int trial = 0; trial < 20; ++trial) {
        const int64_t width = random.between(1, 600);
        auto x = random_floats(random, 3 * width, Kind::plain), up = x, out = x;
        const auto at = static_cast<size_t>(width + random.below(width));
        x[at] = bad;
        const auto run = [&](auto kernel, auto args) {
          std::vector<uint8_t> fault(3);
          args.faults.row_fault = fault.data();
          in_pieces(random, args.items(), [&](Range range) { kernel(args, range); });
          return fault;
        };
        EXPECT_EQ(run(kernels->gated_act,
                      GatedActArgs{x.data(), up.data(), out.data(), 3, width, trial % 2 == 0, {}}),
                  second);
        EXPECT_EQ(run(kernels->check_logits, CheckLogitsArgs{x.data(), 3, width, {}}), second);
        EXPECT_EQ(run(kernels->softcap, SoftcapArgs{x.data(), 3, width, 30.0f, {}}), second);
        // An `up` that is not finite is no fault here, and must not vanish.
        up[at] = bad;
        auto gate = out;
        for (float& g : gate) g = random.uniform() * 200.0f;
        EXPECT_EQ(
            run(kernels->gated_act,
                GatedActArgs{gate.data(), up.data(), out.data(), 3, width, trial % 2 == 0, {}}),
            std::vector<uint8_t>(3));
        EXPECT_FALSE(std::isfinite(out[at]));
      }
    }
  }
}

TEST(SelectRows, CopiesBits) {
  Random random(67);
  for (const CpuKernels* kernels : usable_kernels()) {
    const int64_t width = 37;
    auto in = random_floats(random, 9 * width, Kind::mixed);
    in[3 * width] = -0.0f;
    const int64_t index[] = {0, 3, 4, 8};
    std::vector<float> out(4 * width);
    const SelectRowsArgs args{in.data(), index, out.data(), 4, width};
    in_pieces(random, args.items(), [&](Range range) { kernels->select_rows(args, range); });
    for (int r = 0; r < 4; ++r)
      EXPECT_TRUE(same_bits(out.data() + r * width, in.data() + index[r] * width, width));
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
