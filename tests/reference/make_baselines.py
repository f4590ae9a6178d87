#!/usr/bin/env python3
"""Makes baselines.h5: tiny ParaScale and AltUp models in PyTorch float64.

    python tests/reference/make_baselines.py [--out tests/reference/baselines.h5]

Needs torch, numpy and h5py; the tests that read the file need none of them. The head of common.py
says what a case holds. The backbone is GPT-2 with tied head.

ParaScale (attribute family = parascale), P = streams: every stream p runs the whole model on the
same embeddings; in block i its attention has n_pref more keys and values, prefix_k[p] and
prefix_v[p], before the tokens' own; every query sees all of them. After ln_f on every stream
    a = softmax(W2 SiLU(W1 [h_1 .. h_P] + b1) + b2); a~ = (1 - smoothing) a + smoothing / P
    logits = (sum_p a~_p h_p) wte^T
P = 1 is the plain model without further parameters.

AltUp (family = altup), K = copies: the state is x_1 .. x_K of width C each; layer l with the block
j = l mod K (block_choice = alternating) or 0 (same):
    xh_i = sum_m predict[i,m] x_m ; xt = block_l(x_j) ; x_i <- xh_i + correct[i] (xt - xh_j)
recycled = 1: tables of width C, K equal copies in, ln_f((x_1 + .. + x_K) / K) out.
recycled = 0: tables of width K*C, block i = columns i*C .. of the embedding, ln_f over K*C, tied
head.

Attributes of /: torch_version and ParaScale's extra parameters for tests of the formula:
    parascale_extra_<layers>x<width>_p<P>              n_pref 48, keys and values of full width
    parascale_extra_<layers>x<width>_kv<width>_p<P>    with fewer key heads (keys of that width)
"""

import argparse
import math
import pathlib

import torch

import common
from common import layer_norm, linear

TINY = {
    "layers": 2,
    "width": 8,
    "heads": 2,
    "ffn_width": 20,
    "context": 7,
    "vocabulary": 13,
    "batch": 2,
}
PARASCALE = TINY | {"family": "parascale", "streams": 3, "n_pref": 5, "smoothing": 0.01}
ALTUP = TINY | {"family": "altup", "copies": 2, "recycled": 1, "block_choice": "alternating"}
CASES = {
    "parascale_p3": PARASCALE,
    "parascale_p1": PARASCALE | {"streams": 1},
    "altup_recycled_k2": ALTUP,
    "altup_recycled_k3_same": ALTUP | {"copies": 3, "block_choice": "same"},
    "altup_k2": ALTUP | {"recycled": 0},
}


# ---- ParaScale ----------------------------------------------------------------------------------


def parascale_shapes(cfg):
    shapes = common.gpt2_shapes(cfg)
    c, p = cfg["width"], cfg["streams"]
    if p == 1:
        return shapes
    for i in range(cfg["layers"]):
        shapes[f"h.{i}.attn.prefix_k.weight"] = (p, cfg["n_pref"], c)
        shapes[f"h.{i}.attn.prefix_v.weight"] = (p, cfg["n_pref"], c)
    shapes |= common.linear_shapes("aggregate.hidden", c, p * c)
    return shapes | common.linear_shapes("aggregate.score", p, c)


def parascale(w, tokens, cfg):
    n, eps = cfg["streams"], cfg["smoothing"]
    if n == 1:
        return common.gpt2(w, tokens, cfg)
    streams = []
    for p in range(n):
        x = common.embed(w, tokens)
        for i in range(cfg["layers"]):
            prefix_k = w[f"h.{i}.attn.prefix_k.weight"][p]
            prefix_v = w[f"h.{i}.attn.prefix_v.weight"][p]
            x = common.block(x, w, i, cfg["heads"], prefix_k, prefix_v)
        streams.append(layer_norm(x, w, "ln_f"))
    hidden = linear(torch.cat(streams, dim=-1), w, "aggregate.hidden")
    hidden = hidden * torch.sigmoid(hidden)
    a = torch.softmax(linear(hidden, w, "aggregate.score"), dim=-1)
    a = a * (1 - eps) + eps / n
    out = sum(a[..., p : p + 1] * streams[p] for p in range(n))
    return out @ w["wte.weight"].T, common.no_loss()


# ---- AltUp --------------------------------------------------------------------------------------


def altup_shapes(cfg):
    shapes = common.gpt2_shapes(cfg)
    k = cfg["copies"]
    for i in range(cfg["layers"]):
        shapes[f"h.{i}.altup.predict"] = (k, k)
        shapes[f"h.{i}.altup.correct"] = (k,)
    if not cfg["recycled"]:
        wide = k * cfg["width"]
        shapes["wte.weight"] = (cfg["vocabulary"], wide)
        shapes["wpe.weight"] = (cfg["context"], wide)
        shapes |= common.norm_shapes("ln_f", wide)
    return shapes


def altup(w, tokens, cfg):
    k, c = cfg["copies"], cfg["width"]
    x = common.embed(w, tokens)
    if cfg["recycled"]:
        state = [x for _ in range(k)]
    else:
        state = [x[..., i * c : (i + 1) * c] for i in range(k)]
    for layer in range(cfg["layers"]):
        predict, correct = w[f"h.{layer}.altup.predict"], w[f"h.{layer}.altup.correct"]
        j = layer % k if cfg["block_choice"] == "alternating" else 0
        predicted = [sum(predict[i, m] * state[m] for m in range(k)) for i in range(k)]
        computed = common.block(state[j], w, layer, cfg["heads"])
        state = [predicted[i] + correct[i] * (computed - predicted[j]) for i in range(k)]
    out = sum(state) / k if cfg["recycled"] else torch.cat(state, dim=-1)
    return layer_norm(out, w, "ln_f") @ w["wte.weight"].T, common.no_loss()


# ---- parameter counts ---------------------------------------------------------------------------


def parascale_extra(layers, width, p, kv_width=None):
    """P (h^2 + h + 1) + h + 2 P layers n_kv n_pref head_dim with n_pref = 48."""
    kv_width = kv_width or width
    return p * (width * width + width + 1) + width + 2 * p * layers * 48 * kv_width


def check_values():
    """Counts from the formula and the shapes, compared with the published ones."""
    values = {}
    per_stream = {(12, 768): 1475329, (24, 1024): 3408897, (24, 1536): 5899777}
    for (layers, width), published in per_stream.items():
        for p in (2, 4, 8):
            extra = parascale_extra(layers, width, p)
            assert extra == p * published + width, (layers, width, p)
            size = {"layers": layers, "width": width, "ffn_width": 4 * width}
            cfg = PARASCALE | size | {"streams": p, "n_pref": 48}
            counted = common.count(parascale_shapes(cfg)) - common.count(common.gpt2_shapes(cfg))
            assert counted == extra, (layers, width, p)
            values[f"parascale_extra_{layers}x{width}_p{p}"] = extra
    for p, published in {2: 2382466, 4: 4764036, 8: 9527176}.items():
        extra = parascale_extra(36, 896, p, kv_width=2 * 56)
        assert extra == published, p
        values[f"parascale_extra_36x896_kv112_p{p}"] = extra
    print(f"parameter counts of ParaScale: {len(values)} checked, all as published")
    return values


# ---- self-tests ---------------------------------------------------------------------------------


def setting(cfg, shapes):
    rng = common.case_rng("self-test")
    w = common.random_weights(shapes, rng)
    return w, common.random_tokens(cfg, rng, 1)[0][0]


def test_parascale():
    cfg = PARASCALE
    w, tokens = setting(cfg, parascale_shapes(cfg))
    for p in range(1, cfg["streams"]):  # every stream gets the prefix of stream 0
        for i in range(cfg["layers"]):
            for name in ("prefix_k", "prefix_v"):
                w[f"h.{i}.attn.{name}.weight"][p] = w[f"h.{i}.attn.{name}.weight"][0]
    plain = parascale(w, tokens, cfg | {"smoothing": 1.0})[0]
    logits = parascale(w, tokens, cfg)[0]
    common.same(logits, plain, "ParaScale with equal prefixes does not depend on the aggregation")
    hidden = -1e9  # prefix keys which no query can see
    w |= {n: torch.zeros_like(v) for n, v in w.items() if "prefix_v" in n}
    dense = common.gpt2(w, tokens, cfg)[0]
    assert (parascale(w, tokens, cfg)[0] - dense).abs().max() > 1e-3
    print("self-test: prefix values 0 still change the output (softmax denominator)")
    for i in range(cfg["layers"]):
        bias = w[f"h.{i}.attn.c_attn.bias"]
        c = cfg["width"]
        bias[:c] = 0.0
        w[f"h.{i}.attn.c_attn.weight"][:c] = 0.0
        bias[0], bias[c // 2] = 1.0, 1.0  # queries = first unit vector of every head
        w[f"h.{i}.attn.prefix_k.weight"][:] = hidden
    dense = common.gpt2(w, tokens, cfg)[0]
    common.same(parascale(w, tokens, cfg)[0], dense, "ParaScale with unseen prefixes is dense")


def test_altup():
    for k, choice in ((2, "alternating"), (3, "same")):
        cfg = ALTUP | {"copies": k, "block_choice": choice}
        w, tokens = setting(cfg, altup_shapes(cfg))
        for i in range(cfg["layers"]):
            w[f"h.{i}.altup.predict"] = torch.eye(k).double()
            w[f"h.{i}.altup.correct"] = torch.ones(k).double()
        dense = common.gpt2(w, tokens, cfg)[0]
        common.same(
            altup(w, tokens, cfg)[0], dense, f"recycled AltUp K={k} {choice} at start is dense"
        )
    shapes = altup_shapes(ALTUP)
    extra = common.count(shapes) - common.count(common.gpt2_shapes(ALTUP))
    assert extra == ALTUP["layers"] * 6, "K^2 + K scalars per layer"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(pathlib.Path(__file__).with_name("baselines.h5")))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    test_parascale()
    test_altup()
    families = {"parascale": (parascale_shapes, parascale), "altup": (altup_shapes, altup)}
    with common.open_file(out) as file:
        file.attrs.update(check_values())
        for name, cfg in CASES.items():
            shapes, forward = families[cfg["family"]]
            common.write_case(file, name, cfg, shapes(cfg), forward, steps=True)
    print(f"{out}: {math.ceil(pathlib.Path(out).stat().st_size / 1000)} kB")


if __name__ == "__main__":
    main()
