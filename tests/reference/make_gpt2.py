#!/usr/bin/env python3
"""Makes gpt2.h5: a tiny GPT-2 in PyTorch float64, its loss, gradients and 10 AdamW steps.

    python tests/reference/make_gpt2.py [--out tests/reference/gpt2.h5]

Needs torch, numpy and h5py; the tests that read the file need none of them.

Model (GPT-2): x = wte[token] + wpe[position]; per block x += attn(ln_1(x)), x += mlp(ln_2(x));
logits = ln_f(x) wte^T (tied head, no bias). Layer norm eps 1e-5; GELU in the tanh form; attention
is causal with scale 1/sqrt(C/H); c_attn is one linear map [3C, C] whose rows are q, k, v, each
ordered by head; dropout 0. Weights are stored [out, in], y = x W^T + b.

Training: 10 steps, step i on batch i: gradients of the mean loss, clip by global norm 1.0
(PyTorch's clip_grad_norm_: the gradient is multiplied by min(1, 1.0 / (norm + 1e-6))), then AdamW
(decoupled decay: w -= lr * weight_decay * w first, then w -= lr * m_hat / (sqrt(v_hat) + eps)),
constant learning rate, weight decay on 2-D tensors (matrices and both embeddings) only.

File layout (all real data float64, integers int32). NAME is one of wte.weight, wpe.weight,
ln_f.weight, ln_f.bias and, for i = 0, 1, h.i.ln_1.*, h.i.attn.c_attn.* [3C,C], h.i.attn.c_proj.*
[C,C], h.i.ln_2.*, h.i.mlp.c_fc.* [4C,C], h.i.mlp.c_proj.* [C,4C], where * = weight, bias:
    attributes of /     torch_version, seed, n_layer, n_head, n_embd, n_positions, vocab_size,
                        batch, steps, ln_eps, gelu, n_parameters
    tokens   [B,T]      input of the forward and backward reference
    targets  [B,T]
    logits   [B,T,V]    of weights/ on tokens
    loss     []         mean over B*T targets
    weights/NAME        starting weights
    grads/NAME          gradients of loss (wte: both uses summed), not clipped
    adamw/              attributes lr, beta1, beta2, eps, weight_decay, clip_norm
      tokens  [10,B,T]  batches
      targets [10,B,T]
      losses  [10]      mean loss of each batch before that step's update
      grad_norms [10]   global gradient norm of each step before clipping
      final_loss []     loss of weights after 10 steps on /tokens, /targets
      weights/NAME      after 10 steps
      m/NAME, v/NAME    first and second moments after 10 steps (no bias correction in them)

Key biases (rows C..2C of every c_attn.bias) do not change the loss: their gradient is rounding
noise around 1e-18, which Adam's eps silences in float64. In fp32 the noise nears eps and Adam turns
it into real steps of about lr: a test of fp32 weights must leave those rows out.
"""

import argparse
import math
import pathlib

import h5py
import numpy as np
import torch
import torch.nn.functional as F

SEED = 20240607
V, T, C, H, L, B, STEPS = 61, 16, 24, 3, 2, 3, 10
LN_EPS = 1e-5
LR, BETA1, BETA2, ADAM_EPS, DECAY, CLIP = 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0


def make_weights(rng):
    """Random weights in forward order; norm weights and biases far from their usual 1 and 0."""

    def normal(*shape, std, mean=0.0):
        return torch.tensor(mean + std * rng.standard_normal(shape), dtype=torch.float64)

    w = {"wte.weight": normal(V, C, std=0.25), "wpe.weight": normal(T, C, std=0.2)}

    def norm(name):
        w[name + ".weight"] = normal(C, std=0.3, mean=1.0)
        w[name + ".bias"] = normal(C, std=0.2)

    def linear(name, n_out, n_in):
        w[name + ".weight"] = normal(n_out, n_in, std=0.7 / math.sqrt(n_in))
        w[name + ".bias"] = normal(n_out, std=0.1)

    for i in range(L):
        norm(f"h.{i}.ln_1")
        linear(f"h.{i}.attn.c_attn", 3 * C, C)
        linear(f"h.{i}.attn.c_proj", C, C)
        norm(f"h.{i}.ln_2")
        linear(f"h.{i}.mlp.c_fc", 4 * C, C)
        linear(f"h.{i}.mlp.c_proj", C, 4 * C)
    norm("ln_f")
    return w


def attention(x, w, name):
    """Causal attention with the T x T scores written out."""
    b, t, _ = x.shape
    qkv = F.linear(x, w[name + ".c_attn.weight"], w[name + ".c_attn.bias"])
    q, k, v = (u.view(b, t, H, C // H).transpose(1, 2) for u in qkv.split(C, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(C // H)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    y = scores.masked_fill(future, -math.inf).softmax(dim=3) @ v
    y = y.transpose(1, 2).reshape(b, t, C)
    return F.linear(y, w[name + ".c_proj.weight"], w[name + ".c_proj.bias"])


def forward(w, tokens):
    def norm(x, name):
        return F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"], LN_EPS)

    x = w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]
    for i in range(L):
        x = x + attention(norm(x, f"h.{i}.ln_1"), w, f"h.{i}.attn")
        u = norm(x, f"h.{i}.ln_2")
        u = F.linear(u, w[f"h.{i}.mlp.c_fc.weight"], w[f"h.{i}.mlp.c_fc.bias"])
        u = F.gelu(u, approximate="tanh")
        x = x + F.linear(u, w[f"h.{i}.mlp.c_proj.weight"], w[f"h.{i}.mlp.c_proj.bias"])
    return norm(x, "ln_f") @ w["wte.weight"].T


def mean_loss(w, tokens, targets):
    return F.cross_entropy(forward(w, tokens).view(-1, V), targets.reshape(-1))


def train(w, tokens, targets):
    """Ten AdamW steps in place; returns losses, gradient norms and the optimizer."""
    groups = [
        {"params": [p for p in w.values() if p.dim() == 2], "weight_decay": DECAY},
        {"params": [p for p in w.values() if p.dim() != 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=ADAM_EPS, foreach=False)
    losses, norms = [], []
    for i in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(w, tokens[i], targets[i])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms, optimizer


def write_tensors(group, tensors):
    for name, value in tensors.items():
        group[name] = value.detach().numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(pathlib.Path(__file__).with_name("gpt2.h5")))
    out = parser.parse_args().out
    torch.set_num_threads(1)
    rng = np.random.Generator(np.random.PCG64(SEED))
    w = {name: value.requires_grad_() for name, value in make_weights(rng).items()}
    stream = torch.tensor(rng.integers(0, V, size=(STEPS + 1, B, T + 1)))
    tokens, targets = stream[..., :-1], stream[..., 1:]

    logits = forward(w, tokens[0])
    loss = F.cross_entropy(logits.view(-1, V), targets[0].reshape(-1))
    loss.backward()
    with h5py.File(out, "w") as f:
        f.attrs.update(
            {
                "torch_version": np.bytes_(torch.__version__),
                "seed": SEED,
                "n_layer": L,
                "n_head": H,
                "n_embd": C,
                "n_positions": T,
                "vocab_size": V,
                "batch": B,
                "steps": STEPS,
                "ln_eps": LN_EPS,
                "gelu": np.bytes_("tanh"),
                "n_parameters": sum(p.numel() for p in w.values()),
            }
        )
        f["tokens"] = tokens[0].numpy().astype(np.int32)
        f["targets"] = targets[0].numpy().astype(np.int32)
        f["logits"] = logits.detach().numpy()
        f["loss"] = loss.item()
        write_tensors(f.create_group("weights"), w)
        write_tensors(f.create_group("grads"), {name: p.grad for name, p in w.items()})

        losses, norms, optimizer = train(w, tokens[1:], targets[1:])
        g = f.create_group("adamw")
        g.attrs.update(
            {
                "lr": LR,
                "beta1": BETA1,
                "beta2": BETA2,
                "eps": ADAM_EPS,
                "weight_decay": DECAY,
                "clip_norm": CLIP,
            }
        )
        g["tokens"] = tokens[1:].numpy().astype(np.int32)
        g["targets"] = targets[1:].numpy().astype(np.int32)
        g["losses"], g["grad_norms"] = np.array(losses), np.array(norms)
        g["final_loss"] = mean_loss(w, tokens[0], targets[0]).item()
        write_tensors(g.create_group("weights"), w)
        write_tensors(g.create_group("m"), {n: optimizer.state[p]["exp_avg"] for n, p in w.items()})
        write_tensors(
            g.create_group("v"), {n: optimizer.state[p]["exp_avg_sq"] for n, p in w.items()}
        )
    print(f"{out}: torch {torch.__version__}, loss {loss.item():.12f}")
    for i, (a, b) in enumerate(zip(losses, norms)):
        print(f"step {i} loss {a:.12f} gradient norm {b:.6f}")


if __name__ == "__main__":
    main()
