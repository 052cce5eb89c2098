// Contract E1 on whole passes: whatever the width, the cuts, the neighbours, the threads and the
// instruction set, the logits and the state are the same bits.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include "harness.h"
#include "pass_runner.h"
#include "sanitized.h"
#include "test_model.h"

namespace lockstep::kernels::test {
namespace {

struct Case {
  std::string name;
  ModelShape shape;
  KvType k_type = KvType::f16, v_type = KvType::f16;
};

constexpr size_t kEvery = lockstep::test::kSanitized ? 4 : 1;

std::vector<Case> all_cases() {
  std::vector<Case> all;
  const auto add = [&](const std::string& name, TensorType type, KvType k, KvType v,
                       auto&& change) {
    Case c{name, {}, k, v};
    c.shape.type = type;
    change(c.shape);
    all.push_back(c);
  };
  const auto same = [](ModelShape&) {};
  for (const TensorType type : kQuantTypes) {
    add(std::string(gguf::type_info(type).name), type, KvType::f16, KvType::f16, same);
  }
  for (const TensorType type : kFloatTypes) {
    add(std::string(gguf::type_info(type).name), type, KvType::f32, KvType::f16, [](ModelShape& s) {
      s.n_embd = 120;  // no multiple of anything
      s.head_dim = 20;
      s.n_ff = 250;
      s.head_type = TensorType::f16;
    });
  }
  add("q8_0 kv", TensorType::q5_1, KvType::q8_0, KvType::q8_0, same);
  add("q4_0 kv", TensorType::q8_0, KvType::q4_0, KvType::q4_0, same);
  add("q8_0 and q4_0 kv", TensorType::q4_0, KvType::q8_0, KvType::q4_0, same);
  add("mixed kv", TensorType::q4_1, KvType::f16, KvType::q8_0,
      [](ModelShape& s) { s.bias = true; });
  add("gemma, window 40, cap", TensorType::q4_0, KvType::f16, KvType::f16, [](ModelShape& s) {
    s.gemma = true;
    s.window = 40;
    s.softcap = 20.0f;
  });
  add("gemma, q4_K with q6_K, window 64", TensorType::q4_k, KvType::f16, KvType::f16,
      [](ModelShape& s) {
        s.gemma = true;
        s.window = 64;
        s.head_type = TensorType::q6_k;
        s.n_head = 6;
        s.n_head_kv = 1;
        s.n_ff = 768;
        s.head_dim = 128;
        s.rope.scaling = RopeSpec::Scaling::linear;
        s.rope.linear_factor = 8.0f;
      });
  add("qwen2", TensorType::q8_0, KvType::f16, KvType::f16, [](ModelShape& s) {
    s.halves = s.bias = true;
    s.n_head = 6;
    s.n_head_kv = 1;
  });
  add("qwen3, q4_K with q6_K", TensorType::q4_k, KvType::f16, KvType::q8_0, [](ModelShape& s) {
    s.halves = s.head_norms = true;
    s.head_type = TensorType::q6_k;
    s.head_dim = 128;
  });
  add("yarn", TensorType::q5_0, KvType::f16, KvType::f16, [](ModelShape& s) {
    s.rope.scaling = RopeSpec::Scaling::yarn;
    s.rope.linear_factor = 4.0f;
    s.rope.original_context = 64;
  });
  add("q8_0 blocks short of a segment", TensorType::q8_0, KvType::f16, KvType::f16,
      [](ModelShape& s) {
        s.n_embd = 96;
        s.n_ff = 288;
        s.n_head = 3;
        s.head_dim = 32;
        s.n_head_kv = 1;
      });
  return all;
}

// Those this build has time for.
std::vector<Case> cases() {
  const std::vector<Case> all = all_cases();
  std::vector<Case> some;
  for (size_t i = kEvery - 1; i < all.size(); i += kEvery) some.push_back(all[i]);
  return some;
}

std::vector<std::unique_ptr<Backend>> all_backends() {
  std::vector<std::unique_ptr<Backend>> backends;
  for (const CpuKernels* kernels : usable_kernels()) {
    for (const int threads : {1, 3}) backends.push_back(make_cpu_backend(kernels->isa, threads));
  }
  return backends;
}

TEST(Backend, EveryCutThreadCountAndInstructionSetGivesTheSameBits) {
  Tally tally("whole passes: cuts, threads, instruction sets");
  for (const Case& c : cases()) {
    const TestModel model(c.shape, 71);
    const int64_t n = 75;
    const auto tokens = random_tokens(c.shape, n, 72);
    const auto baseline = make_cpu_backend("scalar", 1);
    const Result want = decode(*baseline, model, tokens, {1}, c.k_type, c.v_type);
    float most = 0;
    for (const float x : want.logits) most = std::max(most, std::abs(x));
    ASSERT_GT(most, 1e-3f) << c.name;
    const std::vector<std::vector<int64_t>> cuts = {{n}, {2}, {7, 1, 33, 16}, {64, 17, 9}};
    for (const auto& backend : all_backends()) {
      for (const auto& widths : cuts) {
        const Result got = decode(*backend, model, tokens, widths, c.k_type, c.v_type);
        ASSERT_TRUE(same_bits(got.logits, want.logits))
            << c.name << " " << backend->info().isa << " threads " << backend->info().threads
            << " cut " << widths[0];
        ASSERT_TRUE(same_bits(got.state, want.state)) << c.name;
        tally.count(static_cast<int64_t>(want.logits.size() + want.state.size()));
      }
    }
  }
}

// The comparison sees a model that differs in one bit of one weight, and a token that differs.
TEST(Backend, ControlOneBitOfAWeightIsSeen) {
  Control control("one bit of a weight or one token");
  for (const Case& c : cases()) {
    const TestModel model(c.shape, 71);
    auto tokens = random_tokens(c.shape, 40, 72);
    const auto backend = make_cpu_backend("", 1);
    const Result want = decode(*backend, model, tokens, {40}, c.k_type, c.v_type);
    for (int trial = 0; trial < 3; ++trial) {
      TestModel other(c.shape, 71);
      other.flip_a_code_bit(static_cast<uint64_t>(trial));
      const Result got = decode(*backend, other, tokens, {40}, c.k_type, c.v_type);
      control.trial(!same_bits(got.logits, want.logits));
    }
    tokens[39] = (tokens[39] + 1) % static_cast<int32_t>(c.shape.n_vocab);
    const Result got = decode(*backend, model, tokens, {40}, c.k_type, c.v_type);
    control.trial(!same_bits(got.logits, want.logits));
  }
  EXPECT_TRUE(control.seen(0.8));
}

// Several sequences in one pass, each at its own place, some rows without logits: every row as if
// its sequence were alone.
TEST(Backend, NeighboursDontMatter) {
  Tally tally("neighbours");
  Random random(73);
  for (const Case& c : cases()) {
    const TestModel model(c.shape, 74);
    const int64_t n_vocab = c.shape.n_vocab;
    const auto baseline = make_cpu_backend("scalar", 1);
    std::vector<std::vector<int32_t>> tokens;
    std::vector<Result> want;
    for (uint64_t i = 0; i < 4; ++i) {
      tokens.push_back(random_tokens(c.shape, 70, 75 + i));
      want.push_back(decode(*baseline, model, tokens.back(), {70}, c.k_type, c.v_type));
    }
    for (const auto& backend : all_backends()) {
      std::deque<TestState> states;
      for (int i = 0; i < 4; ++i) states.emplace_back(c.shape, 70, c.k_type, c.v_type);
      std::vector<int64_t> at(4, 0);
      while (true) {
        Pass pass;
        std::vector<std::pair<int, int64_t>> wanted;  // sequence and position of every logits row
        for (int i = 0; i < 4; ++i) {
          const auto s = static_cast<size_t>(i);
          const int64_t rows = std::min<int64_t>(random.below(20), 70 - at[s]);
          const int64_t first_logits = random.below(rows + 1);
          pass.segments.push_back(
              {std::span(tokens[s]).subspan(static_cast<size_t>(at[s]), static_cast<size_t>(rows)),
               at[s], states[s].views(), first_logits});
          for (int64_t r = first_logits; r < rows; ++r) wanted.emplace_back(i, at[s] + r);
          at[s] += rows;
        }
        std::vector<float> logits(wanted.size() * static_cast<size_t>(n_vocab));
        pass.logits = logits;
        backend->run(model.graph(), pass);
        ASSERT_TRUE(pass.faults.empty());
        for (size_t r = 0; r < wanted.size(); ++r) {
          const auto [sequence, position] = wanted[r];
          ASSERT_TRUE(same_bits(
              logits.data() + static_cast<int64_t>(r) * n_vocab,
              want[static_cast<size_t>(sequence)].logits.data() + position * n_vocab, n_vocab))
              << c.name << " " << backend->info().isa << " sequence " << sequence << " position "
              << position;
          tally.count(n_vocab);
        }
        if (std::all_of(at.begin(), at.end(), [](int64_t p) { return p == 70; })) break;
      }
      for (size_t i = 0; i < 4; ++i) ASSERT_TRUE(same_bits(states[i].contents(), want[i].state));
    }
  }
}

// Every width of the matrix: one wide pass at some place equals rows alone.
TEST(Backend, EveryWidthOfTheMatrix) {
  Tally tally("whole passes: every width");
  Random random(76);
  for (const size_t index : {size_t{1}, size_t{5}, size_t{13}}) {
    if (kEvery > 1 && index != 13) continue;
    const Case c = all_cases()[index];
    const TestModel model(c.shape, 77);
    const auto tokens = random_tokens(c.shape, 600, 78);
    const auto baseline = make_cpu_backend("scalar", 1);
    const Result want = decode(*baseline, model, tokens, {1}, c.k_type, c.v_type);
    const auto backend = make_cpu_backend("", 2);
    for (const int64_t width : matrix_widths()) {
      const int64_t before = random.between(1, 600 - width);
      const std::vector<int32_t> part(tokens.begin(), tokens.begin() + before + width);
      const Result got = decode(*backend, model, part, {before, width}, c.k_type, c.v_type);
      ASSERT_TRUE(
          same_bits(got.logits.data(), want.logits.data(), static_cast<int64_t>(got.logits.size())))
          << c.name << " width " << width << " at " << before;
      tally.count(static_cast<int64_t>(got.logits.size()));
    }
  }
}

// A loaded library may have set another rounding mode, flush to zero or denormals are zero.
TEST(Backend, TheCallersFloatModeDoesNotMatterAndIsKept) {
  const Case c = all_cases()[0];
  const TestModel model(c.shape, 79);
  const auto tokens = random_tokens(c.shape, 20, 80);
  const auto backend = make_cpu_backend("", 2);
  const Result want = decode(*backend, model, tokens, {20}, c.k_type, c.v_type);
  const unsigned saved = _mm_getcsr();
  for (const unsigned mode :
       {0x8000u /* flush to zero */, 0x0040u /* denormals are zero */, 0x4000u /* up */, 0xE040u}) {
    _mm_setcsr(0x1F80u | mode);
    // The workers inherit the mode of the thread that starts them.
    const auto other = make_cpu_backend("", 2);
    const Result got = decode(*other, model, tokens, {20}, c.k_type, c.v_type);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(saved);
    EXPECT_EQ(after & 0xFFC0u, 0x1F80u | mode);
    EXPECT_TRUE(same_bits(got.logits, want.logits)) << mode;
  }
}

// One backend serves two models in turn; its memory from the last pass doesn't matter.
TEST(Backend, ServesSeveralModels) {
  const Case a = all_cases()[0], b = all_cases()[13];
  const TestModel model_a(a.shape, 81), model_b(b.shape, 82);
  const auto tokens = random_tokens(a.shape, 30, 83);
  const auto backend = make_cpu_backend("", 2);
  const Result want_a = decode(*backend, model_a, tokens, {30}, a.k_type, a.v_type);
  const Result want_b = decode(*backend, model_b, tokens, {5}, b.k_type, b.v_type);
  EXPECT_TRUE(same_bits(decode(*backend, model_a, tokens, {3, 9}, a.k_type, a.v_type).logits,
                        want_a.logits));
  EXPECT_TRUE(
      same_bits(decode(*backend, model_b, tokens, {30}, b.k_type, b.v_type).logits, want_b.logits));
}

}  // namespace
}  // namespace lockstep::kernels::test
