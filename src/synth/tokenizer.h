// A vocabulary of any size that real tokenizers can work with: all bytes, a few special tokens, and
// words of lower-case letters that merges build up one letter at a time.
#pragma once

#include <cstdint>

#include "gguf/writer.h"
#include "synth/synth.h"

namespace lockstep::synth {

int64_t min_vocab(Tokenizer tokenizer);
int64_t max_vocab();

// The tokenizer.* keys for a vocabulary of n tokens, min_vocab() <= n <= max_vocab().
void add_tokenizer(gguf::Writer& writer, Tokenizer tokenizer, int64_t n);

}  // namespace lockstep::synth
