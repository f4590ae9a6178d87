#!/usr/bin/env bash
# Checks pack.sh without CUDA, on a small checkout whose tools only say what real ones would: where the folder goes, what
# is refused, and that a pack is written whole or not at all.
set -euo pipefail
script=$(realpath "$(dirname "$0")/pack.sh")
temp=$(mktemp -d)
trap 'rm -r "$temp"' EXIT
checkout=$temp/checkout tools=$temp/tools
mkdir -p "$checkout/tests/gpu" "$checkout/tests/reference/tokenizer" "$checkout/configs" "$checkout/core" "$tools" "$temp/away"
cp "$script" "$checkout/tests/gpu/"
cd "$checkout"
touch tests/gpu/check.sh tests/gpu/torch_beside.py configs/small.yaml gone.txt
echo text | tee tests/reference/tokenizer/corpus.txt README.md core/README.md >/dev/null
echo build/ >.gitignore
git init -q
git add -A
git -c user.name=test -c user.email=test@localhost commit -qm all

# Each notes how it was called; the build makes a program.
cat >"$tools/cmake" <<CMAKE
#!/usr/bin/env bash
echo "cmake \$*" >>"$temp/calls"
[ "\$1" != --build ] || { mkdir -p build/cuda && cp "$tools/program" build/cuda/anabranch; }
CMAKE
cat >"$tools/program" <<'PROGRAM'
#!/usr/bin/env bash
while [ $# -gt 0 ]; do
  if [ "$1" = --out ]; then [[ $2 == *.json ]] && touch "$2" || { mkdir -p "$2" && head -c "${SHARD_BYTES:-9}" /dev/zero >"$2/dataset.json"; }; fi
  shift
done
PROGRAM
printf '#!/usr/bin/env bash\n' >"$tools/nvcc"
printf '#!/usr/bin/env bash\necho "libsmall.so.1 => %s/libsmall.so.1 (0x1)"\n' "$temp" >"$tools/ldd"
touch "$temp/libsmall.so.1"
printf '#!/usr/bin/env bash\ncp "$3" "$2"\n' >"$tools/strip"
chmod +x "$tools"/*

bad=0
fault() {
  echo "pack_test: $1: $(cat "$temp/said")"
  bad=1
}
# Runs pack.sh from another folder with words; it must end with $1.
run() {
  local want=$1 code=0
  shift
  (cd "$temp/away" && PATH=$tools:$PATH "$checkout/tests/gpu/pack.sh" "$@") >"$temp/said" 2>&1 || code=$?
  [ "$code" = "$want" ] || fault "$* ended with $code, not $want"
}
said() { grep -qF -- "$1" "$temp/said" || fault "\"$1\" is not said"; }

run 0 made
[ -s "$temp/away/made/program.tar.gz" ] && [ -s "$temp/away/made/MANIFEST" ] || fault "no pack where the caller is"
grep -q -- '-DAB_PARQUET=OFF' "$temp/calls" || fault "built with Parquet"
[ "$(tail -n 1 "$temp/calls")" = "cmake --preset cuda -UAB_PARQUET" ] || fault "the checkout stays without Parquet"
run 1 made
said 'made is not empty'

run 64
run 64 other --dirt
run 64 other --dirty more
said 'usage: tests/gpu/pack.sh FOLDER [--dirty]'
run 1 "$checkout/build/pack"
said 'is inside the checkout'

SHARD_BYTES=$((61 << 20)) run 1 large
said 'more than 60 MiB'
[ ! -e "$temp/away/large" ] || fault "half a pack is left"

rm gone.txt
touch new.txt
run 1 other
said 'is not clean'
run 0 other --dirty
files=$(tar -tzf "$temp/away/other/source.tar.gz")
[[ $files == *new.txt* && $files == *README.md* && $files != *gone.txt* ]] || fault "the source packed is $files"
exit "$bad"
