#!/usr/bin/env python3
"""Times whole training steps of a token-choice mixture of experts: transformers' Mixtral in PyTorch.

    taskset -c 0,1 python tests/bench/peers/mixtral_torch.py --threads 2 [--dtype fp32|bf16]
        [--experts eager|batched_mm|grouped_mm] [--json]

MixtralForCausalLM with SwiGLU experts and fused attention; --experts eager is the loop of
MixtralSparseMoeBlock over the experts that have tokens (index, two products, index_add). No key is
shared between heads, no window, no auxiliary loss. Forward, backward, clip, fused AdamW; --dtype
bf16 is autocast with fp32 weights. Tokens are random. Prints what torch_gpt2.py prints.
"""

import torch.nn as nn
import torch.nn.functional as F
import transformers

from torch_moe import arguments, run

SIZES = {
    "layers": 2,
    "width": 512,
    "heads": 8,
    "ffn-width": 1024,
    "expert-count": 32,
    "top-k": 2,
    "batch": 4,
    "tokens": 512,
    "vocab": 16384,
}


class Mixtral(nn.Module):
    def __init__(self, args):
        super().__init__()
        config = transformers.MixtralConfig(
            vocab_size=args.vocab,
            hidden_size=args.width,
            intermediate_size=args.ffn_width,
            num_hidden_layers=args.layers,
            num_attention_heads=args.heads,
            num_key_value_heads=args.heads,
            max_position_embeddings=args.tokens,
            num_local_experts=args.expert_count,
            num_experts_per_tok=args.top_k,
            sliding_window=None,
            use_cache=False,
            tie_word_embeddings=False,
            attn_implementation="sdpa",
            experts_implementation=args.experts,
        )
        self.model = transformers.MixtralForCausalLM(config)

    def forward(self, tokens, targets):
        logits = self.model(input_ids=tokens).logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    parser = arguments(__doc__, SIZES)
    parser.add_argument("--experts", default="eager")
    args = parser.parse_args()
    run(args, Mixtral, f"transformers {transformers.__version__} {args.experts}")


if __name__ == "__main__":
    main()
