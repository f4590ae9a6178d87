#!/usr/bin/env python3
"""Makes moep.h5, moep_options.h5: expert choice with window experts (moep_msit), PyTorch float64.

    python tests/reference/make_moep.py [--out tests/reference/moep.h5]

moep.h5 has the ways to select on two layers, moep_options.h5 the other options on one layer.
Written from section 4 of the specification alone. moe_common.py describes a case group. Linear maps
are [out, in] without biases, layer norms have weight and bias (eps 1e-5), the head is wte, there is
no position table and no dropout. RoPE: half-split pairs, base 10000,
y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin, in the global attention and in the experts.

    x = wte[token];  block i, then ln_f and wte:
    a = x + attention(ln_1 x);  f = a + swiglu(ln_2 a);  X = ln_3 f
    r = softmax(router.weight router.norm X)                        over the experts
    o_t = sum over the experts e that hold t of  r_te up(expert_e(down X)_t)
    x = ln_post(X + o)
    expert: e += attention(ln_1 e);  e += swiglu(ln_2 e);  y = ln_3 e   on its tokens only

select, pool = all B sequences unless named:
    ec_batch      each expert takes its k = clamp(floor(c N / E + 1/2), 1, N) largest r
    ec_seq        the same in every sequence, N = T
    threshold     r >= theta of buffers/h.i.threshold [E]
    predictor     chosen as ec_batch; eval_logits has the tokens with sigmoid(out) > 0.5, out =
                  predictor.out silu(predictor.hidden n), n = router.norm X without gradient. Loss:
                  binary cross entropy of sigmoid(out) against being chosen, mean over tokens and
                  experts, summed over layers, weight 1
    token_choice  each token its round(c) largest r; the gate is r itself;
                  aux = balance_weight E sum_e f_e P_e, f_e = share of the slots (sum 1),
                  P_e = mean r_e, mean over layers
buffers_after/h.i.threshold, where present, is theta after this pool: 0.99 theta + 0.01 (k-th
largest r), or the k-th largest r itself where no theta was given (has_threshold = 0).
steps/buffers_after: after the five pools.

Attention of an expert over its tokens:
    order          time: by sequence and position; affinity: by r, largest first
    segments       sequence: only within a sequence; pool: the pool is one sequence
    rope_position  original: t (with segments = pool: b T + t); compact: rank among the expert's
                   tokens of the segment, in the order
    window         distance < windows[e] in original positions or in compact ranks; none: no limit
A token sees itself and the earlier ones in the order. The MLM phase (mlm_target, mask [B,T]) has
tokens already masked, |distance| < windows[e] on both sides, a global attention over the whole
sequence, and a loss over the masked positions t alone, against the token of position t (same) or
t + 1 (next) of the text; targets holds that token for every position.

Extra data: selected/h.i [B,T,E] (int32, 1 where expert e holds the token).

steps/ (ec_batch, token_choice): AdamW, decay on tensors with two or more dimensions only, gradients
of loss + aux_loss clipped by PyTorch's clip_grad_norm_.
"""

import math
import pathlib

import torch
import torch.nn.functional as F

import moe_common as mc

SEED = 20260320
V, T, B, STEPS = 17, 9, 3, 5
MASK = V - 1

BASE = {
    "family": "moep_msit",
    "vocab_size": V,
    "context": T,
    "batch": B,
    "n_layer": 1,
    "n_head": 2,
    "n_embd": 8,
    "ffn": 10,
    "experts": 3,
    "expert_width": 12,
    "expert_heads": 3,
    "expert_ffn": 6,
    "windows": [5, 3, 2],
    "ln_eps": 1e-5,
    "rope_base": 10000.0,
    "select": "ec_batch",
    "capacity": 1.5,
    "order": "time",
    "segments": "sequence",
    "rope_position": "original",
    "window": "original",
    "balance_weight": 0.01,
    "predictor_weight": 1.0,
    "threshold_decay": 0.99,
    "has_threshold": 0,
    "mlm_target": "none",
}
TWO = {"n_layer": 2, "capacity": 2.0}
CASES = {
    "ec_batch": TWO,
    "token_choice": {**TWO, "select": "token_choice", "capacity": 1.0},
    "threshold": {**TWO, "select": "threshold", "has_threshold": 1},
    "predictor": {**TWO, "select": "predictor", "expert_ffn": 4},
}
OPTIONS = {
    "ec_seq": {"select": "ec_seq"},
    "token_choice_top2": {"select": "token_choice", "capacity": 2.0, "balance_weight": 0.5},
    "capacity_1": {"capacity": 1.0},
    "window_compact": {"window": "compact"},
    "window_none": {"window": "none"},
    "rope_compact": {"rope_position": "compact"},
    "segments_pool": {"segments": "pool"},
    "compat": {
        "order": "affinity",
        "segments": "pool",
        "rope_position": "compact",
        "window": "compact",
    },
    "mlm_same": {"mlm_target": "same"},
    "mlm_next": {"mlm_target": "next"},
}
TRAINED = ("ec_batch", "token_choice")
THRESHOLDS = torch.tensor([[0.28, 0.35, 0.22], [0.4, 0.21, 0.31]], dtype=mc.FLOAT)
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0


def shapes(cfg):
    """Name -> shape of every weight, in forward order."""
    v, c, f, e = (cfg[k] for k in ("vocab_size", "n_embd", "ffn", "experts"))
    ce, fe = cfg["expert_width"], cfg["expert_ffn"]
    s = {"wte.weight": (v, c)}

    def norm(name, width):
        s[name + ".weight"] = s[name + ".bias"] = (width,)

    for i in range(cfg["n_layer"]):
        p = f"h.{i}."
        norm(p + "ln_1", c)
        s[p + "attn.qkv.weight"], s[p + "attn.proj.weight"] = (3 * c, c), (c, c)
        norm(p + "ln_2", c)
        s[p + "ffn.in.weight"], s[p + "ffn.out.weight"] = (2 * f, c), (c, f)
        norm(p + "ln_3", c)
        norm(p + "router.norm", c)
        s[p + "router.weight"] = (e, c)
        if cfg["select"] == "predictor":
            s[p + "predictor.hidden.weight"], s[p + "predictor.hidden.bias"] = (64, c), (64,)
            s[p + "predictor.out.weight"], s[p + "predictor.out.bias"] = (e, 64), (e,)
        s[p + "down.weight"] = (ce, c)
        for j in range(e):
            q = f"{p}experts.{j}."
            norm(q + "ln_1", ce)
            s[q + "qkv.weight"], s[q + "proj.weight"] = (3 * ce, ce), (ce, ce)
            norm(q + "ln_2", ce)
            s[q + "in.weight"], s[q + "out.weight"] = (2 * fe, ce), (ce, fe)
            norm(q + "ln_3", ce)
        s[p + "up.weight"] = (c, ce)
        norm(p + "ln_post", c)
    norm("ln_f", c)
    return s


def make_weights(rng, cfg):
    """Random everywhere; norm weights and biases far from their usual 1 and 0."""

    def weight(name, shape):
        if name.endswith(".bias"):
            return mc.normal(rng, shape, std=0.2)
        if len(shape) == 1:
            return mc.normal(rng, shape, std=0.3, mean=1.0)
        if name.startswith("wte"):
            return mc.normal(rng, shape, std=0.4)
        return mc.normal(rng, shape, std=0.9 / math.sqrt(shape[-1]))

    return {name: weight(name, shape) for name, shape in shapes(cfg).items()}


def layer_norm(x, w, name, cfg):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], cfg["ln_eps"])


def swiglu(x, w_in, w_out):
    gate, up = F.linear(x, w_in).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, w_out)


def attention(x, w, p, heads, positions, visible, base):
    """Attention of the rows x [...,N,C] with RoPE at POSITIONS [N] where VISIBLE [N,N]."""
    width = x.shape[-1]
    angle = mc.rope_angles(positions, width // heads, base)

    def by_head(u):
        return u.unflatten(-1, (heads, width // heads)).transpose(-3, -2)

    q, k, v = (by_head(u) for u in F.linear(x, w[p + "qkv.weight"]).chunk(3, dim=-1))
    q, k = (mc.half_split(u, angle, sense=1.0) for u in (q, k))
    y = mc.attend(q, k, v, visible).transpose(-3, -2).flatten(-2)
    return F.linear(y, w[p + "proj.weight"])


def arrangement(rows, cfg, window, tokens, bidirectional):
    """RoPE positions [K] and visibility [K,K] of an expert's tokens ROWS, listed in its order."""
    pool = cfg["segments"] == "pool"
    segment = torch.zeros_like(rows) if pool else rows // tokens
    original = rows if pool else rows % tokens
    same = segment[:, None] == segment[None, :]
    rank = same.tril(-1).sum(dim=1)
    place = {"original": original, "compact": rank, "none": rank}
    position = place[cfg["window"]]
    distance = position[:, None] - position[None, :]
    before = torch.ones(len(rows), len(rows), dtype=torch.bool).tril()
    if cfg["window"] == "none":
        visible = same
    else:
        visible = same & (distance.abs() < window)
    return place[cfg["rope_position"]], visible if bidirectional else visible & before


def expert(x, rows, w, p, cfg, window, tokens, bidirectional):
    positions, visible = arrangement(rows, cfg, window, tokens, bidirectional)
    heads, base = cfg["expert_heads"], cfg["rope_base"]
    x = x + attention(layer_norm(x, w, p + "ln_1", cfg), w, p, heads, positions, visible, base)
    x = x + swiglu(layer_norm(x, w, p + "ln_2", cfg), w[p + "in.weight"], w[p + "out.weight"])
    return layer_norm(x, w, p + "ln_3", cfg)


def pool_k(cfg, tokens):
    return min(max(math.floor(cfg["capacity"] * tokens / cfg["experts"] + 0.5), 1), tokens)


def best_tokens(r, k):
    """Membership [N,E]: the K tokens of largest r [N,E] of each expert."""
    chosen = torch.zeros(r.shape, dtype=torch.bool)
    return chosen.scatter(0, mc.top_k(r.T, k, ordered=False).T, True)


def select(r, cfg, batch, theta, predicted):
    """Membership [N,E] by the scores r [N,E]; PREDICTED [N,E] decides where it is given."""
    r, mode, n = r.detach(), cfg["select"], r.shape[0]
    if predicted is not None:
        mc.require_margin(predicted.detach().sigmoid() - 0.5)
        return predicted > 0
    if mode == "threshold":
        mc.require_margin(r - theta)
        return r >= theta
    if mode == "token_choice":
        chosen = torch.zeros(r.shape, dtype=torch.bool)
        return chosen.scatter(1, mc.top_k(r, round(cfg["capacity"])), True)
    if mode == "ec_seq":
        return torch.cat([best_tokens(s, pool_k(cfg, n // batch)) for s in r.chunk(batch)])
    return best_tokens(r, pool_k(cfg, n))


def rows_in_order(member, score, cfg):
    """Tokens of an expert, listed in the order of its attention."""
    rows = torch.nonzero(member)[:, 0]
    if cfg["order"] == "time":
        return rows
    return rows[mc.top_k(score[rows].detach(), len(rows))]


def predict(normed, w, p):
    """Logits [N,E] of the predictor, whose input gets no gradient."""
    hidden = F.linear(normed.detach(), w[p + "hidden.weight"], w[p + "hidden.bias"])
    return F.linear(F.silu(hidden), w[p + "out.weight"], w[p + "out.bias"])


def experts_output(x, r, chosen, w, p, cfg, tokens):
    """o [N,C]: the gated outputs of the experts at the tokens that they hold."""
    low = F.linear(x, w[p + "down.weight"])
    o = torch.zeros_like(x)
    for e in range(cfg["experts"]):
        rows = rows_in_order(chosen[:, e], r[:, e], cfg)
        y = expert(
            low[rows],
            rows,
            w,
            f"{p}experts.{e}.",
            cfg,
            cfg["windows"][e],
            tokens,
            cfg["mlm_target"] != "none",
        )
        o = o.index_add(0, rows, r[rows, e, None] * F.linear(y, w[p + "up.weight"]))
    return o


def auxiliary(r, chosen, predicted, cfg):
    """Weighted auxiliary loss of one layer, before the mean or sum over layers."""
    if cfg["select"] == "token_choice":
        f = chosen.sum(dim=0).to(mc.FLOAT) / chosen.sum()
        balance = cfg["experts"] * (f * r.mean(dim=0)).sum()
        return cfg["balance_weight"] * balance / cfg["n_layer"]
    if cfg["select"] == "predictor":
        loss = F.binary_cross_entropy_with_logits(predicted, chosen.to(mc.FLOAT))
        return cfg["predictor_weight"] * loss
    return torch.zeros((), dtype=mc.FLOAT)


def forward(w, cfg, tokens, thresholds=None, by_predictor=False):
    """Returns logits [B,T,V], the auxiliary loss, memberships and k-th scores of the layers."""
    b, t = tokens.shape
    aux, chosen_of, kth_of = torch.zeros((), dtype=mc.FLOAT), [], []
    everything = torch.ones(t, t, dtype=torch.bool)
    visible = everything if cfg["mlm_target"] != "none" else everything.tril()
    x = w["wte.weight"][tokens]
    for i in range(cfg["n_layer"]):
        p = f"h.{i}."
        normed = layer_norm(x, w, p + "ln_1", cfg)
        places = torch.arange(t)
        args = (w, p + "attn.", cfg["n_head"], places, visible, cfg["rope_base"])
        x = x + attention(normed, *args)
        normed = layer_norm(x, w, p + "ln_2", cfg)
        x = x + swiglu(normed, w[p + "ffn.in.weight"], w[p + "ffn.out.weight"])
        x = layer_norm(x, w, p + "ln_3", cfg).flatten(0, 1)

        normed = layer_norm(x, w, p + "router.norm", cfg)
        r = F.linear(normed, w[p + "router.weight"]).softmax(dim=1)
        predicted = predict(normed, w, p + "predictor.") if cfg["select"] == "predictor" else None
        theta = None if thresholds is None else thresholds[i]
        chosen = select(r, cfg, b, theta, predicted if by_predictor else None)
        aux = aux + auxiliary(r, chosen, predicted, cfg)
        chosen_of.append(chosen.view(b, t, -1))
        kth_of.append(r.detach().sort(dim=0, descending=True)[0][pool_k(cfg, b * t) - 1])

        o = experts_output(x, r, chosen, w, p, cfg, t)
        x = layer_norm(x + o, w, p + "ln_post", cfg).view(b, t, -1)
    logits = F.linear(layer_norm(x, w, "ln_f", cfg), w["wte.weight"])
    return logits, aux, chosen_of, torch.stack(kth_of)


def mean_loss(logits, targets, mask=None):
    counted = torch.ones_like(targets, dtype=torch.bool) if mask is None else mask
    return F.cross_entropy(logits[counted], targets[counted])


def moved(theta, kth, cfg):
    """Thresholds after a pool whose k-th scores are KTH; the first pool sets them."""
    decay = cfg["threshold_decay"]
    return kth if theta is None else decay * theta + (1.0 - decay) * kth


def train(weights, cfg, tokens, targets):
    w = mc.leaves(weights)
    groups = [
        {"params": [p for p in w.values() if p.dim() >= 2], "weight_decay": ADAM["weight_decay"]},
        {"params": [p for p in w.values() if p.dim() < 2], "weight_decay": 0.0},
    ]
    betas = (ADAM["beta1"], ADAM["beta2"])
    optimizer = torch.optim.AdamW(groups, ADAM["lr"], betas, ADAM["eps"], foreach=False)
    record, theta = {"losses": [], "aux_losses": [], "grad_norms": []}, None
    for step in range(STEPS):
        logits, aux, _, kth = forward(w, cfg, tokens[step])
        loss = mean_loss(logits, targets[step])
        for name, g in mc.gradients(w, loss + aux).items():
            w[name].grad = g
        record["losses"].append(loss.item())
        record["aux_losses"].append(aux.item())
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP)
        record["grad_norms"].append(norm.item())
        optimizer.step()
        theta = moved(theta, kth, cfg)
    return w, record, theta


def by_layer(thresholds):
    return {f"h.{i}.threshold": theta for i, theta in enumerate(thresholds)}


def masked_batch(rng, cfg):
    """Inputs with about half of the tokens masked, the mask, and the targets."""
    inputs, following = mc.make_batches(rng, 1, B, T, MASK)
    mask = torch.tensor(rng.random((B, T)) < 0.5)
    assert mask.any() and not mask.all()
    targets = (inputs if cfg["mlm_target"] == "same" else following)[0]
    return inputs[0].masked_fill(mask, MASK), targets, mask


def write_case(file, name, cfg, weights, rng):
    batches = mc.make_batches(rng, STEPS + 1, B, T, V)
    tokens, targets, mask = batches[0][0], batches[1][0], None
    if cfg["mlm_target"] != "none":
        tokens, targets, mask = masked_batch(rng, cfg)
        cfg = dict(cfg, mask_id=MASK)
    theta = THRESHOLDS if cfg["has_threshold"] else None

    w = mc.leaves(weights)
    logits, aux, chosen, kth = forward(w, cfg, tokens, theta)
    loss = mean_loss(logits, targets, mask)
    data = {"tokens": tokens, "targets": targets, "logits": logits}
    data.update({"loss": loss.item(), "aux_loss": aux.item()})
    if mask is not None:
        data["mask"] = mask
    if cfg["select"] == "predictor":
        data["eval_logits"] = forward(w, cfg, tokens, by_predictor=True)[0]
        assert not torch.equal(data["eval_logits"], logits)
    group = file.case(name, cfg, weights, data)
    mc.write_tensors(group, {f"selected/h.{i}": c for i, c in enumerate(chosen)})
    grads = mc.gradients(w, loss + aux)
    unused = [n for n, g in grads.items() if g.abs().max() < 1e-6]
    assert not unused, (name, unused)
    mc.write_tensors(group.create_group("grads"), grads)
    if theta is not None:
        mc.write_tensors(group.create_group("buffers"), by_layer(theta))
    if cfg["select"] in ("ec_batch", "threshold"):
        mc.write_tensors(group.create_group("buffers_after"), by_layer(moved(theta, kth, cfg)))
    print(f"{name}: loss {loss.item():.12f} aux {aux.item():.12f}")

    if name in TRAINED:
        trained, record, theta = train(weights, cfg, batches[0][1:], batches[1][1:])
        steps = group.create_group("steps")
        mc.write_attributes(steps, {**ADAM, "clip_norm": CLIP})
        data = {"tokens": batches[0][1:], "targets": batches[1][1:], **record}
        mc.write_tensors(steps, data)
        mc.write_tensors(steps.create_group("weights"), trained)
        if cfg["select"] == "ec_batch":
            mc.write_tensors(steps.create_group("buffers_after"), by_layer(theta))
        print("  steps:", *(f"{v:.9f}" for v in record["losses"]))


def check_counts():
    """The parameter counts of section 4.2."""
    full = dict(BASE, vocab_size=16384, n_layer=6, n_embd=256, ffn=680, expert_width=384)
    full.update(experts=4, expert_ffn=1024)
    total = sum(math.prod(s) for s in shapes(full).values())
    outside = 16384 * 256
    assert (total - outside, total) == (48_430_592, 52_624_896), total
    wide = sum(math.prod(s) for s in shapes(dict(full, ffn=688)).values())
    assert (wide - outside, wide) == (48_467_456, 52_661_760), wide
    print(f"full size: {total - outside} without the embedding, {total} in all")


def check_identities(rng):
    """One expert that takes everything is the same layer in every mode."""
    one = dict(BASE, experts=1, windows=[T], capacity=1.0)
    w = make_weights(rng, one)
    tokens = mc.make_batches(rng, 1, B, T, V)[0][0]
    expected = forward(w, one, tokens)[0]
    low = torch.full((1, 1), 0.5, dtype=mc.FLOAT)
    for change in (
        {"select": "ec_seq"},
        {"select": "token_choice"},
        {"select": "threshold"},
        {"window": "none"},
        {"window": "compact", "rope_position": "compact"},
    ):
        assert torch.equal(forward(w, dict(one, **change), tokens, low)[0], expected), change


def check_causality(rng):
    """Which logits a change of the last token of sequence 1 may reach, and must reach."""
    for name, past, others in (
        ("ec_batch", True, True),
        ("ec_seq", True, False),
        ("threshold", False, False),
        ("token_choice", False, False),
        ("predictor", False, False),
    ):
        cfg = dict(BASE, n_layer=2, select=name, capacity=1.0)
        w = make_weights(rng, cfg)
        tokens = mc.make_batches(rng, 1, B, T, V)[0][0]
        changes = torch.zeros(B, T, dtype=torch.bool)
        for other in range(1, V):
            edited = tokens.clone()
            edited[1, -1] = (tokens[1, -1] + other) % V
            args = (THRESHOLDS, name == "predictor")
            difference = forward(w, cfg, edited, *args)[0] - forward(w, cfg, tokens, *args)[0]
            changes |= difference.detach().abs().amax(dim=2) > 1e-9
        assert changes[1, -1]
        assert bool(changes[1, :-1].any()) == past, name
        assert bool(changes[[0, 2]].any()) == others, name


def write_file(path, cases, rng):
    shared, file = {}, mc.File(path, SEED)
    for name, change in cases.items():
        cfg = dict(BASE, **change)
        key = tuple(shapes(cfg).items())
        if key not in shared:
            shared[key] = make_weights(rng, cfg)
        write_case(file, name, cfg, shared[key], rng)
    file.close(path)


def main():
    out = pathlib.Path(mc.output_path(__doc__, __file__))
    check_counts()
    rng = mc.generator(SEED)
    check_identities(rng)
    write_file(out, CASES, rng)
    write_file(out.with_name(out.stem + "_options.h5"), OPTIONS, rng)
    check_causality(rng)


if __name__ == "__main__":
    main()
