#!/usr/bin/env python3
"""Makes cmollm.h5: tiny cMoLLM models in PyTorch float64, losses, gradients and AdamW steps.

    python tests/reference/make_cmollm.py [--out tests/reference/cmollm.h5]

Needs torch, numpy and h5py; the tests that read the file need none of them. The head of common.py
says what a case holds. The backbone is GPT-2: x += attn(ln_1(x)), x += f(ln_2(x)), tied head.

Mode ffn, u = ln_2(...), N streams, phi = GELU (tanh), sg = logistic sigmoid:
    z = front-end(u) (z = u for linear); g = softmax(z Wg^T + bg) [B,T,N]
    s = u (gate_site=router) or z (gate_site=feature)
    mix=pre:  f = phi(sum_k g_k (s K_k^T + b_k)) Wdown^T + bdown
    mix=post: f = (sum_k g_k phi(s K_k^T + b_k)) Wdown^T + bdown
Mode pipeline: the span's input x is expanded to x_k = front-end_k(x) (linear: x K_k^T + b_k), every
x_k runs alone through the span's GPT-2 blocks to H_k, and the span's output is
    a = softmax(score) [B,T,N]; score = W2 phi(W1 [H_1 .. H_N] + b1) + b2 (agg=mlp), W [H_1 .. H_N]
    (agg=linear)
    a~ = (1 - beta) a + beta / N; (sum_k a~_k H_k) F^T + (1/N) sum_k H_k, then Proj with its bias.
Front-ends of an input u:
    simple         (Wf u + bf) * sg(Ws u + bs)
    context_aware  u' = LN(u); (Wf u' + bf) * sg(Ws u' + bs) * sg(W2 phi(W1 c + b1) + b2), c of u'
    multi_head     Wo ((Wf u + bf) * a) + bo; a = sg(Ws u + bs), or per head h of gate_heads
                   a_h = sg(Ws_h u_h + bs_h) on its own slice of the channels (head_input=slice)
    adaptive       r = Wa2 phi(Wa1 c + ba1) + ba2, c of u;
                   (Wf u + bf) * 2 sg(r_2) * sg(2 sg(r_0) (Ws u + bs) + tanh(r_1))
c_t of v: mean of v_0 .. v_t (ctx=prefix_mean); l c_{t-1} + (1 - l) v_t, l = ctx_decay, from 0
(ema); mean of all (global).
Balance loss, on g or on a: bal_alpha * N * sum_k p_k^2; bal_scope=sequence: p = mean over the
tokens of a sequence, and the mean over sequences; batch: p = mean over all tokens of the batch.
Summed over layers or spans; this is aux_loss. A key that does not act in a case still stands there.

Attributes of /: torch_version and parameter counts for tests of the formulas:
    cmollm_<layers>x<width>_<variant>_n<N>   without both embedding tables, ffn width 4 * width
    dense_<layers>x<width>, dense_<layers>x<width>_total_t<T>   (total: V = 50257)
    parascale_extra_*                        see make_baselines.py
"""

import argparse
import math
import pathlib

import torch

import common
import make_baselines
from common import gelu, layer_norm, linear

VARIANTS = ("linear", "simple", "context_aware", "multi_head", "adaptive")
TINY = {
    "family": "cmollm",
    "mode": "ffn",
    "variant": "linear",
    "gate_site": "router",
    "gate_heads": 4,
    "head_input": "full",
    "ctx": "prefix_mean",
    "ctx_decay": 0.9,
    "mix": "pre",
    "streams": 3,
    "bal_alpha": 0.01,
    "bal_scope": "sequence",
    "agg": "mlp",
    "beta": 0.01,
    "span": "whole",
    "layers": 2,
    "width": 8,
    "heads": 2,
    "ffn_width": 10,
    "context": 7,
    "vocabulary": 11,
    "batch": 2,
}
PIPELINE = {"mode": "pipeline", "gate_site": "feature"}
# name: (what differs from TINY, with steps). One layer where two would show nothing more.
CASES = {
    "ffn_linear": ({}, True),
    "ffn_simple": ({"variant": "simple", "layers": 1}, False),
    "ffn_context_aware": ({"variant": "context_aware"}, False),
    "ffn_multi_head": ({"variant": "multi_head", "layers": 1}, True),
    "ffn_multi_head_slice": (
        {"variant": "multi_head", "head_input": "slice", "gate_heads": 2, "layers": 1},
        False,
    ),
    "ffn_adaptive": ({"variant": "adaptive", "layers": 1}, False),
    "ffn_simple_feature": ({"variant": "simple", "gate_site": "feature", "layers": 1}, False),
    "ffn_adaptive_feature": ({"variant": "adaptive", "gate_site": "feature"}, True),
    "ffn_linear_bal_batch": ({"bal_scope": "batch", "batch": 3, "layers": 1}, False),
    "ffn_linear_mix_post": ({"mix": "post", "layers": 1}, False),
    "ffn_context_aware_ema": ({"variant": "context_aware", "ctx": "ema", "layers": 1}, False),
    "ffn_context_aware_global": ({"variant": "context_aware", "ctx": "global", "layers": 1}, False),
    "pipeline_linear": (PIPELINE, True),
    "pipeline_simple_agg_linear": (
        PIPELINE | {"variant": "simple", "agg": "linear", "layers": 1},
        False,
    ),
    "pipeline_context_aware_block": (
        PIPELINE | {"variant": "context_aware", "span": "block:1", "streams": 2},
        False,
    ),
    "pipeline_adaptive": (PIPELINE | {"variant": "adaptive", "layers": 1}, False),
}


# ---- shapes -------------------------------------------------------------------------------------


def front_shapes(name, cfg):
    """The gated front-end of 1.3 (nothing for linear)."""
    c, heads = cfg["width"], cfg["gate_heads"]
    variant = cfg["variant"]
    if variant == "linear":
        return {}
    shapes = common.norm_shapes(name + "norm", c) if variant == "context_aware" else {}
    shapes |= common.linear_shapes(name + "feature", c, c)
    shapes |= common.linear_shapes(name + "gate", c, c)
    if variant == "multi_head":
        if cfg["head_input"] == "slice":
            shapes[name + "gate.weight"] = (heads, c // heads, c // heads)
        shapes |= common.linear_shapes(name + "fuse", c, c)
    if variant in ("context_aware", "adaptive"):
        shapes |= common.linear_shapes(name + "squeeze", c // 4, c)
    if variant == "context_aware":
        shapes |= common.linear_shapes(name + "excite", c, c // 4)
    if variant == "adaptive":
        shapes |= common.linear_shapes(name + "scales", 3, c // 4)
    return shapes


def span_layers(cfg):
    """The layers of every span: [[0 .. L-1]] for whole, groups of m for block:m."""
    layers = list(range(cfg["layers"]))
    m = len(layers) if cfg["span"] == "whole" else int(cfg["span"].removeprefix("block:"))
    return [layers[i : i + m] for i in range(0, len(layers), m)]


def span_shapes(j, cfg):
    c, n = cfg["width"], cfg["streams"]
    shapes = {}
    for k in range(n):
        name = f"span.{j}.expand.{k}"
        if cfg["variant"] == "linear":
            shapes |= common.linear_shapes(name, c, c)
        else:
            shapes |= front_shapes(name + ".", cfg)
    name = f"span.{j}.aggregate."
    if cfg["agg"] == "mlp":
        shapes |= common.linear_shapes(name + "hidden", c, n * c)
        shapes |= common.linear_shapes(name + "score", n, c)
    else:
        shapes[name + "score.weight"] = (n, n * c)
    shapes[name + "mix.weight"] = (c, c)
    return shapes | common.linear_shapes(name + "proj", c, c)


def ffn_shapes(i, cfg):
    c, f, n = cfg["width"], cfg["ffn_width"], cfg["streams"]
    name = f"h.{i}.ffn."
    return {
        **common.linear_shapes(name + "router", n, c),
        name + "streams.weight": (n, f, c),
        name + "streams.bias": (n, f),
        **common.linear_shapes(name + "down", c, f),
        **front_shapes(name + "front.", cfg),
    }


def model_shapes(cfg):
    if cfg["mode"] == "pipeline":
        shapes = common.gpt2_shapes(cfg)
        for j in range(len(span_layers(cfg))):
            shapes |= span_shapes(j, cfg)
        return shapes
    c = cfg["width"]
    shapes = {"wte.weight": (cfg["vocabulary"], c), "wpe.weight": (cfg["context"], c)}
    for i in range(cfg["layers"]):
        shapes |= common.attention_shapes(i, c) | ffn_shapes(i, cfg)
    return shapes | common.norm_shapes("ln_f", c)


# ---- the model ----------------------------------------------------------------------------------


def context_of(v, cfg):
    """c [B,T,C] of 1.3, token by token."""
    rows = []
    state = torch.zeros_like(v[:, 0])
    for t in range(v.shape[1]):
        if cfg["ctx"] == "prefix_mean":
            rows.append(v[:, : t + 1].mean(dim=1))
        elif cfg["ctx"] == "ema":
            state = cfg["ctx_decay"] * state + (1 - cfg["ctx_decay"]) * v[:, t]
            rows.append(state)
        else:
            rows.append(v.mean(dim=1))
    return torch.stack(rows, dim=1)


def head_gate(u, w, name, cfg):
    """multi_head's gate before the sigmoid: on all of u, or every head on its own slice of it."""
    if cfg["head_input"] == "full":
        return linear(u, w, name + "gate")
    size = cfg["width"] // cfg["gate_heads"]
    slices = u.split(size, dim=-1)
    heads = [s @ w[name + "gate.weight"][h].T for h, s in enumerate(slices)]
    return torch.cat(heads, dim=-1) + w[name + "gate.bias"]


def front_end(u, w, name, cfg):
    """z [B,T,C] of 1.3."""
    variant = cfg["variant"]
    if variant == "linear":
        return u
    if variant == "context_aware":
        u = layer_norm(u, w, name + "norm")
    feature = linear(u, w, name + "feature")
    if variant == "multi_head":
        gate = torch.sigmoid(head_gate(u, w, name, cfg))
        return linear(feature * gate, w, name + "fuse")
    gate = linear(u, w, name + "gate")
    if variant == "simple":
        return feature * torch.sigmoid(gate)
    squeezed = gelu(linear(context_of(u, cfg), w, name + "squeeze"))
    if variant == "context_aware":
        modulation = torch.sigmoid(linear(squeezed, w, name + "excite"))
        return feature * torch.sigmoid(gate) * modulation
    r = linear(squeezed, w, name + "scales")
    sensitivity = 2 * torch.sigmoid(r[..., 0:1])
    bias = torch.tanh(r[..., 1:2])
    magnitude = 2 * torch.sigmoid(r[..., 2:3])
    return feature * (magnitude * torch.sigmoid(sensitivity * gate + bias))


def balance_loss(g, cfg):
    """bal_alpha * N * sum_k p_k^2 of g [B,T,N], for one layer or span."""
    if cfg["bal_scope"] == "batch":
        p = g.mean(dim=(0, 1)).unsqueeze(0)
    else:
        p = g.mean(dim=1)
    return cfg["bal_alpha"] * cfg["streams"] * (p**2).sum(dim=1).mean()


def ffn(u, w, i, cfg):
    """Algorithm 1 with the mixed kernel of every token written out; returns (f [B,T,C], g)."""
    name = f"h.{i}.ffn."
    z = front_end(u, w, name + "front.", cfg)
    g = torch.softmax(linear(z, w, name + "router"), dim=-1)
    s = z if cfg["gate_site"] == "feature" else u
    kernels, biases = w[name + "streams.weight"], w[name + "streams.bias"]
    if cfg["mix"] == "pre":
        kernel = torch.einsum("btk,kfc->btfc", g, kernels)
        hidden = gelu(torch.einsum("btfc,btc->btf", kernel, s) + g @ biases)
    else:
        hidden = 0.0
        for k in range(cfg["streams"]):
            hidden = hidden + g[..., k : k + 1] * gelu(s @ kernels[k].T + biases[k])
    return linear(hidden, w, name + "down"), g


def span(x, w, j, layers, cfg):
    """Expands, runs every stream alone, aggregates (Eq. 10-18); returns (output, alpha)."""
    n = cfg["streams"]
    streams = []
    for k in range(n):
        name = f"span.{j}.expand.{k}"
        if cfg["variant"] == "linear":
            y = linear(x, w, name)
        else:
            y = front_end(x, w, name + ".", cfg)
        for i in layers:
            y = common.block(y, w, i, cfg["heads"])
        streams.append(y)
    flat = torch.cat(streams, dim=-1)
    name = f"span.{j}.aggregate."
    if cfg["agg"] == "mlp":
        score = linear(gelu(linear(flat, w, name + "hidden")), w, name + "score")
    else:
        score = flat @ w[name + "score.weight"].T
    alpha = torch.softmax(score, dim=-1)
    smooth = (1 - cfg["beta"]) * alpha + cfg["beta"] / n
    weighted = sum(smooth[..., k : k + 1] * streams[k] for k in range(n))
    mean = sum(streams) / n
    return linear(weighted @ w[name + "mix.weight"].T + mean, w, name + "proj"), alpha


def forward(w, tokens, cfg):
    x = common.embed(w, tokens)
    aux = common.no_loss()
    if cfg["mode"] == "pipeline":
        for j, layers in enumerate(span_layers(cfg)):
            x, alpha = span(x, w, j, layers, cfg)
            aux = aux + balance_loss(alpha, cfg)
    else:
        for i in range(cfg["layers"]):
            u = layer_norm(x, w, f"h.{i}.ln_1")
            x = x + common.attention(u, w, f"h.{i}.attn", cfg["heads"])
            f, g = ffn(layer_norm(x, w, f"h.{i}.ln_2"), w, i, cfg)
            x = x + f
            aux = aux + balance_loss(g, cfg)
    return layer_norm(x, w, "ln_f") @ w["wte.weight"].T, aux


# ---- parameter counts ---------------------------------------------------------------------------

# Table of the published sizes in millions without embeddings: (layers, width, N): one per variant.
TABLE = {
    (12, 768, 1): (85.07, 99.24, 102.81, 106.33, 101.02),
    (12, 768, 2): (113.42, 127.60, 131.17, 134.68, 129.38),
    (12, 768, 4): (170.14, 184.31, 187.88, 191.40, 186.09),
    (12, 768, 8): (283.57, 297.74, 301.31, 304.83, 299.52),
    (24, 1024, 2): (403.12, 453.50, 466.17, 478.69, 459.82),
    (24, 1024, 4): (604.69, 655.08, 667.74, 680.27, 661.39),
    (24, 1024, 8): (1007.84, 1058.22, 1070.88, 1083.41, 1064.54),
    (24, 1536, 2): (906.67, 1019.99, 1048.42, 1076.65, 1034.19),
    (24, 1536, 4): (1360.03, 1473.35, 1501.78, 1530.01, 1487.54),
    (24, 1536, 8): (2266.73, 2380.05, 2408.49, 2436.71, 2394.25),
}
DENSE = {(12, 768): 85056000, (24, 1024): 302311424, (24, 1536): 679959552}
DENSE_TOTAL = {
    (12, 768, 1024): 124439808,
    (12, 768, 4096): 126799104,
    (24, 1024, 4096): 357968896,
    (24, 1536, 4096): 763445760,
}
PIPELINE_EXTRA_12X768_N8 = 10.63


def config_of(layers, width, **rest):
    size = {"layers": layers, "width": width, "ffn_width": 4 * width}
    return TINY | {"vocabulary": 50257, "context": 4096} | size | rest


def check_values():
    """Counts from the shapes of this script, compared with the published table."""
    values, wrong = {}, []

    def check(key, value, expected, exact):
        values[key] = value
        fits = value == expected if exact else f"{value / 1e6:.2f}" == f"{expected:.2f}"
        if not fits:
            wrong.append(f"{key}: {value}, published {expected}")

    for (layers, width), expected in DENSE.items():
        shapes = common.gpt2_shapes(config_of(layers, width))
        check(f"dense_{layers}x{width}", common.count(shapes, embeddings=False), expected, True)
    for (layers, width, t), expected in DENSE_TOTAL.items():
        shapes = common.gpt2_shapes(config_of(layers, width, context=t))
        check(f"dense_{layers}x{width}_total_t{t}", common.count(shapes), expected, True)
    for (layers, width, n), row in TABLE.items():
        for variant, expected in zip(VARIANTS, row):
            shapes = model_shapes(config_of(layers, width, streams=n, variant=variant))
            value = common.count(shapes, embeddings=False)
            check(f"cmollm_{layers}x{width}_{variant}_n{n}", value, expected, False)
    cfg = config_of(12, 768, streams=8, **PIPELINE)
    extra = common.count(model_shapes(cfg)) - common.count(common.gpt2_shapes(cfg))
    check("pipeline_extra_12x768_linear_n8", extra, PIPELINE_EXTRA_12X768_N8, False)
    print(f"parameter counts: {len(values)} checked, {len(wrong)} differ from the published")
    for line in wrong:
        print("  " + line)
    return values


# ---- self-tests ---------------------------------------------------------------------------------


def setting(name, **rest):
    """Configuration, weights and tokens for a self-test."""
    cfg = TINY | rest
    rng = common.case_rng("self-test " + name)
    w = common.random_weights(model_shapes(cfg), rng)
    return cfg, w, common.random_tokens(cfg, rng, 1)[0][0]


def test_one_stream():
    cfg, w, tokens = setting("one stream", streams=1)
    dense = dict(w)
    for i in range(cfg["layers"]):
        dense[f"h.{i}.mlp.c_fc.weight"] = w[f"h.{i}.ffn.streams.weight"][0]
        dense[f"h.{i}.mlp.c_fc.bias"] = w[f"h.{i}.ffn.streams.bias"][0]
        dense[f"h.{i}.mlp.c_proj.weight"] = w[f"h.{i}.ffn.down.weight"]
        dense[f"h.{i}.mlp.c_proj.bias"] = w[f"h.{i}.ffn.down.bias"]
    logits, aux = forward(w, tokens, cfg)
    expected = common.gpt2(dense, tokens, cfg)[0]
    common.same(logits, expected, "linear with one stream is the dense model")
    layers = cfg["layers"] * cfg["bal_alpha"]
    common.same(aux, common.no_loss() + layers, "one stream: balance loss is alpha per layer")
    cfg = cfg | {"mix": "post"}
    common.same(forward(w, tokens, cfg)[0], expected, "mix=post with one stream is the dense model")


def zero(w, ending):
    return {n: torch.zeros_like(v) if ending in n else v for n, v in w.items()}


def test_variants_that_meet_simple():
    for site in ("router", "feature"):
        cfg, w, tokens = setting("adaptive", variant="adaptive", gate_site=site)
        logits = forward(zero(w, ".scales."), tokens, cfg)[0]
        simple = forward(w, tokens, cfg | {"variant": "simple"})[0]
        common.same(logits, simple, f"adaptive with scales 0 is simple ({site})")

        cfg, w, tokens = setting("multi_head", variant="multi_head", gate_site=site)
        w = zero(w, ".fuse.bias")
        w |= {n: torch.eye(cfg["width"]).double() for n in w if n.endswith(".fuse.weight")}
        logits = forward(w, tokens, cfg)[0]
        simple = forward(w, tokens, cfg | {"variant": "simple"})[0]
        common.same(logits, simple, f"multi_head with fuse = identity is simple ({site})")

    cfg, w, _ = setting("excite", variant="context_aware")
    w = zero(w, ".excite.")
    u = torch.tensor(common.case_rng("u").standard_normal((2, 7, cfg["width"])))
    z = front_end(u, w, "h.0.ffn.front.", cfg)
    u = layer_norm(u, w, "h.0.ffn.front.norm")
    simple = front_end(u, w, "h.0.ffn.front.", cfg | {"variant": "simple"})
    common.same(z, simple / 2, "context_aware with excite 0 is half of simple on the normed input")


def test_slices_are_a_block_diagonal_gate():
    cfg, w, tokens = setting("slice", variant="multi_head", head_input="slice", gate_heads=2)
    full = dict(w)
    for i in range(cfg["layers"]):
        name = f"h.{i}.ffn.front.gate.weight"
        full[name] = torch.block_diag(*w[name])
    logits = forward(w, tokens, cfg)[0]
    expected = forward(full, tokens, cfg | {"head_input": "full"})[0]
    common.same(logits, expected, "head_input=slice is a block-diagonal full gate")


def test_causality():
    for mode in ("ffn", "pipeline"):
        for variant in VARIANTS:
            for ctx in ("prefix_mean", "ema", "global"):
                cfg, w, tokens = setting("causal", variant=variant, mode=mode, ctx=ctx)
                changed = tokens.clone()
                changed[:, 4:] = (changed[:, 4:] + 3) % cfg["vocabulary"]
                a, b = forward(w, tokens, cfg)[0], forward(w, changed, cfg)[0]
                leak = (a - b)[:, :4].abs().max().item()
                leaks = ctx == "global" and variant in ("context_aware", "adaptive")
                assert leak > 1e-6 if leaks else leak < 1e-13, (mode, variant, ctx, leak)
    print("self-test: later tokens reach earlier logits with ctx=global and nowhere else")


def test_pipeline_start():
    cfg, w, tokens = setting("pipeline", **PIPELINE)
    w = zero(zero(w, ".aggregate.mix."), ".aggregate.proj.bias")
    eye = torch.eye(cfg["width"]).double()
    w["span.0.aggregate.proj.weight"] = eye
    for k in range(cfg["streams"]):
        w[f"span.0.expand.{k}.weight"] = eye
        w[f"span.0.expand.{k}.bias"] = torch.zeros(cfg["width"]).double()
    expected = common.gpt2(w, tokens, cfg)[0]
    common.same(
        forward(w, tokens, cfg)[0], expected, "pipeline of equal streams at start is dense"
    )


def self_tests():
    test_one_stream()
    test_variants_that_meet_simple()
    test_slices_are_a_block_diagonal_gate()
    test_causality()
    test_pipeline_start()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(pathlib.Path(__file__).with_name("cmollm.h5")))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    self_tests()
    with common.open_file(out) as file:
        file.attrs.update(check_values() | make_baselines.check_values())
        for name, (change, steps) in CASES.items():
            cfg = TINY | change
            common.write_case(file, name, cfg, model_shapes(cfg), forward, steps)
    print(f"{out}: {math.ceil(pathlib.Path(out).stat().st_size / 1000)} kB")


if __name__ == "__main__":
    main()
