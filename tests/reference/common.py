"""Shared by make_cmollm.py and make_baselines.py: GPT-2 parts, AdamW steps, HDF5 cases.

Everything is float64 and naive on purpose: T x T scores, loops over tokens and streams. A model is
a dict of shapes (name -> shape), a dict of weights with the same names, and a function
forward(weights, tokens, config) -> (logits [B,T,V], weighted auxiliary loss []).
Weights are stored [out, in]: y = x W^T + b. Layer norm eps 1e-5; GELU in the tanh form.

Each case is one group of the file:
    attributes          the configuration (strings as bytes, numbers as int64 or float64), seed,
                        n_parameters (every weight once; the tied head is wte)
    tokens   [B,T]      int32, as are all tokens and targets
    targets  [B,T]
    loss     []         language-model loss alone, mean over B*T targets
    aux_loss []         weighted auxiliary loss (0 where the case has none)
    logits   [B,T,V]
    weights/NAME        starting weights
    grads/NAME          gradients of loss + aux_loss, not clipped (tied weights: all uses summed)
    steps/              in some cases: 5 AdamW steps from weights/, step i on batch i; attributes
                        steps, lr, beta1, beta2, eps, weight_decay, clip_norm
      tokens [5,B,T], targets [5,B,T]
      losses [5], aux_losses [5], grad_norms [5]    of each batch before that step's update; the
                        norm is that of the gradient of loss + aux_loss before clipping
      weights/NAME      after 5 steps

A step: clip by global norm 1 (PyTorch's clip_grad_norm_: times min(1, 1 / (norm + 1e-6))), then
AdamW (w -= lr * decay * w first, then w -= lr * m_hat / (sqrt(v_hat) + eps)). See decays() for what
decays. Key biases (rows C..2C of c_attn.bias) have gradient 0 up to rounding, see README.md
(not so in ParaScale with P > 1: the prefix keys carry no bias).
"""

import math
import zlib

import h5py
import numpy as np
import torch
import torch.nn.functional as F

SEED = 20261103
STEPS = 5
LN_EPS = 1e-5
LR, BETA1, BETA2, ADAM_EPS, DECAY, CLIP = 1e-3, 0.9, 0.95, 1e-8, 0.1, 1.0


# ---- shapes and weights ---------------------------------------------------------------------


def norm_shapes(name, width):
    return {name + ".weight": (width,), name + ".bias": (width,)}


def linear_shapes(name, n_out, n_in):
    return {name + ".weight": (n_out, n_in), name + ".bias": (n_out,)}


def attention_shapes(i, c):
    """Both layer norms and the attention of block i."""
    return {
        **norm_shapes(f"h.{i}.ln_1", c),
        **linear_shapes(f"h.{i}.attn.c_attn", 3 * c, c),
        **linear_shapes(f"h.{i}.attn.c_proj", c, c),
        **norm_shapes(f"h.{i}.ln_2", c),
    }


def block_shapes(i, c, f):
    return {
        **attention_shapes(i, c),
        **linear_shapes(f"h.{i}.mlp.c_fc", f, c),
        **linear_shapes(f"h.{i}.mlp.c_proj", c, f),
    }


def gpt2_shapes(cfg):
    """The dense model; the variants change or add to it."""
    c = cfg["width"]
    shapes = {"wte.weight": (cfg["vocabulary"], c), "wpe.weight": (cfg["context"], c)}
    for i in range(cfg["layers"]):
        shapes |= block_shapes(i, c, cfg["ffn_width"])
    return shapes | norm_shapes("ln_f", c)


def count(shapes, embeddings=True):
    """Number of parameters, with or without the token and position tables."""
    tables = () if embeddings else ("wte.weight", "wpe.weight")
    return sum(math.prod(s) for name, s in shapes.items() if name not in tables)


def is_norm(name):
    return name.rsplit(".", 1)[0].rsplit(".", 1)[-1] in ("ln_1", "ln_2", "ln_f", "norm")


def random_weights(shapes, rng):
    """Random values for everything, also where a real start would be zero or one."""
    weights = {}
    for name, shape in shapes.items():
        noise = rng.standard_normal(shape)
        if name in ("wte.weight", "wpe.weight"):
            value = 0.4 * noise
        elif is_norm(name):
            value = 1.0 + 0.2 * noise if name.endswith(".weight") else 0.2 * noise
        elif name.endswith(".altup.predict"):
            value = np.eye(shape[0]) + 0.3 * noise
        elif name.endswith(".altup.correct"):
            value = 1.0 + 0.3 * noise
        elif name.endswith(".bias"):
            value = 0.2 * noise
        elif ".prefix_" in name:
            value = 0.7 * noise
        else:
            value = noise / math.sqrt(shape[-1])
        weights[name] = torch.tensor(value, dtype=torch.float64)
    return weights


def decays(name, tensor):
    """Weight decay: matrices, stacks of them, embeddings; no biases, norms, prefixes, AltUp."""
    return name.endswith(".weight") and tensor.dim() >= 2 and ".prefix_" not in name


# ---- GPT-2 parts ------------------------------------------------------------------------------


def gelu(x):
    return F.gelu(x, approximate="tanh")


def linear(x, w, name):
    return x @ w[name + ".weight"].T + w[name + ".bias"]


def layer_norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], LN_EPS)


def attention(x, w, name, heads, prefix_k=None, prefix_v=None):
    """Causal attention; prefixes [n_pref, C] are extra keys and values which every query sees."""
    b, t, c = x.shape
    d = c // heads
    q, k, v = linear(x, w, name + ".c_attn").split(c, dim=2)
    if prefix_k is not None:
        k = torch.cat([prefix_k.expand(b, -1, -1), k], dim=1)
        v = torch.cat([prefix_v.expand(b, -1, -1), v], dim=1)
    n_pref = k.shape[1] - t
    q, k, v = (u.reshape(b, -1, heads, d).transpose(1, 2) for u in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(d)
    hidden = torch.ones(t, n_pref + t, dtype=torch.bool).triu(n_pref + 1)
    y = scores.masked_fill(hidden, -math.inf).softmax(dim=3) @ v
    return linear(y.transpose(1, 2).reshape(b, t, c), w, name + ".c_proj")


def mlp(u, w, i):
    return linear(gelu(linear(u, w, f"h.{i}.mlp.c_fc")), w, f"h.{i}.mlp.c_proj")


def block(x, w, i, heads, prefix_k=None, prefix_v=None):
    u = layer_norm(x, w, f"h.{i}.ln_1")
    x = x + attention(u, w, f"h.{i}.attn", heads, prefix_k, prefix_v)
    return x + mlp(layer_norm(x, w, f"h.{i}.ln_2"), w, i)


def embed(w, tokens):
    return w["wte.weight"][tokens] + w["wpe.weight"][: tokens.shape[1]]


def no_loss():
    return torch.zeros((), dtype=torch.float64)


def gpt2(w, tokens, cfg):
    x = embed(w, tokens)
    for i in range(cfg["layers"]):
        x = block(x, w, i, cfg["heads"])
    return layer_norm(x, w, "ln_f") @ w["wte.weight"].T, no_loss()


# ---- cases --------------------------------------------------------------------------------------


def case_rng(name):
    """A generator of the case's own: adding or removing a case changes no other."""
    return np.random.Generator(np.random.PCG64([SEED, zlib.crc32(name.encode())]))


def random_tokens(cfg, rng, n):
    stream = rng.integers(0, cfg["vocabulary"], size=(n, cfg["batch"], cfg["context"] + 1))
    return torch.tensor(stream[..., :-1].copy()), torch.tensor(stream[..., 1:].copy())


def losses(forward, w, tokens, targets, cfg):
    logits, aux = forward(w, tokens, cfg)
    lm = F.cross_entropy(logits.reshape(-1, cfg["vocabulary"]), targets.reshape(-1))
    return logits, lm, aux


def train(forward, w, tokens, targets, cfg):
    """AdamW steps in place; returns LM losses, auxiliary losses, gradient norms."""
    groups = [
        {"params": [p for n, p in w.items() if decays(n, p)], "weight_decay": DECAY},
        {"params": [p for n, p in w.items() if not decays(n, p)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=(BETA1, BETA2), eps=ADAM_EPS, foreach=False)
    record = []
    for i in range(STEPS):
        optimizer.zero_grad()
        _, lm, aux = losses(forward, w, tokens[i], targets[i], cfg)
        (lm + aux).backward()
        norm = torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP)
        optimizer.step()
        record.append((lm.item(), aux.item(), norm.item()))
    return [np.array(column) for column in zip(*record)]


def attribute(value):
    return np.bytes_(value) if isinstance(value, str) else value


def write_tensors(group, tensors):
    for name, value in tensors.items():
        group[name] = value.detach().numpy()


def write_case(file, name, cfg, shapes, forward, steps):
    """Computes one case and writes its group."""
    rng = case_rng(name)
    w = {n: v.requires_grad_() for n, v in random_weights(shapes, rng).items()}
    tokens, targets = random_tokens(cfg, rng, STEPS + 1)
    logits, lm, aux = losses(forward, w, tokens[0], targets[0], cfg)
    (lm + aux).backward()
    for n, p in w.items():
        assert p.grad is not None and p.grad.abs().max() > 1e-6, f"{name}: no gradient for {n}"

    g = file.create_group(name)
    g.attrs.update({key: attribute(value) for key, value in cfg.items()})
    g.attrs.update({"seed": SEED, "n_parameters": count(shapes)})
    g["tokens"] = tokens[0].numpy().astype(np.int32)
    g["targets"] = targets[0].numpy().astype(np.int32)
    g["loss"], g["aux_loss"] = lm.item(), aux.item()
    g["logits"] = logits.detach().numpy()
    write_tensors(g.create_group("weights"), w)
    write_tensors(g.create_group("grads"), {n: p.grad for n, p in w.items()})
    line = f"{name}: {count(shapes)} parameters, loss {lm.item():.12f} + {aux.item():.12f}"
    if steps:
        lm_losses, aux_losses, norms = train(forward, w, tokens[1:], targets[1:], cfg)
        s = g.create_group("steps")
        s.attrs.update({"steps": STEPS, "lr": LR, "beta1": BETA1, "beta2": BETA2})
        s.attrs.update({"eps": ADAM_EPS, "weight_decay": DECAY, "clip_norm": CLIP})
        s["tokens"] = tokens[1:].numpy().astype(np.int32)
        s["targets"] = targets[1:].numpy().astype(np.int32)
        s["losses"], s["aux_losses"], s["grad_norms"] = lm_losses, aux_losses, norms
        write_tensors(s.create_group("weights"), w)
        line += f", step norms {norms.min():.3f}..{norms.max():.3f}"
    print(line)


def open_file(path):
    file = h5py.File(path, "w", libver="earliest")
    file.attrs["torch_version"] = np.bytes_(torch.__version__)
    return file


def same(a, b, what, tolerance=1e-13):
    """A self-test: prints the largest difference and stops where it is too large."""
    difference = (a - b).abs().max().item()
    print(f"self-test: {what}: largest difference {difference:.1e}")
    assert difference <= tolerance, what
