#!/usr/bin/env bash
# Checks check.sh without a GPU, on a folder as pack.sh makes it whose programs only say what real ones would: what
# passes, fails and is skipped is told as such, in a table and as JSON, and without a GPU it ends at once.
set -euo pipefail
cd "$(dirname "$0")"
temp=$(mktemp -d)
trap 'rm -r "$temp"' EXIT
pack=$temp/pack bin=$temp/pack/program/bin out=$temp/out
mkdir -p "$bin" "$temp/driver" "$pack/configs"
cp check.sh "$pack/"
touch "$pack/program.tar.gz" "$temp/driver/libcuda.so.1"
cp ../../configs/*.yaml "$pack/configs/"
cat >"$bin/anabranch" <<'PROGRAM'
#!/usr/bin/env bash
case "$* " in
  --version*) echo 'anabranch of "today"' ;;
  doctor*) [ -n "${NO_GPU:-}" ] && echo '  ok    gpus: none: CUDA finds no GPU: none is here' && exit
    echo "  ok    gpu 0: ${GPU:-NVIDIA H200}, 139 GiB, NVLink yes" ;;
  *generate*) printf '{\n  "decode_tokens_per_second": 812.5\n}\n' ;;
  eval*) printf 'device: x\n{\n      "loss": %s,\n}\n' "$([[ $* == *cuda* ]] && echo "${LOSS:-4.01}" || echo 4.02)" ;;
  bench\ ops*gpt2-85m*)
    [[ $* == *--machine*h200.yaml* ]] || { echo 'anabranch: error: no machine' >&2; exit 64; }
    printf '{\n  "ops": [\n    {\n      "op": "gelu forward",\n      "seconds": 0.002,\n      "bytes": 1e9,\n'
    printf '      "bound_by": "memory",\n      "of_bound": 0.5\n    }\n  ]\n}\n' ;;
  *moep*) echo 'anabranch: error: device is cuda, but this configuration does not run on GPUs yet' >&2; exit 78 ;;
  *kappa=false*) echo 'anabranch: error: out of memory' >&2; exit 70 ;;
  bench*) printf 'a note\n{\n  "ranks": 1,\n  "step_seconds": 0.25,\n  "tokens_per_second": 450000.4,\n  "flop_per_second": 4.945e+14\n}\n' ;;
esac
PROGRAM
printf '#!/usr/bin/env bash\necho "[  PASSED  ] 12 tests."\n' >"$bin/core_cuda_tests"
chmod +x "$bin"/*

bad=0
expect() {  # TEXT FILE
  grep -qF -- "$1" "$2" || { echo "check_test: \"$1\" is not in $(basename "$2"): $(cat "$2")"; bad=1; }
}
# Runs check.sh with words; it must end with $1.
run() {
  local want=$1 code=0
  shift
  env LD_LIBRARY_PATH="$temp/driver" "$@" >"$temp/said" 2>&1 || code=$?
  [ "$code" = "$want" ] || { echo "check_test: ended with $code, not $want: $(cat "$temp/said")"; bad=1; }
}

run 1 "$pack/check.sh" --out "$out" --only ops,models
expect 'ops             passed   12 tests' "$out/result.txt"
expect 'gpt2-124m       passed   450000 tokens/s, MFU 0.500' "$out/result.txt"
expect 'swiglu-8        FAILED   ended 70: anabranch: error: out of memory' "$out/result.txt"
expect 'moep-msit       skipped  does not run on GPUs yet' "$out/result.txt"
expect 'sanitizer       skipped  not asked for' "$out/result.txt"
expect '"build": "anabranch of \"today\""' "$out/result.json"
expect '"tokens_per_second": 450000.4' "$out/result.json"
# What PyTorch does beside it: a python3 that has it, and then one that has none.
cp torch_beside.py "$pack/"
mkdir "$temp/torch" "$temp/none"
cat >"$temp/torch/python3" <<'PYTHON'
#!/usr/bin/env bash
while [ $# -gt 0 ]; do
  case "$1" in
    --json) printf '{\n "ops": [\n {\n "model": "gpt2-124m",\n "op": "step",\n "seconds": 0.5\n },\n {\n "model": "gpt2-124m",\n "op": "gelu forward",\n "seconds": 0.003\n }\n ]\n}\n' >"$2"
      echo 'PyTorch 9.9' ;;
  esac
  shift
done
PYTHON
printf '#!/usr/bin/env bash\nexit 1\n' >"$temp/none/python3"
chmod +x "$temp"/{torch,none}/python3
run 1 env PATH="$temp/torch:$PATH" "$pack/check.sh" --out "$out" --only models,kernels,torch
expect 'ops:gpt2-124m   passed   1 ops, below' "$out/result.txt"
expect 'ops:moep-msit   skipped  does not run on GPUs yet' "$out/result.txt"
expect 'torch           passed   PyTorch 9.9, below' "$out/result.txt"
grep -qE '^gpt2-124m +step +250\.000 +500\.000 +2\.00$' "$out/result.txt" || { cat "$out/result.txt"; bad=1; }
grep -qE '^gpt2-124m +gelu forward +2\.000 +50% of memory +3\.000 +1\.50$' "$out/result.txt" || { cat "$out/result.txt"; bad=1; }
if command -v python3 >/dev/null; then python3 -m json.tool "$out/result.json" >/dev/null || bad=1; fi
run 0 env PATH="$temp/none:$PATH" "$pack/check.sh" --out "$out" --only torch
expect 'torch           skipped  python3 has no PyTorch that sees a GPU' "$out/result.txt"
if command -v python3 >/dev/null; then python3 -m json.tool "$out/result.json" >/dev/null || bad=1; fi

mkdir -p "$out/run/checkpoints"
run 0 "$pack/check.sh" --out "$out" --only infer
expect 'infer           passed   loss 4.01, on the processor 4.02; 812.5 tokens/s' "$out/result.txt"
if command -v python3 >/dev/null; then python3 -m json.tool "$out/result.json" >/dev/null || bad=1; fi
run 1 env LOSS=5 "$pack/check.sh" --out "$out" --only infer
expect 'infer           FAILED   loss 5 on the GPU, 4.02 on the processor' "$out/result.txt"

# A program that does not start is built again, what is run of it and for this GPU alone.
mkdir "$temp/tools" "$temp/source"
touch "$temp/source/CMakeLists.txt"
tar -czf "$pack/source.tar.gz" -C "$temp/source" .
for tool in ninja g++ nvcc; do printf '#!/usr/bin/env bash\n' >"$temp/tools/$tool"; done
printf '#!/usr/bin/env bash\necho 9.0\n' >"$temp/tools/nvidia-smi"
cat >"$temp/tools/cmake" <<CMAKE
#!/usr/bin/env bash
echo "cmake \$*"
[ "\$1" != --build ] || { mkdir -p build/cuda && cp "$temp/whole" build/cuda/anabranch; }
CMAKE
chmod +x "$temp"/tools/*
cp "$bin/anabranch" "$temp/whole"
echo 'no program' >"$bin/anabranch"
run 0 env PATH="$temp/tools:$PATH" "$pack/check.sh" --out "$out" --only sanitizer
expect 'the program does not start: ' "$temp/said"
expect 'cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90-real' "$out/build.log"
expect 'cmake --build --preset cuda --target anabranch core_cuda_tests' "$out/build.log"
expect 'anabranch of "today"' "$out/version.log"
printf '#!/usr/bin/env bash\necho "Could NOT find HDF5: error"; exit 1\n' >"$temp/tools/cmake"
run 69 env PATH="$temp/tools:$PATH" "$pack/check.sh" --out "$out"
expect 'building it again failed: Could NOT find HDF5: error; see ' "$temp/said"
cp "$temp/whole" "$bin/anabranch"

run 69 env NO_GPU=1 "$pack/check.sh" --out "$out"
expect 'check: no GPU: CUDA finds no GPU: none is here' "$temp/said"
[ -e "$out/result.json" ] || { echo "check_test: without a GPU the earlier results are gone"; bad=1; }

# Folders of others are left alone.
mkdir -p "$temp/theirs/run"
touch "$temp/theirs/notes.json" "$temp/theirs/run/kept"
run 64 "$pack/check.sh" --out "$temp/theirs" --only train
expect 'theirs holds files that are not from here' "$temp/said"
[ -e "$temp/theirs/notes.json" ] && [ -e "$temp/theirs/run/kept" ] || { echo "check_test: files are gone"; bad=1; }

# Figures are those of the very GPU, or none.
stated() {  # NAME TEXT
  run 0 env GPU="$1" PATH="$temp/none:$PATH" "$pack/check.sh" --out "$out" --only torch
  expect "GPU: $1, $2" "$temp/said"
}
stated "NVIDIA H100 80GB HBM3" "stated peak 989e12 FLOP/s"
stated "NVIDIA H100 PCIe" "stated peak 756e12 FLOP/s"
stated "NVIDIA A100-SXM4-40GB" "stated peak 312e12 FLOP/s"
for gpu in "NVIDIA H100 NVL" "NVIDIA H200 NVL" "NVIDIA GH200 480GB" "NVIDIA RTX A1000" "NVIDIA H100 80GB HBM3 MIG 1g.10gb"; do
  stated "$gpu" "no figure of its datasheet is known"
done
run 64 "$pack/check.sh" --only nothing
if ! PATH=$PATH:/usr/sbin:/sbin ldconfig -p | grep -q 'libcuda\.so\.1'; then
  run 69 env LD_LIBRARY_PATH= "$pack/check.sh" --out "$out"
  expect 'check: no GPU: the driver' "$temp/said"
fi
exit "$bad"
