// Activation quantisation and the products, by bits: the law written a second time (plain_law.h),
// width 1 against every width, any partition, every instruction set; and near the binary64 product.
#include <gtest/gtest.h>

#include "harness.h"
#include "plain_law.h"
#include "quant/dequantize.h"
#include "quantized.h"

// The AVX-512 products in another order of additions (src/kernels/CMakeLists.txt).
namespace lockstep::kernels::avx512_free {
void matmul_quantized(const MatmulQuantizedArgs& args, Range items);
}

namespace lockstep::kernels::test {
namespace {

Quantized quantize(const CpuKernels& kernels, Random& random, ActivationForm form,
                   const std::vector<float>& x, int64_t rows, int64_t n) {
  Quantized out(kernels, form, rows, n);
  const QuantizeActivationsArgs args{x.data(), rows, n, form, out.view(), {out.fault.data()}};
  in_pieces(random, args.items(), [&](Range range) { kernels.quantize_activations(args, range); });
  return out;
}

// [rows][n_out]
std::vector<float> product(const CpuKernels& kernels, Random& random, const Weight& w,
                           const float* bias, const std::vector<float>& x, int64_t rows) {
  std::vector<float> out(static_cast<size_t>(rows * w.n_out), -7.0f);
  const ActivationForm form = activation_form(w.type);
  if (form == ActivationForm::f32) {
    const MatmulFloatArgs args{&w, bias, x.data(), rows, out.data()};
    in_pieces(random, args.items(), [&](Range range) { kernels.matmul_float(args, range); });
  } else {
    Quantized q = quantize(kernels, random, form, x, rows, w.n_in);
    const PackedWeight packed(kernels, w);
    const MatmulQuantizedArgs args{&w, packed.data(), bias, q.view(), rows, out.data()};
    in_pieces(random, args.items(), [&](Range range) { kernels.matmul_quantized(args, range); });
  }
  return out;
}

std::vector<float> dequantized_row(const Weight& w, int64_t n) {
  std::vector<float> row(static_cast<size_t>(w.n_in));
  quant::dequantize_row(w.type, w.data + n * w.row_bytes, row.data(), w.n_in);
  return row;
}

std::vector<TensorType> all_types() {
  std::vector<TensorType> types(std::begin(kFloatTypes), std::end(kFloatTypes));
  types.insert(types.end(), std::begin(kQuantTypes), std::end(kQuantTypes));
  return types;
}

// A legal K of the type, about `blocks` blocks of 32: segments short, whole, more than eight.
int64_t legal_k(TensorType type, int64_t blocks, Random& random) {
  switch (activation_form(type)) {
    case ActivationForm::q32:
      return 32 * blocks;
    case ActivationForm::q256:
      return 256 * ((blocks + 7) / 8);
    case ActivationForm::f32:
      return 32 * blocks - random.below(31);
  }
  return 0;
}

TEST(QuantizeActivations, IsTheLaw) {
  Tally tally("quantize_activations against the law");
  Control divided("quantise by division"), away("ties away from zero");
  Random random(11);
  for (int trial = 0; trial < 400; ++trial) {
    const Kind kind = kAllKinds[trial % 6];
    for (const ActivationForm form : {ActivationForm::q32, ActivationForm::q256}) {
      const int64_t block = form == ActivationForm::q32 ? 32 : 256;
      const int64_t n = block * random.between(1, 9), rows = random.between(1, 20);
      const auto x = random_floats(random, rows * n, kind);
      for (const CpuKernels* kernels : usable_kernels()) {
        const Quantized got = quantize(*kernels, random, form, x, rows, n);
        bool differs_divided = false, differs_away = false;
        for (int64_t b = 0; b < rows * n / block; ++b) {
          std::vector<int> q(static_cast<size_t>(block)), other(q.size());
          const float d = plain_quantize(x.data() + b * block, block, q.data());
          const int64_t row = b / (n / block), row_block = b % (n / block);
          const float got_d = got.d_of(row, row_block);
          ASSERT_TRUE(same_bits(&got_d, &d, 1));
          for (int64_t i = 0; i < block; ++i)
            ASSERT_EQ(got.q_of(row, row_block * block + i), q[static_cast<size_t>(i)]);
          int whole = 0;
          for (int64_t j = 0; j < block / 16; ++j) {
            int sum = 0;
            for (int64_t i = 0; i < 16; ++i) sum += q[static_cast<size_t>(16 * j + i)];
            const int64_t pair = (row_block * block / 32 + j / 2) * rows + row;
            whole += sum;
            if (form == ActivationForm::q32) continue;
            ASSERT_EQ(got.sums[static_cast<size_t>(2 * pair + j % 2)], -sum);
          }
          if (form == ActivationForm::q32) {
            ASSERT_EQ(got.starts[static_cast<size_t>(row_block * rows + row)], -128 * whole);
            const float scaled = d * static_cast<float>(got.sum_of(row, row_block));
            ASSERT_TRUE(
                same_bits(&got.d_sums[static_cast<size_t>(row_block * rows + row)], &scaled, 1));
          }
          tally.count(block);
          plain_quantize(x.data() + b * block, block, other.data(), {false, true});
          differs_divided |= other != q;
          plain_quantize(x.data() + b * block, block, other.data(), {true, false});
          differs_away |= other != q;
        }
        for (const uint8_t fault : got.fault) ASSERT_EQ(fault, 0);
        if (kind == Kind::ties) {
          divided.trial(differs_divided);
          away.trial(differs_away);
        }
      }
    }
  }
  EXPECT_TRUE(away.seen(0.5));
  EXPECT_TRUE(divided.seen(0.0001));
}

TEST(QuantizeActivations, EdgesOfTheCutOff) {
  const auto kernels = usable_kernels();
  Random random(12);
  for (const CpuKernels* k : kernels) {
    std::vector<float> x(64, 0.0f);
    x[3] = -0x1p-100f;                            // the smallest block that counts
    x[32 + 3] = std::nextafter(0x1p-100f, 0.0f);  // the largest that doesn't
    const Quantized got = quantize(*k, random, ActivationForm::q32, x, 1, 64);
    EXPECT_EQ(got.q[3], -127);
    EXPECT_GT(got.d[0], 0.0f);
    EXPECT_EQ(got.q[35], 0);
    EXPECT_EQ(got.d[1], 0.0f);
    std::vector<float> large(32, 3.4028235e38f);
    large[1] = -large[1];
    const Quantized top = quantize(*k, random, ActivationForm::q32, large, 1, 32);
    EXPECT_EQ(top.q[0], 127);
    EXPECT_EQ(top.q[1], -127);
    EXPECT_EQ(top.fault[0], 0);
  }
}

TEST(QuantizeActivations, FaultsStayInTheirRow) {
  const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
  Random random(13);
  for (const CpuKernels* kernels : usable_kernels()) {
    for (const ActivationForm form : {ActivationForm::q32, ActivationForm::q256}) {
      for (int trial = 0; trial < 40; ++trial) {
        const int64_t n = 512, rows = 3, row = random.below(rows), at = random.below(n);
        auto x = random_floats(random, rows * n, Kind::plain);
        const Quantized clean = quantize(*kernels, random, form, x, rows, n);
        x[static_cast<size_t>(row * n + at)] = bad[trial % 4];
        const Quantized got = quantize(*kernels, random, form, x, rows, n);
        for (int64_t r = 0; r < rows; ++r) {
          EXPECT_EQ(got.fault[static_cast<size_t>(r)], r == row);
          if (r == row) continue;
          for (int64_t k = 0; k < n; ++k) ASSERT_EQ(got.q_of(r, k), clean.q_of(r, k));
        }
        EXPECT_EQ(got.d_of(row, at / got.block), 0.0f);
      }
    }
  }
}

TEST(Matmul, IsTheLawForEveryType) {
  Random random(21);
  for (const TensorType type : all_types()) {
    const std::string name(gguf::type_info(type).name);
    Tally tally("matmul " + name + " against the law");
    const bool quantised = activation_form(type) != ActivationForm::f32;
    const bool k_type = activation_form(type) == ActivationForm::q256;
    std::vector<std::pair<Control, ProductKnobs>> wrong;
    wrong.push_back({Control(name + " 4 lanes"), {4, 256, true, false, false}});
    wrong.push_back({Control(name + " without fma"), {8, 256, false, false, false}});
    if (!k_type)
      wrong.push_back({Control(name + " segments of 128"), {8, 128, true, false, false}});
    if (k_type) wrong.push_back({Control(name + " scaled in float"), {8, 256, true, true, false}});
    wrong.push_back({Control(name + " bias first"), {8, 256, true, false, true}});
    std::vector<std::pair<Control, DotKnobs>> wrong_float;
    wrong_float.push_back({Control(name + " 8 lanes"), {8, true}});
    wrong_float.push_back({Control(name + " without fma"), {16, false}});
    for (int trial = 0; trial < 300; ++trial) {
      const int64_t k = legal_k(type, random.between(1, trial % 3 == 0 ? 100 : 24), random);
      const int64_t n_out = trial % 10 == 0 ? random.between(8, 35) : random.between(1, 7);
      const int64_t rows = random.between(1, 9);
      const OwnedWeight w = random_weight(random, type, k, n_out);
      const auto x = random_floats(random, rows * k, kAllKinds[trial % 6]);
      const auto bias = random_floats(random, n_out, Kind::plain);
      const float* bias_data = random.below(2) ? bias.data() : nullptr;
      std::vector<std::vector<float>> got;
      for (const CpuKernels* kernels : usable_kernels()) {
        got.push_back(product(*kernels, random, w.weight, bias_data, x, rows));
      }
      for (int64_t n = 0; n < n_out; ++n) {
        const auto blocks = quantised ? plain_weight_row(w.weight, n) : std::vector<PlainBlock>();
        const auto values = quantised ? std::vector<float>() : dequantized_row(w.weight, n);
        const float* b = bias_data ? bias_data + n : nullptr;
        for (int64_t r = 0; r < rows; ++r) {
          const float* xr = x.data() + r * k;
          float want = quantised ? plain_product(blocks, xr, b) : plain_dot(values.data(), xr, k);
          if (!quantised && b) want = want + *b;
          for (const auto& out : got) {
            ASSERT_TRUE(same_bits(&out[static_cast<size_t>(r * n_out + n)], &want, 1))
                << name << " k " << k << " n " << n << " row " << r;
            tally.count(1);
          }
          if (kAllKinds[trial % 6] != Kind::plain || k < 2048)
            continue;  // long sums of full numbers
          if (quantised) {
            for (auto& [control, knobs] : wrong) {
              if (knobs.bias_first && !b) continue;
              const float other = plain_product(blocks, xr, b, knobs);
              control.trial(!same_bits(&other, &want, 1));
            }
          } else {
            for (auto& [control, knobs] : wrong_float) {
              float other = plain_dot(values.data(), xr, k, knobs);
              if (b) other = other + *b;
              control.trial(!same_bits(&other, &want, 1));
            }
          }
        }
      }
    }
    if (quantised) {
      for (const auto& [control, knobs] : wrong) {
        // K-quants without a minimum have no fma to leave out.
        const bool has_min =
            type == TensorType::q2_k || type == TensorType::q4_k || type == TensorType::q5_k;
        if (k_type && !has_min && !knobs.fused) {
          control.seen(0.0);
          continue;
        }
        EXPECT_TRUE(control.seen(0.05)) << name;
      }
    } else {
      for (const auto& [control, knobs] : wrong_float) EXPECT_TRUE(control.seen(0.05)) << name;
    }
  }
}

// Every row of a wide pass equals the row alone, on every instruction set, in any partition. The
// baseline is the scalar build, one row at a time.
TEST(Matmul, EveryWidthGivesTheRowsOfWidthOne) {
  Random random(31);
  for (const TensorType type : all_types()) {
    const std::string name(gguf::type_info(type).name);
    Tally tally("matmul " + name + " widths");
    for (const int64_t blocks : {1, 7, 8, 9, 20, 72}) {
      const int64_t k = legal_k(type, blocks, random);
      const int64_t n_out = blocks <= 9 ? random.between(14, 40) : random.between(1, 3);
      const OwnedWeight w = random_weight(random, type, k, n_out);
      const int64_t most = matrix_widths().back();
      std::vector<float> x;
      for (int64_t r = 0; r < most; ++r) {
        const auto row = random_floats(random, k, kAllKinds[random.below(6)]);
        x.insert(x.end(), row.begin(), row.end());
      }
      std::vector<float> want;
      for (int64_t r = 0; r < most; ++r) {
        const std::vector<float> row(x.begin() + r * k, x.begin() + (r + 1) * k);
        const auto y = product(*all_cpu_kernels()[0], random, w.weight, nullptr, row, 1);
        want.insert(want.end(), y.begin(), y.end());
      }
      for (const int64_t width : matrix_widths()) {
        const std::vector<float> rows(x.begin(), x.begin() + width * k);
        for (const CpuKernels* kernels : usable_kernels()) {
          const auto got = product(*kernels, random, w.weight, nullptr, rows, width);
          ASSERT_TRUE(same_bits(got.data(), want.data(), width * n_out))
              << name << " k " << k << " width " << width << " " << kernels->isa;
          tally.count(width * n_out);
        }
      }
    }
  }
}

// The negative control of all comparisons above: compiled kernels whose one difference is the order
// of additions must come out unequal, where there is more than one addition to order.
TEST(Matmul, AnotherOrderIsSeen) {
  const auto all = all_cpu_kernels();
  const auto found = std::find_if(all.begin(), all.end(), [](const CpuKernels* kernels) {
    return std::string_view(kernels->isa) == "avx512";
  });
  ASSERT_NE(found, all.end());
  const CpuKernels& avx512 = **found;
  if (!cpu_can_run(avx512)) GTEST_SKIP() << "this CPU has no AVX-512";
  CpuKernels free = avx512;
  free.matmul_quantized = avx512_free::matmul_quantized;
  Random random(51);
  for (const TensorType type : kQuantTypes) {
    const std::string name(gguf::type_info(type).name);
    Control control(name + " in one running sum");
    for (const int64_t rows : {1, 3, 8, 17}) {
      for (int trial = 0; trial < 10; ++trial) {
        const int64_t k = 256 * random.between(4, 12), n_out = random.between(8, 40);
        const OwnedWeight w = random_weight(random, type, k, n_out);
        const auto x = random_floats(random, rows * k, Kind::plain);
        const auto law = product(avx512, random, w.weight, nullptr, x, rows);
        const auto other = product(free, random, w.weight, nullptr, x, rows);
        control.trial(!same_bits(law, other));
        // One segment leaves nothing to order: the same code otherwise.
        const OwnedWeight narrow = random_weight(random, type, 256, n_out);
        const std::vector<float> start(x.begin(), x.begin() + rows * 256);
        EXPECT_TRUE(same_bits(product(avx512, random, narrow.weight, nullptr, start, rows),
                              product(free, random, narrow.weight, nullptr, start, rows)));
      }
    }
    EXPECT_TRUE(control.seen(0.95)) << name;
  }
}

// A packed matrix takes a file's bytes and no more than a fiftieth besides.
TEST(Matmul, PackedSizeIsTheFilesOwn) {
  Random random(42);
  for (const TensorType type : kQuantTypes) {
    const OwnedWeight w = random_weight(random, type, 1024, 64);
    const auto file_bytes = static_cast<double>(w.bytes.size());
    for (const CpuKernels* kernels : usable_kernels()) {
      if (!kernels->packing) continue;
      const auto packed = static_cast<double>(kernels->packing->bytes(w.weight));
      EXPECT_GE(packed, file_bytes) << gguf::type_info(type).name;
      EXPECT_LE(packed, 1.02 * file_bytes) << gguf::type_info(type).name;
    }
  }
}

// Near the product of the dequantised weights in binary64: what the bits mean is right, too.
TEST(Matmul, IsNearTheBinary64Product) {
  Random random(41);
  for (const TensorType type : all_types()) {
    const bool quantised = activation_form(type) != ActivationForm::f32;
    for (int trial = 0; trial < 10; ++trial) {
      const int64_t k = legal_k(type, random.between(8, 60), random);
      const OwnedWeight w = random_weight(random, type, k, 3);
      const auto x = random_floats(random, k, Kind::plain);
      const auto got = product(*usable_kernels().back(), random, w.weight, nullptr, x, 1);
      for (int64_t n = 0; n < 3; ++n) {
        const auto row = dequantized_row(w.weight, n);
        double want = 0, error = 0;
        for (size_t i = 0; i < row.size(); ++i) {
          want += static_cast<double>(row[i]) * x[i];
          // Half a step of a block's quantiser, 4 ÷ 127; float types round only.
          error += std::abs(static_cast<double>(row[i])) * (quantised ? 0.5 * 4.0 / 127 : 1e-5);
        }
        EXPECT_NEAR(got[static_cast<size_t>(n)], want, error * 1.001 + 1e-6)
            << gguf::type_info(type).name;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
