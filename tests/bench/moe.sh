#!/usr/bin/env bash
# A training step of a mixture model, ours and a peer's by turns on the same cores: the median of
# each and of their ratio.
#
#   tests/bench/moe.sh moep|mixtral [fp32|bf16] [PAIRS]
#
# moep     MoEP-MSIT's preset against peers/moep_torch.py, 8 sequences of 512
# mixtral  32 experts, top-2, against the loop of transformers' Mixtral (peers/mixtral_torch.py), 4
#          sequences of 512; ours has value embeddings besides
#
# PYTHON has torch (and transformers); LAUNCH is what both run under.
set -euo pipefail
model=${1:?usage: moe.sh moep|mixtral [fp32|bf16] [PAIRS]}
precision=${2:-fp32}
pairs=${3:-3}
python=${PYTHON:-python3}
read -ra launch <<< "${LAUNCH:-taskset -c 0,1}"
peers=$(dirname "$0")/peers
# shellcheck source=tests/bench/shared.sh
. "$(dirname "$0")/shared.sh"

sets=(train.precision="$precision" parallel.threads=2)
case $model in
  moep)
    peer=$peers/moep_torch.py
    sets+=(model.preset=moep-msit train.batch_tokens=4096 train.micro_batch=8) ;;
  mixtral)
    peer=$peers/mixtral_torch.py
    sets+=(model.type=kappa_moe model.kappa=false model.layers=2 model.width=512 model.heads=8
      model.ffn_width=1024 model.experts=32 model.top_k=2 model.moe_first=0 model.context=512
      train.batch_tokens=2048 train.micro_batch=4) ;;
  *)
    echo "moe.sh: $model is neither moep nor mixtral" >&2
    exit 64 ;;
esac
arguments=()
for set in "${sets[@]}"; do arguments+=(--set "$set"); done
echo '{}' > "$folder/empty.yaml"

for pair in $(seq "$pairs"); do
  "${launch[@]}" "$program" bench step "$folder/empty.yaml" "${arguments[@]}" --vocab 16384 \
    --warmup 1 --steps 3 --json > "$folder/ours-$pair.json"
  quietly "${launch[@]}" "$python" "$peer" --threads 2 --dtype "$precision" --steps 3 --json \
    > "$folder/peer-$pair.json"
done
"$python" - "$folder" "$pairs" << 'EOF'
import json, pathlib, statistics, sys

folder, pairs = pathlib.Path(sys.argv[1]), range(1, int(sys.argv[2]) + 1)
ours, peer = (
    [json.loads((folder / f"{name}-{i}.json").read_text()) for i in pairs]
    for name in ("ours", "peer")
)
seconds = [[run["step_seconds"] for run in runs] for runs in (ours, peer)]
ratios = [theirs / own for own, theirs in zip(*seconds)]
print(f"ours  {ours[0]['parameters']:,} parameters, {statistics.median(seconds[0]):.3f} s a step, "
      f"{max(run['resident_peak_bytes'] for run in ours) / 2**20:.0f} MiB resident")
print(f"peer  {peer[0]['parameters']:,} parameters, {statistics.median(seconds[1]):.3f} s a step, "
      f"{max(run['peak_rss_mib'] for run in peer):.0f} MiB resident: {peer[0]['peer']}")
print(f"ratio {statistics.median(ratios):.2f} (median of {len(ratios)} pairs; "
      f"{min(ratios):.2f} to {max(ratios):.2f})")
EOF
