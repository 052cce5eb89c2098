#include "lab/log/words.h"

namespace lockstep::lab::log {
namespace {

// Sources: llama.cpp b11434 (tools/server/server-context.cpp, common/speculative.cpp) and its older
// generations, ik_llama.cpp 8337e4cd3 (examples/server), vLLM (v1/spec_decode/metrics.py,
// v1/metrics/loggers.py). One word a line keeps the table readable as a table.
// clang-format off
constexpr Word kWords[] = {
    {"print_timing: id ", Kind::timing_head},
    {"print_timings: id ", Kind::timing_head},
    {"eval time ", Kind::eval_time},
    {"total time ", Kind::total_time},
    {"graphs reused =", Kind::graphs_reused},
    {"draft acceptance", Kind::draft_line},
    {"acc per pos =", Kind::positions},
    {"#calls(b,g,a) =", Kind::statistics},
    {"selected slot by ", Kind::selected_slot},
    {"processing task", Kind::processing},
    {"new prompt, ", Kind::new_prompt},
    {"cached n_tokens =", Kind::cached},
    {"memory_seq_rm [", Kind::cached},
    {"kv cache rm [", Kind::cached},
    {"need to evaluate at least 1 token", Kind::evaluate_one},
    {"have to evaluate at least 1 token", Kind::evaluate_one},
    {"restored context checkpoint", Kind::checkpoint_restored},
    {"forcing full prompt re-processing", Kind::reprocessing},
    {"stop processing: ", Kind::stop_processing},
    {"slot released", Kind::slot_released},
    {"system_info: ", Kind::start_mark},
    {"system info", Kind::start_mark},
    {"loading model", Kind::start_mark},
    {"vLLM API server version", Kind::start_mark},
    {"model loaded", Kind::ready_mark},
    {"listening on ", Kind::ready_mark},
    {"HTTP server listening", Kind::ready_mark},
    {"cleaning up before exit", Kind::stop_mark},
    {"build_info: ", Kind::build},
    {"build: ", Kind::build},
    {"build info", Kind::build},
    {"n_slots = ", Kind::slots_init},
    {"n_slots=", Kind::slots_init},
    {"adding speculative implementation '", Kind::spec_add},
    {"requested draft size (", Kind::spec_clamp},
    {" exceeds max ", Kind::draft_cut},
    {"n_max=", Kind::spec_limits},
    {"size_m=", Kind::spec_size_m},
    {"SpecDecoding metrics:", Kind::vllm_spec},
    {"Avg generation throughput:", Kind::vllm_engine},
    {"num_spec_tokens=", Kind::vllm_limit},
    {"======== Cache: cache_size", Kind::engine_ik},
    {"======== Prompt cache:", Kind::engine_ik},

    {"synthetic speculative acceptance", Kind::notice, "synthetic_acceptance",
     "acceptance is made up (--spec-synth-...): the output is not valid, and no speed here may be quoted"},
    {"synthetic acceptance: n_max", Kind::notice, "synthetic_acceptance",
     "acceptance is made up (--spec-synth-...): the output is not valid, and no speed here may be quoted"},
    {"no implementations specified for speculative decoding", Kind::notice, "no_speculation",
     "the server drafts nothing"},
    {"speculative decoding not supported by this context", Kind::notice, "no_speculation",
     "speculation was asked for and is off"},
    {"failed to load draft model", Kind::notice, "draft_model_failed",
     "the drafter was not loaded: what follows runs without it"},
    {"failed to create MTP context", Kind::notice, "draft_model_failed",
     "the drafter was not loaded: what follows runs without it"},
    {"the target and draft vocabs are not compatible", Kind::draft_vocabs, "draft_model_failed",
     "the drafter cannot be used with this model"},
    {"speculative decoding will use checkpoints", Kind::notice, "speculative_checkpoints",
     "a rejected draft restores a checkpoint: a step costs more than its passes"},
    {"backend sampling not supported", Kind::notice, "backend_sampling_off",
     "backend sampling was asked for and does not run"},
    {"backend offload failed", Kind::notice, "backend_sampling_off",
     "the drafter's sampler fell back to the CPU"},
    {"prompt cache is enabled", Kind::notice, "prompt_cache",
     "prompts are kept in RAM: a row may be warm"},
    {"context checkpoints enabled", Kind::notice, "context_checkpoints",
     "context checkpoints are on: a row may be warm, and prompts take longer"},
    {"idle slots will be saved", Kind::notice, "idle_slots_saved",
     "idle slots are saved when a request starts: its first token waits for that"},
    {"is not supported by this context, it will be disabled", Kind::notice, "option_inert",
     "an option that was asked for does nothing"},
    {"is not supported by multimodal, it will be disabled", Kind::notice, "option_inert",
     "an option that was asked for does nothing"},
    {"slot context shift", Kind::notice, "context_shift",
     "the context was shifted: token counts and depths after it are not those of the prompt"},
    {"resetting ngram_mod", Kind::notice, "ngram_reset",
     "the shared n-gram pool was emptied in the middle of the run"},
    {"GGML_ASSERT(", Kind::fault, "fault", "the server stopped on a failed assertion"},
    {"CUDA error", Kind::fault, "fault", "a device error"},
    {"ErrorDeviceLost", Kind::fault, "fault", "a device was lost"},
    {"DEVICE_LOST", Kind::fault, "fault", "a device was lost"},
    {"out of memory", Kind::fault, "fault", "memory ran out"},
    {"llama_decode returned", Kind::fault, "fault", "a pass failed"},
};
// clang-format on

}  // namespace

std::span<const Word> words() {
  return kWords;
}

}  // namespace lockstep::lab::log
