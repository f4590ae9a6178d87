# shellcheck shell=bash
# What the benches of this folder share; to be sourced after `set -euo pipefail`.
#
# PROGRAM is the built program; MPIRUN starts ranks, whose number follows it.
# shellcheck disable=SC2034 # who sources this reads them

program=${PROGRAM:-build/release/anabranch}
read -ra mpirun <<< "${MPIRUN:-mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np}"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Runs a command; what it says is shown only if it fails.
quietly() { "$@" 2> "$folder/log" || { cat "$folder/log" >&2; exit 1; }; }

# figure NAME FILE: a number of a JSON document that the program wrote, the first of that name.
figure() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),\{0,1\}\$/\1/p" "$2" | head -1; }

# median FILE: the middle one of the numbers in its lines, or the mean of the middle two.
median() {
  sort -g "$1" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# ratios FILE OTHER: of the numbers in lines of the same number, one a line.
ratios() { paste "$1" "$2" | awk '{ print $1 / $2 }'; }

# spread FILE: the least and the greatest of the numbers in its lines.
spread() { sort -g "$1" | sed -n '1p;$p' | paste -sd' '; }
