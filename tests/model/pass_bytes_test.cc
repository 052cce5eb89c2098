// Two counts of what a pass has to read agree: the model's own, and the sum over its ops.
#include <gtest/gtest.h>

#include "kernels/op_bytes.h"
#include "model/model.h"
#include "synth/synth.h"

namespace lockstep::model {
namespace {

TEST(PassBytes, OpsSumToWhatTheModelSays) {
  using kernels::KvType;
  for (const char* source : {"llama-tiny@q4_k_m", "llama-tiny,tied=true@f16", "gemma3-tiny@q4_0",
                             "qwen2-tiny@q8_0", "qwen3-tiny@q4_k"}) {
    const auto model = Model::load(synth::make_in_memory(synth::parse_synth(source)));
    for (const auto& [k_type, v_type] :
         {std::pair{KvType::f16, KvType::f16}, std::pair{KvType::q8_0, KvType::f32}}) {
      const state::KvSpec spec = model->kv_spec(k_type, v_type, 512);
      for (const int64_t depth : {0, 5, 31, 32, 200}) {
        for (const int64_t rows : {1, 7, 16}) {
          const kernels::PassShape shape{rows, depth, rows, k_type, v_type};
          EXPECT_EQ(kernels::pass_bytes(model->graph(), shape).weights,
                    model->weight_bytes_per_pass(rows))
              << source;
        }
        const kernels::PassShape one{1, depth, 1, k_type, v_type};
        EXPECT_EQ(kernels::pass_bytes(model->graph(), one).kv, model->kv_bytes_read(spec, depth))
            << source << " at " << depth;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::model
