#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests, and ends with `N passed, N failed`.
#
#   tests/run.sh               the default run: at most 25 minutes on two cores
#   tests/run.sh --full        adds the slow parts: at most 80 minutes
#   tests/run.sh --full=PART   the default run's build and that slow part alone
set -uo pipefail
cd "$(dirname "$0")/.."

full_parts=(asan tsan fuzz kill fresh)
part=""
case "${1:-}" in
  "") ;;
  --full) part=all ;;
  --full=*) part="${1#--full=}" ;;
  *) echo "usage: tests/run.sh [--full[=PART]]; parts: ${full_parts[*]}" >&2; exit 64 ;;
esac

passed=0 failed=0 failures=()
# Runs a named step; its output goes to the terminal and its result into the count.
step() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); failures+=("$name"); fi
  echo "== $name: $((SECONDS - start)) s"
}

# Runs ctest and counts its single tests.
suite() {
  local preset=$1 log start=$SECONDS
  shift
  log=$(mktemp)
  echo "== tests ($preset $*)"
  ctest --preset "$preset" -j 2 "$@" 2>&1 | tee "$log" | grep -vE '^ *(Start|[0-9]+/[0-9]+ .* Passed)'
  local total bad
  total=$(sed -nE 's/.*tests passed, .* out of ([0-9]+)$/\1/p' "$log" | tail -n 1)
  bad=$(sed -nE 's/.*tests passed, ([0-9]+) tests? failed.*/\1/p' "$log" | tail -n 1)
  if [ -z "$total" ]; then failed=$((failed + 1)); failures+=("$preset: no test ran"); else
    passed=$((passed + total - bad)); failed=$((failed + bad))
    while read -r name; do failures+=("$name"); done < <(
      sed -nE 's/^[[:space:]]*[0-9]+ - (.*) \(.*\)$/\1/p' "$log")
  fi
  rm -f "$log"
  echo "== tests ($preset): $((SECONDS - start)) s"
}

build() { cmake --preset "$1" >/dev/null && cmake --build --preset "$1"; }

finish() {
  for name in "${failures[@]:-}"; do [ -z "$name" ] || echo "failed: $name"; done
  echo "took $((SECONDS / 60)) min $((SECONDS % 60)) s"
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1

launch/install.sh build test text || { echo "0 passed, 1 failed"; exit 1; }
step "build" build release
if [ "$failed" -gt 0 ]; then finish; exit 1; fi

if [ -z "$part" ] || [ "$part" = all ]; then
  step "format" tests/policy/format.sh
  step "headers" cmake --build --preset headers
  step "tidy" tests/policy/tidy.sh
  suite release -LE slow
fi

if [ -n "$part" ]; then
  if [ "$part" = all ]; then parts=("${full_parts[@]}"); else parts=("$part"); fi
  for name in "${parts[@]}"; do
    case "$name" in
      asan | tsan)
        step "build $name" build "$name"
        suite "$name" -LE "slow|policy" ;;
      kill) suite release -L slow ;;
      fuzz | fresh) step "$name" "tests/full/$name.sh" ;;
      *) echo "unknown part '$name'; parts: ${full_parts[*]}" >&2; exit 64 ;;
    esac
  done
fi
finish
