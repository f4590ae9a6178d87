#!/usr/bin/env python3
"""Makes cmollm_ffn.h5 and cmollm_pipeline.h5: both modes of cMoLLM in PyTorch float64, with every
gating variant.

    python tests/reference/make_cmollm.py [--folder tests/reference]

Layout: see common.py. Written from the equations of the paper (Algorithm 1, Eq. 10-18, section 4.5)
with the readings that README.md of configs/ lists; the mixed kernel is materialised here, on purpose.
"""

import argparse
import math
import pathlib

import torch

from common import (LN_EPS, Weights, attention, gelu, gpt2_block, linear, make_gpt2_block, norm,
                    open_file, write_case)

BASE = {"layers": 2, "width": 8, "heads": 2, "ffn_width": 20, "context": 7, "vocabulary": 13,
        "batch": 2, "streams": 3, "mode": "ffn", "variant": "linear", "gate_site": "router",
        "gate_heads": 2, "head_input": "full", "ctx": "prefix_mean", "ctx_decay": 0.9,
        "bal_alpha": 0.1, "bal_scope": "sequence", "mix": "pre", "agg": "mlp", "beta": 0.07,
        "span": 0}


def make_front(w, name, c):
    d = c["width"]
    if c["variant"] == "linear":
        return
    if c["variant"] == "context_aware":
        w.norm(name + ".norm", d)
    w.linear(name + ".feature", d, d)
    if c["variant"] == "multi_head" and c["head_input"] == "slice":
        h = c["gate_heads"]
        w.normal(name + ".gate.weight", h, d // h, d // h, std=0.7 / math.sqrt(d // h))
        w.normal(name + ".gate.bias", d, std=0.1, decays=False)
    else:
        w.linear(name + ".gate", d, d)
    if c["variant"] in ("context_aware", "adaptive"):
        w.linear(name + ".squeeze", d // 4, d, gain=1.5)
    if c["variant"] == "context_aware":
        w.linear(name + ".excite", d, d // 4, gain=1.5)
    if c["variant"] == "adaptive":
        w.linear(name + ".scales", 3, d // 4, gain=1.5)
    if c["variant"] == "multi_head":
        w.linear(name + ".fuse", d, d)


def context(v, c):
    """[B,T,d]: what is known of the sequence at each token, by an explicit loop."""
    rows, ema = [], torch.zeros_like(v[:, 0])
    for t in range(v.shape[1]):
        if c["ctx"] == "prefix_mean":
            rows.append(v[:, : t + 1].mean(1))
        elif c["ctx"] == "ema":
            ema = c["ctx_decay"] * ema + (1 - c["ctx_decay"]) * v[:, t]
            rows.append(ema)
        else:
            rows.append(v.mean(1))
    return torch.stack(rows, 1)


def front(u, w, name, c):
    variant = c["variant"]
    if variant == "linear":
        return u
    if variant == "context_aware":
        n = norm(u, w, name + ".norm")
        m = linear(gelu(linear(context(n, c), w, name + ".squeeze")), w, name + ".excite").sigmoid()
        return linear(n, w, name + ".feature") * linear(n, w, name + ".gate").sigmoid() * m
    feature = linear(u, w, name + ".feature")
    if variant == "simple":
        return feature * linear(u, w, name + ".gate").sigmoid()
    if variant == "multi_head":
        weight, bias = w[name + ".gate.weight"], w[name + ".gate.bias"]
        if c["head_input"] == "slice":
            h, width = weight.shape[0], weight.shape[1]
            parts = [u[..., i * width : (i + 1) * width] @ weight[i].T for i in range(h)]
            gate = torch.cat(parts, -1) + bias
        else:
            gate = u @ weight.T + bias
        return linear(feature * gate.sigmoid(), w, name + ".fuse")
    r = linear(gelu(linear(context(u, c), w, name + ".squeeze")), w, name + ".scales")
    sens, bias, mag = 2 * r[..., :1].sigmoid(), r[..., 1:2].tanh(), 2 * r[..., 2:].sigmoid()
    return feature * (mag * (sens * linear(u, w, name + ".gate") + bias).sigmoid())


def balance(g, c):
    """alpha N sum_k p_k^2 with g [B,T,N]."""
    p = g.mean(1) if c["bal_scope"] == "sequence" else g.mean((0, 1))[None]
    return c["bal_alpha"] * g.shape[-1] * (p**2).sum(1).mean()


def stream_ffn(u, w, i, c):
    name = f"h.{i}.ffn"
    z = front(u, w, name + ".front", c)
    g = linear(z, w, name + ".router").softmax(-1)
    s = z if c["gate_site"] == "feature" else u
    kernels, biases = w[name + ".streams.weight"], w[name + ".streams.bias"]
    if c["mix"] == "post":
        hidden = sum(g[..., k : k + 1] * gelu(s @ kernels[k].T + biases[k])
                     for k in range(c["streams"]))
        return linear(hidden, w, name + ".down"), balance(g, c)
    mixed = torch.einsum("btn,nfd->btfd", g, kernels)
    up = torch.einsum("btfd,btd->btf", mixed, s) + g @ biases
    return linear(gelu(up), w, name + ".down"), balance(g, c)


def forward_ffn(w, tokens, c):
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    aux = 0.0
    for i in range(c["layers"]):
        x = x + attention(norm(x, w, f"h.{i}.ln_1"), w, f"h.{i}.attn", c["heads"])
        y, b = stream_ffn(norm(x, w, f"h.{i}.ln_2"), w, i, c)
        x, aux = x + y, aux + b
    return norm(x, w, "ln_f") @ w["wte.weight"].T, aux


def spans(c):
    m = c["span"] or c["layers"]
    return [range(j, min(j + m, c["layers"])) for j in range(0, c["layers"], m)]


def expand(x, w, name, c):
    return linear(x, w, name) if c["variant"] == "linear" else front(x, w, name, c)


def forward_pipeline(w, tokens, c):
    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    aux, n, beta = 0.0, c["streams"], c["beta"]
    for j, layers in enumerate(spans(c)):
        streams = []
        for k in range(n):
            h = expand(x, w, f"span.{j}.expand.{k}", c)
            for i in layers:
                h = gpt2_block(h, w, i, c["heads"])
            streams.append(h)
        flat = torch.cat(streams, -1)
        name = f"span.{j}.aggregate"
        if c["agg"] == "mlp":
            flat = gelu(linear(flat, w, name + ".hidden"))
        alpha = linear(flat, w, name + ".score").softmax(-1)
        smooth = (1 - beta) * alpha + beta / n
        weighted = sum(smooth[..., k : k + 1] * streams[k] for k in range(n))
        mean = sum(streams) / n
        x = linear(linear(weighted, w, name + ".mix") + mean, w, name + ".proj")
        aux = aux + balance(alpha, c)
    return norm(x, w, "ln_f") @ w["wte.weight"].T, aux


def make_weights(c, seed):
    w, d, n, f = Weights(seed), c["width"], c["streams"], c["ffn_width"]
    w.normal("wte.weight", c["vocabulary"], d, std=0.25)
    w.normal("wpe.weight", c["context"], d, std=0.2)
    for i in range(c["layers"]):
        make_gpt2_block(w, i, c, d, f, mlp=c["mode"] == "pipeline")
        if c["mode"] == "ffn":
            make_front(w, f"h.{i}.ffn.front", c)
            w.linear(f"h.{i}.ffn.router", n, d, gain=2.0)
            w.normal(f"h.{i}.ffn.streams.weight", n, f, d, std=0.7 / math.sqrt(d))
            w.normal(f"h.{i}.ffn.streams.bias", n, f, std=0.1, decays=False)
            w.linear(f"h.{i}.ffn.down", d, f)
    if c["mode"] == "pipeline":
        for j in range(len(spans(c))):
            for k in range(n):
                name = f"span.{j}.expand.{k}"
                if c["variant"] == "linear":
                    w.linear(name, d, d)
                make_front(w, name, c)
            name = f"span.{j}.aggregate"
            if c["agg"] == "mlp":
                w.linear(name + ".hidden", d, n * d)
                w.linear(name + ".score", n, d, gain=2.0)
            else:
                w.linear(name + ".score", n, n * d, bias=False, gain=2.0)
            w.linear(name + ".mix", d, d, bias=False)
            w.linear(name + ".proj", d, d)
    w.norm("ln_f", d)
    return w


CASES = {
    "linear": ({}, True),
    "simple": ({"variant": "simple"}, False),
    "context_aware": ({"variant": "context_aware"}, False),
    "multi_head": ({"variant": "multi_head"}, False),
    "multi_head_slice": ({"variant": "multi_head", "head_input": "slice"}, False),
    "adaptive": ({"variant": "adaptive"}, False),
    "simple_feature": ({"variant": "simple", "gate_site": "feature"}, False),
    "adaptive_feature": ({"variant": "adaptive", "gate_site": "feature"}, True),
    "balance_batch": ({"bal_scope": "batch"}, False),
    "mix_post": ({"mix": "post"}, False),
    "ema": ({"variant": "context_aware", "ctx": "ema"}, False),
    "global": ({"variant": "context_aware", "ctx": "global"}, False),
    "pipeline": ({"mode": "pipeline", "gate_site": "feature"}, True),
    "pipeline_simple": ({"mode": "pipeline", "gate_site": "feature", "variant": "simple",
                         "agg": "linear"}, False),
    "pipeline_span": ({"mode": "pipeline", "gate_site": "feature", "variant": "context_aware",
                       "span": 1}, False),
    "pipeline_adaptive": ({"mode": "pipeline", "gate_site": "feature", "variant": "adaptive",
                           "layers": 1}, False),
}


def check_identities():
    """N = 1 is the dense model; with equal kernels so is any N."""
    c = {**BASE, "streams": 1, "layers": 1}
    w = make_weights(c, 5)
    tokens = torch.arange(7)[None] % c["vocabulary"]
    logits, _ = forward_ffn(w, tokens, c)
    for part, name in (("weight", "c_fc"), ("bias", "c_fc")):
        w[f"h.0.mlp.{name}.{part}"] = w[f"h.0.ffn.streams.{part}"][0]
        w[f"h.0.mlp.c_proj.{part}"] = w[f"h.0.ffn.down.{part}"]
    x = w["wte.weight"][tokens] + w["wpe.weight"][:7]
    dense = norm(gpt2_block(x, w, 0, c["heads"]), w, "ln_f") @ w["wte.weight"].T
    assert (dense - logits).abs().max() < 1e-13


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", default=str(pathlib.Path(__file__).parent))
    folder = pathlib.Path(parser.parse_args().folder)
    check_identities()
    for mode, step in (("ffn", forward_ffn), ("pipeline", forward_pipeline)):
        with open_file(folder / f"cmollm_{mode}.h5") as file:
            file.attrs["ln_eps"] = LN_EPS
            for seed, (name, (changes, with_steps)) in enumerate(CASES.items()):
                c = {**BASE, **changes}
                if c["mode"] != mode:
                    continue
                write_case(file, name, c, make_weights(c, 100 + seed),
                           lambda w, tokens, c=c, step=step: step(w, tokens, c), with_steps)


if __name__ == "__main__":
    main()
