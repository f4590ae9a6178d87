#!/usr/bin/env bash
# Fuzzes every reader of files that others made: builds with Clang, then runs each target of
# tests/fuzz for a minute, two at a time.
#
#   tests/full/fuzz.sh [--runs N | --seconds S] [TARGET...]
#
# A finding is kept in build/fuzz/findings; put it into tests/fuzz/seeds/TARGET with the fix. What
# was learned stays in build/fuzz/corpus.
set -euo pipefail
cd "$(dirname "$0")/../.."

limit=-max_total_time=60
case "${1:-}" in
  --runs) limit=-runs=$2; shift 2 ;;
  --seconds) limit=-max_total_time=$2; shift 2 ;;
esac
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  for source in tests/fuzz/*_fuzz.cpp; do targets+=("$(basename "$source" _fuzz.cpp)"); done
fi

dpkg-query -W libclang-rt-14-dev >/dev/null 2>&1 || launch/install.sh build test
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz

scratch=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)  # for targets that need a file
trap 'rm -rf "$scratch"' EXIT

# Runs one target; its output goes to a log, of which the end is shown.
fuzz() {
  local name=$1 folder=build/fuzz status=0
  local corpus=$folder/corpus/$name log=$folder/$name.log
  mkdir -p "$corpus" "$folder/findings"
  local seeds=("tests/fuzz/seeds/$name")
  [ "$name" != yaml ] || seeds+=(configs)
  local longest=8192
  [ "$name" != shard ] || longest=70000  # the tokens of a shard begin at 64 KiB
  TMPDIR=$scratch "$folder/${name}_fuzz" "$limit" -seed=1 "-max_len=$longest" -timeout=120 \
    -rss_limit_mb=3000 \
    -print_final_stats=1 "-artifact_prefix=$folder/findings/$name-" "$corpus" "${seeds[@]}" \
    >"$log" 2>&1 || status=$?
  if [ "$status" -eq 0 ]; then
    echo "$name: $(sed -nE 's/^stat::number_of_executed_units: +//p' "$log") inputs," \
      "$(find "$corpus" -type f | wc -l) kept, no finding"
  else
    grep -E 'ERROR|SUMMARY|runtime error|Test unit written' "$log" || tail -n 20 "$log"
    echo "$name: FAILED, see $log"
  fi
  return "$status"
}
export -f fuzz
export limit scratch
export ASAN_OPTIONS=allocator_may_return_null=1:quarantine_size_mb=32
export UBSAN_OPTIONS=print_stacktrace=1
printf '%s\n' "${targets[@]}" | xargs -P 2 -I{} bash -c 'fuzz {}'
