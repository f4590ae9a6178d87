#!/usr/bin/env bash
# clang-tidy on the sources that changed since the main branch (or since the last commit there).
#
#   tests/policy/tidy.sh [FILE...]
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ $# -gt 0 ]; then
  files=("$@")
else
  base=$(git merge-base HEAD origin/main 2>/dev/null || true)
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --verify -q HEAD~1 || git rev-parse HEAD)
  fi
  mapfile -t files < <(git diff --name-only --diff-filter=d "$base" -- '*.cpp' | head -n 12)
fi
known=()
for file in "${files[@]:-}"; do
  [ -n "$file" ] && grep -q "\"file\": \".*/$file\"" build/release/compile_commands.json &&
    known+=("$file")
done
[ ${#known[@]} -gt 0 ] || { echo "no changed sources"; exit 0; }
printf '%s\n' "${known[@]}" | xargs -P 2 -n 1 clang-tidy -p build/release --quiet 2>/dev/null
