#!/usr/bin/env bash
# Trains on this machine as train.sbatch does on a cluster: examines it, trains with mpirun, and goes on by itself after
# a lost rank, as long as there are new steps.
#
#   launch/local.sh [-n RANKS] CONFIG [--set a.b=c]...     default: 1 rank
#
#   Ctrl-C (INT), TERM   saves, ends with 130 or 75; a second one ends at once
#   USR1                 saves and goes on in a new attempt, as a time limit would
#   RUN/stop, RUN/save   (touch) saves and ends with 130; saves and goes on
#
# What each exit code leads to: launch/lifecycle.sh.
set -uo pipefail
set -m  # ranks in a process group of their own: Ctrl-C at the terminal is this script's to pass on
home=$(dirname "$(dirname "$(realpath "$0")")")
. "$home/launch/lifecycle.sh"

ranks=1
if [ "${1:-}" = -n ]; then
  ranks=${2:-}
  shift 2
fi
if [[ ! $ranks =~ ^[1-9][0-9]*$ ]] || [ $# -eq 0 ] || [[ $1 == -* ]]; then
  echo "usage: launch/local.sh [-n RANKS] CONFIG [--set a.b=c]..." >&2
  exit 64
fi

take_site
launch=(mpirun --bind-to none -np "$ranks" "${AB_MPIRUN[@]}")
read_config "$@" || exit
hosts=$(hostname)
job="local-$hosts-$$"

# The second time the launcher is told, which ends the ranks at once.
end_by() {
  if [ -z "$wish" ] || [ "$wish" = USR1 ]; then ask "$1"; else kill -TERM "$child" 2> /dev/null; fi
}
listen_for_wishes
trap 'end_by INT' INT
trap 'end_by TERM' TERM

next=again
while [ "$next" = again ]; do
  wish=
  attempt "$@"
done
if [ "$wish" = INT ] && [ "$code" -eq 75 ]; then code=130; fi
exit "$code"
