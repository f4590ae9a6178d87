#!/usr/bin/env bash
# Measures and tests on a machine with a GPU: one command, under ten minutes, nothing fetched. Runs from the folder that
# pack.sh makes, or from a checkout with a build of the preset cuda.
#
#   tests/gpu/check.sh [--out FOLDER] [--only PART[,PART]...]     FOLDER: gpu-check; PART: all of them
#
#   ops        the op tests, on the GPU
#   models     `anabranch bench step` of each model below
#   kernels    each op of a step, `anabranch bench ops`, against what the GPU's datasheet allows it at best
#   torch      PyTorch's steps of the GPT-2 models and its ops at the same shapes, where it is installed for python3
#   train      a few steps of a small model from the packed shard
#   infer      that run's loss on the GPU and on the processor, and how fast a model samples
#   sanitizer  the op tests again under compute-sanitizer
#
# cuBLAS and NCCL are taken from the first of these that has the library: $CUDA_HOME, /usr/local/cuda, the newest
# /usr/local/cuda-*, what the loader knows, the nvidia-* packages of python3. The program has cudart in it, and one rank
# needs no NCCL. Where the program does not start it is built again from the packed source.
#
# FOLDER is new, empty, or that of an earlier run, whose results go once a GPU is found; any other is refused.
# Ends with FOLDER/result.json and FOLDER/result.txt. Exit code: 0; 1 if a part failed; 69 if there is no GPU.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=gpu-check only=
parts=(ops models kernels torch train infer sanitizer)
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=${2:?--out FOLDER}; shift 2 ;;
    --only) only=${2:?--only PART}; shift 2 ;;
    *) echo "usage: check.sh [--out FOLDER] [--only PART[,PART]...]; parts: ${parts[*]}" >&2; exit 64 ;;
  esac
done
for part in ${only//,/ }; do
  [[ " ${parts[*]} " == *" $part "* ]] || { echo "check: no part $part; parts: ${parts[*]}" >&2; exit 64; }
done

seconds=570  # of all parts together
# The models: name, configuration, changes. Ten steps of each; MFU counts each sequence's attention as causal, once.
models=(
  "gpt2-124m   gpt2-85m.yaml     train.batch_tokens=131072 train.micro_batch=32"
  "gpt2-350m   gpt2-350m.yaml    train.batch_tokens=65536 train.micro_batch=16"
  "gpt2-760m   gpt2-760m.yaml    train.batch_tokens=65536 train.micro_batch=16"
  "cmollm-85m  gpt2-85m.yaml     model.type=cmollm model.streams=4 train.batch_tokens=65536 train.micro_batch=16"
  "kappa-8     kappa-d12.yaml    model.depth=8 train.batch_tokens=65536 train.micro_batch=32"
  "swiglu-8    kappa-d12.yaml    model.depth=8 model.kappa=false train.batch_tokens=65536 train.micro_batch=32"
  "moep-msit   moep-babylm.yaml  "
)
timed_ops=(gpt2-124m cmollm-85m kappa-8 moep-msit)  # the models whose ops are timed: one of each family

die() {
  echo "check: $1" >&2
  exit "$2"
}
left() { echo $((seconds - SECONDS)); }
# Text as a JSON string.
quoted() { printf '"%s"' "$(sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/[[:cntrl:]]/ /g' <<<"$1" | tr '\n' ' ' | sed 's/ *$//')"; }

# Where things are: packed, or built in a checkout.
if [ -f "$here/program.tar.gz" ]; then
  root=$here configs=$here/configs bin=$here/program/bin
  [ -d "$here/program" ] || tar -xzf "$here/program.tar.gz" -C "$here" || die "cannot unpack program.tar.gz" 74
else
  root=$(cd "$here/../.." && pwd) configs=$root/configs bin=$root/build/cuda
  [ -x "$bin/anabranch" ] || die "no program: build it with cmake --preset cuda && cmake --build --preset cuda" 69
fi

# What the loader knows; ldconfig is not on every user's PATH.
loader_libraries() { PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2>/dev/null; }

# The GPU, before anything that takes time.
has_driver() {
  local folder folders
  IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
  for folder in "${folders[@]}"; do
    if [ -e "$folder/libcuda.so.1" ]; then return 0; fi
  done
  [[ $(loader_libraries) == *libcuda.so.1* ]]
}
has_driver || die "no GPU: the driver's library libcuda.so.1 is not installed here" 69

# Folders that may hold CUDA's libraries, in order.
library_folders() {
  local home
  for home in ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda $(find /usr/local -maxdepth 1 -name 'cuda-*' | sort -rV); do
    printf '%s\n' "$home/lib64" "$home/targets/x86_64-linux/lib"
  done
  loader_libraries | sed -nE 's/.*lib(cublas|nccl)\.so\.[0-9]+ .*=> (.*)\/[^/]*$/\2/p' | sort -u
  if command -v python3 >/dev/null; then
    # Both layouts of the packages: nvidia/cublas/lib and nvidia/cu13/lib.
    python3 -c 'import glob, site, sys
for s in site.getsitepackages() + [site.getusersitepackages()] + sys.path:
    print("\n".join(sorted(glob.glob(s + "/nvidia/*/lib"))))' 2>/dev/null | sed '/^$/d'
  fi
}
sources=""
search=""
for library in libcublas.so.13 libcublasLt.so.13 libnccl.so.2; do
  found=$(library_folders | while IFS= read -r folder; do
    if [ -e "$folder/$library" ]; then echo "$folder"; break; fi
  done)
  sources+="${sources:+, }$library from ${found:-nowhere}"
  if [ -n "$found" ] && [[ ":$search:" != *":$found:"* ]]; then search+="${search:+:}$found"; fi
done
echo "libraries: $sources"
own=$(dirname "$bin")/lib
with_libraries() {
  local path=$search
  if [ -d "$own" ]; then path=$own${path:+:$path}; fi
  env LD_LIBRARY_PATH="$path${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@"
}

mkdir -p "$out" || die "cannot make $out" 74
out=$(cd "$out" && pwd)
mark=$out/.gpu-check  # tells a folder of ours
[ -e "$mark" ] || [ -z "$(ls -A "$out")" ] ||
  die "$out holds files that are not from here; give a folder that is new or empty by --out" 64
touch "$mark" || die "cannot write to $out" 74

# Built again where the packed program does not start.
starts() { with_libraries "$bin/anabranch" --version >"$out/version.log" 2>&1; }
if ! starts; then
  echo "the program does not start: $(head -n 1 "$out/version.log")"
  [ -f "$root/source.tar.gz" ] || die "and there is no source to build it from" 69
  for tool in cmake ninja g++ nvcc; do
    command -v "$tool" >/dev/null || die "and it cannot be built again: $tool is not installed" 69
  done
  mkdir -p "$root/source" && tar -xzf "$root/source.tar.gz" -C "$root/source" || die "cannot unpack the source" 74
  # Only what is run here, for this GPU alone where its kind is known.
  kind=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -nE '1s/^([0-9]+)\.([0-9]+)$/\1\2/p')
  (cd "$root/source" && cmake --preset cuda ${kind:+-DCMAKE_CUDA_ARCHITECTURES="$kind-real"} &&
    cmake --build --preset cuda --target anabranch core_cuda_tests) >"$out/build.log" 2>&1 ||
    die "and building it again failed: $(grep -m 1 -iE 'error|not found' "$out/build.log"); see $out/build.log" 69
  bin=$root/source/build/cuda own=/nowhere seconds=$((seconds + SECONDS))
  starts || die "built again it does not start: $(head -n 1 "$out/version.log")" 69
fi

with_libraries "$bin/anabranch" doctor --dir "$out" >"$out/doctor.log" 2>&1 || true
gpu=$(sed -nE 's/.* gpu 0: ([^,]*),.*/\1/p' "$out/doctor.log")
[ -n "$gpu" ] || die "no GPU: $(sed -nE 's/.* gpus: none: //p; s/.*(anabranch: note: )/\1/p' "$out/doctor.log" | head -n 1)" 69
# An earlier run's results.
find "$out" -maxdepth 1 \( -name '*.json' -o -name '*.log' -o -name result.txt \) \
  ! -name version.log ! -name build.log ! -name doctor.log -delete
# What a datasheet states of a GPU of just this name: dense bf16 FLOP per second, and the file with all of its figures
# where there is one. Of another variant, or a part of one (MIG), nothing is known.
datasheet() {
  case "$1" in
    "NVIDIA H100 80GB HBM3") echo 989e12 h100 ;;
    "NVIDIA H100 PCIe") echo 756e12 ;;
    "NVIDIA H200") echo 989e12 h200 ;;
    "NVIDIA A100-SXM4-80GB") echo 312e12 a100-80 ;;
    "NVIDIA A100 80GB PCIe" | "NVIDIA A100-SXM4-40GB" | "NVIDIA A100-PCIE-40GB") echo 312e12 ;;
  esac
}
read -r peak machine <<<"$(datasheet "$gpu")"
if [ -n "$peak" ]; then stated="stated peak $peak FLOP/s"; else stated="no figure of its datasheet is known"; fi
echo "GPU: $gpu, $stated"

# Results: a line of the table and a member of the JSON each.
json=() table=() failed=0
result() {
  local name=$1 state=$2 what=$3 more=${4:-}
  table+=("$(printf '%-14s  %-7s  %s' "$name" "$state" "$what")")
  json+=("{\"part\": \"$name\", \"state\": \"$state\", \"what\": $(quoted "$what")${more:+, \"figures\": $more}}")
  if [ "$state" = FAILED ]; then failed=1; fi
  echo "${table[-1]}"
}
# So many seconds, or what is left.
at_most() { echo $(($(left) < $1 ? $(left) : $1)); }
# Runs a command for at most $1 seconds, or what is left; its output goes to $2.log.
limited() {
  local most name=$2
  most=$(at_most "$1")
  shift 2
  if [ "$most" -le 0 ]; then echo "no time was left" >"$out/$name.log"; return 124; fi
  with_libraries timeout --signal=TERM --kill-after=5 "$most" "$@" >"$out/$name.log" 2>&1
}
why() { if [ "$1" = 124 ]; then echo "out of time"; else echo "ended $1: $(grep . "$out/$2.log" | tail -n 1)"; fi; }
wants() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

check_ops() {
  local code=0 tests=$bin/core_cuda_tests
  [ -x "$tests" ] || { result ops skipped "no core_cuda_tests"; return; }
  limited 150 ops "$tests" --gtest_brief=1 || code=$?
  local passed
  passed=$(sed -nE 's/.*\[  PASSED  \] ([0-9]+) tests?\..*/\1/p' "$out/ops.log")
  if [ "$code" = 0 ]; then
    result ops passed "$passed tests" "{\"tests\": ${passed:-0}}"
  else
    result ops FAILED "$(why "$code" ops); $(grep -c '^\[  FAILED  \]' "$out/ops.log") lines of failures"
  fi
}

# A number of bench step's JSON.
number() { sed -nE "s/^ *\"$2\": ([-0-9.e+]+),?$/\1/p" "$1" | head -n 1; }

check_models() {
  local line name config sets set code speed flops mfu options
  for line in "${models[@]}"; do
    read -r name config sets <<<"$line"
    [ -f "$configs/$config" ] || { result "$name" skipped "no configs/$config"; continue; }
    options=()
    for set in $sets; do options+=(--set "$set"); done
    code=0
    limited 60 "$name" "$bin/anabranch" bench step "$configs/$config" "${options[@]}" --set device=cuda --steps 10 \
      --json || code=$?
    if grep -q 'does not run on GPUs yet' "$out/$name.log"; then
      result "$name" skipped "does not run on GPUs yet"
    elif [ "$code" != 0 ]; then
      result "$name" FAILED "$(why "$code" "$name")"
    else
      sed -n '/^{/,/^}/p' "$out/$name.log" >"$out/$name.json"
      speed=$(number "$out/$name.json" tokens_per_second) flops=$(number "$out/$name.json" flop_per_second)
      mfu=$([ -z "$peak" ] || awk -v f="$flops" -v p="$peak" 'BEGIN {printf "%.3f", f / p}')
      result "$name" passed "$(awk -v s="$speed" 'BEGIN {printf "%.0f tokens/s", s}')${mfu:+, MFU $mfu}" \
        "$(cat "$out/$name.json")"
    fi
  done
}

check_kernels() {
  local line name config sets set code options count
  for line in "${models[@]}"; do
    read -r name config sets <<<"$line"
    [[ " ${timed_ops[*]} " == *" $name "* ]] || continue
    [ -f "$configs/$config" ] || { result "ops:$name" skipped "no configs/$config"; continue; }
    options=()
    for set in $sets; do options+=(--set "$set"); done
    code=0
    limited 60 "ops-$name" "$bin/anabranch" bench ops "$configs/$config" "${options[@]}" --set device=cuda --type bf16 \
      ${machine:+--machine "$configs/machines/$machine.yaml"} --json || code=$?
    if grep -q 'does not run on GPUs yet' "$out/ops-$name.log"; then
      result "ops:$name" skipped "does not run on GPUs yet"
    elif [ "$code" != 0 ]; then
      result "ops:$name" FAILED "$(why "$code" "ops-$name")"
    else
      sed -n '/^{/,/^}/p' "$out/ops-$name.log" >"$out/ops-$name.json"
      count=$(grep -c '"op":' "$out/ops-$name.json")
      result "ops:$name" passed "$count ops, below" "$(cat "$out/ops-$name.json")"
    fi
  done
}

check_torch() {
  local code=0
  if ! python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' >/dev/null 2>&1; then
    result torch skipped "python3 has no PyTorch that sees a GPU"
    return
  fi
  if [ "$(left)" -le 0 ]; then result torch FAILED "no time was left"; return; fi
  # With its own libraries, not ours.
  timeout --signal=TERM --kill-after=5 "$(at_most 120)" python3 "$here/torch_beside.py" --json "$out/torch.json" \
    >"$out/torch.log" 2>&1 || code=$?
  if [ "$code" != 0 ]; then
    result torch FAILED "$(why "$code" torch)"
  else
    result torch passed "$(head -n 1 "$out/torch.log"), below" "$(cat "$out/torch.json")"
  fi
}

# Each step and op that was timed: milliseconds, how much of what the datasheet allows is reached, PyTorch's
# milliseconds and theirs over ours. Reads the files of results; a member of their JSON is a line.
beside() {
  local files=()
  for file in "$out/torch.json" "$out"/*.json; do
    if [ -f "$file" ] && [ "$file" != "$out/result.json" ]; then files+=("$file"); fi
  done
  [ ${#files[@]} -gt 0 ] || return 0
  awk '
    function value(text) {sub(/^[^:]*: "?/, "", text); sub(/"?,?$/, "", text); return text}
    function put() {
      line = sprintf("%-12s%-34s%10.3f  %-18s", model, op, 1e3 * seconds, share == "" ? "" : sprintf("%.0f%% of %s", 100 * share, by))
      if ((model, op) in torch) line = line sprintf("%10.3f%8.2f", 1e3 * torch[model, op], torch[model, op] / seconds)
      sub(/ +$/, "", line)
      print line
    }
    FNR == 1 {
      file = FILENAME; sub(/.*\//, "", file); sub(/\.json$/, "", file)
      model = file; sub(/^ops-/, "", model)
    }
    file == "torch" {
      if (/"model":/) model = value($0)
      if (/"op":/) op = value($0)
      if (/"seconds":/) torch[model, op] = value($0)
      next
    }
    !title++ {printf "\n%-46s%10s  %-18s%10s%8s\n", "", "ms", "at best", "PyTorch ms", "ratio"}
    file !~ /^ops-/ {if (/^ *"step_seconds":/) {op = "step"; share = ""; seconds = value($0); put()}; next}
    /"op":/ {op = value($0); share = ""}
    /"seconds":/ {seconds = value($0)}
    /"bound_by":/ {by = value($0)}
    /"of_bound":/ {share = value($0)}
    /^ *\},?$/ && op != "" {put(); op = ""}' "${files[@]}"
}

check_train() {
  local code=0 data=$root/data
  [ -f "$data/dataset.json" ] || { result train skipped "no token shard: pack.sh makes one"; return; }
  rm -rf "$out/run"
  limited 60 train "$bin/anabranch" train "$configs/gpt2-2core.yaml" --set "data.path=$data" --set "run.dir=$out/run" \
    --set train.steps=50 --set optim.warmup_steps=10 --set train.log_every=10 --set train.precision=bf16 \
    --set device=cuda --set metrics.listen=off || code=$?
  if grep -q 'does not run on GPUs yet' "$out/train.log"; then
    result train skipped "does not run on GPUs yet"
  elif [ "$code" != 0 ]; then
    result train FAILED "$(why "$code" train)"
  else
    result train passed "loss $(sed -nE 's/.*"type":"step".*"loss":([0-9.]+).*/\1/p' "$out/run/metrics.jsonl" |
      sed -n '1p;$p' | tr '\n' ' ')at the first and last step"
  fi
}

check_infer() {
  local code=0 device on_gpu on_cpu
  [ -d "$out/run/checkpoints" ] || { result infer skipped "no run: the part train makes one"; return; }
  for device in cuda cpu; do
    limited 60 "eval-$device" "$bin/anabranch" eval "$out/run" --data "$root/data" --device "$device" --json ||
      { code=$?; result infer FAILED "$(why "$code" "eval-$device")"; return; }
  done
  on_gpu=$(number "$out/eval-cuda.log" loss) on_cpu=$(number "$out/eval-cpu.log" loss)
  # The run is in bf16, which both round as they sum.
  awk -v a="$on_gpu" -v b="$on_cpu" 'BEGIN {d = a / b - 1; exit !(d < 0.01 && d > -0.01)}' ||
    { result infer FAILED "loss $on_gpu on the GPU, $on_cpu on the processor"; return; }
  limited 60 sample "$bin/anabranch" bench generate "$configs/gpt2-85m.yaml" --set device=cuda \
    --set train.precision=bf16 --set train.steps=1 --json || { code=$?; result infer FAILED "$(why "$code" sample)"; return; }
  result infer passed "loss $on_gpu, on the processor $on_cpu; $(number "$out/sample.log" decode_tokens_per_second) tokens/s" \
    "$(sed -n '/^{/,/^}/p' "$out/sample.log")"
}

check_sanitizer() {
  local code=0 tool
  tool=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
  [ -n "$tool" ] || { result sanitizer skipped "compute-sanitizer is not installed"; return; }
  [ -x "$bin/core_cuda_tests" ] || { result sanitizer skipped "no core_cuda_tests"; return; }
  limited 150 sanitizer "$tool" --tool memcheck --error-exitcode 9 "$bin/core_cuda_tests" --gtest_brief=1 || code=$?
  if [ "$code" = 0 ]; then
    result sanitizer passed "no invalid access"
  else
    result sanitizer FAILED "$(why "$code" sanitizer)"
  fi
}

for part in "${parts[@]}"; do
  if wants "$part"; then "check_$part"; else result "$part" skipped "not asked for"; fi
done

{
  echo "{\"gpu\": $(quoted "$gpu"), \"build\": $(quoted "$(cat "$out/version.log")"), \"libraries\": $(quoted "$sources"),"
  echo " \"peak_flop_per_second\": ${peak:-null}, \"seconds\": $SECONDS,"
  echo " \"doctor\": $(quoted "$(sed 's/^ *//' "$out/doctor.log" | tr '\n' ';')"),"
  echo " \"results\": ["
  for i in "${!json[@]}"; do printf '%s%s\n' "${json[i]}" "$([ "$i" = $((${#json[@]} - 1)) ] || echo ,)"; done
  echo "]}"
} >"$out/result.json"
{
  echo "$gpu; $(head -n 1 "$out/version.log"); $SECONDS s"
  printf '%s\n' "${table[@]}"
  beside
} >"$out/result.txt"
echo "written: $out/result.json, $out/result.txt"
exit "$failed"
