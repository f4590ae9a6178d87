"""What make_kappa.py, make_moep.py and make_optim.py share: weights, files, attention, optimizers.

Everything is PyTorch in float64 and written to be read, not to be fast. A case group holds

    attributes          the configuration, and n_parameters
    tokens   [B,T]      int32
    targets  [B,T]      int32
    loss     []         language-model loss alone, mean over the positions that count
    aux_loss []         all auxiliary losses, weighted and added
    logits   [B,T,V]
    weights/NAME        starting weights (the same object as in another case where they are equal)
    grads/NAME          gradients of loss + aux_loss, not clipped
    steps/              only where the case trains: attributes of the optimizer,
      tokens, targets [5,B,T]   step i on batch i
      losses, aux_losses [5]    before that step's update
      grad_norms [5]            global norm before clipping
      weights/NAME              after the 5 steps

Real data are contiguous float64, integers int32. Every decision that a rounding error could turn
(top-k, a threshold) is asserted to be at least MARGIN away from turning.
"""

import argparse
import math
import pathlib

import h5py
import numpy as np
import torch

MARGIN = 1e-6
FLOAT = torch.float64


def output_path(doc, script):
    """Path given by --out, by default SCRIPT's name without make_ and with .h5; sets one thread and
    float64, also for quotients of integers, which PyTorch would otherwise take in float32."""
    torch.set_num_threads(1)
    torch.set_default_dtype(FLOAT)
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    name = pathlib.Path(script).stem.removeprefix("make_") + ".h5"
    parser.add_argument("--out", default=str(pathlib.Path(script).with_name(name)))
    return parser.parse_args().out


def generator(seed):
    return np.random.Generator(np.random.PCG64(seed))


def normal(rng, shape, std=1.0, mean=0.0):
    return torch.tensor(mean + std * rng.standard_normal(shape), dtype=FLOAT)


def make_batches(rng, count, batch, tokens, vocab):
    """COUNT batches of inputs and their next tokens, each [count,B,T]. The sequences of a batch
    begin differently and none by the same token twice: all these would have equal scores, ties."""
    stream = rng.integers(0, vocab, size=(count, batch, tokens + 1))
    stream[..., 0] = [rng.permutation(vocab)[:batch] for _ in range(count)]
    twice = stream[..., 1] == stream[..., 0]
    stream[..., 1][twice] = (stream[..., 0][twice] + 1) % vocab
    stream = torch.tensor(stream)
    return stream[..., :-1], stream[..., 1:]


def require_margin(distances):
    """Fails if one of the DISTANCES from a decision is below MARGIN."""
    assert distances.numel() == 0 or distances.abs().min() > MARGIN, distances.abs().min()


def top_k(scores, k, ordered=True):
    """Indices of the K largest of each last dimension, best first; neither the choice nor, if
    ORDERED, the order among the chosen may be a near tie."""
    value, index = scores.detach().sort(dim=-1, descending=True, stable=True)
    gaps = (value[..., :-1] - value[..., 1:])[..., :k]
    require_margin(gaps if ordered else gaps[..., k - 1 :])
    return index[..., :k]


def half_split(x, angle, sense):
    """RoPE: turns the pairs (i, i + D/2) of x [...,D] by SENSE * angle [...,D/2]."""
    cos, sin = angle.cos(), sense * angle.sin()
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


def rope_angles(positions, head_dim, base=1e4):
    """positions [...] -> angles [...,D/2], position * base^(-2i/D)."""
    frequency = base ** (-2.0 * torch.arange(head_dim // 2, dtype=FLOAT) / head_dim)
    return positions.to(FLOAT)[..., None] * frequency


def attend(q, k, v, visible):
    """Attention of q, k, v [...,T,D] with the scores written out; visible [T,T] (query, key)."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~visible, -math.inf).softmax(dim=-1) @ v


def polar(x, iterations):
    """Simple quintic (2, -1.5, 0.5) towards the orthogonal factor of x [...,m,n], in float64."""
    tall = x.shape[-2] > x.shape[-1]
    x = x.transpose(-2, -1) if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(iterations):
        a = x @ x.transpose(-2, -1)
        x = 2.0 * x + (-1.5 * a + 0.5 * a @ a) @ x
    return x.transpose(-2, -1) if tall else x


def balanced_polar(v, iterations=12, rounds=2, beta=0.5, eps=1e-7):
    """Aurora's direction of v [...,m,n]: polar with the rows of the long side balanced."""
    m, n = v.shape[-2:]
    if m == n:
        return polar(v, iterations)
    if m < n:
        return balanced_polar(v.transpose(-2, -1), iterations, rounds, beta, eps).transpose(-2, -1)
    scale = 1.0 / v.norm(dim=-1, keepdim=True).clamp_min(eps)
    for k in range(rounds):
        u = polar(scale * v, iterations)
        if k < rounds - 1:
            row = u.square().sum(dim=-1, keepdim=True).clamp_min(eps**2)
            scale = scale * ((n / m) / row) ** beta
    return u


def aurora_scale(rule, rows, cols):
    if rule == "aspect":
        return math.sqrt(max(1.0, rows / cols))
    assert rule == "rms"
    return min(1.0, 0.2 * math.sqrt(max(rows, cols)))


AURORA = {
    "lr": 0.01,
    "weight_decay": 0.05,
    "momentum": 0.95,
    "nesterov": 1,
    "polar_iterations": 12,
    "rounds": 2,
    "beta": 0.5,
    "eps": 1e-7,
    "scale": "aspect",
}


def aurora_step(w, g, m, rule):
    """One Aurora step of the matrices w [...,rows,cols]; updates w and the momentum m in place."""
    mu = rule["momentum"]
    m += (1.0 - mu) * (g - m)
    v = g + mu * (m - g) if rule["nesterov"] else m
    u = balanced_polar(v, rule["polar_iterations"], rule["rounds"], rule["beta"], rule["eps"])
    u = u * aurora_scale(rule["scale"], *g.shape[-2:])
    w *= 1.0 - rule["lr"] * rule["weight_decay"]
    w -= rule["lr"] * u


def adamw_step(w, g, state, lr, beta1, beta2, eps):
    """One AdamW step without decay; state holds m, v and the count t of steps done."""
    state["t"] += 1
    state["m"] += (1.0 - beta1) * (g - state["m"])
    state["v"] += (1.0 - beta2) * (g * g - state["v"])
    denominator = (state["v"] / (1.0 - beta2 ** state["t"])).sqrt() + eps
    w -= lr / (1.0 - beta1 ** state["t"]) * state["m"] / denominator


def gradients(w, loss):
    """Gradient of LOSS by name; zeros for a weight that it does not depend on."""
    grads = torch.autograd.grad(loss, list(w.values()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(w.items(), grads)
    }


def leaves(weights):
    """Copies of the weights that gradients can be taken for."""
    return {name: value.detach().clone().requires_grad_() for name, value in weights.items()}


def global_norm(tensors):
    return math.sqrt(sum(t.square().sum().item() for t in tensors))


def attribute(value):
    if isinstance(value, str):
        return np.bytes_(value)
    return np.array(value) if isinstance(value, (list, tuple)) else value


def write_attributes(group, values):
    for name, value in values.items():
        group.attrs[name] = attribute(value)


def write_tensors(group, tensors):
    """Writes each tensor under its name; integers become int32."""
    for name, value in tensors.items():
        if isinstance(value, torch.Tensor):
            value = value.detach().numpy()
        value = np.asarray(value)
        integer = np.issubdtype(value.dtype, np.integer) or value.dtype == bool
        group.create_dataset(name, data=value.astype(np.int32 if integer else np.float64))


class File:
    """An HDF5 file of case groups; equal sets of starting weights are stored once and linked."""

    def __init__(self, path, seed):
        self.file = h5py.File(path, "w", libver="earliest")
        write_attributes(self.file, {"torch_version": torch.__version__, "seed": seed})
        self.stored = {}

    def case(self, name, configuration, weights, data):
        """Opens group NAME with its attributes, weights/ and the tensors of DATA; returns it."""
        group = self.file.create_group(name)
        write_attributes(group, configuration)
        group.attrs["n_parameters"] = sum(w.numel() for w in weights.values())
        key = tuple(
            (n, tuple(w.shape), w.detach().numpy().tobytes()) for n, w in weights.items()
        )
        if key in self.stored:
            group["weights"] = self.stored[key]
        else:
            self.stored[key] = group.create_group("weights")
            write_tensors(self.stored[key], weights)
        write_tensors(group, data)
        return group

    def close(self, path):
        self.file.close()
        size = pathlib.Path(path).stat().st_size
        assert size <= 1 << 20, f"{path}: {size} bytes"
        print(f"{path}: torch {torch.__version__}, {size} bytes")
