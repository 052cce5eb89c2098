// Synthetic models: the shapes of real ones with random, well-scaled weights, so that speed and
// exactness can be tried where the real file is not at hand. The same spec gives the same bytes
// everywhere. Results of a synthetic model are marked as such.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "gguf/types.h"

namespace lockstep::synth {

enum class RopeScaling : uint8_t {
  none,
  linear,
  llama3,  // by the metadata's numbers
  yarn,
  factors,  // by a rope_freqs tensor, whose factors rise from 1 to rope_factor
};
enum class Tokenizer : uint8_t { bpe, spm, qwen };

struct SynthSpec {
  std::string shape;         // "llama-8b"
  std::string architecture;  // "llama", "gemma3", "qwen2", "qwen3"

  int64_t layers = 0, embd = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, ctx = 0;
  int64_t window = 0;  // positions a sliding layer sees; 0: none slides
  bool tied = false;   // the embedding table is the output matrix
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_base = 10000.0, rope_factor = 8.0;
  Tokenizer tokenizer = Tokenizer::bpe;

  // Type of the matrices, of the output matrix, and of half of attn_v and ffn_down (q4_k_m keeps
  // these at q6_k). A type whose blocks do not divide a row gives way as in llama.cpp: q2_k, q3_k
  // and iq4_xs to iq4_nl, q4_k to q5_0, q5_k to q5_1, q6_k to q8_0, and any type of 32 to f16.
  std::string type_name = "q8_0";
  gguf::TensorType type = gguf::TensorType::q8_0;
  gguf::TensorType head_type = gguf::TensorType::q8_0;
  gguf::TensorType better_type = gguf::TensorType::q8_0;
  uint64_t seed = 1;

  // The spec as parse_synth reads it, with every option that differs from its shape's.
  std::string text() const;
};

// "synth:SHAPE[,key=value…][@TYPE][,key=value…]"; "synth:" may be left out. Throws Error(bad_use)
// naming the bad part and what is known: shapes, types, keys, ranges.
SynthSpec parse_synth(std::string_view text);

// Names for messages and help.
std::vector<std::string> shape_names();
std::vector<std::string> type_names();
std::vector<std::string> option_names();

// Bytes of the file that the spec gives.
uint64_t total_bytes(const SynthSpec& spec);

// Throws Error(resource), with the bytes needed, for a model that this machine's memory cannot
// hold.
gguf::File make_in_memory(const SynthSpec& spec);

// Throws Error(resource) when the disk cannot hold it; nothing is left behind then. progress(bytes
// written) is called after each tensor.
void write(const SynthSpec& spec, const std::filesystem::path& path,
           const std::function<void(uint64_t)>& progress = {});

}  // namespace lockstep::synth
