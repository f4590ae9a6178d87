#!/usr/bin/env python3
"""Makes optim.h5: steps of Aurora and Muon on given weights and gradients, in PyTorch float64.

    python tests/reference/make_optim.py [--out tests/reference/optim.h5]

Written from section 1 and appendix A of the specification alone; the polar iterations are in
float64 too. A case group has its hyperparameters as attributes and

    weights0  [...,rows,cols]
    grads     [3,...,rows,cols]
    weights   [3,...,rows,cols]   after each step
    momentum  [...,rows,cols]     after the last step
    second_moment                 muon only, after the last step: [...,rows,1] or [...,1,cols]
    momenta   [3]                 muon only, mu of each step

A batched case is three matrices, each on its own.

aurora (moe_common.py): scale = aspect multiplies by sqrt(max(1, rows/cols)), scale = rms by
min(1, 0.2 sqrt(max(rows, cols))).

muon (nanochat, February 2026), step t counted from first_step:
    mu = 0.85 + 0.10 min(t / 300, 1);  M += (1 - mu)(G - M);  g = G + mu (M - G)
    five Polar Express steps from g / (1.02 |g| + 1e-6)
    v = mean of g^2 of each row over its columns if rows >= cols, else of each column over its rows;
    s += (1 - beta2)(v - s), without bias correction;  h = g / sqrt(max(s, 1e-10)), then scaled to
    the Frobenius norm of g
    rate = lr sqrt(max(1, rows/cols));  W -= rate h + rate weight_decay W [h W >= 0]

golden/: v [4,2] of appendix A and polar, k1, k2, k2_wide (of v transposed); square and
square_direction; without the shape scale, printed there with 6 digits and stored here in full.
"""

import math

import torch

import moe_common as mc

SEED = 20260508
STEPS = 3
SHAPES = {"tall": (11, 4), "wide": (3, 10), "square": (5, 5), "batched": (3, 9, 4)}
SHAPES_AUTHORS = {**SHAPES, "batched": (3, 4, 7), "long": (31, 3)}

AURORA = {
    "aurora_reference": (dict(mc.AURORA, lr=0.05, weight_decay=0.025), SHAPES),
    "aurora_no_nesterov": (dict(mc.AURORA, nesterov=0), {"tall": (7, 5)}),
    "aurora_one_round": (dict(mc.AURORA, rounds=1), {"tall": (7, 5)}),
    "aurora_authors": (dict(mc.AURORA, polar_iterations=5, scale="rms"), SHAPES_AUTHORS),
}
MUON = {
    "lr": 0.02,
    "weight_decay": 0.2,
    "momentum_start": 0.85,
    "momentum_end": 0.95,
    "momentum_steps": 300,
    "beta2": 0.95,
    "eps": 1e-10,
}
POLAR_EXPRESS = (
    (8.156554524902461, -22.48329292557795, 15.878769915207462),
    (4.042929935166739, -2.808917465908714, 0.5000178451051316),
    (3.8916678022926607, -2.772484153217685, 0.5060648178503393),
    (3.285753657755655, -2.3681294933425376, 0.46449024233003106),
    (2.3465413258596377, -1.7097828382687081, 0.42323551169305323),
)


def polar_express(x):
    tall = x.shape[-2] > x.shape[-1]
    x = x / (1.02 * x.norm(dim=(-2, -1), keepdim=True) + 1e-6)
    for a, b, c in POLAR_EXPRESS:
        gram = x.transpose(-2, -1) @ x if tall else x @ x.transpose(-2, -1)
        p = b * gram + c * gram @ gram
        x = a * x + (x @ p if tall else p @ x)
    return x


def muon_momentum(t):
    start, end = MUON["momentum_start"], MUON["momentum_end"]
    return start + (end - start) * min(t / MUON["momentum_steps"], 1.0)


def muon_step(w, grad, m, s, t):
    """One step of the matrices w [...,rows,cols]; updates w, momentum m and second moment s."""
    rows, cols = w.shape[-2:]
    mu = muon_momentum(t)
    m += (1.0 - mu) * (grad - m)
    g = polar_express(grad + mu * (m - grad))
    v = g.square().mean(dim=-1 if rows >= cols else -2, keepdim=True)
    s += (1.0 - MUON["beta2"]) * (v - s)
    h = g / s.clamp_min(MUON["eps"]).sqrt()
    h = h * (g.norm(dim=(-2, -1), keepdim=True) / h.norm(dim=(-2, -1), keepdim=True))
    mc.require_margin(h * w)
    rate = MUON["lr"] * math.sqrt(max(1.0, rows / cols))
    w -= rate * h + rate * MUON["weight_decay"] * w * (h * w >= 0)


def inputs(rng, shape):
    """Weights and three gradients, the rows of the gradients of very different size."""
    size = torch.tensor(rng.lognormal(0.0, 1.0, size=shape[:-1] + (1,)), dtype=mc.FLOAT)
    return 0.3 * mc.normal(rng, shape), 0.1 * size * mc.normal(rng, (STEPS, *shape))


def aurora_case(weights, grads, rule):
    w, m, after = weights.clone(), torch.zeros_like(weights), []
    for g in grads:
        mc.aurora_step(w, g, m, rule)
        after.append(w.clone())
    return {"weights": torch.stack(after), "momentum": m}


def muon_case(weights, grads, first):
    rows, cols = weights.shape[-2:]
    s = torch.zeros_like(weights[..., :1] if rows >= cols else weights[..., :1, :])
    w, m, after = weights.clone(), torch.zeros_like(weights), []
    for step, g in enumerate(grads):
        muon_step(w, g, m, s, first + step)
        after.append(w.clone())
    momenta = [muon_momentum(first + step) for step in range(STEPS)]
    return {"weights": torch.stack(after), "momentum": m, "second_moment": s, "momenta": momenta}


def write_case(file, name, attributes, weights, grads, data):
    group = file.create_group(name)
    mc.write_attributes(group, {**attributes, "steps": STEPS})
    mc.write_tensors(group, {"weights0": weights, "grads": grads, **data})


def check_batched(rng):
    """A batch of three equals three single matrices."""
    weights, grads = inputs(rng, (3, 6, 4))
    together = aurora_case(weights, grads, mc.AURORA)["weights"]
    muon = muon_case(weights, grads, 0)["weights"]
    for i in range(3):
        alone = aurora_case(weights[i], grads[:, i], mc.AURORA)["weights"]
        assert torch.allclose(together[:, i], alone, rtol=0, atol=1e-14)
        alone = muon_case(weights[i], grads[:, i], 0)["weights"]
        assert torch.allclose(muon[:, i], alone, rtol=0, atol=1e-14)


def check_directions(rng):
    """Aurora: orthogonal columns, nearly equal rows; Muon's polar: singular values near 1."""
    _, grads = inputs(rng, (96, 24))
    u = mc.balanced_polar(grads[0])
    assert torch.allclose(u.T @ u, torch.eye(24, dtype=mc.FLOAT), rtol=0, atol=1e-9)
    rows = u.norm(dim=1) / math.sqrt(24 / 96)
    assert 0.85 < rows.min() and rows.max() < 1.15, (rows.min(), rows.max())
    values = torch.linalg.svdvals(polar_express(grads[0]))
    assert 0.8 < values.min() and values.max() < 1.2, (values.min(), values.max())


def golden():
    """The vectors of appendix A, checked against its digits."""

    def matrix(*rows):
        return torch.tensor(rows, dtype=mc.FLOAT)

    v = matrix([1, 2], [3, -1], [0.5, 0.25], [-2, 1])
    square = matrix([2, 1], [0, 1])
    values = {
        "v": v,
        "polar": mc.polar(v, 12),
        "k1": mc.balanced_polar(v, rounds=1),
        "k2": mc.balanced_polar(v),
        "k2_wide": mc.balanced_polar(v.T),
        "square": square,
        "square_direction": mc.balanced_polar(square),
    }
    printed = {
        "polar": matrix(
            [0.379068, 0.900393], [0.767798, -0.265493], [0.149955, 0.132339], [-0.494274, 0.318265]
        ),
        "k1": matrix(
            [0.255236, 0.776805], [0.583962, -0.295905], [0.536246, 0.375515], [-0.553429, 0.409881]
        ),
        "k2": matrix(
            [0.22505, 0.718878], [0.593577, -0.316098], [0.560539, 0.449757], [-0.531804, 0.425459]
        ),
        "square_direction": matrix([0.948683, 0.316228], [-0.316228, 0.948683]),
    }
    for name, expected in printed.items():
        assert torch.allclose(values[name], expected, rtol=0, atol=1e-6), name
    assert torch.equal(values["k2_wide"], values["k2"].T)
    return values


def main():
    out = mc.output_path(__doc__, __file__)
    rng = mc.generator(SEED)
    check_batched(rng)
    check_directions(rng)
    container = mc.File(out, SEED)
    for name, (rule, shapes) in AURORA.items():
        for kind, shape in shapes.items():
            weights, grads = inputs(rng, shape)
            data = aurora_case(weights, grads, rule)
            attributes = {"optimizer": "aurora", **rule}
            write_case(container.file, f"{name}_{kind}", attributes, weights, grads, data)
    for first in (0, 298):
        for kind, shape in SHAPES.items():
            weights, grads = inputs(rng, shape)
            data = muon_case(weights, grads, first)
            attributes = {"optimizer": "muon", **MUON, "first_step": first}
            write_case(container.file, f"muon_{first}_{kind}", attributes, weights, grads, data)
    mc.write_tensors(container.file.create_group("golden"), golden())
    container.close(out)


if __name__ == "__main__":
    main()
