#!/usr/bin/env bash
# Makes a folder for a machine with a GPU: check.sh, the program with its small shared libraries, the op tests, the
# source, the configurations and a token shard; at most 60 MiB. From a clean checkout's build of the preset cuda.
#
#   tests/gpu/pack.sh FOLDER [--dirty]     --dirty: packs files that are not committed too, and says so
#
# FOLDER is new or empty, outside of the checkout, and written whole or not at all. Not packed: the driver, cuBLAS and
# NCCL, which check.sh finds there, and Arrow: the program is built without Parquet, of which nothing is read there.
set -euo pipefail
usage() {
  echo "usage: tests/gpu/pack.sh FOLDER [--dirty]" >&2
  exit 64
}
[ $# -ge 1 ] && [ $# -le 2 ] && [ -n "$1" ] && [[ "$1" != -* ]] || usage
[ $# -eq 1 ] || [ "$2" = --dirty ] || usage
target=$(realpath -m -- "$1")
dirty=${2:-}
cd "$(dirname "$0")/../.."
most=$((60 << 20))
say() { echo "pack: $1"; }
die() {
  echo "pack: $1" >&2
  exit 1
}

changes=$(git status --porcelain)
[ -z "$changes" ] || [ "$dirty" = --dirty ] || die "this checkout is not clean; commit, or give --dirty: $changes"
command -v nvcc >/dev/null || die "nvcc is not installed"
[[ "$target/" != "$(pwd -P)"/* ]] || die "$target is inside the checkout; give a folder elsewhere"
[ ! -e "$target" ] || [ -d "$target" ] || die "$target is not a folder"
if [ -d "$target" ] && [ -n "$(ls -A "$target")" ]; then die "$target is not empty"; fi

built=build/cuda
temp=$(mktemp -d)
folder=$temp/pack
finish() {
  rm -r "$temp"
  cmake --preset cuda -UAB_PARQUET >/dev/null  # the next build of the checkout is the usual one
}
trap finish EXIT
cmake --preset cuda -DAB_PARQUET=OFF >/dev/null
cmake --build --preset cuda
mkdir -p "$folder" "$temp/program/bin" "$temp/program/lib"

say "program"
for file in anabranch libanabranch_cpu.so libanabranch_cuda.so core_cuda_tests; do
  [ -f "$built/$file" ] || { say "without $file, which this build has not"; continue; }
  strip -o "$temp/program/bin/$file" "$built/$file"
done

# What the program loads, but for the C library and what comes with the GPU or a toolkit.
ldd "$temp"/program/bin/* 2>/dev/null | sed -nE 's/.*=> (\/[^ ]+) .*/\1/p' | sort -u |
  grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so|/lib(cuda|cudart|cublas|cublasLt|nccl|nvidia-ml)\.so|/libanabranch' |
  while IFS= read -r library; do cp -L "$library" "$temp/program/lib/"; done
tar -czf "$folder/program.tar.gz" -C "$temp" program

say "source"
if [ "$dirty" = --dirty ]; then
  # Of what git lists, what is there: a tracked file may be deleted.
  git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; fi
  done | tar --null -czf "$folder/source.tar.gz" --files-from=-
else
  git archive HEAD | gzip >"$folder/source.tar.gz"
fi
cp -r configs "$folder/configs"
cp tests/gpu/check.sh tests/gpu/torch_beside.py "$folder/"

say "shard"
text=$temp/text.txt
cat tests/reference/tokenizer/corpus.txt ./*.md ./*/README.md >"$text"
ANABRANCH_DEVICE=cpu "$built/anabranch" tokenizer train --vocab 1024 --special '<|endoftext|>' \
  --out "$temp/tokenizer.json" "$text" >/dev/null 2>&1 || die "tokenizer train failed"
ANABRANCH_DEVICE=cpu "$built/anabranch" shard build --tokenizer "$temp/tokenizer.json" --out "$folder/data" \
  --document paragraph --validation 0.02 "$text" >/dev/null 2>&1 || die "shard build failed"

{
  "$built/anabranch" --version
  echo "checkout ${changes:+with changes, }$(git rev-parse HEAD)"
  nvcc --version | sed -n 4,5p
  (cd "$folder" && find . -type f -not -name MANIFEST -not -path './configs/*' -exec sha256sum {} +)
} >"$folder/MANIFEST"

size=$(du -sb "$folder" | cut -f1)
mebibytes=$(awk -v b="$size" 'BEGIN {printf "%.1f MiB", b / 1048576}')
[ "$size" -le "$most" ] || die "the pack is $mebibytes, more than 60 MiB: $(cd "$folder" && du -sh ./* | sort -rh | head -n 3 | tr '\n\t' '; ')"
mkdir -p "$target"
cp -r "$folder/." "$target/"
say "$target: $mebibytes; run $target/check.sh on the other machine"
