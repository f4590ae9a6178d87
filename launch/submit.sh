#!/usr/bin/env bash
# sbatch with what the site wants (launch/site.env, or the file that AB_SITE names).
#
#   launch/submit.sh [SBATCH OPTIONS] SCRIPT.sbatch ARGUMENTS...
#
# Exports what the job needs to submit itself again: AB_HOME, AB_OPTIONS, AB_SUBMITTED.
set -euo pipefail
AB_HOME=$(dirname "$(dirname "$(realpath "$0")")")
home=$AB_HOME
. "$home/launch/lifecycle.sh"
take_site

options=("${AB_SBATCH[@]}")
while [ $# -gt 0 ] && [[ $1 != *.sbatch ]]; do
  options+=("$1")
  shift
done
if [ $# -eq 0 ]; then
  echo "usage: launch/submit.sh [SBATCH OPTIONS] SCRIPT.sbatch ARGUMENTS..." >&2
  exit 64
fi
script=$(realpath "$1")
shift
printf -v AB_OPTIONS '%q ' "${options[@]}"
printf -v AB_SUBMITTED '%q ' "$script" "$@"
export AB_HOME AB_OPTIONS AB_SUBMITTED
exec sbatch "${options[@]}" "$script" "$@"
