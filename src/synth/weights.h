// Random weights of a chosen spread, made block by block without quantising anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "gguf/types.h"

namespace lockstep::synth {

// Words of the Philox4x32-10 stream of (seed, stream): word 4c + k is word k of counter
// (low c, high c, low stream, high stream). words.size() is a multiple of 4; first_counter is the
// counter of words[0].
void random_words(uint64_t seed, uint64_t stream, uint64_t first_counter,
                  std::span<uint32_t> words);

// The stream of a tensor: FNV-1a of its name.
uint64_t stream_of(std::string_view tensor_name);

// Fills whole blocks of `type` (one that quant::is_supported) with values of mean 0 and standard
// deviation `spread` (to a few per cent), uniform in their codes. Scales are never 0.
void fill_weights(gguf::TensorType type, uint64_t seed, uint64_t stream, float spread,
                  std::span<std::byte> out);

// Binary32 values within 10 % of `mean`: weights of a norm.
void fill_norm(uint64_t seed, uint64_t stream, float mean, std::span<std::byte> out);

}  // namespace lockstep::synth
