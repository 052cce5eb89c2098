// The fixed words by which the parser knows a line, whatever stands to their left.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::lab::log {

enum class Kind : uint8_t {
  timing_head,  // "print_timing: id ": the block's own lines may follow without a prefix
  eval_time,    // prompt or decode
  total_time,
  graphs_reused,
  draft_line,
  positions,
  statistics,
  selected_slot,
  processing,
  new_prompt,
  cached,        // "cached n_tokens = " or "memory_seq_rm [" or "kv cache rm ["
  evaluate_one,  // a fully matched prompt: one token is evaluated again
  checkpoint_restored,
  reprocessing,
  stop_processing,
  slot_released,
  start_mark,  // printed once, early in a server's start
  ready_mark,  // listening, model loaded
  stop_mark,   // the server was told to end
  build,
  slots_init,
  spec_add,
  spec_limits,  // "n_max="
  spec_size_m,  // "size_m="
  spec_clamp,
  draft_cut,  // a draft longer than what is left to generate
  vllm_spec,
  vllm_engine,
  vllm_limit,    // "num_spec_tokens="
  engine_ik,     // only ik_llama.cpp prints it
  draft_vocabs,  // a drafter that can't be used, or whose tokens are translated
  fault,         // a notice after which the device is suspect
  notice,
};

struct Word {
  std::string_view text;
  Kind kind;
  // Of a notice: its id and what it means for the figures.
  std::string_view id = {};
  std::string_view meaning = {};
};

std::span<const Word> words();

}  // namespace lockstep::lab::log
