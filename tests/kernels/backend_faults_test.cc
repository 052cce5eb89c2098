// Faults, planted bits, observers and refusals of the CPU backend.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "harness.h"
#include "test_model.h"

namespace lockstep::kernels::test {
namespace {

const std::vector<int32_t> kTokens = {5, 17, 3, 80, 41, 2};

struct Ran {
  std::vector<float> logits;
  std::vector<std::byte> state;
  std::vector<PassFault> faults;
};

Ran run_all(Backend& backend, const TestModel& model, Plant* plant = nullptr) {
  TestState state(model.shape(), 6, KvType::f16, KvType::f16);
  Ran ran;
  ran.logits.resize(static_cast<size_t>(6 * model.graph().n_vocab));
  Pass pass;
  pass.segments.push_back({kTokens, 0, state.views(), 0});
  pass.logits = ran.logits;
  pass.plant = plant;
  backend.run(model.graph(), pass);
  ran.faults = pass.faults;
  ran.state = state.contents();
  return ran;
}

int op_named(const Graph& graph, const std::string& name, int layer) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].name == name && graph.ops[i].layer == layer) return static_cast<int>(i);
  }
  ADD_FAILURE() << name;
  return -1;
}

TEST(BackendFaults, TheFirstOpThatFoundOneIsNamed) {
  const TestModel model({}, 91);
  const Graph& graph = model.graph();
  struct Case {
    const char* op;  // whose output gets an infinity
    int layer;
    const char* named;
    int named_layer;
  };
  // The outputs that have elements in [1, 2), which the top bit of the exponent makes infinite or
  // NaN; the ops that never see one here have their faults tested alone (elementwise_test.cc …).
  const Case cases[] = {
      {"embed", -1, "attn_norm", 0}, {"attn_norm", 0, "qkv", 0}, {"k_rope", 1, "kv_write", 1},
      {"ffn_norm", 1, "ffn_in", 1},  {"ffn_add", 1, "norm", -1}, {"norm", -1, "logits", -1},
      {"logits", -1, "logits", -1},
  };
  for (const int threads : {1, 3}) {
    const auto backend = make_cpu_backend("", threads);
    const Ran clean = run_all(*backend, model);
    EXPECT_TRUE(clean.faults.empty());
    for (const Case& c : cases) {
      bool found = false;
      for (int64_t element = 0; element < 64 && !found; ++element) {
        Plant plant{op_named(graph, c.op, c.layer), 3, element, 30};
        const Ran ran = run_all(*backend, model, &plant);
        ASSERT_TRUE(plant.done);
        for (const PassFault& fault : ran.faults) {
          EXPECT_GE(fault.row, 3) << "rows before the planted one can't see it";
          found |= fault.row == 3 && graph.ops[static_cast<size_t>(fault.op)].name == c.named &&
                   graph.ops[static_cast<size_t>(fault.op)].layer == c.named_layer;
        }
        EXPECT_TRUE(same_bits(ran.logits.data(), clean.logits.data(), 3 * graph.n_vocab));
        std::set<int64_t> rows;
        for (const PassFault& fault : ran.faults) EXPECT_TRUE(rows.insert(fault.row).second);
      }
      EXPECT_TRUE(found) << c.op << " should lead to a fault of " << c.named;
    }
  }
}

TEST(BackendPlant, EveryOpTakesOneAndItChangesWhatFollowsOnly) {
  ModelShape shape;
  shape.gemma = true;
  shape.softcap = 30.0f;
  const TestModel model(shape, 92);
  const Graph& graph = model.graph();
  Control control("a planted bit");
  for (const int threads : {1, 2}) {
    const auto backend = make_cpu_backend("", threads);
    const Ran clean = run_all(*backend, model);
    for (int op = 0; op < static_cast<int>(graph.ops.size()); ++op) {
      const bool kv = std::holds_alternative<op::KvWrite>(graph.ops[static_cast<size_t>(op)].args);
      Plant plant{op, 2, 9, kv ? 6 : 22};
      const Ran ran = run_all(*backend, model, &plant);
      EXPECT_TRUE(plant.done) << op;
      EXPECT_TRUE(same_bits(ran.logits.data(), clean.logits.data(), 2 * graph.n_vocab)) << op;
      control.trial(!same_bits(ran.logits, clean.logits));
      // And the next pass is clean again.
      EXPECT_TRUE(same_bits(run_all(*backend, model).logits, clean.logits)) << op;
    }
    Plant nowhere{0, 6, 0, 0};
    run_all(*backend, model, &nowhere);
    EXPECT_FALSE(nowhere.done);
    Plant too_far{0, 1, 1 << 20, 0};
    run_all(*backend, model, &too_far);
    EXPECT_FALSE(too_far.done);
  }
  EXPECT_TRUE(control.seen(0.9));
}

TEST(BackendPlant, KvBytesAreCountedKThenVHeadsInOrder) {
  const TestModel model({}, 93);
  const auto backend = make_cpu_backend("", 1);
  const int op = op_named(model.graph(), "kv_write", 1);
  const Ran clean = run_all(*backend, model);
  const int64_t row = kv_row_bytes(KvType::f16, 64), page = 2 * 64 * row;  // two heads
  for (const bool is_v : {false, true}) {
    for (const int64_t head : {0, 1}) {
      Plant plant{op, 4, (is_v ? 2 * row : 0) + head * row + 5, 3};
      const Ran ran = run_all(*backend, model, &plant);
      ASSERT_TRUE(plant.done);
      // Pages in order of creation: layer 0 K, V, layer 1 K, V.
      const auto at = static_cast<size_t>((is_v ? 3 : 2) * page + (head * 64 + 4) * row + 5);
      EXPECT_EQ(ran.state[at] ^ clean.state[at], std::byte{8});
    }
  }
}

struct Recorder : OpObserver {
  std::vector<std::pair<int, int64_t>> calls;
  bool fails = false;
  void on_op(int op_index, double milliseconds, int64_t rows) override {
    EXPECT_GE(milliseconds, 0.0);
    calls.emplace_back(op_index, rows);
    if (fails) throw std::runtime_error("observer");
  }
};

TEST(BackendObserver, SeesEveryOpOnceInOrder) {
  const TestModel model({}, 94);
  for (const int threads : {1, 3}) {
    const auto backend = make_cpu_backend("", threads);
    Recorder recorder;
    backend->set_observer(&recorder);
    TestState state(model.shape(), 6, KvType::f16, KvType::f16);
    std::vector<float> logits(static_cast<size_t>(2 * model.graph().n_vocab));
    Pass pass;
    pass.segments.push_back({kTokens, 0, state.views(), 4});
    pass.logits = logits;
    backend->run(model.graph(), pass);
    ASSERT_EQ(recorder.calls.size(), model.graph().ops.size());
    for (size_t i = 0; i < recorder.calls.size(); ++i) {
      EXPECT_EQ(recorder.calls[i].first, static_cast<int>(i));
      EXPECT_EQ(recorder.calls[i].second, i + 3 < recorder.calls.size() ? 6 : 2);
    }
    recorder.fails = true;
    EXPECT_THROW(backend->run(model.graph(), pass), std::runtime_error);
    backend->set_observer(nullptr);
    backend->run(model.graph(), pass);
  }
}

TEST(BackendRows, APassMayWantNoLogitsOrHaveNoRows) {
  const TestModel model({}, 95);
  const auto backend = make_cpu_backend("", 2);
  const Ran clean = run_all(*backend, model);
  TestState state(model.shape(), 6, KvType::f16, KvType::f16);
  Pass none;
  backend->run(model.graph(), none);
  Pass empty;
  empty.segments.push_back({std::span(kTokens).subspan(0, 0), 0, state.views(), 0});
  backend->run(model.graph(), empty);
  Pass prompt;
  prompt.segments.push_back({std::span(kTokens).subspan(0, 5), 0, state.views(), 5});
  backend->run(model.graph(), prompt);
  std::vector<float> logits(static_cast<size_t>(model.graph().n_vocab));
  Pass last;
  last.segments.push_back({std::span(kTokens).subspan(5, 1), 5, state.views(), 0});
  last.logits = logits;
  backend->run(model.graph(), last);
  EXPECT_TRUE(same_bits(logits.data(), clean.logits.data() + 5 * model.graph().n_vocab,
                        model.graph().n_vocab));
  EXPECT_TRUE(same_bits(state.contents(), clean.state));
}

template <typename Function>
void expect_error(Function&& run, const std::string& words) {
  try {
    run();
    ADD_FAILURE() << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_use);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(BackendErrors, NameWhatDoesNotFit) {
  const TestModel model({}, 96);
  const auto backend = make_cpu_backend("", 1);
  TestState state(model.shape(), 6, KvType::f16, KvType::f16);
  std::vector<float> logits(static_cast<size_t>(6 * model.graph().n_vocab));
  const auto run = [&](const std::vector<int32_t>& tokens, int64_t position, size_t logits_size) {
    Pass pass;
    pass.segments.push_back({tokens, position, state.views(), 0});
    pass.logits = std::span(logits).subspan(0, logits_size);
    backend->run(model.graph(), pass);
  };
  const auto row = static_cast<size_t>(model.graph().n_vocab);
  expect_error([&] { run({1, 97}, 0, 2 * row); }, "token 97 is outside");
  expect_error([&] { run({-1}, 0, row); }, "token -1 is outside");
  expect_error([&] { run({1}, 64, row); }, "no pages");
  expect_error([&] { run({1, 2}, 0, row); }, "logits");
  expect_error([] { make_cpu_backend("avx9", 1); }, "avx9");
  EXPECT_EQ(make_cpu_backend("scalar", 2)->info().isa, "scalar");
  EXPECT_EQ(make_cpu_backend("scalar", 2)->info().threads, 2);
}

}  // namespace
}  // namespace lockstep::kernels::test
