#!/usr/bin/env bash
# Writes plain English text from installed Debian packages into a folder, one .txt a book.
#
#   launch/debian_text.sh OUT
set -euo pipefail
out=${1:?usage: launch/debian_text.sh OUT}
mkdir -p "$out"

# The King James Bible: one verse a line; a chapter becomes one paragraph without verse numbers.
bible -f gen1:1-rev22:21 | awk '
  { split($1, place, ":"); if (NR > 1 && place[1] != chapter) printf "\n\n"
    chapter = place[1]; $1 = ""; printf "%s", $0 }
  END { print "" }' | sed 's/^ //' >"$out/king-james-bible.txt"

# Perl's manual: the pods of the package as text.
dpkg -L perl-doc | grep '\.pod$' | while read -r pod; do
  pod2text --width 1000 "$pod" 2>/dev/null || echo "debian_text: $pod is skipped" >&2
done >"$out/perl-manual.txt"

for book in "$out"/*.txt; do
  [ "$(wc -c <"$book")" -gt 1000000 ] || {
    echo "debian_text: $book is too short; install bible-kjv and perl-doc" >&2
    exit 65
  }
done
