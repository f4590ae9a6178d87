"""What the reference scripts share: tiny GPT-2 parts in float64, AdamW steps, and the file layout.

A file holds one group per case:
    attributes          the configuration, and n_parameters
    tokens, targets     [B,T] int32
    logits [B,T,V], loss [] (the language model's alone, mean over B*T), aux_loss [] (all others)
    weights/NAME, grads/NAME        of loss + aux_loss, not clipped
    steps/ (some cases) tokens, targets [5,B,T]; losses, aux_losses, grad_norms [5]; weights/NAME
           after five AdamW steps with the attributes lr, beta1, beta2, eps, weight_decay, clip_norm
"""

import math

import h5py
import numpy as np
import torch
import torch.nn.functional as F

STEPS = 5
ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}
LN_EPS = 1e-5


class Weights(dict):
    """Random float64 weights by name, drawn in the order in which they are asked for."""

    def __init__(self, seed):
        super().__init__()
        self.rng = np.random.Generator(np.random.PCG64(seed))
        self.no_decay = set()

    def normal(self, name, *shape, std, mean=0.0, decays=True):
        value = mean + std * self.rng.standard_normal(shape)
        self[name] = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        if not decays:
            self.no_decay.add(name)

    def linear(self, name, n_out, n_in, bias=True, gain=0.7):
        self.normal(name + ".weight", n_out, n_in, std=gain / math.sqrt(n_in))
        if bias:
            self.normal(name + ".bias", n_out, std=0.1, decays=False)

    def norm(self, name, width):
        self.normal(name + ".weight", width, std=0.3, mean=1.0, decays=False)
        self.normal(name + ".bias", width, std=0.2, decays=False)


def linear(x, w, name):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def norm(x, w, name):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], LN_EPS)


def gelu(x):
    return F.gelu(x, approximate="tanh")


def make_gpt2_block(w, i, c, width, ffn_width, mlp=True):
    w.norm(f"h.{i}.ln_1", width)
    w.linear(f"h.{i}.attn.c_attn", 3 * width, width)
    w.linear(f"h.{i}.attn.c_proj", width, width)
    w.norm(f"h.{i}.ln_2", width)
    if mlp:
        w.linear(f"h.{i}.mlp.c_fc", ffn_width, width)
        w.linear(f"h.{i}.mlp.c_proj", width, ffn_width)


def split_heads(x, heads):
    b, t, c = x.shape
    return x.view(b, t, heads, c // heads).transpose(1, 2)


def attention(x, w, name, heads, prefix_k=None, prefix_v=None):
    """Causal attention with the scores written out; prefixes [B, n, C] are seen by every query."""
    b, t, c = x.shape
    q, k, v = linear(x, w, name + ".c_attn").split(c, dim=2)
    past = 0
    if prefix_k is not None:
        past = prefix_k.shape[1]
        k, v = torch.cat([prefix_k, k], 1), torch.cat([prefix_v, v], 1)
    q, k, v = (split_heads(u, heads) for u in (q, k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(c // heads)
    future = torch.ones(t, t + past, dtype=torch.bool).triu(1 + past)
    y = scores.masked_fill(future, -math.inf).softmax(dim=3) @ v
    return linear(y.transpose(1, 2).reshape(b, t, c), w, name + ".c_proj")


def mlp(u, w, i):
    return linear(gelu(linear(u, w, f"h.{i}.mlp.c_fc")), w, f"h.{i}.mlp.c_proj")


def gpt2_block(x, w, i, heads, prefix_k=None, prefix_v=None):
    x = x + attention(norm(x, w, f"h.{i}.ln_1"), w, f"h.{i}.attn", heads, prefix_k, prefix_v)
    return x + mlp(norm(x, w, f"h.{i}.ln_2"), w, i)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1).long())


def number(value):
    return float(value.detach()) if torch.is_tensor(value) else float(value)


def adamw_steps(forward, w, tokens, targets):
    """Five steps in place. forward(w, tokens) gives logits and the auxiliary loss."""
    decayed = [p for n, p in w.items() if n not in w.no_decay]
    plain = [p for n, p in w.items() if n in w.no_decay]
    groups = [
        {"params": decayed, "weight_decay": ADAMW["weight_decay"]},
        {"params": plain, "weight_decay": 0.0},
    ]
    betas = (ADAMW["beta1"], ADAMW["beta2"])
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["lr"], betas=betas, eps=ADAMW["eps"], foreach=False)
    losses, aux_losses, norms = [], [], []
    for i in range(STEPS):
        optimizer.zero_grad()
        logits, aux = forward(w, tokens[i])
        loss = cross_entropy(logits, targets[i])
        (loss + aux).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()), ADAMW["clip_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
        aux_losses.append(number(aux))
    return losses, aux_losses, norms


def attributes(group, values):
    for key, value in values.items():
        group.attrs[key] = np.bytes_(value) if isinstance(value, str) else value


def write_case(file, name, config, w, forward, with_steps):
    """Runs one case and writes its group. config needs batch, context and vocabulary."""
    b, t, v = config["batch"], config["context"], config["vocabulary"]
    stream = torch.tensor(w.rng.integers(0, v, size=(STEPS + 1, b, t + 1)))
    tokens, targets = stream[..., :-1], stream[..., 1:]
    group = file.create_group(name)
    n_parameters = sum(p.numel() for p in w.values())
    attributes(group, {**config, "n_parameters": n_parameters})
    logits, aux = forward(w, tokens[0])
    loss = cross_entropy(logits, targets[0])
    (loss + aux).backward()
    group["tokens"] = tokens[0].numpy().astype(np.int32)
    group["targets"] = targets[0].numpy().astype(np.int32)
    group["logits"] = logits.detach().numpy()
    group["loss"], group["aux_loss"] = loss.item(), number(aux)
    for n, p in w.items():
        group["weights/" + n] = p.detach().numpy()
        group["grads/" + n] = p.grad.numpy() if p.grad is not None else np.zeros(p.shape)
    if with_steps:
        steps = group.create_group("steps")
        attributes(steps, ADAMW)
        losses, aux_losses, norms = adamw_steps(forward, w, tokens[1:], targets[1:])
        steps["tokens"] = tokens[1:].numpy().astype(np.int32)
        steps["targets"] = targets[1:].numpy().astype(np.int32)
        steps["losses"], steps["aux_losses"] = np.array(losses), np.array(aux_losses)
        steps["grad_norms"] = np.array(norms)
        for n, p in w.items():
            steps["weights/" + n] = p.detach().numpy()
    print(f"{name}: {n_parameters} parameters, loss {loss.item():.9f}, others {number(aux):.9f}")


def open_file(path):
    torch.set_num_threads(1)
    file = h5py.File(path, "w")
    file.attrs["torch_version"] = np.bytes_(torch.__version__)
    return file
