// Which ops of a graph become one launch: every op once and in order, and nothing that a later op
// reads is left unstored.
#include "kernels/cuda/steps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "../pass_runner.h"

namespace lockstep::kernels::cuda {
namespace {

using namespace kernels::test;  // NOLINT: the helpers of tests/kernels

std::vector<int> ops_of(const Step& any) {
  std::vector<int> ops;
  const auto add = [&](int op) {
    if (op >= 0) ops.push_back(op);
  };
  if (const auto* single = std::get_if<step::Single>(&any)) add(single->op);
  if (const auto* chain = std::get_if<step::RowChain>(&any)) {
    for (const int op :
         {chain->embed, chain->branch_norm, chain->add, chain->select, chain->norm}) {
      add(op);
    }
  }
  if (const auto* linear = std::get_if<step::Linear>(&any)) add(linear->op);
  const auto add_heads = [&](const step::Heads& heads) {
    for (const int op : {heads.q_norm, heads.k_norm, heads.rope_q, heads.rope_k, heads.kv_write}) {
      add(op);
    }
  };
  if (const auto* heads = std::get_if<step::Heads>(&any)) add_heads(*heads);
  if (const auto* attention = std::get_if<step::Attention>(&any)) {
    if (attention->heads) add_heads(*attention->heads);
    add(attention->op);
  }
  if (const auto* act = std::get_if<step::GatedAct>(&any)) add(act->op);
  std::sort(ops.begin(), ops.end());
  return ops;
}

void expect_all_ops_in_order(const Graph& graph) {
  int next = 0;
  for (const Step& any : steps_of(graph)) {
    for (const int op : ops_of(any)) EXPECT_EQ(op, next++);
  }
  EXPECT_EQ(next, static_cast<int>(graph.ops.size()));
}

TEST(CudaSteps, TakeEveryOpOnceAndInOrder) {
  ModelShape llama;
  llama.type = TensorType::q4_1;
  expect_all_ops_in_order(TestModel(llama, 1).graph());
  ModelShape gemma = llama;
  gemma.gemma = true;
  gemma.type = TensorType::q4_k;
  gemma.window = 40;
  gemma.softcap = 20.0f;
  expect_all_ops_in_order(TestModel(gemma, 2).graph());
  ModelShape qwen3 = llama;
  qwen3.halves = qwen3.head_norms = true;
  expect_all_ops_in_order(TestModel(qwen3, 3).graph());
}

TEST(CudaSteps, ALayerOfLlamaIsEightSteps) {
  ModelShape shape;
  shape.type = TensorType::q8_0;
  const TestModel model(shape, 4);
  const auto steps = steps_of(model.graph());
  // Chain, qkv, attention with its heads, output, chain, gate and up, activation, down; each
  // layer's first chain has the last addition of the layer before it. At the end: the last
  // addition, the selection of rows, a norm in place, which nothing joins, and the output matrix,
  // which quantises for itself.
  EXPECT_EQ(steps.size(), 8 * static_cast<size_t>(shape.n_layer) + 4);
  int alone = 0, unquantised = 0;
  for (const Step& any : steps) {
    alone += std::holds_alternative<step::Single>(any);
    if (const auto* linear = std::get_if<step::Linear>(&any)) unquantised += !linear->quantised;
    if (const auto* chain = std::get_if<step::RowChain>(&any)) {
      EXPECT_FALSE(chain->norm >= 0 && chain->keep_x);
    }
  }
  EXPECT_EQ(alone, 1);
  EXPECT_EQ(unquantised, 1);
}

TEST(CudaSteps, WhatIsReadLaterIsKept) {
  ModelShape shape;
  shape.type = TensorType::q8_0;
  const TestModel model(shape, 5);
  Graph graph = model.graph();
  // The first norm's output once more, at the end, before anything wrote to it again.
  const auto* norm = std::get_if<op::RmsNorm>(&graph.ops[1].args);
  ASSERT_NE(norm, nullptr);
  const auto* linear = std::get_if<op::Linear>(&graph.ops[2].args);
  ASSERT_NE(linear, nullptr);
  Op reader;
  reader.args.emplace<op::Add>(linear->outs[0].out, norm->out, linear->outs[0].out);
  reader.layer = 0;
  reader.name = "reader";
  graph.ops.insert(graph.ops.begin() + 3, reader);
  const auto steps = steps_of(graph);
  const auto* chain = std::get_if<step::RowChain>(&steps.front());
  ASSERT_NE(chain, nullptr);
  EXPECT_EQ(chain->norm, 1);
  EXPECT_TRUE(chain->keep_x);
  expect_all_ops_in_order(graph);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
