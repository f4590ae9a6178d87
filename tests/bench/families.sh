#!/usr/bin/env bash
# Every family at one size on the same text, over some seeds: validation loss, mean and standard
# deviation (n - 1), beside parameters and multiply-adds of a token, which are not equal: read them
# together.
#
#   tests/bench/families.sh DATA [STEPS] [SEEDS]          a table
#   tests/bench/families.sh --json DATA [STEPS] [SEEDS]   one object with every seed's loss
#
# DATA is a data set, the quick start's runs/quickstart/data for example. What it is doing goes to the
# error stream. PROGRAM is as in shared.sh.
set -euo pipefail
usage='usage: families.sh [--json] DATA [STEPS] [SEEDS]'
json=
if [ "${1:-}" = --json ]; then
  json=1
  shift
fi
data=${1:?$usage}
steps=${2:-300}
seeds=${3:-3}
# shellcheck source=tests/bench/shared.sh
. "$(dirname "$0")/shared.sh"

cat > "$folder/base.yaml" << YAML
data: {path: "$data"}
model: {layers: 4, width: 96, heads: 4, context: 128}
train: {steps: $steps, batch_tokens: 2048, micro_batch: 4}
optim: {lr: 3e-3, warmup_steps: $((steps < 30 ? steps : 30))}
metrics: {listen: "off"}
YAML

# A number of `config check --json`.
cost() { figure "$1" "$folder/cost"; }

# Mean and standard deviation of the lines of a file.
mean_sd() {
  awk '{ v[NR] = $1; s += $1 }
    END { m = s / NR; for (i in v) q += (v[i] - m) ^ 2
          printf "%.4f %.4f", m, (NR > 1 ? sqrt(q / (NR - 1)) : 0) }' "$1"
}

# NAME KEY=VALUE...
families=(
  "gpt2"
  "cmollm model.type=cmollm"
  "cmollm_adaptive model.type=cmollm model.variant=adaptive"
  "cmollm_pipeline model.type=cmollm model.mode=pipeline model.streams=2"
  "parascale model.type=parascale model.streams=2"
  "altup model.type=altup"
  "moep_msit model.type=moep_msit model.expert_width=144 model.pool_sequences=4"
  "kappa_moe model.type=kappa_moe model.experts=4 optim.matrix=aurora"
  "swiglu_moe model.type=kappa_moe model.experts=4 model.kappa=false optim.matrix=aurora"
)
done_runs=0
first=1

# The row of a family.
family() {
  local name=$1 seed sets=() losses=$folder/$1.losses mean deviation
  shift
  for key in "$@"; do sets+=(--set "$key"); done
  quietly "$program" config check "$folder/base.yaml" --json "${sets[@]}" > "$folder/cost"
  for seed in $(seq "$seeds"); do
    echo "families: run $((++done_runs)) of $((${#families[@]} * seeds)): $name, seed $seed" >&2
    quietly "$program" train "$folder/base.yaml" --set "run.dir=$folder/$name-$seed" \
      --set "run.seed=$seed" "${sets[@]}" > /dev/null
    grep -h '"validation_loss"' "$folder/$name-$seed/metrics.jsonl" | tail -1 |
      sed 's/.*"validation_loss":\([0-9.]*\).*/\1/' >> "$losses"
    rm -r "${folder:?}/$name-$seed"
  done
  read -r mean deviation <<< "$(mean_sd "$losses")"
  if [ -n "$json" ]; then
    [ -n "$first" ] || printf ',\n'
    printf '    {"family": "%s", "parameters": %s, "non_embedding_parameters": %s,\n' \
      "$name" "$(cost parameters)" "$(cost non_embedding_parameters)"
    printf '     "linear_macs": %s, "front_end_macs": %s, "attention_macs": %s,\n' \
      "$(cost linear_macs)" "$(cost front_end_macs)" "$(cost attention_macs)"
    printf '     "mean": %s, "sd": %s, "losses": [%s]}' \
      "$mean" "$deviation" "$(paste -sd, "$losses")"
  else
    echo "| $name | $(cost parameters) | $(cost linear_macs) | $(cost front_end_macs) |" \
      "$(cost attention_macs) | $mean +- $deviation |"
  fi
  first=
}

if [ -n "$json" ]; then
  printf '{"steps": %s, "seeds": %s, "families": [\n' "$steps" "$seeds"
else
  echo "| family | parameters | MACs of a token: linear | front-ends | attention |" \
    "validation loss, nats, $seeds seeds |"
  echo "|---|---|---|---|---|---|"
fi
for line in "${families[@]}"; do
  read -ra words <<< "$line"
  family "${words[@]}"
done
[ -z "$json" ] || printf '\n]}\n'
