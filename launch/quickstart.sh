#!/usr/bin/env bash
# From raw text to a trained, resumed and sampled model on this machine, in a few minutes:
# installs, builds, takes English text from a Debian package, trains a tokenizer, writes shards,
# trains a small GPT-2 on two ranks, resumes it, and compares it with a bigram model.
#
#   [RUN=NAME] launch/quickstart.sh [--minutes M]     how long to train; default 3
#
# A second run reuses what is there; RUN=name starts another run on the same data.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=3
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes)
      if [[ ! ${2:-} =~ ^[0-9]+(\.[0-9]+)?$ ]]; then
        echo "quickstart.sh: --minutes: found ${2:-nothing}; expected a number of 0 or more" >&2
        exit 64
      fi
      minutes=$2
      shift 2
      ;;
    *) echo "usage: launch/quickstart.sh [--minutes M]" >&2; exit 64 ;;
  esac
done

say() { printf '\n== %s\n' "$*"; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
work=runs/quickstart
text=$work/text
data=$work/data
run=$work/${RUN:-gpt2}
program=build/release/anabranch

say "install and build"
launch/install.sh build text
[ -f build/release/build.ninja ] || cmake --preset release >/dev/null
cmake --build build/release --target anabranch

say "text: the King James Bible (package bible-kjv) and Perl's manual (package perl-doc)"
if [ ! -f "$text/done" ]; then
  launch/debian_text.sh "$text"
  touch "$text/done"
fi
du -ch "$text"/*.txt | tail -n 1

say "tokenizer: byte-level BPE of 4,096 entries"
if [ ! -f "$work/tokenizer.json" ]; then
  $program tokenizer train --vocab 4096 --special '<|endoftext|>' --out "$work/tokenizer.json" \
    "$text"/*.txt
fi
echo "$work/tokenizer.json"

say "shards: a document a paragraph, 2% of them for validation"
if [ ! -f "$data/dataset.json" ]; then
  $program shard build --tokenizer "$work/tokenizer.json" --out "$data" --document paragraph \
    --validation 0.02 "$text"/*.txt
fi
$program shard verify "$data"

ranks=2
[ "$(nproc)" -ge 2 ] || ranks=1
# Runs the program on the ranks; mpirun's own warnings about a stopped job are not ours to show.
on_ranks() { mpirun --bind-to none -np "$ranks" "$program" "$@"; }
train() { on_ranks train configs/gpt2-2core.yaml --set "run.dir=$run" --set "data.path=$data" "$@"; }

if [ ! -f "$run/steps" ]; then
  say "train a small GPT-2 on $ranks ranks for about $minutes minutes"
  # A few steps are timed first, so that the run takes as long as asked for on any machine.
  per_step=$(on_ranks bench step configs/gpt2-2core.yaml --vocab 4096 --json |
    sed -nE 's/.*"step_seconds": ([0-9.e-]+),/\1/p')
  steps=$(awk -v m="$minutes" -v s="$per_step" 'BEGIN {n = int(60 * m / s); print n < 120 ? 120 : n}')
  mkdir -p "$run"
  echo "$steps" >"$run/steps"
fi
say "$(cat "$run/steps") steps, or what is left of them (RUN=name starts another run on the same data)"
train --resume auto --set "train.steps=$(cat "$run/steps")"

steps=$(($(cat "$run/steps") + 20))
say "resume for 20 more steps"
train --resume must --set "train.steps=$steps"
echo "$steps" >"$run/steps"

say "result: the model beside a bigram model on the same validation split"
$program eval "$run" --bigram | tee "$run/eval.txt"
say "sample"
$program generate "$run" --prompt "In the beginning" --tokens 60 --temperature 0.8 --top-k 40 --seed 1
say "where things are"
echo "run directory:    $run  (config.yaml, metrics.jsonl, log/, checkpoints/)"
echo "metrics endpoint: http://127.0.0.1:9464/metrics while a job trains; $run/targets.json for Prometheus"
echo "look at it live:  $program watch $run"
say "verdict"
grep -E 'the model (beats|does not beat) the bigram' "$run/eval.txt"
if ! grep -q 'the model beats the bigram by' "$run/eval.txt"; then
  enough=1500
  [ "$steps" -lt "$enough" ] || exit 70
  echo "$steps steps are too few for it; about $enough are enough: RUN=long launch/quickstart.sh --minutes 3"
fi
