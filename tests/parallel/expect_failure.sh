#!/usr/bin/env bash
# expect_failure.sh EXIT_CODE SCENARIO COMMAND...: runs a job in which a rank fails and checks that
# it ends with that code, says why, and does not wait for the failed rank.
set -uo pipefail

want=$1 scenario=$2
shift 2
begin=$SECONDS
output=$(timeout 50 "$@" 2>&1)
code=$?
took=$((SECONDS - begin))
echo "$output"
echo "exit code $code after $took s"

case $scenario in
  throw) words="rank 2: shard 7 is broken" ;;
  hang) words="rank 2 on .* has not come" ;;
  *) words="signal 9" ;;
esac
[[ $code == "$want" ]] || { echo "expected exit code $want"; exit 1; }
grep -q "$words" <<< "$output" || { echo "expected the words '$words'"; exit 1; }
((took < 20)) || { echo "the others waited"; exit 1; }
