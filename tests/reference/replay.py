#!/usr/bin/env python3
"""Replays the first steps of a GPT-2 run in PyTorch and prints its losses beside the run's own.

    anabranch checkpoint export RUN --step 0 --batches 20 --format generic --out DIR
    python tests/reference/replay.py DIR --metrics RUN/metrics.jsonl [--steps 20] [--dtype float32]

Needs torch, numpy and h5py. Exits with 1 if a loss differs by more than --tolerance (relative).

DIR holds
    model.safetensors  weights before the first replayed step, names as in make_gpt2.py
                       (wte.weight, ..., [out, in]); F64, F32, F16 or BF16. A lm_head.weight is
                       accepted if equal to wte.weight.
    config.json        n_layer, n_head, n_embd, n_positions, vocab_size, gelu ("tanh" or "erf"), and
                       optionally ln_eps (1e-5), step (0: steps already done),
                       optim: {lr, min_lr (0.1 lr), warmup_steps, steps, beta1, beta2, eps,
                       weight_decay, clip_norm (0 = none)}, whose keys may also stand at the top
                       level, and learning_rates, a list with the rate of each replayed step that
                       replaces the schedule below.
    batches.h5         tokens int32 [steps, batch, T+1]: inputs are [..., :-1], targets [..., 1:],
                       and of a run with document masks document_starts int32 [steps, batch, T]:
                       the first position that each attends to

The run must have dropout 0 and zero moments at the export, hence --step 0. Schedule of step
s = 0, 1, ...: linear warm-up lr (s+1) / warmup_steps, then cosine to min_lr at optim.steps; no
schedule if steps is missing. Decay applies to 2-D tensors only; clipping as in clip_grad_norm_.
Batches are cut into pieces of --micro sequences whose gradients are summed, which changes nothing
but memory. metrics.jsonl: objects with "type": "step", "step": n (the first update is 1; see
--first) and "loss"; lines of other types are skipped.
"""

import argparse
import json
import math
import pathlib
import struct
import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F

SAFETENSORS_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}


def read_safetensors(path):
    """8 bytes little-endian header length, a JSON header, then the data of all tensors."""
    raw = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = np.frombuffer(
            raw[8 + size + begin : 8 + size + end], SAFETENSORS_TYPES[entry["dtype"]]
        )
        if entry["dtype"] == "BF16":
            values = (values.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = torch.tensor(values.reshape(entry["shape"]))
    return tensors


def expected_names(layers):
    parts = ["ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"]
    modules = [f"h.{i}.{part}" for i in range(layers) for part in parts] + ["ln_f"]
    return ["wte.weight", "wpe.weight"] + [
        f"{m}.{kind}" for m in modules for kind in ("weight", "bias")
    ]


def load_weights(path, config, dtype):
    tensors = read_safetensors(path)
    head = tensors.pop("lm_head.weight", None)
    if head is not None and not torch.equal(head, tensors["wte.weight"]):
        sys.exit(f"{path}: lm_head.weight differs from wte.weight; only tied heads are replayed")
    expected = set(expected_names(config["n_layer"]))
    if set(tensors) != expected:
        sys.exit(
            f"{path}: missing {sorted(expected - set(tensors))}, "
            f"unknown {sorted(set(tensors) - expected)}"
        )
    return {name: t.to(dtype).requires_grad_() for name, t in tensors.items()}


def forward_loss_sum(w, config, tokens, starts=None):
    """Sum of the losses of [batch, T+1] tokens under the GPT-2 described in make_gpt2.py.

    starts [batch, T]: the first position that each attends to; none: 0.
    """
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    batch, length = inputs.shape
    width, heads = config["n_embd"], config["n_head"]

    def norm(x, name):
        return F.layer_norm(
            x, (width,), w[name + ".weight"], w[name + ".bias"], config.get("ln_eps", 1e-5)
        )

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    seen = None
    if starts is not None:
        places = torch.arange(length)
        seen = (places >= starts[:, :, None]) & (places <= places[:, None])
        seen = seen[:, None]

    x = w["wte.weight"][inputs] + w["wpe.weight"][:length]
    for i in range(config["n_layer"]):
        qkv = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        q, k, v = (
            u.view(batch, length, heads, -1).transpose(1, 2) for u in qkv.split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, is_causal=seen is None)
        x = x + linear(y.transpose(1, 2).reshape(batch, length, width), f"h.{i}.attn.c_proj")
        u = linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        u = F.gelu(u, approximate="none" if config.get("gelu", "tanh") == "erf" else "tanh")
        x = x + linear(u, f"h.{i}.mlp.c_proj")
    logits = F.linear(norm(x, "ln_f"), w["wte.weight"])
    return F.cross_entropy(logits.view(batch * length, -1), targets.reshape(-1), reduction="sum")


def learning_rate(optim, step):
    peak, warmup, total = optim["lr"], optim.get("warmup_steps", 0), optim.get("steps")
    if step < warmup:
        return peak * (step + 1) / warmup
    if not total:
        return peak
    low = optim.get("min_lr", 0.1 * peak)
    part = min(1.0, (step - warmup) / max(1, total - warmup))
    return low + 0.5 * (1.0 + math.cos(math.pi * part)) * (peak - low)


def read_losses(path):
    losses = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            if entry.get("type") == "step":
                losses[int(entry["step"])] = float(entry["loss"])
    return losses


def replay(w, config, batches, starts, micro, report):
    """Trains on the batches in order; report(index, loss, gradient norm) follows each step."""
    optim = {**config, **config.get("optim", {})}
    groups = [
        {"params": [p for p in w.values() if p.dim() == 2], "weight_decay": optim["weight_decay"]},
        {"params": [p for p in w.values() if p.dim() != 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=optim["lr"], betas=(optim["beta1"], optim["beta2"]), eps=optim["eps"]
    )
    rates = config.get("learning_rates")
    for i, batch in enumerate(batches):
        batch = torch.tensor(batch.astype(np.int64))
        count = batch.shape[0] * (batch.shape[1] - 1)
        optimizer.zero_grad()
        loss = 0.0
        size = micro or len(batch)
        for j in range(0, len(batch), size):
            first = None if starts is None else torch.tensor(starts[i][j : j + size])
            part = forward_loss_sum(w, config, batch[j : j + size], first) / count
            part.backward()
            loss += part.item()
        limit = optim.get("clip_norm", 0.0) or math.inf
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), limit).item()
        for group in optimizer.param_groups:
            group["lr"] = rates[i] if rates else learning_rate(optim, config.get("step", 0) + i)
        optimizer.step()
        report(i, loss, norm)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument(
        "--metrics", help="metrics.jsonl of the run; without it only PyTorch's losses are shown"
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--first",
        type=int,
        help="step number in metrics.jsonl of the first batch (config step + 1)",
    )
    parser.add_argument(
        "--micro", type=int, default=0, help="sequences a piece (default: the whole batch)"
    )
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="largest relative difference of a loss (1e-2 suits a bf16 run)",
    )
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    config = json.loads((args.directory / "config.json").read_text())
    w = load_weights(args.directory / "model.safetensors", config, getattr(torch, args.dtype))
    with h5py.File(args.directory / "batches.h5") as file:
        batches = file["tokens"][: args.steps]
        starts = file["document_starts"][: args.steps] if "document_starts" in file else None
    ours = read_losses(args.metrics) if args.metrics else {}
    first = args.first if args.first is not None else config.get("step", 0) + 1
    worst, compared = 0.0, 0
    print(
        f"PyTorch {torch.__version__}, {args.dtype}, "
        f"{sum(p.numel() for p in w.values()):,} parameters"
    )
    print(f"{'step':>6} {'anabranch':>13} {'pytorch':>13} {'relative':>10} {'grad norm':>10}")

    def report(i, loss, norm):
        nonlocal worst, compared
        mine, gap = ours.get(first + i), math.nan
        if mine is not None:
            gap = abs(mine - loss) / abs(loss)
            gap = math.inf if math.isnan(gap) else gap  # max() would lose a NaN
            worst, compared = max(worst, gap), compared + 1
        shown = math.nan if mine is None else mine
        print(f"{first + i:6d} {shown:13.7f} {loss:13.7f} {gap:10.1e} {norm:10.4f}", flush=True)

    replay(w, config, batches, starts, args.micro, report)
    if not args.metrics:
        return 0
    print(f"{compared} of {len(batches)} steps compared, largest relative difference {worst:.1e}")
    return 0 if compared > 0 and worst <= args.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
