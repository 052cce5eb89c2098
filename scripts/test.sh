#!/usr/bin/env bash
# Everything, from a bare clone: installs what is missing, builds, runs the tests. On two cores some
# twenty minutes where ccache has the objects, forty where it has none.
#
#   scripts/test.sh          what CI runs
#   scripts/test.sh --full   the long forms: whole ranges, the whole proof, a minute a fuzz target
#   scripts/test.sh --fuzz   the fuzz targets alone, ten minutes of a core each (--fuzz 60: a minute)
#   scripts/test.sh --soak   random configurations and seeds until Ctrl-C; goes on where it stopped
#
# The last line is "N passed, N failed"; logs are in build/test-logs/.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

mode=${1:-} fuzz_seconds=30
case "$mode" in
  "" | --soak) ;;
  --full) export LOCKSTEP_FULL=1 fuzz_seconds=60 ;;
  --fuzz) fuzz_seconds=${2:-600} ;;
  *) mode=usage ;;
esac
if [ "$mode" = usage ] || ! [[ $fuzz_seconds =~ ^[1-9][0-9]*$ ]]; then
  echo "usage: scripts/test.sh [--full | --fuzz [SECONDS] | --soak]" >&2
  exit 2
fi

logs=build/test-logs
mkdir -p "$logs"
rm -f "$logs"/*.count
started=$SECONDS

# step NAME COUNTER COMMAND...: runs it with its output in a log. COUNTER reads how many tests passed
# and failed from the log; "one" counts the step itself. The counts go to a file, so that steps may
# run side by side.
step() {
  local name=$1 counter=$2 log status=0 begin=$SECONDS p=0 f=0
  shift 2
  log=$logs/$name.log
  "$@" >"$log" 2>&1 || status=$?
  read -r p f < <("count_$counter" "$log" "$status")
  # A runner that failed without a failed test has still failed.
  [ "$status" -ne 0 ] && [ "$f" -eq 0 ] && f=1
  echo "$p $f $name" >"$logs/$name.count"
  printf '%-34s %5d passed %3d failed  %4d s\n' "$name" "$p" "$f" $((SECONDS - begin))
  if [ "$f" -ne 0 ]; then tail -n 60 "$log" | sed 's/^/    /'; fi
  [ "$status" -eq 0 ]
}

# Steps that use one core each: as many at a time as there are cores.
beside() {
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  step "$@" &
}
all_done() { wait || true; }

count_none() { echo 0 0; }
count_one() { [ "$2" -eq 0 ] && echo 1 0 || echo 0 1; }
count_ctest() {
  local summary total bad
  summary=$(grep -oE '[0-9]+ tests failed out of [0-9]+' "$1" | tail -n 1)
  [ -n "$summary" ] || { echo 0 0; return; }
  bad=${summary%% *} total=${summary##* }
  echo $((total - bad)) "$bad"
}
count_unittest() {   # a skipped test counts as neither
  awk '/^Ran [0-9]+ test/ { total += $2 }
       /^(OK|FAILED) \(/ { n = split($0, part, /[(,) ]+/)
                           for (i = 1; i <= n; ++i) {
                             split(part[i], kv, "=")
                             if (kv[1] == "failures" || kv[1] == "errors") bad += kv[2]
                             if (kv[1] == "skipped") skipped += kv[2]
                           } }
       END { print total - bad - skipped, bad + 0 }' "$1"
}

# Targets of a build that ctest would run: a GoogleTest binary and its test have one name; tests that
# are scripts are no targets.
selected() {
  local name
  ctest --test-dir "$1" -N "${@:2}" | grep -oE 'Test +#[0-9]+: .*' | sed 's/.*: //' |
    while read -r name; do
      ! ninja -C "$1" -t query "$name" >/dev/null 2>&1 || echo "$name"
    done
}

build() {   # PRESET [TARGET...]
  local preset=$1
  shift
  cmake --preset "$preset" && cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"}
}

sanitized() {   # PRESET CTEST-SELECTION...
  local preset=$1 targets
  shift
  cmake --preset "$preset"
  mapfile -t targets < <(selected "build/$preset" "$@")
  [ ${#targets[@]} -gt 0 ] || { echo "no test is selected by $*"; return 1; }
  cmake --build "build/$preset" -j "$jobs" --target "${targets[@]}"
  ctest --test-dir "build/$preset" --output-on-failure -j "$jobs" "$@"
}

# Every architecture that the kernels are written for, with the portable code beside them.
cuda_architectures() {
  cmake --preset engine -B build/cuda -DLOCKSTEP_CUDA=ON "-DLOCKSTEP_CUDA_ARCHITECTURES=80;86;89;90;120;80-ptx" &&
    cmake --build build/cuda -j "$jobs" --target lockstep_cuda_objects
}

python_tests() {   # FILE
  local venv=$PWD/build/venv-test
  (cd "$(dirname "$1")" && "$venv/bin/python" -m unittest discover -v -p "$(basename "$1")")
}

fuzz() {   # BINARY SECONDS
  local corpus seeds
  corpus=build/fuzz-corpus/$(basename "$1")
  seeds=tests/fuzz/seeds/$(basename "$1")
  mkdir -p "$corpus"
  "$1" -max_total_time="$2" -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$logs/" "$corpus" $([ -e "$seeds" ] && echo "$seeds/")
}

# Every fuzz target at once, for as long as it takes to give each its time of a core.
fuzz_all() {
  local fuzzers binary each=$fuzz_seconds
  say "fuzzing ($fuzz_seconds s of a core each)"
  step build-fuzz none build asan fuzz || true
  mapfile -t fuzzers < <(find build/asan/tests/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable | sort)
  if [ ${#fuzzers[@]} -gt "$jobs" ]; then each=$((fuzz_seconds * ${#fuzzers[@]} / jobs)); fi
  for binary in "${fuzzers[@]}"; do step "$(basename "$binary")" one fuzz "$binary" "$each" & done
  all_done
  for binary in "${fuzzers[@]}"; do
    grep -h "^$(basename "$binary"): " "$logs/$(basename "$binary").log" 2>/dev/null | sed 's/^/    /' || true
  done
}

# The closing lines, and whether nothing failed.
verdict() {
  local passed failed failures
  read -r passed failed < <(awk '{ p += $1; f += $2 } END { print p + 0, f + 0 }' "$logs"/*.count)
  failures=$(awk '$2 > 0 { printf " %s", $3 }' "$logs"/*.count)
  [ -z "$failures" ] || printf '\nfailed:%s\n' "$failures"
  printf '\n%d s\n%d passed, %d failed\n' $((SECONDS - started)) "$passed" "$failed"
  [ "$failed" -eq 0 ]
}

say "packages"
install_packages "${ENGINE_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
if [ "$mode" = --fuzz ]; then
  fuzz_all
  verdict
  exit
fi
say "models"
scripts/fetch_models.sh
# What reads the machine code of CUDA kernels, where these are compiled.
cuda_tools=()
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  cuda_tools=(tests/kernels/cuda/requirements.txt)
fi
make_venv build/venv-test tests/*/requirements.txt "${cuda_tools[@]}"

say "build (release)"
step build-release none build release || { printf '0 passed, 1 failed\n'; exit 1; }

export LOCKSTEP_BIN=$PWD/build/release/lockstep
export LOCKSTEP_MODELS=$PWD/models
export LOCKSTEP_BUILD=$PWD/build/release

if [ "$mode" = --soak ]; then exec scripts/soak.sh; fi

say "tests"
step ctest ctest ctest --test-dir build/release --no-tests=error --output-on-failure -j "$jobs" || true
for file in $(grep -lE '^import unittest|^from unittest' tests/*/test_*.py); do
  name=$(basename "$file" .py)
  beside "$(basename "$(dirname "$file")")-${name#test_}" unittest python_tests "$file"
done

if [ "$mode" = --full ]; then
  say "the whole proof"
  for model in models/*.gguf; do
    beside "prove-$(basename "$model" .gguf)" one "$LOCKSTEP_BIN" prove -m "$model" -t 1
  done
  if [ ${#cuda_tools[@]} -gt 0 ]; then beside cuda-architectures one cuda_architectures; fi
fi
all_done

say "sanitizers"
# Real models and whole ranges take minutes without a sanitizer already; the lab's readers run under
# sanitizers in the fuzz targets.
unset LOCKSTEP_FULL
step asan ctest sanitized asan -L unit -LE "control|slow|real|lab" -E "^math_" || true
step tsan ctest sanitized tsan -L threads || true

fuzz_all
verdict
