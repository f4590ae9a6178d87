#!/usr/bin/env python3
"""Times whole training steps of MoEP-MSIT in PyTorch: experts that choose tokens and see windows.

    taskset -c 0,1 python tests/bench/peers/moep_torch.py --threads 2 [--dtype fp32|bf16] [--json]

A straightforward form of the model of XpertGPT (section 3), each sequence a pool: the dense part
with fused causal attention; every expert takes its top k scores of each sequence, gathers them in
time, attends among them under a mask of causality and window (scaled_dot_product_attention), and
adds its gated rows back. Forward, backward, clip, fused AdamW; --dtype bf16 is autocast with fp32
weights. Tokens are random. Prints what torch_gpt2.py prints.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

from torch_moe import arguments, run

SIZES = {
    "layers": 6,
    "width": 256,
    "heads": 4,
    "expert-width": 384,
    "expert-heads": 6,
    "capacity": 2,
    "batch": 8,
    "tokens": 512,
    "vocab": 16384,
}
WINDOWS = (64, 16, 8, 4)


def two_thirds_of_four(width):
    return 8 * round(width / 3)


def rope(x, positions):
    """Turns x [B,H,N,D] at POSITIONS [B,N]: pairs are the halves, base 10000."""
    half = x.shape[-1] // 2
    rate = 10000.0 ** (-torch.arange(half) / half)
    angle = positions[:, None, :, None] * rate
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    """h = x + attention(LN_1 x);  LN_3(h + swiglu(LN_2 h))"""

    def __init__(self, width, heads):
        super().__init__()
        ffn = two_thirds_of_four(width)
        self.heads = heads
        self.ln_1, self.ln_2, self.ln_3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.ffn_in = nn.Linear(width, 2 * ffn, bias=False)
        self.ffn_out = nn.Linear(ffn, width, bias=False)

    def forward(self, x, positions, mask=None):
        b, n, c = x.shape
        q, k, v = (
            u.view(b, n, self.heads, c // self.heads).transpose(1, 2)
            for u in self.qkv(self.ln_1(x)).chunk(3, dim=-1)
        )
        q, k = rope(q, positions), rope(k, positions)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        h = x + self.proj(y.transpose(1, 2).reshape(b, n, c))
        gate, up = self.ffn_in(self.ln_2(h)).chunk(2, dim=-1)
        return self.ln_3(h + self.ffn_out(F.silu(gate) * up))


class Layer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.dense = Block(args.width, args.heads)
        self.router_norm = nn.LayerNorm(args.width)
        self.router = nn.Linear(args.width, len(WINDOWS), bias=False)
        self.down = nn.Linear(args.width, args.expert_width, bias=False)
        self.up = nn.Linear(args.expert_width, args.width, bias=False)
        self.experts = nn.ModuleList(Block(args.expert_width, args.expert_heads) for _ in WINDOWS)
        self.ln_post = nn.LayerNorm(args.width)
        self.held = args.capacity * args.tokens // len(WINDOWS)

    def forward(self, x):
        b, t, c = x.shape
        x = self.dense(x, torch.arange(t).expand(b, t))
        scores = self.router(self.router_norm(x)).float().softmax(dim=-1)
        low = self.down(x)
        out = torch.zeros(b, t, c)
        for e, (expert, window) in enumerate(zip(self.experts, WINDOWS)):
            chosen = scores[..., e].topk(self.held, dim=1).indices.sort(dim=1).values  # [B,k]
            rows = low.gather(1, chosen[..., None].expand(-1, -1, low.shape[-1]))
            distance = chosen[:, :, None] - chosen[:, None, :]
            mask = ((distance >= 0) & (distance < window))[:, None]
            y = self.up(expert(rows, chosen, mask))
            y = y * scores[..., e].gather(1, chosen)[..., None]
            out = out.scatter_add(1, chosen[..., None].expand_as(y), y)
        return self.ln_post(x + out)


class Moep(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.wte = nn.Embedding(args.vocab, args.width)
        self.layers = nn.ModuleList(Layer(args) for _ in range(args.layers))
        self.ln_f = nn.LayerNorm(args.width)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    run(arguments(__doc__, SIZES).parse_args(), Moep, "pytorch")


if __name__ == "__main__":
    main()
