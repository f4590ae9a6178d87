#!/usr/bin/env bash
# Checks monitoring/prometheus.yml and its rules with promtool, runs their unit tests in rules/, and sees to it that each
# rule has one and each alert a line of its own in monitoring/rules/README.md.
#
#   tests/monitoring/rules.sh            checks the tree
#   tests/monitoring/rules.sh --planted  checks that every threshold and every time of the alerts is tested: a little
#                                        more or less of it fails
#
# Ends with 77 where promtool is not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v promtool >/dev/null; then
  echo "skipped: promtool (package prometheus) is not installed"
  exit 77
fi
rules=monitoring/rules tests=tests/monitoring/rules

fail() {
  echo "$1"
  exit 1
}

check() {
  local name count=0
  promtool check config monitoring/prometheus.yml
  promtool test rules "$tests"/*.yml
  for name in $(sed -nE 's/^ +- (alert|record): (.*)/\2/p' "$rules"/*.yml); do
    count=$((count + 1))
    grep -q "$name" "$tests"/*.yml || fail "$name: no test in $tests"
  done
  for name in $(sed -nE 's/^ +- alert: (.*)/\1/p' "$rules/alerts.yml"); do
    grep -q "^| \`$name\` |" "$rules/README.md" || fail "$rules/README.md does not say what to do about $name"
  done
  echo "$count rules"
  [ "$count" -gt 0 ]
}

# Lines "number<TAB>group<TAB>altered line" of the alerts: each threshold 5% less and more, where it is 0 one and a half
# more, and each time 15 s.
alterations() {
  awk '
    function with(text) { print FNR "\t" group "\t" substr($0, 1, from - 1) text substr($0, from + size) }
    /name: anabranch-/ { group = substr($0, index($0, "anabranch-") + 10) }
    $1 == "for:" {
      from = index($0, $2)
      size = length($2)
      seconds = $2 ~ /m$/ ? 60 * $2 : $2 + 0
      with(seconds - 15 "s")
      with(seconds + 15 "s")
    }
    /^ +(expr:|unless|or|run:|last|\(|and)/ {
      rest = $0
      done = 0
      while (match(rest, /([<>]=?|==) [0-9.]+( \*)?/)) {
        word = substr(rest, RSTART, RLENGTH)
        match(word, /[0-9.]+/)
        number = substr(word, RSTART, RLENGTH)
        from = done + index(rest, word) + RSTART - 1
        size = RLENGTH
        if (number == 0) {
          with(1.5)
        } else {
          with(sprintf("%.10g", 0.95 * number))
          with(sprintf("%.10g", 1.05 * number))
        }
        done = from + size - 1
        rest = substr($0, done + 1)
      }
    }' "$rules/alerts.yml"
}

planted() {
  local number group line count=0 missed=0
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  mkdir -p "$folder/tests/monitoring"
  cp -r --parents "$rules" "$tests" "$folder"
  while IFS=$'\t' read -r number group line; do
    awk -v at="$number" -v line="$line" 'NR == at { print line; next } { print }' "$rules/alerts.yml" \
      >"$folder/$rules/alerts.yml"
    count=$((count + 1))
    if promtool test rules "$folder/$tests/$group.yml" >/dev/null 2>&1; then
      echo "not caught: $rules/alerts.yml:$number: $line"
      missed=1
    fi
  done < <(alterations)
  echo "$count alterations"
  [ "$missed" -eq 0 ] && [ "$count" -gt 0 ]
}

if [ "${1:-}" = --planted ]; then planted; else check; fi
