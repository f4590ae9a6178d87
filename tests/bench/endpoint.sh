#!/usr/bin/env bash
# What watching a run costs it: gpt2-2core on this machine, by turns left alone and with its
# endpoint under 50 clients that ask without a pause (as idle tasks: it is the server's cost that is
# asked for, not theirs). Prints the median step of both by pairs of windows, their ratio, and the
# part of a step that recording takes by its own count.
#
#   PROGRAM=build/release/anabranch tests/bench/endpoint.sh [--json] [PAIRS [STEPS_OF_A_WINDOW]]
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tests/bench/shared.sh
source tests/bench/shared.sh

json=
if [ "${1:-}" = --json ]; then json=1; shift; fi
pairs=${1:-5} window=${2:-20} clients=50

git ls-files '*.md' '*.cpp' '*.h' | xargs cat > "$folder/text.txt"
quietly "$program" tokenizer train "$folder/text.txt" --document paragraph --vocab 4000 --out "$folder/tokenizer.json"
quietly "$program" shard build "$folder/text.txt" --document paragraph --skip-empty --tokenizer "$folder/tokenizer.json" \
  --out "$folder/data" --validation 0.01

"$program" train configs/gpt2-2core.yaml --set data.path="$folder/data" --set run.dir="$folder/run" \
  --set train.steps=1000000 --set train.log_every=1 --set eval.every_steps=0 \
  --set checkpoint.every_steps=0 --set metrics.listen=127.0.0.1:0 2> "$folder/log" &
run=$!
lines="$folder/run/metrics.jsonl"
hammers=()

# shellcheck disable=SC2317 # by trap
stop() {
  ((${#hammers[@]} == 0)) || kill "${hammers[@]}" 2> /dev/null || true
  touch "$folder/run/stop" 2> /dev/null || true
  wait "$run" || true
  rm -rf "$folder"
}
trap stop EXIT

steps() {
  local count
  count=$(grep -c '"type":"step"' "$lines" 2> /dev/null) || true
  echo "${count:-0}"
}

# until_step N: waits for it, while the run lives.
until_step() {
  while (($(steps) < $1)); do
    kill -0 "$run" 2> /dev/null || { cat "$folder/log" >&2; exit 1; }
    sleep 0.05
  done
}

# window FILE: appends the median step of the next window; its first two steps do not count.
window() {
  local from
  from=$(($(steps) + 2))
  until_step $((from + window))
  grep '"type":"step"' "$lines" | sed -n "$((from + 1)),$((from + window))p" |
    sed 's/.*"step_seconds":\([0-9.e+-]*\).*/\1/' > "$folder/window"
  median "$folder/window" >> "$1"
}

hammer() {
  local answer
  set +e  # what the server makes of it is not this loop's end
  trap '' PIPE
  while :; do
    if exec 3<> "/dev/tcp/127.0.0.1/$port"; then
      printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
      mapfile -t answer <&3
      ((${#answer[@]} > 10)) && echo >> "$folder/answers.$1"
      exec 3>&-
    fi
  done 2> /dev/null
}

until_step 5
port=$(sed -n 's|.*metrics at http://127.0.0.1:\([0-9]*\)/.*|\1|p' "$folder/log" | head -1)
for ((pair = 0; pair < pairs; ++pair)); do
  window "$folder/alone"
  hammers=()
  for ((i = 0; i < clients; ++i)); do
    hammer "$i" &
    hammers+=($!)
    chrt --idle --pid 0 $! > /dev/null 2>&1 || renice -n 19 -p $! > /dev/null
  done
  window "$folder/hammered"
  kill "${hammers[@]}" 2> /dev/null || true
  wait "${hammers[@]}" 2> /dev/null || true
  hammers=()
done

exec 3<> "/dev/tcp/127.0.0.1/$port"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
cat <&3 > "$folder/metrics"
value() { sed -n "s/^anabranch_$1 \([0-9.e+-]*\).*/\1/p" "$folder/metrics"; }
share=$(awk -v a="$(value recording_seconds_total)" -v b="$(value step_seconds_sum)" 'BEGIN { print a / b }')
ratios "$folder/hammered" "$folder/alone" > "$folder/ratios"
answers=$(cat "$folder"/answers.* 2> /dev/null | wc -l)
alone=$(median "$folder/alone") hammered=$(median "$folder/hammered")
ratio=$(median "$folder/ratios") range=$(spread "$folder/ratios")
if [ -n "$json" ]; then
  printf '{"clients": %d, "answers": %d, "pairs": %d, "alone_seconds": %s, "hammered_seconds": %s, "ratio": %s, "ratio_min": %s, "ratio_max": %s, "recording_share": %s}\n' \
    "$clients" "$answers" "$pairs" "$alone" "$hammered" "$ratio" "${range% *}" "${range#* }" "$share"
else
  echo "step alone $alone s, under $clients clients $hammered s ($answers answers); by $pairs pairs: ratio $ratio (${range% *} to ${range#* })"
  echo "recording: $share of the steps' time"
fi
