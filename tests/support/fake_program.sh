#!/usr/bin/env bash
# Stands for `anabranch` in tests of the launch scripts: does what the files of its run directory say, and writes there
# what it was asked to do. That directory is FAKE_RUN, or of a configuration runs/SWEEP/configs/ID.yaml runs/SWEEP/ID.
#
#   script   a line for each `train`: CODE [STEP], an exit code after a checkpoint of that step has been saved, or
#            "wait STEP": until USR1 comes, then a checkpoint and 75; "slow STEP": after such a checkpoint, and USR1
#            begins a save that does not end
#   doctor   its exit code; 0 without the file
#   calls    written: the verbs, a line each
#   waiting  written: the process that waits
set -uo pipefail
verb=${1:-}
run=${FAKE_RUN:-}
if [ -z "$run" ]; then
  for word in "$@"; do
    [[ $word != *.yaml ]] || run=$(dirname "$(dirname "$word")")/$(basename "$word" .yaml)
  done
  mkdir -p "$run"
fi
echo "$*" >> "$run/calls"

save() { [ -z "${1:-}" ] || mkdir -p "$run/checkpoints/$(printf 'step-%08d' "$1")"; }

case $verb in
  config) printf '%s\n127.0.0.1:9464\n' "$run" ;;
  doctor) exit "$(cat "$run/doctor" 2> /dev/null || echo 0)" ;;
  train)
    read -r code step < "$run/script" || exit 70
    sed -i 1d "$run/script"
    if [ "$code" = slow ]; then save "$step"; fi
    if [ "$code" = wait ] || [ "$code" = slow ]; then
      if [ "$code" = wait ]; then trap 'save "$step"; exit 75' USR1; else trap '' USR1; fi
      echo $$ > "$run/waiting"
      for _ in {1..2000}; do sleep 0.05; done  # whoever is forgotten ends
    fi
    save "$step"
    exit "$code" ;;
esac
