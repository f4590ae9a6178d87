#!/usr/bin/env bash
# Predicted against measured step times of small models on the ranks of this machine, as a table.
#
#   tests/bench/plan.sh [RANKS] [STEPS]           RANKS: "1 2"
#   tests/bench/plan.sh --json [RANKS] [STEPS]    one object a line
#
# The machine is fitted first, with as many ranks as are then planned for, by `bench comm --fit`. PROGRAM is the
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

[ -n "$json" ] || printf '%-8s%6s%6s%14s%14s%9s\n' model ranks hosts 'predicted ms' 'measured ms' off
for n in $ranks; do
  quietly "${mpirun[@]}" "$n" "$program" bench comm --fit "$folder/machine.yaml" --max-bytes 16777216 > /dev/null
  for name in gpt2 cmollm kappa; do
    batch=$((2048 * n))
    quietly "${mpirun[@]}" "$n" "$program" bench step "$folder/$name.yaml" --vocab 4096 --steps "$steps" --json \
      --set train.batch_tokens=$batch > "$folder/measured"
    quietly "$program" plan "$folder/$name.yaml" --vocab 4096 --nodes "$hosts" --ranks-per-node $((n / hosts)) \
      --machine "$folder/machine.yaml" --set train.batch_tokens=$batch --json > "$folder/planned"
    # The layout that bench step has: copies of everything, state whole.
    predicted=$(sed -n '/"name": "data [0-9]* x model 1\(, zero 0\)\{0,1\}"/,/"step_seconds"/p' "$folder/planned" |
      sed -n 's/^ *"step_seconds": \([0-9.e+-]*\),$/\1/p' | head -1)
    measured=$(figure step_seconds "$folder/measured")
    awk -v name="$name" -v n="$n" -v hosts="$hosts" -v p="$predicted" -v m="$measured" -v json="$json" 'BEGIN {
      off = p / m - 1
      if (json) printf "{\"model\": \"%s\", \"ranks\": %d, \"hosts\": %d, \"predicted_seconds\": %g, \"measured_seconds\": %g, \"off\": %.4f}\n", name, n, hosts, p, m, off
      else printf "%-8s%6d%6d%14.2f%14.2f%+8.1f%%\n", name, n, hosts, 1e3 * p, 1e3 * m, 100 * off
    }'
  done
done
