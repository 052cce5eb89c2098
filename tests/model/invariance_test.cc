// Contract E1 on whole models: the logits of a position, and what the state holds after it, are the
// same bits however the rows before it were cut into passes, whatever was drafted and rejected
// between, for any number of threads, either instruction set, and beside other sequences.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "runner.h"
#include "sanitized.h"
#include "tiny_model.h"

namespace lockstep::model {
namespace {

using state::KvType;
using Rows = std::vector<std::vector<float>>;

constexpr int64_t kPositions = 140;  // three pages

struct Case {
  std::string name;
  TinyShape shape;
  std::function<void(TinyModel&)> change;
  KvType k_type = KvType::f16, v_type = KvType::f16;
};

std::vector<Case> cases() {
  using gguf::TensorType;
  std::vector<Case> list;
  TinyShape llama;
  llama.n_embd = 64;
  llama.n_ff = 96;
  llama.head_dim = 32;
  TinyShape gemma = llama;
  gemma.architecture = "gemma3";
  gemma.n_layer = 3;
  const auto window = [](uint32_t size) {
    return [size](TinyModel& m) {
      m.u32("attention.sliding_window", size);
      m.bools("attention.sliding_window_pattern", {true, false, true});
    };
  };
  const auto with_type = [](TinyShape shape, TensorType type) {
    shape.type = type;
    if (gguf::type_info(type).block_elements == 256) {
      shape.n_embd = shape.n_ff = 256;
      shape.head_dim = 64;
    }
    return shape;
  };
  for (const TensorType type :
       {TensorType::f32, TensorType::f16, TensorType::bf16, TensorType::q4_0, TensorType::q4_1,
        TensorType::q5_0, TensorType::q5_1, TensorType::q8_0, TensorType::q2_k, TensorType::q3_k,
        TensorType::q4_k, TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl,
        TensorType::iq4_xs, TensorType::mxfp4}) {
    const std::string name(gguf::type_info(type).name);
    list.push_back({"llama " + name, with_type(llama, type), nullptr});
    list.push_back({"gemma3 window 100 " + name, with_type(gemma, type), window(100)});
  }
  llama.type = gemma.type = TensorType::q8_0;
  for (const KvType type : {KvType::f32, KvType::q8_0, KvType::q4_0}) {
    list.push_back(
        {std::string("llama KV ") + kernels::kv_type_name(type), llama, nullptr, type, type});
    list.push_back({std::string("gemma3 window 70 KV ") + kernels::kv_type_name(type), gemma,
                    window(70), type, type});
  }
  list.push_back({"llama K q8_0 V f16", llama, nullptr, KvType::q8_0, KvType::f16});
  list.push_back({"llama K q8_0 V q4_0", llama, nullptr, KvType::q8_0, KvType::q4_0});
  for (const uint32_t size : {1u, 5u, 64u, 128u}) {
    list.push_back({"gemma3 window " + std::to_string(size), gemma, window(size)});
  }
  const auto scaling = [](const std::string& kind) {
    return [kind](TinyModel& m) {
      m.text("rope.scaling.type", kind);
      m.f32("rope.scaling.factor", 4.0f);
      m.u32("rope.scaling.original_context_length", 64);
    };
  };
  for (const char* kind : {"none", "linear", "llama3", "yarn"}) {
    list.push_back({std::string("llama rope ") + kind, llama, scaling(kind)});
    list.push_back({std::string("gemma3 rope ") + kind, gemma, scaling(kind)});
  }
  list.push_back(
      {"llama rope factors", llama, [](TinyModel& m) { m.vector("rope_freqs.weight", 16, 1, 8); }});
  list.push_back({"gemma3 capped logits", gemma,
                  [](TinyModel& m) { m.f32("final_logit_softcapping", 2.0f); }});
  // Biases and pairs of halves; head norms without the rest of gemma3.
  for (const char* architecture : {"qwen2", "qwen3"}) {
    TinyShape qwen = llama;
    qwen.architecture = architecture;
    const std::string name(architecture);
    for (const TensorType type : {TensorType::f16, TensorType::q8_0, TensorType::q4_k}) {
      list.push_back(
          {name + " " + std::string(gguf::type_info(type).name), with_type(qwen, type), nullptr});
    }
    list.push_back(
        {name + " rope yarn, KV q8_0", qwen, scaling("yarn"), KvType::q8_0, KvType::q8_0});
  }
  if (!lockstep::test::kSanitized) return list;
  std::vector<Case> some;  // an odd step, so that both of the architectures that alternate stay
  for (size_t i = 0; i < list.size(); i += 7) some.push_back(list[i]);
  return some;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Outcome {
  Rows logits;
  Digest state;
};

// Everything one row at a time on the scalar kernels: what all else is compared with. Kept, because
// several tests want it.
const Outcome& plain(const std::shared_ptr<const Model>& model, const Case& c,
                     const std::vector<int32_t>& tokens) {
  static std::map<std::pair<std::string, std::vector<int32_t>>, Outcome> kept;
  if (const auto found = kept.find({c.name, tokens}); found != kept.end()) return found->second;
  Runner runner(model, kernels::make_cpu_backend("scalar", 1), c.k_type, c.v_type, 1000);
  Outcome outcome;
  outcome.logits = runner.history(tokens, 1);
  outcome.state = runner.cache().hash();
  return kept[{c.name, tokens}] = std::move(outcome);
}

void expect_same(const Outcome& got, const Outcome& want, const std::string& what) {
  ASSERT_EQ(got.logits.size(), want.logits.size()) << what;
  for (size_t p = 0; p < want.logits.size(); ++p) {
    ASSERT_TRUE(same_bits(got.logits[p], want.logits[p])) << what << ": logits of position " << p;
  }
  EXPECT_EQ(got.state, want.state) << what << ": state";
}

TEST(Invariance, ChunksThreadsAndInstructionSets) {
  int64_t runs = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    TinyModel tiny(c.shape);
    if (c.change) c.change(tiny);
    const auto model = tiny.load();
    const auto tokens = random_tokens(kPositions, c.shape.n_vocab, 11);
    const Outcome& want = plain(model, c, tokens);
    struct How {
      const char* isa;
      int threads;
      size_t chunk;
    };
    for (const How how : {How{"scalar", 1, 300}, How{"scalar", 3, 17}, How{"", 1, 1}, How{"", 2, 8},
                          How{"", 2, 64}, How{"", 3, 300}}) {
      Runner runner(model, kernels::make_cpu_backend(how.isa, how.threads), c.k_type, c.v_type,
                    1000);
      Outcome got;
      got.logits = runner.history(tokens, how.chunk);
      got.state = runner.cache().hash();
      expect_same(got, want,
                  std::string("isa \"") + how.isa + "\", threads " + std::to_string(how.threads) +
                      ", chunk " + std::to_string(how.chunk));
      ++runs;
    }
  }
  std::printf("%zu models, %lld runs of %lld positions, equal by bits\n", cases().size(),
              static_cast<long long>(runs), static_cast<long long>(kPositions));
}

// A pass of 1 + n rows whose drafts are right up to a random place and wrong from there on; between
// passes now and then a truncate, a snapshot, a restore.
TEST(Invariance, DraftsThatAreRejectedLeaveNoTrace) {
  int64_t drafted = 0, rejected = 0, restored = 0;
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    TinyModel tiny(c.shape);
    if (c.change) c.change(tiny);
    const auto model = tiny.load();
    const auto tokens = random_tokens(kPositions, c.shape.n_vocab, 11);
    const Outcome& want = plain(model, c, tokens);
    std::mt19937_64 random(5);
    Runner runner(model, kernels::make_cpu_backend("", 2), c.k_type, c.v_type, 1000);
    Outcome got;
    std::shared_ptr<const state::KvCache::Snapshot> saved;
    size_t saved_size = 0;
    while (got.logits.size() < tokens.size()) {
      const size_t at = got.logits.size(), left = tokens.size() - at;
      const size_t width = 1 + random() % 16, right = std::min(left, 1 + random() % width);
      std::vector<int32_t> rows(tokens.begin() + static_cast<int64_t>(at),
                                tokens.begin() + static_cast<int64_t>(at + right));
      while (rows.size() < width) {
        rows.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(c.shape.n_vocab)));
      }
      Runner::Result result = runner.pass(rows, 0, static_cast<int64_t>(right));
      ASSERT_TRUE(result.faults.empty());
      for (size_t i = 0; i < right; ++i) got.logits.push_back(std::move(result.logits[i]));
      drafted += static_cast<int64_t>(rows.size()) - 1;
      rejected += static_cast<int64_t>(rows.size() - right);
      const auto size = static_cast<size_t>(runner.cache().size());
      switch (random() % 16) {
        case 0: {  // back to where the state still reaches, and again from there
          const int64_t back = runner.cache().reusable(
              static_cast<int64_t>(size - std::min<size_t>(size, random() % 20)));
          if (back == 0) break;
          runner.cache().truncate(back);
          got.logits.resize(static_cast<size_t>(back));
          break;
        }
        case 1:
          saved = runner.cache().snapshot();
          saved_size = size;
          break;
        case 2:
          if (!saved) break;
          runner.cache().restore(saved);
          got.logits.resize(saved_size);
          if (random() % 2 == 0) saved.reset();
          ++restored;
          break;
        default:
          break;
      }
    }
    got.state = runner.cache().hash();
    expect_same(got, want, "speculated");
  }
  std::printf("%lld rows drafted, %lld rejected, %lld restores\n", static_cast<long long>(drafted),
              static_cast<long long>(rejected), static_cast<long long>(restored));
}

TEST(Invariance, NeighboursInThePassDoNotMatter) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    TinyModel tiny(c.shape);
    if (c.change) c.change(tiny);
    const auto model = tiny.load();
    const auto backend = kernels::make_cpu_backend("", 2);
    const auto a = random_tokens(70, c.shape.n_vocab, 17),
               b = random_tokens(70, c.shape.n_vocab, 19);
    const Outcome &want_a = plain(model, c, a), &want_b = plain(model, c, b);
    state::KvCache cache_a(model->kv_spec(c.k_type, c.v_type, 1000), nullptr);
    state::KvCache cache_b(model->kv_spec(c.k_type, c.v_type, 1000), nullptr);
    size_t at_a = 0, at_b = 0;
    while (at_a < a.size() || at_b < b.size()) {
      // a in steps of 5, b in steps of 2 and only its last row's logits.
      const size_t n_a = std::min<size_t>(5, a.size() - at_a),
                   n_b = std::min<size_t>(2, b.size() - at_b);
      kernels::Pass pass;
      if (n_b > 0) {
        pass.segments.push_back({std::span(b).subspan(at_b, n_b), static_cast<int64_t>(at_b),
                                 cache_b.append(static_cast<int64_t>(n_b)),
                                 static_cast<int64_t>(n_b) - 1});
      }
      if (n_a > 0) {
        pass.segments.push_back({std::span(a).subspan(at_a, n_a), static_cast<int64_t>(at_a),
                                 cache_a.append(static_cast<int64_t>(n_a)), 0});
      }
      const auto n_vocab = static_cast<size_t>(c.shape.n_vocab);
      std::vector<float> logits(((n_b > 0 ? 1 : 0) + n_a) * n_vocab);
      pass.logits = logits;
      backend->run(model->graph(), pass);
      ASSERT_TRUE(pass.faults.empty());
      const auto row = [&](size_t i) {
        return std::vector<float>(logits.begin() + static_cast<int64_t>(i * n_vocab),
                                  logits.begin() + static_cast<int64_t>((i + 1) * n_vocab));
      };
      size_t next = 0;
      if (n_b > 0) {
        ASSERT_TRUE(same_bits(row(next++), want_b.logits[at_b + n_b - 1])) << "b at " << at_b;
      }
      for (size_t i = 0; i < n_a; ++i) {
        ASSERT_TRUE(same_bits(row(next++), want_a.logits[at_a + i])) << "a at " << at_a + i;
      }
      if (n_a > 0) cache_a.commit(static_cast<int64_t>(n_a));
      if (n_b > 0) cache_b.commit(static_cast<int64_t>(n_b));
      at_a += n_a;
      at_b += n_b;
    }
    EXPECT_EQ(cache_a.hash(), want_a.state);
    EXPECT_EQ(cache_b.hash(), want_b.state);
  }
}

// The comparisons above see one flipped bit of one op of one row.
TEST(Invariance, APlantedBitIsSeen) {
  int seen = 0, planted = 0;
  for (const char* architecture : {"llama", "gemma3", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    TinyShape shape;
    shape.architecture = architecture;
    const TinyModel tiny(shape);
    const auto model = tiny.load();
    const auto tokens = random_tokens(20, 61, 23);
    const Case c{std::string("planted ") + architecture, shape, nullptr};
    const Outcome& want = plain(model, c, tokens);
    const auto n_ops = static_cast<int>(model->graph().ops.size());
    planted += n_ops;
    for (int op = 0; op < n_ops; ++op) {
      state::KvCache cache(model->kv_spec(KvType::f16, KvType::f16, 1000), nullptr);
      kernels::Plant plant;
      plant.op = op;
      plant.position = 12;
      plant.element = 3;
      plant.bit = std::holds_alternative<kernels::op::KvWrite>(
                      model->graph().ops[static_cast<size_t>(op)].args)
                      ? 7
                      : 22;
      std::vector<float> logits(20 * 61);
      kernels::Pass pass;
      pass.segments.push_back({tokens, 0, cache.append(20), 0});
      pass.plant = &plant;
      pass.logits = logits;
      kernels::make_cpu_backend("", 1)->run(model->graph(), pass);
      cache.commit(20);
      EXPECT_TRUE(plant.done) << model->graph().ops[static_cast<size_t>(op)].name;
      bool differs = cache.hash() != want.state;
      for (size_t p = 0; p < 20; ++p) {
        const bool equal =
            std::memcmp(want.logits[p].data(), logits.data() + p * 61, 61 * sizeof(float)) == 0;
        EXPECT_TRUE(equal || p >= 12) << "an earlier position changed";
        differs |= !equal;
      }
      EXPECT_TRUE(differs) << model->graph().ops[static_cast<size_t>(op)].name;
      seen += differs;
    }
  }
  std::printf("%d of %d planted bits seen\n", seen, planted);
}

}  // namespace
}  // namespace lockstep::model
