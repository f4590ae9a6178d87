#!/usr/bin/env bash
# Rows to experts on another rank and their results home, ours (`bench dispatch`) and a bare MPI_Alltoallv of the
# same bytes with one copy each way (peers/alltoallv.cpp) by turns: A B B A.
#
#   tests/bench/dispatch.sh [PAIRS]          a table; PAIRS: 6
#   tests/bench/dispatch.sh --json [PAIRS]   one object a line
#
# A ratio is the median over pairs of our time to the peer's, each the median of ROUNDS rounds; 1.2 at most is
# wanted. RANKS is how many; SHAPES are "rows:width:experts:top-k:type". PROGRAM and MPIRUN are as in shared.sh.
set -euo pipefail
json=
if [ "${1:-}" = --json ]; then
  json=1
  shift
fi
pairs=${1:-6}
rounds=${ROUNDS:-20}
ranks=${RANKS:-2}
read -ra shapes <<< "${SHAPES:-1024:256:8:2:fp32 4096:512:8:2:fp32 4096:512:32:2:bf16 4096:768:32:4:fp32}"
# shellcheck source=tests/bench/shared.sh
. "$(dirname "$0")/shared.sh"

mpicxx -O3 "$(dirname "$0")/peers/alltoallv.cpp" -o "$folder/alltoallv"

ours() {
  quietly "${mpirun[@]}" "$ranks" "$program" bench dispatch "${options[@]}" --pairs "$rounds" --json > "$folder/run"
  # The first "seconds" is that of the dispatch.
  figure seconds "$folder/run" >> "$folder/ours"
}

peer() {
  quietly "${mpirun[@]}" "$ranks" "$folder/alltoallv" "$(figure bytes_out "$folder/run")" \
    "$(figure bytes_home "$folder/run")" "$rounds" > "$folder/peer_run"
  figure seconds "$folder/peer_run" >> "$folder/peer"
}

[ -n "$json" ] || printf '%7s%7s%9s%7s%6s%10s%10s%10s%9s  %s\n' rows width experts top-k type 'MiB sent' 'ours ms' \
  'peer ms' ratio 'least to greatest'
for shape in "${shapes[@]}"; do
  IFS=: read -r rows width experts top_k type <<< "$shape"
  options=(--rows "$rows" --width "$width" --experts "$experts" --top-k "$top_k")
  [ "$type" = fp32 ] || options+=("--$type")
  rm -f "$folder/ours" "$folder/peer"
  for pair in $(seq "$pairs"); do
    echo "dispatch: $shape, pair $pair of $pairs" >&2
    if [ $((pair % 2)) = 1 ]; then ours; peer; else peer; ours; fi
  done
  ratios "$folder/ours" "$folder/peer" > "$folder/ratios"
  read -r low high <<< "$(spread "$folder/ratios")"
  awk -v json="$json" -v rows="$rows" -v width="$width" -v experts="$experts" -v k="$top_k" -v type="$type" \
    -v out="$(figure bytes_out "$folder/run")" -v home="$(figure bytes_home "$folder/run")" \
    -v ours="$(median "$folder/ours")" -v peer="$(median "$folder/peer")" -v low="$low" -v high="$high" \
    -v ratio="$(median "$folder/ratios")" -v pairs="$pairs" -v ranks="$ranks" 'BEGIN {
      if (json) {
        printf "{\"ranks\": %d, \"rows\": %d, \"width\": %d, \"experts\": %d, \"top_k\": %d,", ranks, rows, width, experts, k
        printf " \"type\": \"%s\", \"bytes_out\": %d, \"bytes_home\": %d, \"pairs\": %d,", type, out, home, pairs
        printf " \"seconds\": %g, \"peer_seconds\": %g, \"ratio\": %.4f,", ours, peer, ratio
        printf " \"least\": %.4f, \"greatest\": %.4f}\n", low, high
      } else {
        printf "%7d%7d%9d%7d%6s%10.1f%10.3f%10.3f%9.3f  %.3f to %.3f\n", rows, width, experts, k, type,
          (out + home) / 1048576, 1e3 * ours, 1e3 * peer, ratio, low, high
      }
    }'
done
