#!/usr/bin/env bash
# Every family at one size on the same text, over three seeds: validation loss, mean and standard
# deviation, multiply-adds per token beside it.
#
#   tests/bench/families.sh DATA [STEPS] [SEEDS]
#
# DATA is a data set, the quick start's runs/quickstart/data for example. Equal width and steps, not
# equal compute: read the losses with the multiply-adds.
set -euo pipefail
data=${1:?usage: families.sh DATA [STEPS] [SEEDS]}
steps=${2:-300}
seeds=${3:-3}
program=${PROGRAM:-build/release/anabranch}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat > "$folder/base.yaml" << EOF
data: {path: "$data"}
model: {layers: 4, width: 96, heads: 4, context: 128}
train: {steps: $steps, batch_tokens: 2048, micro_batch: 4}
optim: {lr: 3e-3, warmup_steps: 30}
metrics: {listen: "off"}
EOF

# A row of the table: NAME KEY=VALUE...
family() {
  local name=$1 seed sets=()
  shift
  for key in "$@"; do sets+=(--set "$key"); done
  for seed in $(seq "$seeds"); do
    "$program" train "$folder/base.yaml" --set "run.dir=$folder/$name-$seed" \
      --set "run.seed=$seed" "${sets[@]}" > "$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
    grep -h '"validation_loss"' "$folder/$name-$seed/metrics.jsonl" | tail -1 |
      sed 's/.*"validation_loss":\([0-9.]*\).*/\1/' >> "$folder/$name.losses"
  done
  awk -v name="$name" '{ n++; s += $1; q += $1 * $1 }
    END { m = s / n; d = n > 1 ? sqrt((q - n * m * m) / (n - 1)) : 0
          printf "| %s | %.4f | %.4f |\n", name, m, d }' "$folder/$name.losses"
}

echo "| family | validation loss, nats | standard deviation over $seeds seeds |"
echo "|---|---|---|"
family gpt2
family cmollm model.type=cmollm
family cmollm_adaptive model.type=cmollm model.variant=adaptive
family cmollm_pipeline model.type=cmollm model.mode=pipeline model.streams=2
family parascale model.type=parascale model.streams=2
family altup model.type=altup
family moep_msit model.type=moep_msit model.expert_width=144 model.pool_sequences=4
family kappa_moe model.type=kappa_moe model.experts=4 optim.matrix=aurora
family swiglu_moe model.type=kappa_moe model.experts=4 model.kappa=false optim.matrix=aurora
