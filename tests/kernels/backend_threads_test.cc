// The threads of the CPU backend on shapes small enough for ThreadSanitizer: more workers than
// cores, more workers than rows or blocks, models in turn, backends side by side. What comes out
// must be what one thread gives.
#include <gtest/gtest.h>

#include <thread>

#include "harness.h"
#include "pass_runner.h"
#include "test_model.h"

namespace lockstep::kernels::test {
namespace {

struct Small {
  ModelShape shape;
  KvType kv = KvType::f16;
};

// Quantised rows with biases; floats of odd widths; head norms, a window, a cap and packed KV; head
// norms alone, pairs of halves, as qwen3.
std::vector<Small> small_models() {
  std::vector<Small> all(4);
  for (Small& s : all) {
    s.shape.n_vocab = 33;
    s.shape.n_embd = 64;
    s.shape.n_ff = 96;
    s.shape.n_head = 2;
    s.shape.n_head_kv = 1;
    s.shape.head_dim = 32;
  }
  all[0].shape.type = TensorType::q4_1;
  all[0].shape.bias = true;
  all[1].shape.type = all[1].shape.head_type = TensorType::f16;
  all[1].shape.n_embd = 40;
  all[1].shape.n_ff = 50;
  all[1].shape.head_dim = 20;
  all[1].kv = KvType::f32;
  all[2].shape.gemma = true;
  all[2].shape.window = 64;
  all[2].shape.softcap = 20.0f;
  all[2].kv = KvType::q8_0;
  all[3].shape.type = TensorType::q8_0;
  all[3].shape.halves = all[3].shape.head_norms = true;
  all[3].shape.head_dim = 64;
  return all;
}

constexpr int64_t kPositions = 70;  // past a page and the window
const std::vector<int64_t> kWidths = {33, 1, 4, 16};

class BackendThreads : public testing::Test {
 protected:
  void SetUp() override {
    const auto one = make_cpu_backend("scalar", 1);
    for (const Small& s : small_models()) {
      const TestModel& model = models_.emplace_back(s.shape, 101);
      kv_.push_back(s.kv);
      tokens_.push_back(random_tokens(s.shape, kPositions, 102));
      want_.push_back(decode(*one, model, tokens_.back(), kWidths, s.kv, s.kv));
    }
  }
  // Every model in turn, twice.
  void check(Backend& backend) const {
    for (size_t i = 0; i < 2 * models_.size(); ++i) {
      const size_t m = i % models_.size();
      const Result got = decode(backend, models_[m], tokens_[m], kWidths, kv_[m], kv_[m]);
      EXPECT_TRUE(same_bits(got.logits, want_[m].logits) && same_bits(got.state, want_[m].state))
          << "model " << m << ", " << backend.info().isa << ", threads " << backend.info().threads;
    }
  }

  std::deque<TestModel> models_;
  std::vector<KvType> kv_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<Result> want_;
};

TEST_F(BackendThreads, AnyNumberGivesTheBitsOfOne) {
  for (const CpuKernels* kernels : usable_kernels()) {
    for (const int threads : {2, 3, 5, 16}) check(*make_cpu_backend(kernels->isa, threads));
  }
}

// Past 1,024 positions the keys of a tile and head are cut, where workers outnumber these.
TEST_F(BackendThreads, KeysCutAmongWorkers) {
  constexpr int64_t kLong = 2150;
  const std::vector<int64_t> widths = {500, 400, 200, 1, 9, 1, 500, 500, 1, 3};
  for (const size_t m : {0, 2}) {
    const std::vector<int32_t> tokens = random_tokens(models_[m].shape(), kLong, 103);
    const auto one = make_cpu_backend("", 1);
    const Result want = decode(*one, models_[m], tokens, widths, kv_[m], kv_[m]);
    for (const int threads : {2, 5}) {
      const auto team = make_cpu_backend("", threads);
      const Result got = decode(*team, models_[m], tokens, widths, kv_[m], kv_[m]);
      EXPECT_TRUE(same_bits(got.logits, want.logits) && same_bits(got.state, want.state))
          << "model " << m << ", threads " << threads;
    }
  }
}

TEST_F(BackendThreads, BackendsSideBySideShareNothing) {
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([this] { check(*make_cpu_backend("", 2)); });
  }
  for (std::thread& caller : callers) caller.join();
}

// A backend used from another thread than the one that made it.
TEST_F(BackendThreads, TheCallerMayBeAnotherThread) {
  const auto backend = make_cpu_backend("", 3);
  check(*backend);
  std::thread([&] { check(*backend); }).join();
}

}  // namespace
}  // namespace lockstep::kernels::test
