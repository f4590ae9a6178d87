#!/usr/bin/env python3
"""Times whole training steps of GPT-2 in PyTorch on the CPU: forward, backward, clip, AdamW.

    taskset -c 0,1 python tests/bench/peers/torch_gpt2.py --threads 2 [--dtype fp32|bf16]
        [--compile] [--loss full|chunked] [--json]

The model is what a careful user would write (nanoGPT's form): fused attention
(scaled_dot_product_attention), one QKV product, GELU in the tanh form, tied head, cross-entropy on
all logits, AdamW with fused=True, gradients set to None. --dtype bf16 is autocast with fp32 weights
and moments; bf16-weights keeps weights and moments in bf16 as well (another training, shown only as
a bound). --loss chunked uses linear_cross_entropy where this PyTorch has it, which never holds all
logits. Tokens are random; one sequence length, no dropout.

Prints the median seconds a step, tokens/s, the loss of every step and the peak resident memory
(ru_maxrss), next to the resident memory after the import, which a CUDA build of PyTorch makes
larger than a CPU one.
"""

import argparse
import contextlib
import json
import math
import platform
import resource
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"124M": (12, 12, 768), "350M": (24, 16, 1024), "760M": (24, 16, 1536), "tiny": (2, 4, 128)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (u.view(b, t, self.heads, c // self.heads).transpose(1, 2) for u in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, vocab, positions, loss):
        super().__init__()
        self.loss = loss
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(p)
            elif p.dim() == 2:
                residual = name.endswith("c_proj.weight") or name.endswith("mlp.2.weight")
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        if self.loss == "chunked":
            return F.linear_cross_entropy(
                x.flatten(0, 1),
                self.wte.weight,
                targets.flatten(),
                options=torch.nn.LinearCrossEntropyOptions(),
            )
        logits = F.linear(x, self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
    ]
    settings = {"lr": 6e-4, "betas": (0.9, 0.95), "eps": 1e-8}
    try:
        return torch.optim.AdamW(groups, fused=True, **settings), "fused"
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(groups, **settings), "foreach"


def resident_mib(peak):
    """Resident memory in MiB: the peak so far, or the present one (Linux)."""
    if peak:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * resource.getpagesize() / 2**20


def train_steps(model, optimizer, tokens, autocast, count):
    """Runs count steps and returns their seconds and losses."""
    seconds, losses = [], []
    for i in range(count):
        begin = time.perf_counter()
        with autocast():
            loss = model(tokens[i][:, :-1], tokens[i][:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
        print(f"step {i} {seconds[-1]:.3f} s, loss {losses[-1]:.4f}", file=sys.stderr, flush=True)
    return seconds, losses


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=sorted(SIZES), default="124M")
    parser.add_argument("--dtype", choices=["fp32", "bf16", "bf16-weights"], default="fp32")
    parser.add_argument("--loss", choices=["full", "chunked"], default="full")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after --warmup")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main():
    args = parse_arguments()
    imported = resident_mib(peak=False)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = Gpt2(*SIZES[args.size], args.vocab, args.tokens, args.loss)
    parameters = sum(p.numel() for p in model.parameters())
    if args.dtype == "bf16-weights":
        model.to(torch.bfloat16)
    optimizer, kind = make_optimizer(model)
    autocast = contextlib.nullcontext
    if args.dtype == "bf16":
        autocast = lambda: torch.autocast("cpu", dtype=torch.bfloat16)  # noqa: E731
    step_model = torch.compile(model) if args.compile else model
    tokens = torch.randint(args.vocab, (args.warmup + args.steps, args.batch, args.tokens + 1))
    seconds, losses = train_steps(step_model, optimizer, tokens, autocast, args.warmup + args.steps)
    median = statistics.median(seconds[args.warmup :])
    result = {
        "peer": "pytorch",
        "version": torch.__version__,
        "mode": "compile" if args.compile else "eager",
        "size": args.size,
        "parameters": parameters,
        "dtype": args.dtype,
        "loss_form": args.loss,
        "optimizer": kind,
        "threads": args.threads,
        "batch": args.batch,
        "tokens": args.tokens,
        "step_seconds": median,
        "all_seconds": seconds,
        "warmup": args.warmup,
        "tokens_per_second": args.batch * args.tokens / median,
        "losses": losses,
        "peak_rss_mib": resident_mib(peak=True),
        "rss_after_import_mib": imported,
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"PyTorch {result['version']} {result['mode']} {args.dtype} {args.loss} loss, "
            f"{parameters:,} "
            f"parameters, {args.threads} threads: median step {median:.3f} s, "
            f"{result['tokens_per_second']:.1f} tokens/s, peak {result['peak_rss_mib']:.0f} MiB "
            f"(after import {imported:.0f} MiB)"
        )


if __name__ == "__main__":
    main()
