#!/usr/bin/env bash
# CORE-style scoring against the bare forward pass: tokens/s that `eval --suite core` computes over those of
# `bench generate`'s prefill at the same model and length, by turns; and how many tokens are computed where what
# choices begin with alike is shared, and where it is not.
#
#   tests/bench/core.sh [PAIRS] [KEY=VALUE...]     default: 5 pairs
#
# A run of one step and a bundle in the published layout (multiple choice, 10 shots, 4 choices, long questions) are
# made in a temporary folder. PROGRAM is as in shared.sh; pin the cores outside.
set -euo pipefail
pairs=${1:-5}
shift || true
# shellcheck source=tests/bench/shared.sh
. "$(dirname "$0")/shared.sh"

context=1024 batch_tokens=8192 questions=24
# Words, from a number.
words() { awk -v n="$1" -v s="$2" 'BEGIN { srand(s); for (i = 0; i < n; ++i) printf "%s%c%c%c", (i ? " " : ""), 97 + rand() * 26, 97 + rand() * 26, 97 + rand() * 26 }'; }

for i in $(seq 400); do words 60 "$i"; printf '\n\n'; done > "$folder/text.txt"
quietly "$program" tokenizer train --vocab 1024 --pattern gpt2 --out "$folder/t.json" "$folder/text.txt"
quietly "$program" shard build --tokenizer "$folder/t.json" --out "$folder/data" --document paragraph \
  --validation 0.1 "$folder/text.txt"
cat > "$folder/run.yaml" << YAML
data: {path: "$folder/data"}
model: {layers: 6, width: 384, heads: 6, context: $context}
train: {steps: 1, batch_tokens: $context, micro_batch: 1}
run: {dir: "$folder/run"}
metrics: {listen: "off"}
YAML
sets=()
for key in "$@"; do sets+=(--set "$key"); done
quietly "$program" train "$folder/run.yaml" "${sets[@]}" > /dev/null

mkdir -p "$folder/bundle/eval_data"
cat > "$folder/bundle/core.yaml" << YAML
icl_tasks:
- label: made
  dataset_uri: made.jsonl
  num_fewshot: [10]
  icl_task_type: multiple_choice
YAML
printf 'Eval Task,Random baseline\nmade,25\n' > "$folder/bundle/eval_meta_data.csv"
for i in $(seq "$questions"); do
  printf '{"query": "%s", "choices": ["%s", "%s", "%s", "%s"], "gold": %d}\n' "$(words 28 "$i")" \
    "$(words 3 "1$i")" "$(words 3 "2$i")" "$(words 3 "3$i")" "$(words 3 "4$i")" $((i % 4))
done > "$folder/bundle/eval_data/made.jsonl"

# score NAME OPTION...: computed tokens a second, and the share of all that was computed.
score() {
  local name=$1
  shift
  quietly "$program" eval "$folder/run" --device cpu --suite core --bundle "$folder/bundle" --json \
    --batch-tokens "$batch_tokens" "$@" > "$folder/$name.json"
  local computed tokens seconds
  computed=$(sed -n 's/^ *"computed_tokens": \([0-9]*\),\{0,1\}$/\1/p' "$folder/$name.json")
  tokens=$(sed -n 's/^ *"tokens": \([0-9]*\),\{0,1\}$/\1/p' "$folder/$name.json")
  seconds=$(figure seconds "$folder/$name.json")
  awk -v c="$computed" -v s="$seconds" 'BEGIN { print c / s }' >> "$folder/$name.rates"
  awk -v t="$tokens" -v s="$seconds" 'BEGIN { print t / s }' >> "$folder/$name.asked"
  awk -v c="$computed" -v t="$tokens" 'BEGIN { printf "%.3f\n", c / t }' > "$folder/$name.share"
}

forward() {
  quietly "$program" bench generate "$folder/run.yaml" "${sets[@]}" --vocab 1024 --json \
    --prompt-tokens $((context - 2)) --tokens 2 --batch $((batch_tokens / context)) > "$folder/forward.json"
  figure prefill_tokens_per_second "$folder/forward.json" >> "$folder/forward.rates"
}

for pair in $(seq "$pairs"); do
  echo "core: pair $pair of $pairs" >&2
  forward
  score whole --whole-prompts
  score shared
done
echo "| | computed of the tokens asked | computed tokens/s | over the forward's | asked tokens/s |"
echo "|---|---|---|---|---|"
echo "| forward | | $(median "$folder/forward.rates") | | |"
for name in whole shared; do
  ratios "$folder/$name.rates" "$folder/forward.rates" > "$folder/$name.ratios"
  echo "| $name | $(cat "$folder/$name.share") | $(median "$folder/$name.rates") |" \
    "$(median "$folder/$name.ratios") ($(spread "$folder/$name.ratios")) | $(median "$folder/$name.asked") |"
done
