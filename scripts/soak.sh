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

models=(models/*.gguf synth:tiny-llama synth:tiny-gemma3)
types=(f16 f32 q8_0)
texts=(
  "One two three four five six seven eight nine ten, one two three four five six"
  "SELECT name, SUM(price) FROM orders GROUP BY name; SELECT name, AVG(price) FROM"
  "Der Wind dreht auf Nordwest, und am Abend wird"
  "if (a < b) { return a; } else if (b < c) { return b; } else {"
  "Every day is the same day. Every day is the same day. Every"
)
# pick ARRAY...: one of its arguments, by the seed alone.
pick() {
  local n=$#
  local i=$(( 0x$(printf '%s %s' "$seed" "$*" | sha256sum | cut -c1-8) % n + 1 ))
  printf '%s' "${!i}"
}

while :; do
  model=$(pick "${models[@]}")
  command=("$lockstep" prove -m "$model" -s "$seed" -t "$(pick 1 2 3 4 7)" -n "$(pick 8 16 24 48 96)"
           -ctk "$(pick "${types[@]}")" -ctv "$(pick "${types[@]}" again)" -p "$(pick "${texts[@]}")")
  [ "${command[-3]}" = again ] && command[-3]=f16
  case $(pick quick whole corrupt) in
    quick) command+=(--quick) ;;
    corrupt) command+=(--corrupt) ;;
  esac
  log=$state/run.log
  printf 'seed %d: %s\n' "$seed" "${command[*]}"
  status=0
  "${command[@]}" >"$log" 2>&1 || status=$?
  expected=0
  [[ " ${command[*]} " == *" --corrupt "* ]] && expected=1
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
