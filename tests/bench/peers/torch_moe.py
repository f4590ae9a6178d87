"""What the peers of mixture models share: their arguments, and the steps they time."""

import argparse
import contextlib
import json
import statistics

import torch

from torch_gpt2 import make_optimizer, resident_mib, train_steps


def arguments(doc, sizes):
    """The parser of a peer whose SIZES are options with these defaults."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    for name, default in {**sizes, "threads": 2, "steps": 3, "warmup": 1}.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--json", action="store_true")
    return parser


def run(args, make_model, peer):
    """Times training steps of make_model(args) on random tokens and prints the result."""
    imported = resident_mib(peak=False)
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = make_model(args)
    optimizer, kind = make_optimizer(model)
    autocast = contextlib.nullcontext
    if args.dtype == "bf16":
        autocast = lambda: torch.autocast("cpu", dtype=torch.bfloat16)  # noqa: E731
    count = args.warmup + args.steps
    tokens = torch.randint(args.vocab, (count, args.batch, args.tokens + 1))
    seconds, losses = train_steps(model, optimizer, tokens, autocast, count)
    median = statistics.median(seconds[args.warmup :])
    result = {
        "peer": peer,
        "torch": torch.__version__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "dtype": args.dtype,
        "optimizer": kind,
        "step_seconds": median,
        "all_seconds": seconds,
        "tokens_per_second": args.batch * args.tokens / median,
        "losses": losses,
        "peak_rss_mib": resident_mib(peak=True),
        "rss_after_import_mib": imported,
    }
    if args.json:
        print(json.dumps(result))
    else:
        print(
            f"{peer} {args.dtype}, {result['parameters']:,} parameters: median step {median:.3f} s,"
            f" {result['tokens_per_second']:.1f} tokens/s, peak {result['peak_rss_mib']:.0f} MiB"
        )
