#!/usr/bin/env bash
# From raw text to a trained, resumed and sampled model on this machine, in a few minutes:
# installs, builds, takes English text from a Debian package, trains a tokenizer, writes shards,
# trains a small GPT-2 on two ranks, resumes it, and compares it with a bigram model.
#
#   launch/quickstart.sh [--minutes M]     how long to train; default 3
#
# A second run reuses what is there; RUN=name starts another run on the same data.
set -euo pipefail
cd "$(dirname "$0")/.."

minutes=3
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes=$2; shift 2 ;;
    *) echo "usage: launch/quickstart.sh [--minutes M]" >&2; exit 64 ;;
  esac
done

say() { printf '\n== %s\n' "$*"; }

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
work=runs/quickstart
text=$work/text
data=$work/data
run=$work/${RUN:-gpt2}
program=build/release/anabranch

say "install and build"
launch/install.sh build text
cmake --preset release -DAB_TESTS=OFF -B build/release >/dev/null
cmake --build build/release --target anabranch

say "text: the King James Bible (package bible-kjv) and Perl's manual (package perl-doc)"
if [ ! -f "$text/done" ]; then
  launch/debian_text.sh "$text"
  touch "$text/done"
fi
du -sh "$text" | cut -f1

say "tokenizer: byte-level BPE of 8,192 entries"
if [ ! -f "$work/tokenizer.json" ]; then
  $program tokenizer train --vocab 8192 --special '<|endoftext|>' --out "$work/tokenizer.json" \
    "$text"/*.txt
fi

say "shards"
if [ ! -f "$data/dataset.json" ]; then
  $program shard build --tokenizer "$work/tokenizer.json" --out "$data" --document paragraph \
    --validation 0.02 "$text"/*.txt
fi
$program shard inspect "$data"

ranks=2
[ "$(nproc)" -ge 2 ] || ranks=1
train() {
  mpirun --bind-to none -np "$ranks" "$program" train configs/gpt2-2core.yaml \
    --set "run.dir=$run" --set "data.path=$data" "$@"
}

if [ ! -f "$run/trained" ]; then
  say "train on $ranks ranks for about $minutes minutes"
  # One step is timed first, so that the run takes as long as asked on any machine.
  steps=$($program bench step configs/gpt2-2core.yaml --set "data.path=$data" \
    --steps-in "$(awk "BEGIN { print int(60 * $minutes) }")" --ranks "$ranks")
  echo "$steps" >"$work/steps"
  train --resume never --set "train.steps=$steps"
  touch "$run/trained"
fi

say "resume for 20 more steps"
steps=$(($(cat "$work/steps") + 20))
echo "$steps" >"$work/steps"
train --resume must --set "train.steps=$steps"

say "result"
$program eval "$run" --suite perplexity --bigram
$program generate "$run" --prompt "In the beginning" --tokens 80 --temperature 0.8 --top-k 50 --seed 1
echo
echo "run directory:    $run   (metrics.jsonl, log/, checkpoints/)"
echo "metrics endpoint: http://$(cat "$run/listen" 2>/dev/null || echo '127.0.0.1:9464')/metrics while a job trains"
