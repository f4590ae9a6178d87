#!/usr/bin/env bash
# Predicted against measured step times of small models on the ranks of this machine, as a table.
#
#   tests/bench/plan.sh [RANKS] [STEPS] [ROUNDS]           RANKS: "1 2"
#   tests/bench/plan.sh --json [RANKS] [STEPS] [ROUNDS]    one object a line
#
# In each round the machine is fitted first, with as many ranks as are then planned for, by `bench comm --fit`; the
# figures are medians of the rounds, with the least and greatest of what a round was off. PROGRAM is the
# built program; MPIRUN starts ranks ("mpirun --bind-to none -np"), also on several hosts, and then HOSTS says how
# many. 15% is what the plan should be within.
set -euo pipefail
json=
if [ "${1:-}" = --json ]; then
  json=1
  shift
fi
ranks=${1:-1 2}
steps=${2:-7}
rounds=${3:-3}
hosts=${HOSTS:-1}
# shellcheck source=tests/bench/shared.sh
. "$(dirname "$0")/shared.sh"

sizes='layers: 4, width: 192, heads: 4, context: 128'
declare -A models=(
  [gpt2]="type: gpt2, $sizes"
  [cmollm]="type: cmollm, $sizes, streams: 4"
  [kappa]="type: kappa_moe, $sizes, experts: 4"
)
for name in "${!models[@]}"; do
  cat > "$folder/$name.yaml" << YAML
model: {${models[$name]}}
train: {batch_tokens: 2048, micro_batch: 8}
YAML
done

[ -n "$json" ] || printf '%-8s%6s%6s%14s%14s%9s%20s\n' model ranks hosts 'predicted ms' 'measured ms' off 'least, greatest'
for n in $ranks; do
  batch=$((2048 * n))
  rm -f "$folder"/*.predicted "$folder"/*.measured
  for ((round = 0; round < rounds; round++)); do
    quietly "${mpirun[@]}" "$n" "$program" bench comm --fit "$folder/machine.yaml" --max-bytes 16777216 > /dev/null
    for name in gpt2 cmollm kappa; do
      quietly "${mpirun[@]}" "$n" "$program" bench step "$folder/$name.yaml" --vocab 4096 --steps "$steps" --json \
        --set train.batch_tokens=$batch > "$folder/step"
      quietly "$program" plan "$folder/$name.yaml" --vocab 4096 --nodes "$hosts" --ranks-per-node $((n / hosts)) \
        --machine "$folder/machine.yaml" --set train.batch_tokens=$batch --json > "$folder/planned"
      # The layout that bench step has: copies of everything, state whole.
      sed -n '/"name": "data [0-9]* x model 1\(, zero 0\)\{0,1\}"/,/"step_seconds"/p' "$folder/planned" |
        sed -n 's/^ *"step_seconds": \([0-9.e+-]*\),$/\1/p' | head -1 >> "$folder/$name.predicted"
      figure step_seconds "$folder/step" >> "$folder/$name.measured"
    done
  done
  for name in gpt2 cmollm kappa; do
    ratios "$folder/$name.predicted" "$folder/$name.measured" > "$folder/ratios"
    read -r least greatest <<< "$(spread "$folder/ratios")"
    awk -v name="$name" -v n="$n" -v hosts="$hosts" -v json="$json" -v p="$(median "$folder/$name.predicted")" \
      -v m="$(median "$folder/$name.measured")" -v off="$(median "$folder/ratios")" -v least="$least" \
      -v greatest="$greatest" 'BEGIN {
      if (json) printf "{\"model\": \"%s\", \"ranks\": %d, \"hosts\": %d, \"predicted_seconds\": %g, \"measured_seconds\": %g, \"off\": %.4f, \"off_least\": %.4f, \"off_greatest\": %.4f}\n", name, n, hosts, p, m, off - 1, least - 1, greatest - 1
      else printf "%-8s%6d%6d%14.2f%14.2f%+8.1f%%%+9.1f%%, %+.1f%%\n", name, n, hosts, 1e3 * p, 1e3 * m, 100 * (off - 1), 100 * (least - 1), 100 * (greatest - 1)
    }'
  done
done
