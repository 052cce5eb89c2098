// Plain decoding against every source at every depth, over sampling, chunks, KV types and threads:
// same ids, same logits rows, same state, byte for byte.
#include <gtest/gtest.h>

#include <cstdio>

#include "arms.h"

namespace lockstep::decode::test {
namespace {

struct Sampling {
  const char* name;
  sample::Parameters parameters;
};

std::vector<Sampling> samplings() {
  std::vector<Sampling> all;
  for (const bool penalties : {false, true}) {
    for (const float temperature : {0.0f, 0.8f, 1.5f}) {
      Sampling s{penalties ? "penalties" : "no penalties", {}};
      s.parameters.temperature = temperature;
      s.parameters.seed = 42;
      if (penalties) {
        s.parameters.repeat_penalty = 1.2f;
        s.parameters.frequency_penalty = 0.1f;
        s.parameters.presence_penalty = 0.2f;
      }
      all.push_back(s);
    }
  }
  return all;
}

struct KvTypes {
  state::KvType k, v;
};

class Matrix : public ::testing::TestWithParam<std::tuple<const char*, KvTypes>> {};

TEST_P(Matrix, EverySourceAtEveryDepthEqualsPlain) {
  const auto& [spec, kv] = GetParam();
  const auto model = tiny_model(spec);
  const std::shared_ptr<kernels::Backend> backends[] = {kernels::make_cpu_backend("", 1),
                                                        kernels::make_cpu_backend("", 2),
                                                        kernels::make_cpu_backend("scalar", 1)};
  std::mt19937_64 rng(5);
  const Tokens prompt = random_prompt(rng, 75);  // past a page, past the window
  int64_t arms = 0, drafted = 0, accepted = 0;
  for (const Sampling& sampling : samplings()) {
    if (kSanitized && sampling.parameters.temperature != 0.8f) continue;
    SessionOptions options;
    options.sampling = sampling.parameters;
    options.k_type = kv.k;
    options.v_type = kv.v;
    options.max_tokens = 30;
    options.chunk = 1;
    Session plain_session(model, backends[2], options);
    const Trace plain = run(plain_session, prompt);
    ASSERT_EQ(plain.tokens.size(), 30u);
    const Tokens recording = joined(prompt, plain.tokens);
    for (const char* source :
         {"ngram", "suffix", "replay", "model", "other model", "replay+ngram", "ngram+model"}) {
      for (int depth = 1; depth <= 15; ++depth) {
        SessionOptions arm = options;
        const int64_t chunks[] = {1, 7, 64};
        arm.chunk = chunks[arms % 3];
        // The other KV types at some depths only; two threads, which on a busy machine wait for
        // each other more than they work, at one.
        if (kv.k != state::KvType::f16 && depth % 5 != 0 && depth != 1) continue;
        if (kSanitized && depth != 1 && depth != 10) continue;
        const auto& backend = backends[depth == 10 && sampling.parameters.temperature == 0.8f];
        arm.depth.n_max = depth;
        const std::string name = source;
        if (name == "ngram") arm.source = std::make_shared<draft::NgramSource>();
        if (name == "suffix") {
          arm.source = std::make_shared<draft::SuffixSource>(draft::SuffixOptions{.shortest = 1});
        }
        if (name == "replay") arm.source = replay_source(recording, 0.75);
        if (name == "model") {
          arm.source = std::make_shared<draft::ModelSource>(
              model, backend, kVocab, draft::ModelSourceOptions{.k_type = kv.k, .v_type = kv.v});
        }
        if (name == "replay+ngram") {
          // The recording ends half way, so that the lookup has to go on.
          arm.source = chained(replay_source(Tokens(recording.begin(), recording.end() - 15), 0.75),
                               std::make_shared<draft::NgramSource>(
                                   draft::NgramOptions{.longest = 2, .shortest = 1}));
        }
        if (name == "ngram+model") {
          arm.source = chained(std::make_shared<draft::NgramSource>(),
                               std::make_shared<draft::ModelSource>(model, backend, kVocab));
        }
        // Automatic depth up to some maximum, by time that makes no sense.
        if (depth == 4 || depth == 15) {
          arm.depth.automatic = true;
          arm.clock_ms = wild_clock(static_cast<uint64_t>(arms));
        }
        if (name == "other model") {
          arm.source =
              std::make_shared<draft::ModelSource>(tiny_model(kLlamaOther), backend, kVocab);
        }
        Session session(model, backend, arm);
        const Trace trace = run(session, prompt);
        const auto differs = difference(plain, trace);
        ASSERT_FALSE(differs) << *differs << " (" << source << ", depth " << depth << ", "
                              << sampling.name << ", T " << sampling.parameters.temperature
                              << ", chunk " << arm.chunk << ")";
        if (name == "model") {
          // The same model with the same noise: all is accepted.
          EXPECT_EQ(trace.draft.accepted, trace.draft.drafted);
          if (!arm.depth.automatic) {
            EXPECT_GT(trace.draft.drafted, 0);
          }
        }
        ++arms;
        drafted += trace.draft.drafted;
        accepted += trace.draft.accepted;
      }
    }
  }
  std::printf("%lld arms, %lld drafted, %lld accepted\n", static_cast<long long>(arms),
              static_cast<long long>(drafted), static_cast<long long>(accepted));
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, drafted);
}

INSTANTIATE_TEST_SUITE_P(
    Session, Matrix,
    ::testing::Combine(::testing::Values(kLlama, kGemma),
                       ::testing::Values(KvTypes{state::KvType::f16, state::KvType::f16},
                                         KvTypes{state::KvType::q8_0, state::KvType::q8_0},
                                         KvTypes{state::KvType::f32, state::KvType::q8_0},
                                         KvTypes{state::KvType::q4_0, state::KvType::q4_0})),
    [](const auto& instance) {
      return std::string(std::get<0>(instance.param) == kLlama ? "llama_" : "gemma3_") +
             kernels::kv_type_name(std::get<1>(instance.param).k) + "_" +
             kernels::kv_type_name(std::get<1>(instance.param).v);
    });

}  // namespace
}  // namespace lockstep::decode::test
