#!/usr/bin/env bash
# Gathers what tools/gpu/run.py needs on a machine that has a GPU and nothing of this repository: the
# built program and test, stripped, the shared libraries they need beside the C library, and run.py.
#
#   tools/gpu/pack.sh BUILD_DIRECTORY FOLDER
#
# Then, there, with the two models in FOLDER/models or anywhere:
#   python3 FOLDER/run.py --models MODELS --out RESULTS
set -euo pipefail
build=${1:?a build directory} folder=${2:?a folder to make}
mkdir -p "$folder/bin" "$folder/lib" "$folder/models"
for binary in "$build/lockstep" "$build/tests/kernels/cuda/kernels_cuda_test"; do
  strip -o "$folder/bin/$(basename "$binary")" "$binary"
  ldd "$binary" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
    while read -r library; do cp -Lu "$library" "$folder/lib/"; done
done
cp "$(dirname "$0")/run.py" "$(dirname "$0")/../../bench/suite/auto_depth.json" "$folder/"
git -C "$(dirname "$0")" rev-parse --short=12 HEAD >"$folder/commit"
du -sh "$folder"
