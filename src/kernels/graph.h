// A model's forward pass as data: a list of ops over named activation slots. Architectures
// (src/model) write it once at load; every backend runs the same list. One struct per op; the
// formula, shapes and Order of each are in ops/<op>.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/types.h"

namespace lockstep::kernels {

using Slot = int;  // index into Graph::slots

struct SlotInfo {
  std::string name;   // "h", "q", "ffn_gate", …
  int64_t width = 0;  // binary32 elements a row
};

enum class Activation : uint8_t { silu, gelu_tanh };

// How positions turn into rotary angles (law: Rotary).
struct RopeSpec {
  enum class Pairing : uint8_t { adjacent /* (2i, 2i+1) */, halves /* (i, i + n_rot/2), NeoX */ };
  enum class Scaling : uint8_t { none, linear, llama3, yarn };
  Pairing pairing = Pairing::adjacent;
  Scaling scaling = Scaling::none;
  int32_t n_rot = 0;  // rotated elements of a head, even, <= head_dim
  float base = 10000.0f;
  float linear_factor =
      1.0f;  // positions are divided by it (linear), or the context factor (yarn, llama3)
  std::vector<float> factors;  // per pair, from the file's rope_freqs tensor; empty: none
  // llama3 (Llama 3.1's rule), used only when the file has no factors tensor
  float low_freq_factor = 1.0f, high_freq_factor = 4.0f;
  // yarn
  float ext_factor = 1.0f, attn_factor = 1.0f, beta_fast = 32.0f, beta_slow = 1.0f;
  int64_t original_context = 0;
};

namespace op {
struct Embed {
  const Weight* table;
  float scale;
  Slot out;
};  // out = table[token]·scale
struct RmsNorm {
  Slot in, out;
  const float* weight;
  int64_t group;
  float eps;
};  // per group of `group` elements; weight has `group` elements
struct LinearOut {
  const Weight* weight;
  const float* bias;
  Slot out;
};  // bias may be null
struct Linear {
  Slot in;
  std::vector<LinearOut> outs;
};  // several products of one input
struct Rope {
  Slot inout;
  int64_t n_head, head_dim;
  const RopeSpec* spec;
};
struct KvWrite {
  Slot k, v;
};  // into the op's layer
struct Attention {
  Slot q, out;
  int64_t n_head, head_dim;
  float scale;
  float softcap;
  int64_t window;
};  // 0 = none
struct Add {
  Slot a, b, out;
};  // out = a + b; out may be a
struct GatedAct {
  Slot gate, up, out;
  Activation act;
};  // out = act(gate)·up
struct SelectRows {
  Slot in, out;
};  // keeps the rows whose logits were asked for; later ops see only those
struct Softcap {
  Slot inout;
  float cap;
};
}  // namespace op

using OpArgs = std::variant<op::Embed, op::RmsNorm, op::Linear, op::Rope, op::KvWrite,
                            op::Attention, op::Add, op::GatedAct, op::SelectRows, op::Softcap>;

struct Op {
  OpArgs args;
  int layer = -1;    // -1: outside the blocks
  std::string name;  // "attn_norm", "qkv", … for messages and profiles
};

struct Graph {
  std::vector<SlotInfo> slots;
  std::vector<Op> ops;
  Slot logits = -1;  // the last op's output, n_vocab wide
  int64_t n_vocab = 0;
  // Lives as long as the graph: what a backend keeps for a graph goes when this is gone.
  std::shared_ptr<const void> identity = std::make_shared<char>();
};

}  // namespace lockstep::kernels
