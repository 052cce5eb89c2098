// The device's kernels and its backend against the scalar reference, by bits: every op, weight type
// and KV type, widths 1 to 256, odd shapes, random trials. On a real device (kernels_cuda_test)
// and, with fewer trials, on the emulation (kernels_cuda_emulation_test).
#include "conformance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "../harness.h"
#include "../pass_runner.h"
#include "../plain_law.h"
#include "../quantized.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/packing.h"
#include "kernels/rope_table.h"

namespace lockstep::kernels::cuda::test {
namespace {

struct QuantizedOnDevice {
  OnDevice<int8_t> q;
  OnDevice<float> d, d_sums;
  OnDevice<int8_t> digits;
  OnDevice<uint8_t> faults;

  QuantizedOnDevice(const std::shared_ptr<Device>& device, const OnDevice<float>& x, int64_t rows,
                    int64_t n, bool superblocks)
      : q(device, activation_bytes(rows, segments_of(n))),
        d(device, rows * (superblocks ? 1 : 8) * segments_of(n)),
        d_sums(device, superblocks ? 0 : rows * 8 * segments_of(n)),
        digits(device, superblocks ? rows * 32 * segments_of(n) : 0),
        faults(device, std::vector<uint8_t>(static_cast<size_t>(rows))) {
    device->kernels().quantize({x.get(), rows, n, superblocks, view(), faults.get()},
                               device->stream());
  }
  DeviceActivations view() const { return {q.get(), d.get(), d_sums.get(), digits.get()}; }
};

int64_t legal_k(TensorType type, int64_t blocks, Random& random) {
  switch (activation_form(type)) {
    case ActivationForm::q32:
      return 32 * blocks;
    case ActivationForm::q256:
      return 256 * ((blocks + 7) / 8);
    default:
      return 32 * blocks - random.below(31);
  }
}

// [rows][n_out] by the scalar reference.
std::vector<float> reference_product(const Weight& w, const float* bias,
                                     const std::vector<float>& x, int64_t rows) {
  std::vector<float> out(static_cast<size_t>(rows * w.n_out));
  const ActivationForm form = activation_form(w.type);
  if (form == ActivationForm::f32) {
    const MatmulFloatArgs args{&w, bias, x.data(), rows, out.data()};
    reference().matmul_float(args, {0, args.items()});
    return out;
  }
  Quantized q(reference(), form, rows, w.n_in);
  const QuantizeActivationsArgs quantize{x.data(), rows, w.n_in, form, q.view(), {q.fault.data()}};
  reference().quantize_activations(quantize, {0, quantize.items()});
  const MatmulQuantizedArgs args{&w, nullptr, bias, q.view(), rows, out.data()};
  reference().matmul_quantized(args, {0, args.items()});
  return out;
}

class MatrixOnDevice {
 public:
  MatrixOnDevice(const std::shared_ptr<Device>& device, const Weight& w)
      : memory_(device, bytes_of(w)) {}
  const std::byte* get() const { return memory_.get(); }

 private:
  static std::vector<std::byte> bytes_of(const Weight& w) {
    if (activation_form(w.type) == ActivationForm::f32)
      return {w.data, w.data + w.n_out * w.row_bytes};
    const int64_t tiles = tiles_of(w.n_out);
    std::vector<std::byte> packed(
        static_cast<size_t>(tiles * tile_bytes(format_of(w.type), w.n_in)));
    pack_tiles(w, 0, tiles, packed.data());
    return packed;
  }
  OnDevice<std::byte> memory_;
};

std::vector<float> device_product(const std::shared_ptr<Device>& device, const Weight& w,
                                  const float* bias, const std::vector<float>& x, int64_t rows,
                                  int processors = 0) {
  const OnDevice<float> x_there(device, x), out(device, rows * w.n_out);
  const OnDevice<float> bias_there(
      device, bias ? std::vector<float>(bias, bias + w.n_out) : std::vector<float>());
  const float* bias_at = bias ? bias_there.get() : nullptr;
  const MatrixOnDevice matrix(device, w);
  const ActivationForm form = activation_form(w.type);
  if (form == ActivationForm::f32) {
    const FloatType type = w.type == TensorType::f16    ? FloatType::f16
                           : w.type == TensorType::bf16 ? FloatType::bf16
                                                        : FloatType::f32;
    device->kernels().matmul_float(
        {matrix.get(), type, w.n_in, w.n_out, bias_at, x_there.get(), rows, out.get()},
        device->stream());
  } else {
    const bool superblocks = form == ActivationForm::q256;
    const QuantizedOnDevice q(device, x_there, rows, w.n_in, superblocks);
    ProductsArgs args;
    args.format = format_of(w.type);
    args.outs[0] = {matrix.get(), w.n_out, bias_at, out.get()};
    args.n_in = w.n_in;
    args.rows = rows;
    args.x = q.view();
    const CodeTable table = code_table(w.type);
    std::copy(std::begin(table.words), std::end(table.words), args.table);
    args.wide_d = has_wide_d(w.type);
    // Sometimes so few that blocks have many tiles.
    args.processors = processors > 0 ? processors : device->processors();
    device->kernels().products(args, device->stream());
    device->wait();
  }
  EXPECT_TRUE(out.guard_holds());
  return out.values();
}

TEST_F(Cuda, QuantizeActivations) {
  Tally tally("cuda quantize_activations");
  Random random(11);
  const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
  for (int64_t trial = 0; trial < trials(400, 24); ++trial) {
    for (const ActivationForm form : {ActivationForm::q32, ActivationForm::q256}) {
      const bool superblocks = form == ActivationForm::q256;
      const int64_t block = superblocks ? 256 : 32;
      const int64_t n = block * random.between(1, 9), rows = random.between(1, 20);
      auto x = random_floats(random, rows * n, kAllKinds[trial % 6]);
      if (trial % 5 == 4) x[static_cast<size_t>(random.below(rows * n))] = bad[trial % 4];
      if (trial % 7 == 0) x[0] = std::nextafter(0x1p-100f, 0.0f);
      Quantized want(reference(), form, rows, n);
      const QuantizeActivationsArgs args{x.data(), rows, n, form, want.view(), {want.fault.data()}};
      reference().quantize_activations(args, {0, args.items()});
      const OnDevice<float> x_there(device_, x);
      const QuantizedOnDevice got(device_, x_there, rows, n, superblocks);
      const auto q = got.q.values();
      const auto d = got.d.values(), d_sums = got.d_sums.values();
      const auto digits = got.digits.values();
      ASSERT_EQ(got.faults.values(), want.fault);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t k = 0; k < n; ++k) {
          ASSERT_EQ(q[static_cast<size_t>(activation_place(row, k, segments_of(n)))],
                    want.q_of(row, k));
        }
        for (int64_t b = 0; b < n / block; ++b) {
          const float want_d = want.d_of(row, b);
          const auto at = static_cast<size_t>(row * (superblocks ? 1 : 8) * segments_of(n) + b);
          ASSERT_TRUE(same_bits(&d[at], &want_d, 1));
          if (superblocks) continue;
          ASSERT_TRUE(same_bits(&d_sums[at], &want.d_sums[static_cast<size_t>(b * rows + row)], 1));
        }
        for (int64_t j = 0; superblocks && j < n / 16; ++j) {
          const int8_t* own =
              &digits[static_cast<size_t>((row * (n / 256) + j / 16) * 32 + j % 16)];
          ASSERT_EQ(own[0] + 128 * own[16],
                    -want.sums[static_cast<size_t>(2 * (j / 2 * rows + row) + j % 2)]);
        }
      }
      tally.count(rows * n);
    }
  }
}

TEST_F(Cuda, MatmulOfEveryTypeAtEveryWidth) {
  Random random(21);
  std::vector<TensorType> types(std::begin(kFloatTypes), std::end(kFloatTypes));
  types.insert(types.end(), std::begin(kQuantTypes), std::end(kQuantTypes));
  for (const TensorType type : types) {
    const std::string name(gguf::type_info(type).name);
    Tally tally("cuda matmul " + name);
    Control flipped("cuda matmul " + name + " with one bit of one weight flipped");
    for (const int64_t rows : widths()) {
      for (int64_t trial = 0; trial < trials(6, 2); ++trial) {
        // On the emulation, too, tiles and segments enough for a block that has some of each, and
        // for rings that come round: with one row, and with two eights of them.
        const bool large = few_trials() ? trial == 1 && (rows == 1 || rows == 9) : trial == 0;
        if (few_trials() && trial == 1 && !large) continue;
        const int64_t most = large ? 200 : few_trials() ? 20 : 40;
        const int64_t k = legal_k(type, random.between(large ? 100 : 1, most), random);
        const int64_t n_out =
            few_trials() && !large ? random.between(1, 6) : random.between(large ? 50 : 1, 90);
        OwnedWeight w = random_weight(random, type, k, n_out);
        const auto x = random_floats(random, rows * k, kAllKinds[random.below(6)]);
        const auto bias = random_floats(random, n_out, Kind::plain);
        const float* bias_data = random.below(2) ? bias.data() : nullptr;
        const auto want = reference_product(w.weight, bias_data, x, rows);
        const int processors =
            trial % 2 || few_trials() ? static_cast<int>(random.between(1, 3)) : 0;
        const auto got = device_product(device_, w.weight, bias_data, x, rows, processors);
        ASSERT_TRUE(same_bits(got, want))
            << name << " k " << k << " n_out " << n_out << " rows " << rows;
        tally.count(rows * n_out);
        // Codes of plain rows matter; a block's middle byte holds some in every type.
        const auto plain = random_floats(random, rows * k, Kind::plain);
        const auto before = device_product(device_, w.weight, nullptr, plain, rows);
        const gguf::TypeInfo& info = gguf::type_info(type);
        const int64_t byte = info.block_elements == 1 ? info.block_bytes - 1 : info.block_bytes / 2;
        w.bytes[static_cast<size_t>(
            random.below(static_cast<int64_t>(w.bytes.size()) / info.block_bytes) *
                info.block_bytes +
            byte)] ^= std::byte{0x10};
        flipped.trial(!same_bits(device_product(device_, w.weight, nullptr, plain, rows), before));
      }
    }
    EXPECT_TRUE(flipped.seen(0.5)) << name;
  }
}

// The comparison above must see an order of additions that is not the law's.
TEST_F(Cuda, AnotherOrderIsSeen) {
  Random random(22);
  Control lanes("cuda matmul against 4 lanes"), fused("cuda matmul against no fma"),
      segments("cuda matmul against segments of 128");
  for (int64_t trial = 0; trial < trials(40, 3); ++trial) {
    const int64_t k = 256 * random.between(9, 24), n_out = 4;
    const OwnedWeight w = random_weight(random, TensorType::q4_1, k, n_out);
    const auto x = random_floats(random, k, Kind::plain);
    const auto got = device_product(device_, w.weight, nullptr, x, 1);
    for (int64_t n = 0; n < n_out; ++n) {
      const auto blocks = plain_weight_row(w.weight, n);
      const float* own = &got[static_cast<size_t>(n)];
      const float law = plain_product(blocks, x.data(), nullptr);
      ASSERT_TRUE(same_bits(own, &law, 1));
      const auto differs = [&](const ProductKnobs& knobs) {
        const float other = plain_product(blocks, x.data(), nullptr, knobs);
        return !same_bits(own, &other, 1);
      };
      lanes.trial(differs({4, 256, true, false, false}));
      fused.trial(differs({8, 256, false, false, false}));
      segments.trial(differs({8, 128, true, false, false}));
    }
  }
  EXPECT_TRUE(lanes.seen(0.05));
  EXPECT_TRUE(fused.seen(0.05));
  EXPECT_TRUE(segments.seen(0.05));
}

TEST_F(Cuda, RmsNorm) {
  Tally tally("cuda rms_norm");
  Random random(62);
  for (int64_t trial = 0; trial < trials(300, 12); ++trial) {
    const int64_t group = random.below(3) ? random.between(1, 700) : 64 * random.between(1, 40);
    const int64_t groups = random.between(1, 3), rows = random.between(1, 6);
    const int64_t width = group * groups;
    auto x = random_floats(random, rows * width, kAllKinds[trial % 6]);
    if (trial % 6 == 5) x[static_cast<size_t>(random.below(rows * width))] = 3e38f;
    const auto weight = random_floats(random, group, Kind::plain);
    std::vector<float> want(x.size());
    std::vector<uint8_t> fault(static_cast<size_t>(rows));
    const RmsNormArgs args{x.data(), weight.data(), want.data(), rows,
                           width,    group,         1e-5f,       {fault.data()}};
    reference().rms_norm(args, {0, args.items()});
    const auto y = put(x), w = put(weight);  // in place
    const auto faults = no_faults(rows);
    kernels().rms_norm({y.get(), w.get(), y.get(), rows, width, group, 1e-5f, faults.get()},
                       device_->stream());
    ASSERT_EQ(faults.values(), fault);
    const auto got = y.values();
    for (int64_t i = 0; i < rows * width; ++i) {
      if (fault[static_cast<size_t>(i / width)]) continue;
      ASSERT_TRUE(same_bits(&got[static_cast<size_t>(i)], &want[static_cast<size_t>(i)], 1));
    }
    ASSERT_TRUE(y.guard_holds());
    tally.count(rows * width);
  }
}

// What stands between two products, in one launch: against the ops one by one. Codes against those
// of the launch that only quantises, which is compared with the reference above.
TEST_F(Cuda, RowChain) {
  Tally tally("cuda rows between products");
  Control control("cuda rows between products, one element of the branch other");
  Random random(64);
  const std::vector<int64_t> widths =
      few_trials() ? std::vector<int64_t>{96, 640, 1024, 1056, 2048, 4096, 4128, 5120, 8224}
                   : std::vector<int64_t>{32,   96,   256,  576,  640,  1024, 1056, 2048, 2560,
                                          4000, 4096, 4128, 5120, 5376, 8192, 8224, 12288};
  for (int64_t trial = 0; trial < trials(340, 18); ++trial) {
    // Of any length, where nothing is quantised.
    const bool quantises = trial % 5 != 4;
    const int64_t width = quantises ? widths[static_cast<size_t>(trial) % widths.size()]
                                    : random.between(1, few_trials() ? 1500 : 9000);
    const int64_t rows = random.between(1, few_trials() ? 2 : 9);
    const bool superblocks = quantises && width % 256 == 0 && random.below(2) != 0;
    const bool q32 = quantises && (!superblocks || random.below(2) != 0);
    const bool adds = random.below(4) != 0, selects = !adds && random.below(2) != 0;
    const bool branch_normed = adds && random.below(2) != 0, normed = random.below(6) != 0;
    auto source = random_floats(random, rows * width, kAllKinds[trial % 5]);
    auto branch = random_floats(random, rows * width, Kind::plain);
    const auto weight = random_floats(random, width, Kind::plain);
    const auto branch_weight = random_floats(random, width, Kind::plain);
    if (trial % 7 == 6) source[static_cast<size_t>(random.below(rows * width))] = INFINITY;
    if (trial % 7 == 5) branch[static_cast<size_t>(random.below(rows * width))] = 3e38f;

    const auto n = static_cast<size_t>(rows * width);
    struct Rows {
      std::vector<float> h, x;
      std::vector<uint8_t> branch_fault, norm_fault;
    };
    const auto norm = [&](std::vector<float>& y, const std::vector<float>& of, float eps,
                          std::vector<uint8_t>& fault) {
      std::vector<float> out(n);
      const RmsNormArgs args{y.data(), of.data(), out.data(), rows,
                             width,    width,     eps,        {fault.data()}};
      reference().rms_norm(args, {0, args.items()});
      y = out;
    };
    const auto one_by_one = [&](const std::vector<float>& of_branch) {
      const auto none = std::vector<uint8_t>(static_cast<size_t>(rows));
      Rows made{source, {}, none, none};
      if (selects) {
        for (int64_t row = 0; row < rows; ++row) {
          std::copy_n(source.begin() + (rows - 1 - row) * width, width,
                      made.h.begin() + row * width);
        }
      }
      if (adds) {
        std::vector<float> b = of_branch;
        if (branch_normed) norm(b, branch_weight, 1e-6f, made.branch_fault);
        const AddArgs args{source.data(), b.data(), made.h.data(), rows, width};
        reference().add(args, {0, args.items()});
      }
      made.x = made.h;
      if (normed) norm(made.x, weight, 1e-5f, made.norm_fault);
      return made;
    };
    const Rows want = one_by_one(branch);

    std::vector<int64_t> index;
    for (int64_t row = 0; row < rows; ++row) index.push_back(rows - 1 - row);
    const auto source_at = put(source), branch_at = put(branch), weight_at = put(weight),
               branch_weight_at = put(branch_weight), h = empty<float>(rows * width),
               x = empty<float>(rows * width);
    const auto index_at = put(index);
    const auto branch_faults = no_faults(rows), norm_faults = no_faults(rows),
               out_faults = no_faults(rows), codes_faults = no_faults(rows);
    struct Codes {
      OnDevice<int8_t> q;
      OnDevice<float> d, d_sums;
      OnDevice<int8_t> digits;
      DeviceActivations view() const { return {q.get(), d.get(), d_sums.get(), digits.get()}; }
    };
    const auto codes = [&](bool super) {
      const auto segments = static_cast<size_t>(rows * segments_of(width));
      return Codes{
          put(std::vector<int8_t>(static_cast<size_t>(activation_bytes(rows, segments_of(width))))),
          put(std::vector<float>(segments * (super ? 1 : 8))),
          put(std::vector<float>(segments * (super ? 1 : 8))),
          put(std::vector<int8_t>(segments * 32))};
    };
    const Codes made[] = {codes(false), codes(true)}, other[] = {codes(false), codes(true)};
    RowChainArgs args;
    args.rows = rows;
    args.width = width;
    args.source = source_at.get();
    args.h = h.get();
    if (selects) args.select = index_at.get();
    if (adds) args.branch = branch_at.get();
    if (branch_normed) {
      args.branch_norm = branch_weight_at.get();
      args.branch_eps = 1e-6f;
      args.branch_faults = branch_faults.get();
    }
    if (normed) {
      args.norm = weight_at.get();
      args.eps = 1e-5f;
      args.norm_faults = norm_faults.get();
      args.x = x.get();
    }
    const bool forms[] = {q32, superblocks};
    for (const int form : {0, 1}) {
      args.forms[form] = forms[form];
      args.out[form] = made[form].view();
    }
    args.out_faults = out_faults.get();
    kernels().row_chain(args, device_->stream());

    ASSERT_EQ(branch_faults.values(), want.branch_fault);
    ASSERT_EQ(norm_faults.values(), want.norm_fault);
    const auto compare = [&](const std::vector<float>& got, const std::vector<float>& of) {
      for (int64_t row = 0; row < rows; ++row) {
        if (want.branch_fault[static_cast<size_t>(row)] ||
            want.norm_fault[static_cast<size_t>(row)] ||
            std::any_of(of.begin() + row * width, of.begin() + (row + 1) * width,
                        [](float v) { return std::isnan(v); })) {
          continue;
        }
        ASSERT_TRUE(same_bits(got.data() + row * width, of.data() + row * width, width));
      }
    };
    compare(h.values(), want.h);
    if (normed) compare(x.values(), want.x);
    ASSERT_TRUE(h.guard_holds() && x.guard_holds());
    const bool faulted =
        std::any_of(want.x.begin(), want.x.end(), [](float v) { return !std::isfinite(v); });
    if (!faulted) {
      const auto x_at = put(want.x);
      for (const int form : {0, 1}) {
        if (!forms[form]) continue;
        kernels().quantize(
            {x_at.get(), rows, width, form == 1, other[form].view(), codes_faults.get()},
            device_->stream());
        ASSERT_EQ(made[form].q.values(), other[form].q.values());
        ASSERT_TRUE(same_bits(made[form].d.values(), other[form].d.values()));
        if (form == 0) {
          ASSERT_TRUE(same_bits(made[form].d_sums.values(), other[form].d_sums.values()));
        } else {
          ASSERT_EQ(made[form].digits.values(), other[form].digits.values());
        }
      }
      ASSERT_EQ(out_faults.values(), codes_faults.values());
      if (adds && trial % 7 != 5) {
        auto changed = branch;
        float& element = changed[static_cast<size_t>(random.below(rows * width))];
        element = element * 1.5f + 1.0f;
        control.trial(!same_bits(one_by_one(changed).h, h.values()));
      }
    }
    tally.count(rows * width);
  }
  EXPECT_TRUE(control.seen(0.9));
}

TEST_F(Cuda, ElementsAlone) {
  Tally tally("cuda add, gated_act, softcap, select_rows, check_logits, rope");
  Random random(63);
  const float bad[] = {INFINITY, -INFINITY, NAN};
  for (int64_t trial = 0; trial < trials(300, 8); ++trial) {
    const int64_t rows = random.between(1, few_trials() ? 4 : 40), width = random.between(1, 700);
    const Kind kind = kAllKinds[trial % 6];
    auto a = random_floats(random, rows * width, kind);
    const auto b = random_floats(random, rows * width, Kind::plain);
    for (float& x : a) x *= trial % 2 ? 1.0f : 30.0f;  // through the functions' whole range
    if (trial % 4 == 3) a[static_cast<size_t>(random.below(rows * width))] = bad[trial % 3];
    const auto n = static_cast<int64_t>(a.size());
    const auto compare = [&](const std::vector<float>& got, const std::vector<float>& want,
                             const std::vector<uint8_t>& fault, const char* what) {
      for (int64_t i = 0; i < static_cast<int64_t>(want.size()); ++i) {
        if (!fault.empty() && fault[static_cast<size_t>(i / width)]) continue;
        if (std::isnan(want[static_cast<size_t>(i)])) continue;  // its bits are no one's
        ASSERT_TRUE(same_bits(&got[static_cast<size_t>(i)], &want[static_cast<size_t>(i)], 1))
            << what << " " << a[static_cast<size_t>(i)];
      }
      tally.count(static_cast<int64_t>(want.size()));
    };
    std::vector<float> want(a.size());
    std::vector<uint8_t> fault(static_cast<size_t>(rows));
    {
      const AddArgs args{a.data(), b.data(), want.data(), rows, width};
      reference().add(args, {0, args.items()});
      const auto at = put(a), bt = put(b);
      kernels().add({at.get(), bt.get(), at.get(), n}, device_->stream());
      compare(at.values(), want, {}, "add");
      ASSERT_TRUE(at.guard_holds());
    }
    for (const bool gelu : {false, true}) {
      const GatedActArgs args{a.data(), b.data(), want.data(), rows, width, gelu, {fault.data()}};
      std::fill(fault.begin(), fault.end(), uint8_t{0});
      reference().gated_act(args, {0, args.items()});
      const auto at = put(a), bt = put(b);
      const auto faults = no_faults(rows);
      kernels().gated_act({at.get(), bt.get(), at.get(), rows, width, gelu, faults.get()},
                          device_->stream());
      ASSERT_EQ(faults.values(), fault);
      compare(at.values(), want, fault, gelu ? "gelu" : "silu");
    }
    {
      want = a;
      std::fill(fault.begin(), fault.end(), uint8_t{0});
      const SoftcapArgs args{want.data(), rows, width, 30.0f, {fault.data()}};
      reference().softcap(args, {0, args.items()});
      const auto at = put(a);
      const auto faults = no_faults(rows), seen = no_faults(rows);
      kernels().check_logits({at.get(), rows, width, seen.get()}, device_->stream());
      kernels().softcap({at.get(), rows, width, 30.0f, faults.get()}, device_->stream());
      ASSERT_EQ(faults.values(), fault);
      ASSERT_EQ(seen.values(), fault);
      compare(at.values(), want, fault, "softcap");
    }
    {
      std::vector<int64_t> index;
      for (int64_t row = 0; row < rows; ++row) {
        if (random.below(2) || row == rows - 1) index.push_back(row);
      }
      const auto kept = static_cast<int64_t>(index.size());
      const auto in = put(a), out = empty<float>(kept * width);
      const auto which = put(index);
      kernels().select_rows({in.get(), which.get(), out.get(), kept, width}, device_->stream());
      const auto got = out.values();
      for (int64_t r = 0; r < kept; ++r) {
        ASSERT_TRUE(same_bits(got.data() + r * width,
                              a.data() + index[static_cast<size_t>(r)] * width, width));
      }
      ASSERT_TRUE(out.guard_holds());
    }
    const int64_t n_head = random.between(1, 5), head_dim = 2 * random.between(2, 70);
    const int64_t n_rot = random.below(2) ? head_dim : 2 * random.between(1, head_dim / 2);
    auto x = random_floats(random, rows * n_head * head_dim, kind);
    const auto cos = random_floats(random, rows * n_rot / 2, Kind::plain);
    const auto sin = random_floats(random, rows * n_rot / 2, Kind::plain);
    for (const bool halves : {false, true}) {
      std::vector<float> turned = x;
      const RopeArgs args{turned.data(), cos.data(), sin.data(), rows,
                          n_head,        head_dim,   n_rot,      halves};
      reference().rope(args, {0, args.items()});
      const auto xt = put(x), ct = put(cos), st = put(sin);
      kernels().rope({xt.get(), ct.get(), st.get(), rows, n_head, head_dim, n_rot, halves},
                     device_->stream());
      ASSERT_TRUE(same_bits(xt.values(), turned));
      tally.count(static_cast<int64_t>(turned.size()));
    }
  }
}

TEST_F(Cuda, RotaryRows) {
  Tally tally("cuda rotary rows");
  Control control("cuda rotary rows, another position");
  Random random(65);
  for (int64_t trial = 0; trial < trials(60, 6); ++trial) {
    std::vector<RopeFrequencies> specs;
    std::vector<RotaryPair> pairs;
    for (int64_t s = 0; s < 1 + trial % 2; ++s) {
      RopeSpec spec;
      spec.n_rot = 2 * random.between(1, 128);
      spec.base = s == 0 ? 10000.0 : 1e6;
      specs.push_back(rope_frequencies(spec));
      specs.back().scaled = random.below(3) == 0;
      specs.back().mscale = 1.25f;
      const auto first = static_cast<int32_t>(pairs.size());
      const auto n = static_cast<int32_t>(specs.back().f.size());
      for (const double f : specs.back().f) {
        pairs.push_back({f, specs.back().scaled ? specs.back().mscale : 1.0f, first, n});
      }
    }
    const int64_t rows = random.between(1, few_trials() ? 4 : 600);
    std::vector<int64_t> positions;
    for (int64_t row = 0; row < rows; ++row) positions.push_back(random.below(200000));
    const auto all = static_cast<int64_t>(pairs.size());
    const auto pairs_at = put(pairs);
    const auto positions_at = put(positions);
    const auto out = empty<float>(2 * rows * all);
    kernels().inputs({{pairs_at.get(), all, positions_at.get(), rows, out.get()}, {}},
                     device_->stream());
    const auto want_at = [&](const std::vector<int64_t>& of) {
      std::vector<float> want;
      for (const RopeFrequencies& spec : specs) {
        const size_t n = spec.f.size(), begin = want.size(), count = static_cast<size_t>(rows) * n;
        want.resize(begin + 2 * count);
        for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
          rope_row(spec, of[row], &want[begin + row * n], &want[begin + count + row * n]);
        }
      }
      return want;
    };
    ASSERT_TRUE(same_bits(out.values(), want_at(positions)));
    ASSERT_TRUE(out.guard_holds());
    positions.back() += 1;
    control.trial(!same_bits(out.values(), want_at(positions)));
    tally.count(2 * rows * all);
  }
  EXPECT_TRUE(control.seen(0.9));
}

TEST_F(Cuda, EmbeddingRows) {
  Tally tally("cuda embedding rows");
  Control control("cuda embedding rows, one bit of a code other");
  Random random(66);
  std::vector<TensorType> types(std::begin(kFloatTypes), std::end(kFloatTypes));
  types.insert(types.end(), std::begin(kQuantTypes), std::end(kQuantTypes));
  for (const TensorType type : types) {
    for (int64_t trial = 0; trial < trials(12, 2); ++trial) {
      const int64_t width = legal_k(type, random.between(1, few_trials() ? 8 : 150), random);
      const int64_t rows = random.between(1, few_trials() ? 3 : 40);
      OwnedWeight table = random_weight(random, type, width, rows);
      std::vector<int32_t> tokens;
      for (int64_t row = 0; row < rows; ++row) tokens.push_back(static_cast<int32_t>(row));
      const float scale = trial % 2 == 0 ? 1.0f : 0x1.94c584p4f;
      std::vector<float> want(static_cast<size_t>(rows * width));
      const EmbedArgs args{&table.weight, tokens.data(), scale, rows, want.data()};
      reference().embed(args, {0, args.items()});
      const auto got_of = [&] {
        const Weight& w = table.weight;
        const auto encoded = put(std::vector<std::byte>(w.data, w.data + rows * w.row_bytes));
        const auto out = empty<float>(rows * width);
        kernels().inputs({{}, {encoded.get(), type, rows, width, w.row_bytes, scale, out.get()}},
                         device_->stream());
        EXPECT_TRUE(out.guard_holds());
        return out.values();
      };
      ASSERT_TRUE(same_bits(got_of(), want)) << gguf::type_info(type).name << " width " << width;
      tally.count(rows * width);
      const gguf::TypeInfo& info = gguf::type_info(type);
      const int64_t byte = info.block_elements == 1 ? info.block_bytes - 1 : info.block_bytes / 2;
      table.bytes[static_cast<size_t>(byte)] ^= std::byte{0x10};
      control.trial(!same_bits(got_of(), want));
    }
  }
  EXPECT_TRUE(control.seen(0.8));
}

std::vector<Candidate> from_bound(const float* row, int64_t width, float bound) {
  std::vector<Candidate> list;
  for (int64_t id = 0; id < width; ++id) {
    if (row[id] >= bound) list.push_back({row[id], static_cast<int32_t>(id)});
  }
  return list;
}

bool same_candidates(const std::vector<Candidate>& a, const std::vector<Candidate>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.id == y.id && same_bits(&x.x, &y.x, 1);
  });
}

TEST_F(Cuda, GreatestLogits) {
  Tally tally("cuda greatest logits");
  Control control("cuda greatest logits, one more wanted");
  Random random(73);
  for (int64_t trial = 0; trial < trials(200, 12); ++trial) {
    const bool wide = !few_trials() && trial % 4 == 0;
    const int64_t width = wide ? random.between(30000, 270000) : random.between(1, 3000);
    const int64_t rows = random.between(1, few_trials() ? 2 : 16);
    auto x = random_floats(random, rows * width, Kind::plain);
    if (trial % 3 == 1) {
      for (float& element : x) element = std::round(element);  // ties, and zeros of both signs
    }
    const int64_t stretch = logits_stretch(width), stretches = logits_stretches(width);
    const int64_t wanted = random.between(1, stretches);
    const auto at = put(x);
    const auto maxima = empty<float>(rows * stretches);
    const auto faults = no_faults(rows);
    const OnDevice<GreatestLogits> lists(device_, rows);
    kernels().check_logits({at.get(), rows, width, faults.get(), maxima.get()}, device_->stream());
    kernels().greatest_logits({at.get(), maxima.get(), rows, width, wanted, lists.get()},
                              device_->stream());
    const auto got = lists.values();
    for (int64_t row = 0; row < rows; ++row) {
      const float* own = x.data() + row * width;
      std::vector<float> most;
      for (int64_t i = 0; i < width; i += stretch) {
        most.push_back(*std::max_element(own + i, own + std::min(width, i + stretch)));
      }
      std::sort(most.begin(), most.end(), std::greater<>());
      const auto want = from_bound(own, width, most[static_cast<size_t>(wanted - 1)]);
      ASSERT_GE(std::ssize(want), wanted);
      const GreatestLogits& found = got[static_cast<size_t>(row)];
      ASSERT_EQ(found.count, std::ssize(want));
      if (found.count > kGreatestRoom) continue;
      std::vector<Candidate> list(found.list, found.list + found.count);
      std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
      ASSERT_TRUE(same_candidates(list, want));
      tally.count(found.count);
      if (wanted < stretches && trial % 3 != 1) {
        control.trial(
            !same_candidates(list, from_bound(own, width, most[static_cast<size_t>(wanted)])));
      }
    }
  }
  EXPECT_TRUE(control.seen(0.9));
}

// All tokens in passes of the given widths, as pass_runner.h's decode, with the pages where the
// backend wants them.
Result decode_there(Backend& backend, const TestModel& model, const std::vector<int32_t>& tokens,
                    const std::vector<int64_t>& pass_widths, KvType k_type, KvType v_type) {
  const auto n = static_cast<int64_t>(tokens.size());
  const ModelShape& s = model.shape();
  const auto memory = backend.page_memory();
  const int64_t n_pages = (n + kPagePositions - 1) / kPagePositions;
  struct Layer {
    std::vector<std::byte*> k, v;
  };
  std::deque<Layer> layers;
  std::vector<KvLayerView> views;
  const auto bytes_of = [&](KvType type) {
    return s.n_head_kv * kPagePositions * kv_row_bytes(type, s.head_dim);
  };
  const auto page = [&](KvType type) {
    std::byte* at = memory->allocate(bytes_of(type));
    memory->fill(at, 0x7E, bytes_of(type), bytes_of(type), 1);
    return at;
  };
  for (int64_t layer = 0; layer < s.n_layer; ++layer) {
    Layer& l = layers.emplace_back();
    for (int64_t p = 0; p < n_pages; ++p) {
      l.k.push_back(page(k_type));
      l.v.push_back(page(v_type));
    }
    views.push_back({k_type, v_type, static_cast<int32_t>(s.n_head_kv),
                     static_cast<int32_t>(s.head_dim), l.k.data(), l.v.data(), n_pages});
  }
  const int64_t n_vocab = model.graph().n_vocab;
  Result result;
  result.logits.resize(static_cast<size_t>(n * n_vocab));
  size_t turn = 0;
  for (int64_t at = 0; at < n; ++turn) {
    const int64_t rows = std::min(pass_widths[turn % pass_widths.size()], n - at);
    Pass pass;
    pass.segments.push_back(
        {std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)), at, views,
         0});
    pass.logits =
        std::span(result.logits)
            .subspan(static_cast<size_t>(at * n_vocab), static_cast<size_t>(rows * n_vocab));
    // Every other pass into the backend's own memory.
    const auto direct = turn % 2 ? backend.logits_memory(rows * n_vocab) : nullptr;
    const std::span<float> there = pass.logits;
    if (direct) pass.logits = {direct.get(), there.size()};
    backend.run(model.graph(), pass);
    if (direct) std::copy(pass.logits.begin(), pass.logits.end(), there.begin());
    EXPECT_TRUE(pass.faults.empty());
    // And once more for the greatest logits alone.
    pass.greatest_wanted = 1 + static_cast<int64_t>(turn % 3);
    backend.run(model.graph(), pass);
    EXPECT_EQ(std::ssize(pass.greatest), rows);
    for (int64_t row = 0; row < std::min(rows, std::ssize(pass.greatest)); ++row) {
      const float* whole = there.data() + row * n_vocab;
      const auto& list = pass.greatest[static_cast<size_t>(row)];
      if (list.empty()) {  // too many are equal to the bound or above it
        EXPECT_TRUE(same_bits(pass.logits.data() + row * n_vocab, whole, n_vocab));
        continue;
      }
      EXPECT_GE(std::ssize(list), std::min(pass.greatest_wanted, n_vocab));
      const float bound =
          std::min_element(list.begin(), list.end(), [](auto a, auto b) { return a.x < b.x; })->x;
      EXPECT_TRUE(same_candidates(list, from_bound(whole, n_vocab, bound)));
    }
    at += rows;
  }
  for (const Layer& layer : layers) {
    for (int64_t p = 0; p < n_pages; ++p) {
      for (const bool is_v : {false, true}) {
        std::byte* at = (is_v ? layer.v : layer.k)[static_cast<size_t>(p)];
        std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(is_v ? v_type : k_type)));
        const std::byte* seen = memory->view(at, static_cast<int64_t>(bytes.size()), bytes.data());
        result.state.insert(result.state.end(), seen, seen + bytes.size());
        memory->release(at);
      }
    }
  }
  return result;
}

TEST_F(Cuda, WholePassesOfEveryKindOfModel) {
  Tally tally("cuda passes against the scalar backend");
  Control control("cuda passes of a model with one code bit flipped");
  struct ModelKind {
    const char* name;
    ModelShape shape;
    KvType k, v;
  };
  std::vector<ModelKind> kinds;
  const auto add = [&](const char* name, KvType k, KvType v, auto&& change) {
    ModelKind kind{name, {}, k, v};
    change(kind.shape);
    kinds.push_back(kind);
  };
  add("llama q4_1", KvType::f16, KvType::f16, [](ModelShape& s) { s.type = TensorType::q4_1; });
  add("gemma q4_K and q6_K, window, cap", KvType::f16, KvType::f16, [](ModelShape& s) {
    s.type = TensorType::q4_k;
    s.head_type = TensorType::q6_k;
    s.gemma = true;
    s.window = 40;
    s.softcap = 20.0f;
  });
  add("qwen2 q8_0", KvType::q8_0, KvType::q8_0, [](ModelShape& s) {
    s.type = TensorType::q8_0;
    s.halves = s.bias = true;
  });
  add("qwen3 iq4_XS", KvType::q8_0, KvType::q4_0, [](ModelShape& s) {
    s.type = TensorType::iq4_xs;
    s.halves = s.head_norms = true;
  });
  add("floats of odd sizes", KvType::f32, KvType::f16, [](ModelShape& s) {
    s.type = TensorType::bf16;
    s.head_type = TensorType::f16;
    s.n_embd = 120;
    s.head_dim = 20;
    s.n_ff = 250;
  });
  for (const ModelKind& kind : kinds) {
    ModelShape shape = kind.shape;
    if (few_trials()) {
      shape.n_layer = 1;
      shape.n_ff = 256;
      shape.n_vocab = 33;
    }
    TestModel model(shape, 7);
    const auto tokens = random_tokens(shape, few_trials() ? 5 : 150, 8);
    const auto cpu = make_cpu_backend("scalar", 1);
    const Result want = decode(*cpu, model, tokens, {1}, kind.k, kind.v);
    for (const std::vector<int64_t>& turns :
         few_trials() ? std::vector<std::vector<int64_t>>{{2}, {1}}
                      : std::vector<std::vector<int64_t>>{{1}, {150}, {3, 7, 1, 16, 33}}) {
      CudaBackend backend(device_);
      const Result got = decode_there(backend, model, tokens, turns, kind.k, kind.v);
      ASSERT_TRUE(same_bits(got.logits, want.logits)) << kind.name;
      ASSERT_TRUE(got.state == want.state) << kind.name;
      tally.count(static_cast<int64_t>(want.logits.size() + want.state.size()));
    }
    model.flip_a_code_bit(9);
    CudaBackend backend(device_);
    const Result other = decode_there(backend, model, tokens, {16}, kind.k, kind.v);
    control.trial(!same_bits(other.logits, want.logits));
  }
  EXPECT_TRUE(control.seen(0.7));
}

TEST_F(Cuda, PlantsGoWhereTheyAreToGo) {
  ModelShape shape;
  shape.n_layer = 1;
  if (few_trials()) {
    shape.n_ff = 256;
    shape.n_vocab = 33;
  }
  TestModel model(shape, 17);
  const auto tokens = random_tokens(shape, 1, 18);
  const int64_t n_vocab = model.graph().n_vocab;
  const auto run = [&](Backend& backend, PageMemory& memory, Plant* plant) {
    const int64_t bytes =
        shape.n_head_kv * kPagePositions * kv_row_bytes(KvType::f16, shape.head_dim);
    std::byte* k = memory.allocate(bytes);
    std::byte* v = memory.allocate(bytes);
    std::vector<std::byte*> ks{k}, vs{v};
    const std::vector<KvLayerView> views{
        {KvType::f16, KvType::f16, static_cast<int32_t>(shape.n_head_kv),
         static_cast<int32_t>(shape.head_dim), ks.data(), vs.data(), 1}};
    std::vector<float> logits(static_cast<size_t>(n_vocab));
    Pass pass;
    pass.segments.push_back({tokens, 0, views, 0});
    pass.plant = plant;
    pass.logits = logits;
    backend.run(model.graph(), pass);
    memory.release(k);
    memory.release(v);
    return logits;
  };
  const auto cpu = make_cpu_backend("scalar", 1);
  CudaBackend cuda(device_);
  const auto pages = cuda.page_memory();
  for (size_t i = 0; i < model.graph().ops.size(); i += few_trials() ? 4 : 1) {
    Plant plant{static_cast<int>(i), 0, 5, 14}, same = plant;
    const auto want = run(*cpu, main_page_memory(), &plant);
    const auto got = run(cuda, *pages, &same);
    EXPECT_TRUE(plant.done && same.done);
    EXPECT_TRUE(same_bits(got, want)) << model.graph().ops[i].name;
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda::test
