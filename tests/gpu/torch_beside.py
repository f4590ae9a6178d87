#!/usr/bin/env python3
"""Times in PyTorch, on this GPU, what check.sh times of Anabranch: whole GPT-2 steps and single ops, in bf16.

    python3 tests/gpu/torch_beside.py --json FILE [--tiny]    # --tiny: small sizes, on the CPU, to try the script

The steps are those of check.sh's models of the same names: as many tokens in micro-batches as large, bf16 by autocast
with fp32 weights, fused attention (cuDNN's where this PyTorch has it), torch.compile where triton is installed, fused
AdamW, clipping. Ops have the names and shapes of `anabranch bench ops` for gpt2-124m. Seconds are medians of CUDA
events, or of the clock on a CPU. FILE: {"pytorch", "device", "ops": [{"model", "op", "seconds"}]}, a member a line.
"""

import argparse
import contextlib
import importlib.util
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

# Layers, heads, width; sequences of a micro-batch, micro-batches a step.
MODELS = {
    "gpt2-124m": (12, 12, 768, 32, 4),
    "gpt2-350m": (24, 16, 1024, 16, 4),
    "gpt2-760m": (24, 16, 1536, 16, 4),
}
TINY = {"tiny": (2, 2, 32, 2, 2)}


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, heads, width, vocabulary, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(F.linear(self.norm(x), self.tokens.weight).flatten(0, 1), targets.flatten())


class Timer:
    """Median seconds of a call, after two that do not count; several calls at a time hide what starting one costs."""

    def __init__(self, device):
        self.device = device

    def seconds(self, call, calls=1, repeats=5):
        for _ in range(2):
            call()
        return statistics.median(self._once(call, calls) / calls for _ in range(repeats))

    def _once(self, call, calls):
        if self.device == "cpu":
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            return time.perf_counter() - begin
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return 1e-3 * begin.elapsed_time(end)


def attention_kernels():
    """cuDNN's attention first, where this PyTorch can be told so."""
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
        return sdpa_kernel(order, set_priority=True)
    except (ImportError, AttributeError, TypeError):
        return contextlib.nullcontext()


def time_step(timer, model, vocabulary, context):
    layers, heads, width, sequences, micro_batches = model
    net = Gpt2(layers, heads, width, vocabulary, context).to(timer.device)
    compiled = timer.device == "cuda" and importlib.util.find_spec("triton") is not None
    run = torch.compile(net) if compiled else net
    optimizer = torch.optim.AdamW(net.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids = torch.randint(vocabulary, (sequences, context + 1), device=timer.device)

    def step():
        for _ in range(micro_batches):
            with torch.autocast(timer.device, dtype=torch.bfloat16):
                loss = run(ids[:, :-1], ids[:, 1:])
            (loss / micro_batches).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return timer.seconds(step, repeats=7)


def time_ops(timer, model, vocabulary, context, note):
    """The ops of `bench ops` that PyTorch has too; note(op, seconds) is told each."""
    _, heads, width, sequences, _ = model
    rows, calls = sequences * context, 20 if timer.device == "cuda" else 1

    def values(*shape, wide=False, wants=True):
        dtype = torch.float32 if wide else torch.bfloat16
        return torch.randn(*shape, device=timer.device, dtype=dtype).requires_grad_(wants)

    def both(name, op, *inputs):
        with torch.no_grad():
            note(name + " forward", timer.seconds(lambda: op(*inputs), calls))
        y = op(*inputs)
        dy = torch.randn_like(y)
        wanted = [x for x in inputs if x.requires_grad]
        note(name + " backward", timer.seconds(lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True), calls))

    for name, into, out in (
        ("qkv", width, 3 * width),
        ("projection", width, width),
        ("feed-forward in", width, 4 * width),
        ("feed-forward out", 4 * width, width),
    ):
        x, w, dy = values(rows, into, wants=False), values(out, into, wants=False), values(rows, out, wants=False)
        for product, call in (("y", lambda: x @ w.t()), ("dx", lambda: dy @ w), ("dw", lambda: dy.t() @ x)):
            note(f"{name} {product}", timer.seconds(call, calls))

    qkv = [values(sequences, heads, context, width // heads) for _ in range(3)]
    both("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), *qkv)
    weight, bias = values(width), values(width)
    both("layer_norm", lambda x, w, b: F.layer_norm(x, (width,), w, b), values(rows, width), weight, bias)
    both("gelu", lambda x: F.gelu(x, approximate="tanh"), values(rows, 4 * width))
    a, b = values(rows, width, wants=False), values(rows, width, wants=False)
    note("add", timer.seconds(lambda: a + b, calls))

    targets = torch.randint(vocabulary, (rows,), device=timer.device)
    x, table = values(rows, width), values(vocabulary, width)
    with torch.no_grad():
        note("head and loss", timer.seconds(lambda: F.cross_entropy(F.linear(x, table), targets)))

    def head():
        torch.autograd.grad(F.cross_entropy(F.linear(x, table), targets), [x, table])

    note("head, loss and gradients", timer.seconds(head))

    block = nn.Parameter(values(12 * width * width, wide=True, wants=False))
    block.grad = torch.randn_like(block)
    optimizer = torch.optim.AdamW([block], lr=1e-3, fused=True)
    note("adamw of a block", timer.seconds(optimizer.step, calls))
    note("squared_norm of a block", timer.seconds(lambda: torch.linalg.vector_norm(block.grad), calls))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", required=True)
    parser.add_argument("--tiny", action="store_true", help="small sizes, on the CPU")
    args = parser.parse_args()
    device, models, vocabulary, context = ("cpu", TINY, 64, 16) if args.tiny else ("cuda", MODELS, 50257, 1024)
    torch.manual_seed(1)
    timer, found = Timer(device), []
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    print(f"PyTorch {torch.__version__} on {name}", flush=True)

    def write():
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"pytorch": torch.__version__, "device": name, "ops": found}, f, indent=2)
            f.write("\n")

    def noting(model):
        def note(op, seconds):
            found.append({"model": model, "op": op, "seconds": seconds})
            print(f"{model} {op}: {1e3 * seconds:.3f} ms", flush=True)
            write()  # what is there stays if time runs out

        return note

    with attention_kernels():
        for model, sizes in models.items():
            note = noting(model)
            if not found:
                time_ops(timer, sizes, vocabulary, context, note)
            try:
                note("step", time_step(timer, sizes, vocabulary, context))
            except torch.OutOfMemoryError:
                print(f"{model} step: out of memory", flush=True)


if __name__ == "__main__":
    main()
