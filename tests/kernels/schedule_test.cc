// Which ops share a phase: fewer phases are fewer hand-overs, but a chain must never hold an op
// that reads other rows than its own.
#include "kernels/cpu/schedule.h"

#include <gtest/gtest.h>

#include "test_model.h"

namespace lockstep::kernels::test {
namespace {

std::string names(const Graph& graph, const Phase& phase) {
  std::string out;
  const auto add = [&](const std::string& name) { out += (out.empty() ? "" : " ") + name; };
  if (phase.rope_tables) add("(angles)");
  for (int i = phase.first_op; i < phase.end_op; ++i) {
    const Op& op = graph.ops[static_cast<size_t>(i)];
    const char* kinds[] = {"embed",     "norm", "product", "rope",   "kv_write",
                           "attention", "add",  "act",     "select", "softcap"};
    add(kinds[op.args.index()]);
  }
  if (phase.quantise_for >= 0) add("(quantise)");
  if (phase.check_logits) add("(check)");
  return out;
}

std::vector<std::string> phases(const Graph& graph, bool fuse) {
  std::vector<std::string> out;
  for (const Phase& phase : make_schedule(graph, fuse)) out.push_back(names(graph, phase));
  return out;
}

TEST(Schedule, ChainsWhatWorksRowByRow) {
  ModelShape shape;
  shape.type = TensorType::q8_0;
  shape.n_layer = 1;
  const TestModel model(shape, 5);
  const std::vector<std::string> want = {
      "(angles) embed norm (quantise)",
      "product",
      "rope rope kv_write",
      "attention",
      "(quantise)",
      "product",
      "add norm (quantise)",
      "product",
      "act (quantise)",
      "product",
      "add",
      "select norm (quantise)",
      "product",
      "(check)",
  };
  EXPECT_EQ(phases(model.graph(), true), want);
}

// Unfused, every op is in a phase of its own, and none is lost.
TEST(Schedule, UnfusedHoldsEveryOpOnce) {
  for (const bool gemma : {false, true}) {
    ModelShape shape;
    shape.gemma = gemma;
    if (gemma) shape.softcap = 20.0f;
    const TestModel model(shape, 6);
    for (const bool fuse : {false, true}) {
      std::vector<int> seen(model.graph().ops.size(), 0);
      int last = 0;
      for (const Phase& phase : make_schedule(model.graph(), fuse)) {
        EXPECT_GE(phase.first_op, last);
        if (!fuse) {
          EXPECT_LE(phase.end_op - phase.first_op, 1);
        }
        for (int i = phase.first_op; i < phase.end_op; ++i) ++seen[static_cast<size_t>(i)];
        last = phase.end_op;
      }
      for (const int times : seen) EXPECT_EQ(times, 1);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
