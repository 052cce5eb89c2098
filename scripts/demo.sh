#!/usr/bin/env bash
# From a bare clone to two real models that write, and the proof that drafts, widths, threads and
# chunks change not one bit. Installs only what the engine needs; about ten minutes on two cores.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

say "packages"
install_packages "${ENGINE_PACKAGES[@]}"

say "build (build/release/lockstep)"
cmake --preset engine >/dev/null
cmake --build build/release --target lockstep -j "$jobs"

say "models"
scripts/fetch_models.sh

lockstep=build/release/lockstep
smollm2=models/SmolLM2-135M-Instruct.Q4_1.gguf
gemma3=models/gemma-3-270m-q4_k_m.gguf

say "SmolLM2 135M answers"
"$lockstep" run -m "$smollm2" -cnv -st -p "Explain in two sentences why the sea is salty." \
  -n 64 -s 1 </dev/null

say "SmolLM2 135M goes on, drafting from its own text: the same tokens in fewer passes"
"$lockstep" run -m "$smollm2" -p "one two three four. one two three four. one two" -n 24 -s 1 \
  --spec-type suffix --spec-draft-n-max 8

say "Gemma 3 270M continues"
"$lockstep" run -m "$gemma3" -p "The three primary colours are" -n 32 --temp 0 --spec-type ngram

say "the proof: SmolLM2 135M"
"$lockstep" prove -m "$smollm2" --quick

say "the proof: Gemma 3 270M"
"$lockstep" prove -m "$gemma3" --quick
