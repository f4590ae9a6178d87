#!/usr/bin/env python3
"""Makes ops.h5: reference values of single operations in PyTorch float64, forward and backward.

    python tests/reference/make_ops.py [--out tests/reference/ops.h5]

Layout: one group per case, real data float64, integers int32, row-major. Inputs are x, w, b, ...;
dy is the incoming gradient of y; dx, dw, db are the gradients of sum(dy * y), or of the loss itself
where the op ends in one. Weights are [out, in]. Attributes of / are torch_version and seed;
attributes of a group stand in braces.

linear          x [5,7] w [3,7] b [3] dy -> y [5,3] dx dw db          y = x w^T + b
layer_norm      x [5,11] w [11] b [11] dy -> y mean [5] rstd [5] dx dw db         {eps 1e-5}
add_layer_norm  x r [5,11] w b dy ds -> s y dx (= dr) dw db                       {eps 1e-5}
                s = x + r, y = layer_norm(s); ds is the gradient that reaches s from elsewhere,
                to be added to the one through y
rms_norm        x [5,11] w [11] dy -> y rstd [5] dx dw                            {eps 1e-5}
                y = x w / sqrt(mean(x^2) + eps)
add_rms_norm    x r [5,11] w dy ds -> s y dx (= dr) dw                            {eps 1e-5}
gelu_tanh       x [5,13] dy -> y dx   0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
gelu_erf        x [5,13] dy -> y dx   x Phi(x)
swiglu          x [5,18] dy [5,9] -> y dx   x = [gate | up], y = gate sigmoid(gate) * up
rope            x [B*T,H*D] dy -> y dx
                {batch 2, tokens 11, heads 3, head_dim 8, base 10000}
                half-split pairs (GPT-NeoX): channel i < D/2 of a head turns with channel i + D/2
                by the angle a = t * base^(-2i/D), t = 0..T-1 restarting in each sequence:
                y1 = x1 cos a - x2 sin a, y2 = x2 cos a + x1 sin a.
                (dy -> dx is the same map with the opposite angle, y1 = x1 cos a + x2 sin a.)
attention       qkv [B*T,3C] dy [B*T,C] -> y lse [B,H,T] dqkv
                {batch, tokens, heads, head_dim}
                a row of qkv is q|k|v, each C wide and ordered by head; causal, scale 1/sqrt(D);
                lse = log of the sum of exp(scaled scores) of each query. Cases:
                attention (B 2, T 29, H 3, D 8), attention_wide (B 1, T 5, H 1, D 64) and
                attention_long (B 1, T 131, H 1, D 8, large scores: crosses block edges, moves
                the running maximum)
cross_entropy   x [7,61] targets [7] -> losses [7] lse [7] loss [] dx   loss = sum of losses
cross_entropy_large   the same with logits around +-300, [5,17]
linear_cross_entropy  x [7,11] w [61,11] targets [7] -> loss [] dx dw
                logits = x w^T, loss is the sum
embedding       tokens [B,T] = [2,7] wte [13,5] wpe [9,5] dy [14,5] -> y [14,5] dwte dwpe
                tokens repeat; rows 7, 8 of wpe are not used
clip            g [23] -> norm [] clipped [23]   {clip_norm 1.0}
                clipped = g * min(1, clip_norm / (norm + 1e-6))
adamw           p g m v [23] -> p_new m_new v_new
                {step, lr, beta1, beta2, eps, weight_decay}
                step counts from 1 and is the step being taken; cases adamw (step 7, decay 0.1)
                and adamw_first (step 1, m = v = 0, no decay)
"""

import argparse
import math
import pathlib

import h5py
import numpy as np
import torch
import torch.nn.functional as F

SEED = 20240608
EPS = 1e-5


class Maker:
    """Draws inputs and writes one group per case."""

    def __init__(self, file):
        self.file = file
        self.rng = np.random.Generator(np.random.PCG64(SEED))

    def normal(self, *shape, std=1.0, mean=0.0):
        return torch.tensor(mean + std * self.rng.standard_normal(shape), dtype=torch.float64)

    def leaf(self, *shape, std=1.0, mean=0.0):
        return self.normal(*shape, std=std, mean=mean).requires_grad_()

    def integers(self, high, *shape):
        return torch.tensor(self.rng.integers(0, high, size=shape))

    def write(self, name, attributes=None, **arrays):
        group = self.file.create_group(name)
        group.attrs.update(attributes or {})
        for key, value in arrays.items():
            value = value.detach().numpy()
            group[key] = value.astype(np.int32) if value.dtype == np.int64 else value


def linear(m):
    x, w, b, dy = m.leaf(5, 7), m.leaf(3, 7), m.leaf(3), m.normal(5, 3)
    y = F.linear(x, w, b)
    y.backward(dy)
    m.write("linear", x=x, w=w, b=b, dy=dy, y=y, dx=x.grad, dw=w.grad, db=b.grad)


def layer_norm(m):
    x, w, b, dy = (
        m.leaf(5, 11, mean=0.7),
        m.leaf(11, mean=1.0, std=0.4),
        m.leaf(11),
        m.normal(5, 11),
    )
    y = F.layer_norm(x, (11,), w, b, EPS)
    y.backward(dy)
    mean = x.mean(dim=1)
    rstd = 1.0 / torch.sqrt(((x - mean[:, None]) ** 2).mean(dim=1) + EPS)
    m.write(
        "layer_norm",
        {"eps": EPS},
        x=x,
        w=w,
        b=b,
        dy=dy,
        y=y,
        mean=mean,
        rstd=rstd,
        dx=x.grad,
        dw=w.grad,
        db=b.grad,
    )


def add_layer_norm(m):
    x, r, w, b = m.leaf(5, 11), m.normal(5, 11), m.leaf(11, mean=1.0, std=0.4), m.leaf(11)
    dy, ds = m.normal(5, 11), m.normal(5, 11)
    s = x + r
    y = F.layer_norm(s, (11,), w, b, EPS)
    torch.autograd.backward([y, s], [dy, ds])
    m.write(
        "add_layer_norm",
        {"eps": EPS},
        x=x,
        r=r,
        w=w,
        b=b,
        dy=dy,
        ds=ds,
        s=s,
        y=y,
        dx=x.grad,
        dw=w.grad,
        db=b.grad,
    )


def rms_norm(m):
    x, w, dy = m.leaf(5, 11, mean=0.3), m.leaf(11, mean=1.0, std=0.4), m.normal(5, 11)
    rstd = 1.0 / torch.sqrt((x * x).mean(dim=1) + EPS)
    y = x * rstd[:, None] * w
    torch.testing.assert_close(y, F.rms_norm(x, (11,), w, EPS), rtol=1e-14, atol=1e-15)
    y.backward(dy)
    m.write("rms_norm", {"eps": EPS}, x=x, w=w, dy=dy, y=y, rstd=rstd, dx=x.grad, dw=w.grad)


def add_rms_norm(m):
    x, r, w = m.leaf(5, 11), m.normal(5, 11), m.leaf(11, mean=1.0, std=0.4)
    dy, ds = m.normal(5, 11), m.normal(5, 11)
    s = x + r
    y = F.rms_norm(s, (11,), w, EPS)
    torch.autograd.backward([y, s], [dy, ds])
    m.write(
        "add_rms_norm", {"eps": EPS}, x=x, r=r, w=w, dy=dy, ds=ds, s=s, y=y, dx=x.grad, dw=w.grad
    )


def gelu(m, form):
    x, dy = m.normal(5, 13, std=2.0), m.normal(5, 13)
    x[0, :8] = torch.tensor([-30.0, -8.0, -1.0, -1e-8, 0.0, 1e-8, 5.0, 30.0])
    x.requires_grad_()
    y = F.gelu(x, approximate="tanh" if form == "tanh" else "none")
    y.backward(dy)
    m.write("gelu_" + form, x=x, dy=dy, y=y, dx=x.grad)


def swiglu(m):
    x, dy = m.normal(5, 18, std=2.0), m.normal(5, 9)
    x[0, :4] = torch.tensor([-40.0, 40.0, 0.0, -1e-8])
    x.requires_grad_()
    gate, up = x.split(9, dim=1)
    y = gate / (1.0 + torch.exp(-gate)) * up
    torch.testing.assert_close(y, F.silu(gate) * up, rtol=1e-14, atol=1e-15)
    y.backward(dy)
    m.write("swiglu", x=x, dy=dy, y=y, dx=x.grad)


def rope(m):
    batch, tokens, heads, dim, base = 2, 11, 3, 8, 10000.0
    x, dy = m.leaf(batch * tokens, heads * dim), m.normal(batch * tokens, heads * dim)
    frequency = base ** (-2.0 * torch.arange(dim // 2, dtype=torch.float64) / dim)
    angle = torch.arange(tokens, dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos()[None, :, None, :], angle.sin()[None, :, None, :]
    x1, x2 = x.view(batch, tokens, heads, dim).split(dim // 2, dim=3)
    y = torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=3).reshape(x.shape)
    y.backward(dy)
    m.write(
        "rope",
        {"batch": batch, "tokens": tokens, "heads": heads, "head_dim": dim, "base": base},
        x=x,
        dy=dy,
        y=y,
        dx=x.grad,
    )


def attention(m, name, batch, tokens, heads, dim, std):
    width = heads * dim
    qkv, dy = m.leaf(batch * tokens, 3 * width, std=std), m.normal(batch * tokens, width)
    q, k, v = (u.view(batch, tokens, heads, dim).transpose(1, 2) for u in qkv.split(width, dim=1))
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(2, 3) / math.sqrt(dim)).masked_fill(future, -math.inf)
    y = (scores.softmax(dim=3) @ v).transpose(1, 2).reshape(batch * tokens, width)
    fused = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(y.shape)
    torch.testing.assert_close(y, fused, rtol=1e-12, atol=1e-13)
    y.backward(dy)
    m.write(
        name,
        {"batch": batch, "tokens": tokens, "heads": heads, "head_dim": dim},
        qkv=qkv,
        dy=dy,
        y=y,
        lse=scores.logsumexp(dim=3),
        dqkv=qkv.grad,
    )


def cross_entropy(m, name, rows, vocab, std):
    x, targets = m.leaf(rows, vocab, std=std), m.integers(vocab, rows)
    losses = F.cross_entropy(x, targets, reduction="none")
    loss = losses.sum()
    loss.backward()
    m.write(name, x=x, targets=targets, losses=losses, lse=x.logsumexp(dim=1), loss=loss, dx=x.grad)


def linear_cross_entropy(m):
    x, w, targets = m.leaf(7, 11), m.leaf(61, 11, std=0.5), m.integers(61, 7)
    loss = F.cross_entropy(x @ w.T, targets, reduction="sum")
    loss.backward()
    m.write("linear_cross_entropy", x=x, w=w, targets=targets, loss=loss, dx=x.grad, dw=w.grad)


def embedding(m):
    tokens, wte, wpe, dy = m.integers(13, 2, 7), m.leaf(13, 5), m.leaf(9, 5), m.normal(14, 5)
    tokens[0, 1] = tokens[0, 4] = tokens[1, 2] = 12
    y = (wte[tokens] + wpe[:7]).view(14, 5)
    y.backward(dy)
    m.write("embedding", tokens=tokens, wte=wte, wpe=wpe, dy=dy, y=y, dwte=wte.grad, dwpe=wpe.grad)


def clip(m):
    p, g = m.leaf(23), m.normal(23)
    p.grad = g.clone()
    norm = torch.nn.utils.clip_grad_norm_([p], 1.0)
    m.write("clip", {"clip_norm": 1.0}, g=g, norm=norm, clipped=p.grad)


def adamw(m, name, step, decay):
    settings = {"lr": 3e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": decay}
    p, g = m.leaf(23), m.normal(23)
    first, second = (
        (m.normal(23), m.normal(23) ** 2) if step > 1 else (torch.zeros(23, dtype=p.dtype),) * 2
    )
    before = p.detach().clone()
    optimizer = torch.optim.AdamW(
        [p], lr=settings["lr"], betas=(0.9, 0.95), eps=1e-8, weight_decay=decay, foreach=False
    )
    optimizer.state[p] = {
        "step": torch.tensor(float(step - 1)),
        "exp_avg": first.clone(),
        "exp_avg_sq": second.clone(),
    }
    p.grad = g
    optimizer.step()
    state = optimizer.state[p]
    m.write(
        name,
        {"step": step, **settings},
        p=before,
        g=g,
        m=first,
        v=second,
        p_new=p,
        m_new=state["exp_avg"],
        v_new=state["exp_avg_sq"],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(pathlib.Path(__file__).with_name("ops.h5")))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    with h5py.File(out, "w") as file:
        file.attrs.update({"torch_version": np.bytes_(torch.__version__), "seed": SEED})
        m = Maker(file)
        linear(m)
        layer_norm(m)
        add_layer_norm(m)
        rms_norm(m)
        add_rms_norm(m)
        gelu(m, "tanh")
        gelu(m, "erf")
        swiglu(m)
        rope(m)
        attention(m, "attention", 2, 29, 3, 8, std=1.0)
        attention(m, "attention_wide", 1, 5, 1, 64, std=1.0)
        attention(m, "attention_long", 1, 131, 1, 8, std=4.0)
        cross_entropy(m, "cross_entropy", 7, 61, std=2.0)
        cross_entropy(m, "cross_entropy_large", 5, 17, std=300.0)
        linear_cross_entropy(m)
        embedding(m)
        clip(m)
        adamw(m, "adamw", 7, 0.1)
        adamw(m, "adamw_first", 1, 0.0)
    print(f"{out}: torch {torch.__version__}")


if __name__ == "__main__":
    main()
