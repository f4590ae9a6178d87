#!/usr/bin/env bash
# Checks that the READMEs and the pages of the papers speak of what is there. In their code (fenced, indented, or
# `anabranch ...` in a line): every verb, every --flag and every key of --set is the program's, and README.md has an
# example of every verb.
# Everywhere: every path into the tree that names a file exists, and so does all that the tables under "Tree"
# and "Files" list.
#
#   tests/policy/docs.sh PROGRAM             checks the tree
#   tests/policy/docs.sh PROGRAM --planted   checks that each rule can fail, on planted breaches
#
# NAME, PATH, <...> and * in a path stand for something else, so such a path is not looked for.
set -euo pipefail
program=$(realpath "${1:?usage: tests/policy/docs.sh PROGRAM [--planted]}")
cd "$(dirname "$0")/../.."

breaches=0 checked=0 commands=0
breach() {
  echo "$1: $2"
  breaches=$((breaches + 1))
}

declare -A helps=()
# The help of the verb "$*", asked for once, in $help.
ask_help() {
  local verb="anabranch $*"
  [ -n "${helps[$verb]:-}" ] || helps[$verb]=$("$program" "$@" --help)
  help=${helps[$verb]}
}

has_word() { grep -qE -- "(^|[^a-z0-9-])$2([^a-z0-9-]|$)" <<<"$1"; }
keys=$("$program" config keys --markdown)

# A command of the program: its words from the first verb on, up to a shell's own words.
check_command() {
  local where=$1 verb=() subcommands word text
  shift
  while [ $# -gt 0 ]; do
    ask_help "${verb[@]}"
    subcommands=$(sed -n '/^Subcommands:/,$p' <<<"$help" | sed -nE 's/^  ([a-z]+) .*/\1/p')
    if [ -z "$subcommands" ] || [[ $1 == -* ]]; then break; fi
    if [[ ! $1 =~ ^[a-z]+$ ]]; then return 0; fi  # VERB, or a sentence that ends
    if ! grep -qx -- "$1" <<<"$subcommands"; then
      breach "$where" "anabranch ${verb[*]} has no verb $1"
      return 0
    fi
    verb+=("$1")
    shift
  done
  ask_help "${verb[@]}"
  while [ $# -gt 0 ]; do
    word=$1
    shift
    case "$word" in
      '|' | '||' | '&&' | ';' | '>' | '#' | '&' | '--') break ;;
      --*)
        has_word "$help" "${word%%=*}" || breach "$where" "anabranch ${verb[*]} has no ${word%%=*}"
        text=${word#--set=}
        if [ "$word" = --set ]; then text=${1:-}; fi
        text=${text//[\"\']/}
        if [[ $word == --set* ]] && ! grep -qF "| \`${text%%=*}\` |" <<<"$keys"; then
          breach "$where" "no configuration key ${text%%=*}"
        fi ;;
    esac
  done
}

# Lines "number<TAB>code" of a README, continued lines joined.
code_of() {
  awk '
    function out(n, text) { print n "\t" text }
    /^[ ]*```/ { fenced = !fenced; next }
    fenced || /^    / {
      if (!held) start = FNR
      text = held ? substr(text, 1, length(text) - 1) $0 : $0
      held = text ~ /\\$/
      if (!held) out(start, text)
      next
    }
    {
      line = $0
      while (match(line, /`anabranch [^`]+`/)) {
        out(FNR, substr(line, RSTART + 1, RLENGTH - 2))
        line = substr(line, RSTART + RLENGTH)
      }
    }' "$1"
}

# Lines "number<TAB>path": names of files under our folders, from the root or beside the README.
paths_of() {
  local tops='core|parallel|data|runtime|launch|configs|tests|monitoring'
  grep -noE "(^|[^A-Za-z0-9_./-])(\./)?($tops)/[A-Za-z0-9_./*<>-]*" "$1" |
    sed -E 's/^([0-9]+):[^A-Za-z0-9_.]?(\.\/)?/\1\t/' |
    grep -E '\.(cpp|h|sh|py|c|md|txt|yaml|supp|cmake)$' | grep -vE 'NAME|PATH|[*<>]' || true
}

# Lines "number<TAB>path": what the first column lists of tables under "Tree" and "Files".
listed_of() {
  awk '
    /^#/ { listing = /^## (Tree|Files)$/ }
    listing && /^\|/ {
      split($0, cells, "|")
      while (match(cells[2], /`[^`]+`/)) {
        print FNR "\t" substr(cells[2], RSTART + 1, RLENGTH - 2)
        cells[2] = substr(cells[2], RSTART + RLENGTH)
      }
    }' "$1"
}

check_readme() {
  local readme=$1 folder number text words i
  folder=$(dirname "$readme")
  checked=$((checked + 1))
  while IFS=$'\t' read -r number text; do
    read -ra words <<<"$text"
    for i in "${!words[@]}"; do
      if [[ ${words[i]} =~ (^|/)anabranch$ ]]; then
        commands=$((commands + 1))
        check_command "$readme:$number" "${words[@]:i+1}"
      fi
    done
  done < <(code_of "$readme")
  while IFS=$'\t' read -r number text; do
    [ -e "$text" ] || [ -e "$folder/$text" ] || breach "$readme:$number" "no file $text"
  done < <(paths_of "$readme")
  while IFS=$'\t' read -r number text; do
    [ -e "$folder/$text" ] || breach "$readme:$number" "lists $text, which is not there"
  done < <(listed_of "$readme")
}

# Every verb of the program stands in code of the file.
check_verbs() {
  local file=$1 subcommands sub code
  shift
  ask_help "$@"
  subcommands=$(sed -n '/^Subcommands:/,$p' <<<"$help" | sed -nE 's/^  ([a-z]+) .*/\1/p')
  if [ -z "$subcommands" ]; then
    code=$(code_of "$file")  # whole: a grep that stops early would break the pipe
    grep -qE "(^|[^a-z])anabranch $*( |$)" <<<"$code" || breach "$file" "has no example of anabranch $*"
  fi
  for sub in $subcommands; do check_verbs "$file" "$@" "$sub"; done
}

planted() {
  local folder missed=0 text
  folder=$(mktemp -d)
  # shellcheck disable=SC2016  # backticks are Markdown here
  for text in '```\nanabranch tran x\n```' '```\nanabranch shard biuld x\n```' '```\nanabranch eval run --bigrm\n```' \
    '```\nmpirun build/release/anabranch train \\\n  --resum must\n```' '    anabranch train x --set train.stps=1' \
    'use `anabranch watch RUN --onc`' 'see `core/ops/none.h`' '## Files\n\n| `none.h` | x |'; do
    breaches=0
    printf '%b\n' "$text" >"$folder/README.md"
    check_readme "$folder/README.md" >/dev/null
    [ "$breaches" -eq 1 ] || { echo "not caught: $text"; missed=1; }
  done
  rm -r "$folder"
  return "$missed"
}

if [ "${2:-}" = --planted ]; then
  planted
  exit
fi
for top in . core parallel data runtime launch monitoring configs tests; do
  [ -f "$top/README.md" ] || breach "$top" "has no README.md"
done
while read -r readme; do check_readme "${readme#./}"; done < <(
  find . -path ./build -prune -o -path ./runs -prune -o \( -name README.md -o -path "./configs/papers/*.md" \) -print | sort)
check_verbs README.md
echo "$checked READMEs with $commands commands, $breaches breaches"
[ "$breaches" -eq 0 ] && [ "$commands" -gt 0 ]
