#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests, and ends with `N passed, N failed`.
#
#   tests/run.sh               the default run: at most 25 minutes on two cores
#   tests/run.sh --full        adds the slow parts: at most 80 minutes
#   tests/run.sh --full=PART   the default run's build and that slow part alone
set -uo pipefail
cd "$(dirname "$0")/.." || exit 70

full_parts=(asan tsan fuzz kill fresh)
usage() {
  echo "usage: tests/run.sh [--full[=PART]]; parts: ${full_parts[*]}" >&2
  exit 64
}
default=yes parts=()
case "${1:-}" in
  "") ;;
  --full) parts=("${full_parts[@]}") ;;
  --full=*)
    default=no parts=("${1#--full=}")
    [[ " ${full_parts[*]} " == *" ${parts[0]} "* ]] || usage ;;
  *) usage ;;
esac

passed=0 failed=0 failures=()
# Runs a named step; its output goes to the terminal and its result into the count.
step() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  local result=0
  "$@" || result=1
  if [ "$result" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); failures+=("$name"); fi
  echo "== $name: $((SECONDS - start)) s"
  return "$result"
}

# Of lines "[n/m] ..." and "n/m Test ... Passed" keeps about ten; all others pass.
thin() {
  local line tenth last=-1
  local starts='^ +Start +[0-9]+:' built='^\[([0-9]+)/([0-9]+)\]'
  local tested='^ *([0-9]+)/([0-9]+) Test .* Passed '
  while IFS= read -r line; do
    if [[ $line =~ $starts ]]; then continue; fi
    if [[ $line =~ $built || $line =~ $tested ]]; then
      tenth=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
      if [ "$tenth" -eq "$last" ]; then continue; fi
      last=$tenth
    fi
    printf '%s\n' "$line"
  done
}

# The same sources by CUDA's own compiler, for every architecture, warnings as errors.
nvcc_step() {
  if command -v nvcc >/dev/null; then
    launch/install.sh cuda
    step "nvcc" build cuda && step "cuda part" tests/launch/cuda_part.sh build/cuda
  else
    echo "== nvcc: NOT INSTALLED, so the CUDA sources were compiled for the simulator only"
  fi
}

compile() { cmake --build --preset "$1" 2>&1 | thin; }
build() { cmake --preset "$1" | sed -n '/^-- anabranch\|^--  /p' && compile "$1"; }

# Runs ctest and counts its single tests; skipped ones count as neither.
suite() {
  local preset=$1 log start=$SECONDS name
  shift
  log=$(mktemp)
  echo "== tests ($preset $*)"
  ctest --preset "$preset" -j 2 "$@" 2>&1 | tee "$log" | thin
  local total bad skipped
  total=$(sed -nE 's/.*tests passed, .* out of ([0-9]+)$/\1/p' "$log" | tail -n 1)
  bad=$(sed -nE 's/.*tests passed, ([0-9]+) tests? failed.*/\1/p' "$log" | tail -n 1)
  skipped=$(grep -cE '^[[:space:]]*[0-9]+ - .* \((Skipped|Disabled)\)$' "$log")
  if [ "${total:-0}" -eq 0 ]; then
    failed=$((failed + 1)) failures+=("$preset: no test ran")
  else
    passed=$((passed + total - bad - skipped)) failed=$((failed + bad))
    while read -r name; do failures+=("$preset: $name"); done < <(
      sed '1,/The following tests FAILED/d' "$log" |
        sed -nE 's/^[[:space:]]*[0-9]+ - (.*) \(.*\)$/\1/p')
  fi
  rm -f "$log"
  echo "== tests ($preset): $((SECONDS - start)) s"
}

finish() {
  for name in "${failures[@]}"; do echo "failed: $name"; done
  echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# Paths in the cache are relative, so that a fresh clone elsewhere finds what this one compiled.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

launch/install.sh build test text parquet slurm || { failed=1 failures=("install"); finish; }
step "build" build release
[ "$failed" -eq 0 ] || finish

if [ "$default" = yes ]; then
  step "format" tests/policy/format.sh
  step "shell" tests/policy/shell.sh
  step "headers" compile headers
  step "tidy" tests/policy/tidy.sh
  nvcc_step
  suite release -LE slow
fi
for part in "${parts[@]}"; do
  case "$part" in
    asan | tsan)
      step "build $part" build "$part" && suite "$part" -LE "slow|policy" ;;
    kill) suite release -L slow ;;
    *) step "$part" "tests/full/$part.sh" ;;
  esac
done
finish
