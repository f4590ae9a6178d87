#!/usr/bin/env python3
"""Makes baselines.h5: ParaScale and AltUp in PyTorch float64.

    python tests/reference/make_baselines.py [--out tests/reference/baselines.h5]

Layout: see common.py. ParaScale after arXiv 2505.10475: P copies of the embedding, per copy a learned
prefix of keys and values in every layer, and a weighted mean of the final states. AltUp after arXiv
2301.13310: predict, compute one block, correct; recycled: one table, K copies, (sum of blocks) / K.
"""

import argparse
import pathlib

import torch

from common import (LN_EPS, Weights, gpt2_block, linear, make_gpt2_block, norm, open_file,
                    write_case)

BASE = {"layers": 3, "width": 8, "heads": 2, "ffn_width": 20, "context": 7, "vocabulary": 13,
        "batch": 2}


def make_backbone(c, seed, table_width):
    w = Weights(seed)
    w.normal("wte.weight", c["vocabulary"], table_width, std=0.25)
    w.normal("wpe.weight", c["context"], table_width, std=0.2)
    for i in range(c["layers"]):
        make_gpt2_block(w, i, c, c["width"], c["ffn_width"])
    return w


def make_parascale(c, seed):
    w, d, p = make_backbone(c, seed, c["width"]), c["width"], c["streams"]
    if p > 1:
        for i in range(c["layers"]):
            for part in "kv":
                w.normal(f"h.{i}.attn.prefix_{part}.weight", p, c["prefix"], d, std=0.6, decays=False)
        w.linear("aggregate.hidden", d, p * d)
        w.linear("aggregate.score", p, d, gain=2.0)
    w.norm("ln_f", d)
    return w


def parascale(w, tokens, c):
    p, eps = c["streams"], c["smoothing"]
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    b = x.shape[0]
    ends = []
    for s in range(p):
        h = x
        for i in range(c["layers"]):
            prefix = [None, None]
            if p > 1:
                prefix = [w[f"h.{i}.attn.prefix_{part}.weight"][s].expand(b, -1, -1) for part in "kv"]
            h = gpt2_block(h, w, i, c["heads"], *prefix)
        ends.append(norm(h, w, "ln_f"))
    if p == 1:
        return ends[0] @ w["wte.weight"].T, 0.0
    hidden = torch.nn.functional.silu(linear(torch.cat(ends, -1), w, "aggregate.hidden"))
    a = linear(hidden, w, "aggregate.score").softmax(-1) * (1 - eps) + eps / p
    return sum(a[..., s : s + 1] * ends[s] for s in range(p)) @ w["wte.weight"].T, 0.0


def make_altup(c, seed):
    k, d = c["blocks"], c["width"]
    w = make_backbone(c, seed, d if c["recycled"] else k * d)
    for i in range(c["layers"]):
        w.normal(f"h.{i}.altup.predict", k, k, std=0.4, decays=False)
        w.normal(f"h.{i}.altup.correct", k, std=0.3, mean=1.0, decays=False)
    w.norm("ln_f", d if c["recycled"] else k * d)
    return w


def altup(w, tokens, c):
    k, d = c["blocks"], c["width"]
    e = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    x = [e] * k if c["recycled"] else list(e.split(d, -1))
    for i in range(c["layers"]):
        p, g = w[f"h.{i}.altup.predict"], w[f"h.{i}.altup.correct"]
        active = i % k if c["choice"] == "alternating" else 0
        predicted = [sum(p[a, b] * x[b] for b in range(k)) for a in range(k)]
        computed = gpt2_block(x[active], w, i, c["heads"])
        x = [predicted[a] + g[a] * (computed - predicted[active]) for a in range(k)]
    end = sum(x) / k if c["recycled"] else torch.cat(x, -1)
    return norm(end, w, "ln_f") @ w["wte.weight"].T, 0.0


CASES = {
    "parascale": ({"streams": 3, "prefix": 5, "smoothing": 0.07}, make_parascale, parascale, True),
    "parascale_1": ({"streams": 1, "prefix": 5, "smoothing": 0.07}, make_parascale, parascale, False),
    "altup": ({"blocks": 2, "recycled": 1, "choice": "alternating"}, make_altup, altup, True),
    "altup_same": ({"blocks": 3, "recycled": 1, "choice": "same"}, make_altup, altup, False),
    "altup_wide": ({"blocks": 2, "recycled": 0, "choice": "alternating"}, make_altup, altup, True),
}


def check_identities():
    """Recycled AltUp with p = I, g = 1 is the dense model."""
    c = {**BASE, "blocks": 3, "recycled": 1, "choice": "alternating"}
    w = make_altup(c, 5)
    for i in range(c["layers"]):
        w[f"h.{i}.altup.predict"] = torch.eye(3, dtype=torch.float64)
        w[f"h.{i}.altup.correct"] = torch.ones(3, dtype=torch.float64)
    tokens = torch.arange(7)[None]
    x = w["wte.weight"][tokens] + w["wpe.weight"]
    for i in range(c["layers"]):
        x = gpt2_block(x, w, i, c["heads"])
    dense = norm(x, w, "ln_f") @ w["wte.weight"].T
    assert (dense - altup(w, tokens, c)[0]).abs().max() < 1e-13


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(pathlib.Path(__file__).with_name("baselines.h5")))
    check_identities()
    with open_file(parser.parse_args().out) as file:
        file.attrs["ln_eps"] = LN_EPS
        for seed, (name, (changes, make, run, with_steps)) in enumerate(CASES.items()):
            c = {**BASE, **changes}
            write_case(file, name, c, make(c, 200 + seed),
                       lambda w, tokens, c=c, run=run: run(w, tokens, c), with_steps)


if __name__ == "__main__":
    main()
