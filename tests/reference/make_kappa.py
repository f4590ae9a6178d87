#!/usr/bin/env python3
"""Makes kappa.h5: the kappa-SwiGLU mixture of experts (kappa_moe) in PyTorch float64.

    python tests/reference/make_kappa.py [--out tests/reference/kappa.h5]

Written from sections 1, 2, 5 and 6 of the specification alone. moe_common.py describes a case
group. Weights are [out, in]; norm(x) = x / sqrt(mean(x^2) + 1.2e-7), without parameters.

    x = x0 = norm(wte[token])
    layer i:  x = resid_lambda x + x0_lambda x0;  x += attention(norm(x));  x += ffn(norm(x))
    logits = softcap * tanh(lm_head norm(x) / softcap)

attention: q, k, v = qkv; on layers i = L-1 mod 2, v of head h += 2 sigmoid(value_gate_h . x[:G])
times value_embedding[token]; q and k are turned (y1 = x1 cos + x2 sin, y2 = -x1 sin + x2 cos,
half-split, base 10000), then normed by head; causal softmax, scale 1/sqrt(D).

MoE layer: s = router x; the top_k largest logits are selected and weighted by a softmax over the
selected; expert e: out (z sigmoid(kappa z) u), [z | u] = in x,
kappa = U^tanh(c_s alpha s_e + c_b b), U = kappa_max. The gradient that kappa sends to s_e is
multiplied by router_grad_scale. Without alpha or b (no_alpha, no_b) the term is 0 and the file has
no such weight; without kappa (kappa = 0) it has neither and kappa_j = 1.

capacity_factor > 0: each expert takes floor(k factor B T / E) slots, one more if that is odd, at
least 4; all first choices come in token order, then all second choices; a slot over capacity adds
nothing and the other weight stays. 0 is dropless. eval_capacity_factor, where given, belongs to
eval_logits.

Auxiliary losses, each summed over the MoE layers, pool = all B sequences:
    balance   weight * E sum_e f_e P_e, f_e = count_e / (B T) before capacity, P_e = mean softmax(s)
    z plain   weight * mean lse(s)^2
    z demeaned  weight * mean(lse(s - m)^2 + m^2), m = mean_e s; x gets z_input_grad_scale of its
              gradient, the router all of it
    L2        l2_alpha mean(alpha^2) + l2_b mean(b^2)

steps/ (case paper): Aurora for every matrix inside a block (qkv as three matrices, in as two, each
expert on its own, router and value_gate too; decay decoupled and constant), AdamW without decay for
the rest, learning rates constant, no clipping, no freeze.

Extra data: every MoE layer i has selected/h.i [B,T,k] (int32, best first), dropped/h.i [B,T,k] and
kept counts load/h.i [E]. golden/kappa_t, golden/kappa: the values of the specification, U = 3.
"""

import math

import torch
import torch.nn.functional as F

import moe_common as mc

SEED = 20260530
V, T, B, C, H, FFN, L, E = 17, 9, 3, 8, 2, 12, 3, 4
STEPS = 5

PAPER = {
    "family": "kappa_moe",
    "preset": "paper",
    "vocab_size": V,
    "context": T,
    "batch": B,
    "n_layer": L,
    "n_head": H,
    "n_embd": C,
    "ffn": FFN,
    "experts": E,
    "top_k": 2,
    "moe_layers": [2],
    "softcap": 15.0,
    "rms_eps": 1.2e-7,
    "rope_base": 10000.0,
    "kappa": 1,
    "alpha": 1,
    "b": 1,
    "kappa_max": 3.0,
    "kappa_scale_s": 1.0,
    "kappa_scale_b": 1.0,
    "router_grad_scale": 1.0,
    "capacity_factor": 0.0,
    "balance_weight": 1e-3,
    "z_weight": 1e-5,
    "z_form": "plain",
    "z_input_grad_scale": 1.0,
    "l2_alpha": 2e-2,
    "l2_b": 1e-2,
}
LARGE_AUX = {"balance_weight": 0.1, "z_weight": 0.05, "l2_alpha": 0.2, "l2_b": 0.1}
AUTHORS = {
    "preset": "authors",
    "kappa_scale_s": 0.3,
    "kappa_scale_b": 2.0,
    "router_grad_scale": 0.1,
    "capacity_factor": 1.0,
    "eval_capacity_factor": 3.0,
    "z_form": "demeaned",
    "z_input_grad_scale": 0.1,
}
CASES = {
    "paper": {},
    "kappa_off": {"kappa": 0, "alpha": 0, "b": 0, **LARGE_AUX, "moe_layers": [1, 2]},
    "no_alpha": {"alpha": 0, **LARGE_AUX},
    "no_b": {"b": 0, **LARGE_AUX},
    "large_aux": {**LARGE_AUX, "moe_layers": [0, 2]},
    "authors": {**AUTHORS, **LARGE_AUX},
    "authors_many_experts": {**AUTHORS, "experts": 11, "n_layer": 2, "moe_layers": [1], "ffn": 5},
    "top1": {"top_k": 1, "experts": 3, "n_layer": 2, "moe_layers": [1], **LARGE_AUX},
}


def value_embedding_layer(cfg, i):
    return i % 2 == (cfg["n_layer"] - 1) % 2


def shapes(cfg):
    """Name -> shape of every weight, in forward order."""
    v, c, h, f, e = (cfg[k] for k in ("vocab_size", "n_embd", "n_head", "ffn", "experts"))
    s = {"wte.weight": (v, c)}
    for i in range(cfg["n_layer"]):
        p = f"h.{i}."
        s[p + "resid_lambda"] = s[p + "x0_lambda"] = (1,)
        s[p + "attn.qkv.weight"] = (3 * c, c)
        if value_embedding_layer(cfg, i):
            s[p + "attn.value_embedding.weight"] = (v, c)
            s[p + "attn.value_gate.weight"] = (h, min(32, c))
        s[p + "attn.proj.weight"] = (c, c)
        if i in cfg["moe_layers"]:
            s[p + "router.weight"] = (e, c)
            s[p + "experts.in.weight"] = (e, 2 * f, c)
            s[p + "experts.out.weight"] = (e, c, f)
            for name in ("alpha", "b"):
                if cfg["kappa"] and cfg[name]:
                    s[p + "experts." + name] = (e, f)
        else:
            s[p + "ffn.in.weight"] = (2 * f, c)
            s[p + "ffn.out.weight"] = (c, f)
    s["lm_head.weight"] = (v, c)
    return s


def make_weights(rng, cfg):
    """Random everywhere, also where the model would start at zero."""

    def weight(name, shape):
        if name.endswith("_lambda"):
            return mc.normal(rng, shape, std=0.2, mean=0.9 if "resid" in name else 0.3)
        if name.endswith((".alpha", ".b")):
            return mc.normal(rng, shape, std=0.5)
        if name.startswith("wte") or "value_embedding" in name:
            return mc.normal(rng, shape)
        return mc.normal(rng, shape, std=0.9 / math.sqrt(shape[-1]))

    return {name: weight(name, shape) for name, shape in shapes(cfg).items()}


def norm(x, eps):
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt()


def scale_gradient(x, factor):
    """x itself, with its gradient multiplied by FACTOR."""
    return factor * x + ((1.0 - factor) * x).detach()


def attention(x, w, cfg, i, tokens):
    p, heads, eps = f"h.{i}.attn.", cfg["n_head"], cfg["rms_eps"]
    b, t, c = x.shape

    def by_head(u):
        return u.view(b, t, heads, c // heads)

    q, k, v = (by_head(u) for u in F.linear(x, w[p + "qkv.weight"]).split(c, dim=2))
    if value_embedding_layer(cfg, i):
        gate_weight = w[p + "value_gate.weight"]
        gate = 2.0 * F.linear(x[..., : gate_weight.shape[1]], gate_weight).sigmoid()
        v = v + gate[..., None] * by_head(w[p + "value_embedding.weight"][tokens])
    angle = mc.rope_angles(torch.arange(t), c // heads, cfg["rope_base"])[:, None, :]
    q, k = (norm(mc.half_split(u, angle, sense=-1.0), eps) for u in (q, k))
    causal = torch.ones(t, t, dtype=torch.bool).tril()
    y = mc.attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal)
    return F.linear(y.transpose(1, 2).reshape(b, t, c), w[p + "proj.weight"])


def expert_capacity(cfg, factor, tokens):
    slots = math.floor(cfg["top_k"] * factor * tokens / cfg["experts"])
    return max(4, slots + slots % 2)


def drop(selected, cfg, factor):
    """Slots [N,k] over capacity: all first choices in token order, then all second choices."""
    dropped = torch.zeros(selected.shape, dtype=torch.bool)
    if factor == 0.0:
        return dropped
    room = [expert_capacity(cfg, factor, selected.shape[0])] * cfg["experts"]
    for choice in range(selected.shape[1]):
        for token in range(selected.shape[0]):
            e = int(selected[token, choice])
            dropped[token, choice] = room[e] == 0
            room[e] -= int(room[e] > 0)
    return dropped


def swiglu(x, w_in, w_out, kappa=1.0):
    z, u = F.linear(x, w_in).chunk(2, dim=-1)
    return F.linear(z * (kappa * z).sigmoid() * u, w_out)


def kappa_of(s, w, p, cfg, e):
    """kappa [N,F] of expert e from its raw router logits s [N]; 1 where kappa is off."""
    if not cfg["kappa"]:
        return 1.0
    t = torch.zeros(s.shape[0], cfg["ffn"], dtype=mc.FLOAT)
    if cfg["alpha"]:
        s = scale_gradient(s, cfg["router_grad_scale"])
        t = t + cfg["kappa_scale_s"] * s[:, None] * w[p + "alpha"][e]
    if cfg["b"]:
        t = t + cfg["kappa_scale_b"] * w[p + "b"][e]
    return cfg["kappa_max"] ** t.tanh()


def z_loss(x, router, cfg):
    if cfg["z_form"] == "plain":
        return F.linear(x, router).logsumexp(dim=1).square().mean()
    s = F.linear(scale_gradient(x, cfg["z_input_grad_scale"]), router)
    m = s.mean(dim=1, keepdim=True)
    return ((s - m).logsumexp(dim=1).square() + m[:, 0].square()).mean()


def moe(x, w, cfg, i, capacity_factor, notes):
    """Returns the layer's output [B,T,C] and its weighted auxiliary losses."""
    p, experts, k = f"h.{i}.experts.", cfg["experts"], cfg["top_k"]
    b, t, c = x.shape
    x = x.reshape(b * t, c)
    router = w[f"h.{i}.router.weight"]
    s = F.linear(x, router)
    selected = mc.top_k(s, k)
    dropped = drop(selected, cfg, capacity_factor)
    share = s.gather(1, selected).softmax(dim=1).masked_fill(dropped, 0.0)

    y = torch.zeros_like(x)
    for e in range(experts):
        rows, choice = torch.nonzero((selected == e) & ~dropped, as_tuple=True)
        kappa = kappa_of(s[rows, e], w, p, cfg, e)
        out = swiglu(x[rows], w[p + "in.weight"][e], w[p + "out.weight"][e], kappa)
        y = y.index_add(0, rows, share[rows, choice, None] * out)

    counts = torch.bincount(selected.flatten(), minlength=experts).to(mc.FLOAT)
    f = counts / (b * t)
    aux = cfg["balance_weight"] * experts * (f * s.softmax(dim=1).mean(dim=0)).sum()
    aux = aux + cfg["z_weight"] * z_loss(x, router, cfg)
    if cfg["kappa"] and cfg["alpha"]:
        aux = aux + cfg["l2_alpha"] * w[p + "alpha"].square().mean()
    if cfg["kappa"] and cfg["b"]:
        aux = aux + cfg["l2_b"] * w[p + "b"].square().mean()
    kept = torch.bincount(selected[~dropped], minlength=experts)
    notes[f"selected/h.{i}"] = selected.view(b, t, k)
    notes[f"dropped/h.{i}"] = dropped.view(b, t, k)
    notes[f"load/h.{i}"] = kept
    return y.view(b, t, c), aux


def forward(w, cfg, tokens, capacity_factor=None):
    """Returns logits [B,T,V], the auxiliary loss and what the MoE layers decided."""
    factor = cfg["capacity_factor"] if capacity_factor is None else capacity_factor
    eps, aux, notes = cfg["rms_eps"], torch.zeros((), dtype=mc.FLOAT), {}
    x = x0 = norm(w["wte.weight"][tokens], eps)
    for i in range(cfg["n_layer"]):
        p = f"h.{i}."
        x = w[p + "resid_lambda"] * x + w[p + "x0_lambda"] * x0
        x = x + attention(norm(x, eps), w, cfg, i, tokens)
        if i in cfg["moe_layers"]:
            y, layer_aux = moe(norm(x, eps), w, cfg, i, factor, notes)
            x, aux = x + y, aux + layer_aux
        else:
            x = x + swiglu(norm(x, eps), w[p + "ffn.in.weight"], w[p + "ffn.out.weight"])
    z = F.linear(norm(x, eps), w["lm_head.weight"])
    return cfg["softcap"] * (z / cfg["softcap"]).tanh(), aux, notes


def losses_of(w, cfg, tokens, targets):
    logits, aux, notes = forward(w, cfg, tokens)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), aux, logits, notes


ADAM = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-10, "weight_decay": 0.0}
X0_BETA1 = 0.96
ADAM_LR = {
    "wte.weight": 0.3,
    "value_embedding.weight": 0.3,
    "lm_head.weight": 0.004,
    "resid_lambda": 0.005,
    "x0_lambda": 0.5,
    "experts.alpha": 0.12,
    "experts.b": 0.12,
}


def adam_lr(name):
    """The AdamW learning rate of a weight, None for a matrix of Aurora."""
    found = [lr for end, lr in ADAM_LR.items() if name.endswith(end)]
    return found[0] if found else None


def matrices_of(name, x):
    """The matrices (views) that Aurora handles apart: q | k | v, gate | up."""
    parts = 3 if name.endswith("qkv.weight") else 2 if name.endswith("in.weight") else 1
    return x.chunk(parts, dim=-2)


def train(weights, cfg, tokens, targets):
    w = mc.leaves(weights)
    momentum = {n: torch.zeros_like(p) for n, p in weights.items()}
    state = {n: {"t": 0, "m": torch.zeros_like(p), "v": torch.zeros_like(p)} for n, p in w.items()}
    losses, aux_losses, norms = [], [], []
    for step in range(STEPS):
        loss, aux, _, _ = losses_of(w, cfg, tokens[step], targets[step])
        grads = mc.gradients(w, loss + aux)
        losses.append(loss.item())
        aux_losses.append(aux.item())
        norms.append(mc.global_norm(grads.values()))
        with torch.no_grad():
            for name, p in w.items():
                lr = adam_lr(name)
                if lr is not None:
                    beta1 = X0_BETA1 if name.endswith("x0_lambda") else ADAM["beta1"]
                    mc.adamw_step(
                        p, grads[name], state[name], lr, beta1, ADAM["beta2"], ADAM["eps"]
                    )
                    continue
                parts = [matrices_of(name, u) for u in (p, grads[name], momentum[name])]
                for part, g, m in zip(*parts):
                    mc.aurora_step(part, g, m, mc.AURORA)
    return w, {"losses": losses, "aux_losses": aux_losses, "grad_norms": norms}


def optimizer_attributes():
    return {
        **{f"aurora_{k}": v for k, v in mc.AURORA.items()},
        **{f"adamw_{k}": v for k, v in ADAM.items()},
        **{f"adamw_lr_{end.replace('.weight', '')}": lr for end, lr in ADAM_LR.items()},
        "adamw_beta1_x0_lambda": X0_BETA1,
        "clip_norm": 0.0,
    }


def count_12l(kappa):
    """Total, active, N_eff and steps of the 12-layer preset (section 6.2)."""
    cfg = dict(PAPER, vocab_size=32768, n_layer=12, n_head=9, n_embd=1152, ffn=4608, experts=32)
    cfg.update(moe_layers=list(range(2, 10)), kappa=kappa, alpha=kappa, b=kappa)
    sizes = {name: math.prod(shape) for name, shape in shapes(cfg).items()}
    expert = sum(n for name, n in sizes.items() if ".experts." in name)
    outside = ("wte", "value_embedding", "_lambda", ".experts.")
    shared = sum(n for name, n in sizes.items() if not any(o in name for o in outside))
    share = cfg["top_k"] / cfg["experts"]
    n_eff = shared + expert * math.sqrt(share)
    steps = math.floor(5 * n_eff / 2**19)
    return sum(sizes.values()), sum(sizes.values()) - expert + expert * share, n_eff, steps


def check_identities(rng):
    """Special cases that must equal a simpler computation."""
    cfg = dict(PAPER)
    w = make_weights(rng, cfg)
    tokens, _ = mc.make_batches(rng, 1, B, T, V)
    off = {n: p for n, p in w.items() if not n.endswith((".alpha", ".b"))}
    flat = {n: p if n in off else torch.zeros_like(p) for n, p in w.items()}
    plain = forward(off, dict(cfg, kappa=0, alpha=0, b=0), tokens[0])[0]
    assert torch.equal(forward(flat, cfg, tokens[0])[0], plain)
    assert not torch.allclose(forward(w, cfg, tokens[0])[0], plain)

    one = dict(cfg, experts=1, top_k=1, kappa=0, alpha=0, b=0)
    w = make_weights(rng, one)
    dense = dict(w)
    for name in ("in", "out"):
        dense[f"h.2.ffn.{name}.weight"] = w[f"h.2.experts.{name}.weight"][0]
    logits = forward(dense, dict(one, moe_layers=[]), tokens[0])[0]
    assert torch.allclose(forward(w, one, tokens[0])[0], logits, rtol=0, atol=1e-13)

    s = mc.normal(rng, (1, 7)).requires_grad_()
    assert torch.autograd.grad(scale_gradient(s, 0.1).sum(), s)[0].allclose(s.new_full((), 0.1))


def main():
    out = mc.output_path(__doc__, __file__)
    rng = mc.generator(SEED)
    check_identities(rng)
    file = mc.File(out, SEED)
    for name, change in CASES.items():
        cfg = dict(PAPER, **change)
        weights = make_weights(rng, cfg)
        tokens, targets = mc.make_batches(rng, STEPS + 1, B, T, V)
        w = mc.leaves(weights)
        loss, aux, logits, notes = losses_of(w, cfg, tokens[0], targets[0])
        data = {"tokens": tokens[0], "targets": targets[0], "logits": logits}
        data.update({"loss": loss.item(), "aux_loss": aux.item()})
        if "eval_capacity_factor" in cfg:
            dropped = torch.stack([n for key, n in notes.items() if key.startswith("dropped")])
            assert dropped[..., 1].any() and not dropped.all(), name
            assert dropped[..., 0].any() or name == "authors", name
            evaluated, _, _ = forward(w, cfg, tokens[0], cfg["eval_capacity_factor"])
            data["eval_logits"] = evaluated
            assert not torch.equal(evaluated, logits)
        group = file.case(name, cfg, weights, data)
        mc.write_tensors(group, notes)
        mc.write_tensors(group.create_group("grads"), mc.gradients(w, loss + aux))
        print(f"{name}: loss {loss.item():.12f} aux {aux.item():.12f}")
        if name == "paper":
            trained, record = train(weights, cfg, tokens[1:], targets[1:])
            steps = group.create_group("steps")
            mc.write_attributes(steps, optimizer_attributes())
            mc.write_tensors(steps, {"tokens": tokens[1:], "targets": targets[1:], **record})
            mc.write_tensors(steps.create_group("weights"), trained)
            print("steps:", *(f"{v:.9f}" for v in record["losses"]))

    t = torch.tensor([-1.0, -0.5, 0.0, 0.335, 0.5, 1.0], dtype=mc.FLOAT)
    golden = torch.tensor([0.433139, 0.601886, 1.0, 1.425979, 1.661445, 2.308728], dtype=mc.FLOAT)
    assert torch.allclose(3.0 ** t.tanh(), golden, rtol=0, atol=1e-6)
    mc.write_tensors(file.file.create_group("golden"), {"kappa_t": t, "kappa": golden})
    file.close(out)
    for kappa, expected in ((0, 11297), (1, 11303)):
        total, active, n_eff, steps = count_12l(kappa)
        assert steps == expected, steps
        print(f"12 layers, kappa {kappa}: {total} weights, {active:.0f} active, {n_eff:.0f} N_eff,")
        print(f"  {steps} steps")


if __name__ == "__main__":
    main()
