#!/usr/bin/env bash
# Registers, shared memory and stack of each kernel, as built, against the table kernel_budget.txt beside this: fails
# where a kernel needs more than its line says, is new or is gone, with both figures. Needs no GPU and builds nothing.
#
#   tests/gpu/kernel_budget.sh FOLDER [--update]    of a build with the preset cuda; --update: writes the table anew
#
# Another nvcc than the table's allots otherwise: then nothing is compared, and a line says so. So it is where cuobjdump
# is missing (launch/install.sh cuda).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:?usage: tests/gpu/kernel_budget.sh FOLDER [--update]}
update=${2:-}
table=$here/kernel_budget.txt
library=$folder/libanabranch_cuda.so
temp=$(mktemp -d)
trap 'rm -r "$temp"' EXIT
export LC_ALL=C

skip() {
  echo "kernel budget: NOT CHECKED: $1"
  exit 0
}
die() {
  echo "kernel budget: $1" >&2
  exit 1
}

[ -f "$library" ] || die "no $library: build it with the preset cuda"
cuobjdump=$("$here/cuobjdump.sh") || skip "cuobjdump is not installed: launch/install.sh cuda"
nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$folder/CMakeCache.txt")
version=$("$nvcc" --version | sed -nE 's/.*, V([0-9.]+)$/\1/p')
[ -n "$version" ] || die "the compiler of $folder, \"$nvcc\", does not tell its version"
if [ "$update" != --update ]; then
  [ -f "$table" ] || die "no table: $0 $folder --update"
  wanted=$(sed -n 's/^# nvcc //p' "$table")
  [ "$version" = "$wanted" ] || skip "the table is of nvcc $wanted, this build of $version"
fi

# Lines "file kernel|arch|registers|shared|stack" of what is built. The file is in the mangled name of all that is in an
# anonymous namespace: _GLOBAL__N__<hash>_<length>_<file>_cu_. Of the name remain the template and its arguments.
figures() {
  "$cuobjdump" --dump-resource-usage "$library" | awk '
    $1 == "arch" {arch = $3}
    $1 == "Function" {
      mangled = substr($2, 1, length($2) - 1)
      file = "shared"
      if (match(mangled, /_GLOBAL__N__[0-9a-f]+_[0-9]+_[A-Za-z0-9_]+_cu_/)) {
        file = substr(mangled, RSTART, RLENGTH - 4)
        sub(/_GLOBAL__N__[0-9a-f]+_[0-9]+_/, "", file)
        sub(/_cu_.*/, "", file)
        file = file ".cu"
      }
    }
    $1 ~ /^REG:/ {
      for (i = 1; i <= NF; ++i) {split($i, pair, ":"); value[pair[1]] = pair[2]}
      print file, arch "|" value["REG"] "|" value["SHARED"] "|" value["STACK"] + value["LOCAL"] "|", mangled
    }' | c++filt | sed -E \
    -e 's/^([^ ]+) ([^ ]+)\| /\1 \2 /' \
    -e 's/\(anonymous namespace\):://g; s/anabranch::(cuda::)?//g; s/\((int|bool|long)\)//g; s/ >/>/g' |
    awk '
    {
      file = $1; numbers = $2; name = substr($0, length(file) + length(numbers) + 3)
      sub(/^void /, "", name)
      depth = 0  # the arguments of the call go: from the last bracket that opens outside <>
      for (i = 1; i <= length(name); ++i) {
        c = substr(name, i, 1)
        if (c == "<") ++depth
        if (c == ">") --depth
        if (c == "(" && depth == 0) {name = substr(name, 1, i - 1); break}
      }
      if (name ~ /[<, ]double[>, ]/) next
      split(numbers, n, "|")
      print file " " name "|" n[1] "|" n[2] "|" n[3] "|" n[4]
    }' | awk -F'|' '
    # A kernel of a header may be in several objects: the most of them.
    {
      key = $1 "|" $2
      for (i = 3; i <= 5; ++i) if (!(key in r) || $i + 0 > most[key, i]) most[key, i] = $i + 0
      r[key]
    }
    END {for (key in r) print key "|" most[key, 3] "|" most[key, 4] "|" most[key, 5]}' | sort
}
figures >"$temp/built"
[ -s "$temp/built" ] || die "cuobjdump finds no kernel in $library"

if [ "$update" = --update ]; then
  {
    cat <<HEAD
# What each kernel needs of a GPU, as nvcc allots it; checked by kernel_budget.sh, written by it with --update.
#
# regs    registers of a thread
# shared  bytes of static shared memory of a block; on sm_90 CUDA's own 1024 are in it where a file uses any
# stack   bytes of a thread in local memory: registers spilled, and arrays that are no registers; 0: nothing is spilled
#
# A line is a kernel, under the file whose types it has; "shared" are those of headers alone. Not here: kernels in float64,
# which are for tests; and dynamic shared memory, which launches ask for by the shapes (.shared_bytes) and a GPU refuses
# where it is too much. Where a constant alone sets it (tile_bytes in core/ops), the file that sets it bounds it.
#
# nvcc $version
#
#  sm_80              sm_90
#  regs shared stack  regs shared stack  kernel
HEAD
    awk -F'|' '
      function put() {
        if (key == "") return
        split(key, part, " ")
        if (part[1] != file) print "\n" (file = part[1])
        print "  " text["sm_80"] "  " text["sm_90"] "  " substr(key, length(file) + 2)
      }
      $1 != key {put(); key = $1; text["sm_80"] = text["sm_90"] = "   -      -     -"}
      {text[$2] = sprintf("%4d %6d %5d", $3, $4, $5)}
      END {put()}' "$temp/built"
  } >"$temp/table"
  cp "$temp/table" "$table"
  echo "kernel budget: $(grep -c '^  ' "$table") kernels written to $table"
  exit 0
fi

# The table as lines of the same form.
awk '
  /^#/ || NF == 0 {next}
  /^[^ ]/ {file = $1; next}
  {
    name = $0
    sub(/^ +[0-9-]+ +[0-9-]+ +[0-9-]+ +[0-9-]+ +[0-9-]+ +[0-9-]+ +/, "", name)
    if ($1 != "-") print file " " name "|sm_80|" $1 "|" $2 "|" $3
    if ($4 != "-") print file " " name "|sm_90|" $4 "|" $5 "|" $6
  }' "$table" | sort >"$temp/table"

awk -F'|' -v update="tests/gpu/kernel_budget.sh $folder --update" '
  BEGIN {what[3] = "registers"; what[4] = "bytes of shared memory"; what[5] = "bytes of stack"}
  {key = $1 " on " $2}
  NR == FNR {for (i = 3; i <= 5; ++i) most[key, i] = $i + 0; known[key]; next}
  {
    found[key]
    ++kernels
    if (!(key in known)) {
      fault(sprintf("%s is new: %d registers, %d bytes of shared memory, %d of stack", key, $3, $4, $5))
      next
    }
    for (i = 3; i <= 5; ++i) {
      if ($i + 0 > most[key, i]) fault(sprintf("%s has %d %s, the table %d", key, $i, what[i], most[key, i]))
      if ($i + 0 < most[key, i]) less[key]
    }
  }
  function fault(text) {print "kernel budget: " text; ++faults}
  END {
    for (key in known) if (!(key in found)) fault(key " is gone")
    for (key in less) ++lower
    if (faults) print "kernel budget: if that is meant: " update
    else printf "kernel budget: %d kernels, by architecture, within the table%s\n", kernels,
      lower ? "; " lower " need less than it says: " update " keeps that" : ""
    exit faults > 0
  }' "$temp/table" "$temp/built"
