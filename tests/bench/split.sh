#!/usr/bin/env bash
# Experts and streams spread over two ranks against copies of them on both: the same training step on random tokens
# by turns, at sizes of which more and more is experts or streams, so that it is seen from where on splitting wins.
#
#   tests/bench/split.sh [PAIRS]          a table; PAIRS: 20, which take some minutes on two cores
#   tests/bench/split.sh --json [PAIRS]   one object a line
#
# Both layouts take turns step by step in one job (`bench step --against`). A ratio is the median over pairs of
# steps of tokens/s split to those with copies, with its 95% interval; 0.9 at least is what is wanted. What it is
# doing goes to the error stream.
#
# EXPERTS are the sizes of kappa_moe and WIDTHS those of cmollm ("" leaves the family out), TOKENS those of a step.
# PROGRAM and MPIRUN are as in shared.sh.
set -euo pipefail
json=
if [ "${1:-}" = --json ]; then
  json=1
  shift
fi
pairs=${1:-20}
read -ra experts <<< "${EXPERTS-8 16 32 64}"
read -ra widths <<< "${WIDTHS-256 512 768}"
tokens=${TOKENS:-1024}
# shellcheck source=tests/bench/shared.sh
. "$(dirname "$0")/shared.sh"

layers=2 context=128 vocabulary=4096
echo '{}' > "$folder/empty.yaml"

# compare FAMILY NAME-OF-SIZE SIZE SPLIT-PARAMETERS LAYOUT KEY=VALUE...: the row of a layout.
compare() {
  local family=$1 name=$2 size=$3 mine=$4 layout=$5 key sets=() times low high
  shift 5
  for key in model.type="$family" model.layers=$layers model.context=$context train.batch_tokens="$tokens" \
    train.micro_batch=$((tokens / 2 / context)) parallel.threads=1 parallel.model=2 "$@"; do
    sets+=(--set "$key")
  done
  echo "split: $family, $name $size, $layout" >&2
  quietly "${mpirun[@]}" 2 "$program" bench step "$folder/empty.yaml" "${sets[@]}" --against parallel.model=1 \
    --vocab $vocabulary --pairs "$pairs" --json > "$folder/run"
  times=$(figure median "$folder/run") low=$(figure low "$folder/run") high=$(figure high "$folder/run")
  awk -v json="$json" -v family="$family" -v name="$name" -v size="$size" -v mine="$mine" -v layout="$layout" \
    -v times="$times" -v low="$low" -v high="$high" -v tokens="$tokens" -v pairs="$pairs" \
    -v split_seconds="$(figure step_seconds <(side first))" -v seconds="$(figure step_seconds <(side second))" \
    -v all="$(figure parameters <(side second))" 'BEGIN {
      if (json) {
        printf "{\"family\": \"%s\", \"%s\": %d, \"layout\": \"%s\", \"parameters\": %d,", family, name, size, layout, all
        printf " \"split_share\": %.4f, \"pairs\": %d,", mine / all, pairs
        printf " \"copies_tokens_per_second\": %.1f, \"tokens_per_second\": %.1f,", tokens / seconds, tokens / split_seconds
        printf " \"ratio\": %.4f, \"low\": %.4f, \"high\": %.4f}\n", 1 / times, 1 / high, 1 / low
      } else {
        printf "%-11s%-8s%6d  %-9s%11.1f%9.1f%%%13.0f%13.0f%9.3f  %.3f to %.3f%s\n", family, name, size, layout,
          all / 1e6, 100 * mine / all, tokens / seconds, tokens / split_seconds, 1 / times, 1 / high, 1 / low,
          (times < 1) ? "  wins" : ""
      }
    }'
}

# One configuration's part of what a run told.
side() { sed -n "/^  \"$1\": {/,/^  }/p" "$folder/run"; }

[ -n "$json" ] || printf '%-11s%-14s  %-9s%11s%10s%13s%13s%9s  %s\n' family size layout 'M params' split \
  'copies tok/s' 'split tok/s' ratio '95% interval'
# An expert is three matrices.
for n in "${experts[@]}"; do
  compare kappa_moe experts "$n" $((layers * n * 3 * 512 * 1024)) experts model.experts="$n" model.top_k=2 \
    model.moe_first=0 model.width=512 model.heads=8 model.ffn_width=1024
done
# A stream is a matrix and a bias; slices cut the way down too.
for width in "${widths[@]}"; do
  for layout in gather slice; do
    compare cmollm width "$width" $((layers * 8 * (width + 1) * 4 * width)) "$layout" model.streams=8 \
      model.width="$width" model.heads=$((width / 64)) parallel.stream_layout="$layout"
  done
done
