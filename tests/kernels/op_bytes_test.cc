// Bytes of every op, by its contract, worked out by hand for one small graph.
#include "kernels/op_bytes.h"

#include <gtest/gtest.h>

#include <string>

#include "test_model.h"

namespace lockstep::kernels {
namespace {

using test::ModelShape;
using test::TestModel;

OpBytes named(const Graph& graph, const std::string& name, int layer, const PassShape& shape) {
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (graph.ops[i].name == name && graph.ops[i].layer == layer) {
      return op_bytes(graph, static_cast<int>(i), shape);
    }
  }
  ADD_FAILURE() << "no op " << name;
  return {};
}

void expect(const OpBytes& bytes, int64_t weights, int64_t kv, int64_t activations) {
  EXPECT_EQ(bytes.weights, weights);
  EXPECT_EQ(bytes.kv, kv);
  EXPECT_EQ(bytes.activations, activations);
  EXPECT_EQ(bytes.total(), weights + kv + activations);
}

TEST(OpBytes, FollowTheContracts) {
  ModelShape s;  // 256 wide, 4 heads of 64, 2 KV heads, ff 512, vocabulary 97, Q4_0, head Q8_0
  s.bias = true;
  s.softcap = 30.0f;
  const TestModel model(s, 1);
  const Graph& g = model.graph();
  const PassShape p{
      .rows = 3, .depth = 100, .logits_rows = 2, .k_type = KvType::f16, .v_type = KvType::q8_0};
  const int64_t q4_row = 256 / 32 * 18, q8_row = 256 / 32 * 34, x_row = 256 + 8 * 4 + 8 * 4;

  expect(named(g, "embed", -1, p), 3 * q8_row, 0, 3 * 1024);
  expect(named(g, "attn_norm", 0, p), 1024, 0, 3 * 256 * 8);
  // Three products of one input, quantised once: Q4_0 and Q8_0 read the same form.
  expect(named(g, "qkv", 0, p), 256 * (q4_row + 4) + 128 * (q4_row + 4) + 128 * (q8_row + 4), 0,
         3 * (1024 + x_row) + 3 * 3 * x_row + 3 * 4 * 512);
  expect(named(g, "q_rope", 0, p), 0, 0, 3 * (4 * 64 * 8 + 64 * 4));
  const int64_t kv_row = 64 * 2 + 64 / 32 * 34;  // K in f16, V in q8_0
  expect(named(g, "kv_write", 0, p), 0, 0, 3 * 2 * (8 * 64 + kv_row));
  // One tile: positions 0 to 102, once for each KV head.
  expect(named(g, "attention", 1, p), 0, 103 * 2 * kv_row, 3 * 256 * 8);
  expect(named(g, "attn_add", 1, p), 0, 0, 3 * 256 * 12);
  expect(named(g, "ffn_act", 1, p), 0, 0, 3 * 512 * 12);
  // After the selection two rows go on.
  expect(named(g, "select", -1, p), 0, 0, 2 * 256 * 8);
  expect(named(g, "logits", -1, p), 97 * q8_row, 0, 2 * (1024 + x_row) + 2 * x_row + 2 * 4 * 97);
  expect(named(g, "cap", -1, p), 0, 0, 2 * 97 * 8);
}

TEST(OpBytes, FloatWeightsAreReadAsTheyAre) {
  ModelShape s;
  s.type = TensorType::f16;
  const TestModel model(s, 1);
  expect(named(model.graph(), "ffn_out", 0, {.rows = 5, .logits_rows = 5}), 256 * 512 * 2, 0,
         5 * 4 * (512 + 256));
}

TEST(OpBytes, TilesReadTheirKeysOnceAndWindowsCutThem) {
  ModelShape s;
  s.gemma = true;
  s.window = 10;  // layer 0; layer 1 sees all
  const TestModel model(s, 1);
  const int64_t position = 2 * 2 * 64 * 2;  // two KV heads, K and V in f16
  PassShape p{.rows = 11, .depth = 50, .logits_rows = 11};
  // Rows 50 to 57 and 58 to 60.
  EXPECT_EQ(named(model.graph(), "attention", 1, p).kv, (58 + 61) * position);
  EXPECT_EQ(named(model.graph(), "attention", 0, p).kv, ((57 - 41 + 1) + (60 - 49 + 1)) * position);
  p = {.rows = 1, .depth = 3, .logits_rows = 1};
  EXPECT_EQ(named(model.graph(), "attention", 0, p).kv, 4 * position);
}

TEST(OpBytes, APassIsTheSumOfItsOps) {
  const TestModel model(ModelShape{}, 1);
  const PassShape p{.rows = 9, .depth = 70, .logits_rows = 9};
  OpBytes sum;
  for (size_t i = 0; i < model.graph().ops.size(); ++i) {
    sum += op_bytes(model.graph(), static_cast<int>(i), p);
  }
  EXPECT_EQ(pass_bytes(model.graph(), p).total(), sum.total());
  EXPECT_GT(sum.kv, 0);
}

TEST(OpBytes, WithoutLogitsTheOutputMatrixIsNotRead) {
  const TestModel model(ModelShape{}, 1);
  expect(named(model.graph(), "logits", -1, {.rows = 9}), 0, 0, 0);
}

TEST(OpBytes, EveryKindHasItsName) {
  EXPECT_EQ(op_kind_name(op::Embed{}), "embed");
  EXPECT_EQ(op_kind_name(op::Linear{}), "linear");
  EXPECT_EQ(op_kind_name(op::SelectRows{}), "select_rows");
  EXPECT_EQ(op_kind_name(op::Softcap{}), "softcap");
}

}  // namespace
}  // namespace lockstep::kernels
