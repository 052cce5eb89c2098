#!/usr/bin/env bash
# Open-ended: random configurations of the proof and of the property tests, one seed after another.
# Where it is stands in build/soak/next; a failure is kept in build/soak/failures/ and does not stop
# it. Started by scripts/test.sh --soak, which builds first.
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

lockstep=${LOCKSTEP_BIN:-build/release/lockstep}
state=build/soak
mkdir -p "$state/failures"
seed=$(cat "$state/next" 2>/dev/null || echo 1)
passed=0 failed=0
trap 'printf "\nstopped at seed %d; scripts/test.sh --soak goes on there\n%d passed, %d failed\n" "$seed" "$passed" "$failed"; exit $((failed > 0))' INT TERM

models=(models/*.gguf synth:llama-tiny synth:gemma3-tiny@q4_k_m synth:qwen2-tiny synth:qwen3-tiny@q4_k_m)
types=(f16 f32 q8_0 q4_0)
texts=(
  "One two three four five six seven eight nine ten, one two three four five six"
  "SELECT name, SUM(price) FROM orders GROUP BY name; SELECT name, AVG(price) FROM"
  "Der Wind dreht auf Nordwest, und am Abend wird"
  "if (a < b) { return a; } else if (b < c) { return b; } else {"
  "Every day is the same day. Every day is the same day. Every"
)
# pick WHAT CHOICE...: one of the choices, by the seed and what is chosen alone.
pick() {
  local what=$1 i
  shift
  i=$(( 0x$(printf '%s %s' "$seed" "$what" | sha256sum | cut -c1-8) % $# + 1 ))
  printf '%s' "${!i}"
}

while :; do
  command=("$lockstep" prove -m "$(pick model "${models[@]}")" -s "$seed" -t "$(pick threads 1 2 3 4 7)"
           -n "$(pick tokens 8 16 24 48 96)" -ctk "$(pick k "${types[@]}")" -ctv "$(pick v "${types[@]}")"
           -p "$(pick text "${texts[@]}")")
  expected=0
  case $(pick form quick whole corrupt) in
    quick) command+=(--quick) ;;
    corrupt) command+=(--corrupt) expected=1 ;;
  esac
  log=$state/run.log
  printf 'seed %d: %s\n' "$seed" "${command[*]}"
  status=0
  "${command[@]}" >"$log" 2>&1 || status=$?
  if [ "$status" -eq "$expected" ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    { printf '%s\nexit code %d\n' "${command[*]}" "$status"; cat "$log"; } >"$state/failures/$seed.log"
    printf 'FAILED: build/soak/failures/%d.log\n' "$seed"
  fi
  seed=$((seed + 1))
  echo "$seed" >"$state/next.new" && mv "$state/next.new" "$state/next"
done
