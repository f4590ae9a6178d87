#!/usr/bin/env python3
"""Writes tests/reference/hf_gpt2/: a tiny GPT-2 by Hugging Face `transformers`, with its logits.

    python tests/reference/make_hf_gpt2.py

  config.json       as save_pretrained writes it
  model.safetensors the same: float32, every weight drawn at random, so that none can be exchanged
                    or left out unseen
  logits.h5         ids int32 [B, T], logits float64 [B, T, V] of the same weights in float64

Its vocabulary is that of tokenizer/gpt2.json.
"""

import json
import pathlib

import h5py
import torch
import transformers

HERE = pathlib.Path(__file__).parent
OUT = HERE / "hf_gpt2"


def main():
    torch.manual_seed(20261201)
    torch.set_num_threads(1)
    tokenizer = json.loads((HERE / "tokenizer" / "gpt2.json").read_text(encoding="utf-8"))
    specials = {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    vocabulary = 1 + max(*tokenizer["model"]["vocab"].values(), *specials.values())
    config = transformers.GPT2Config(
        n_layer=2, n_head=4, n_embd=32, n_inner=96, n_positions=24, vocab_size=vocabulary,
        layer_norm_epsilon=2e-5, bos_token_id=specials["<|bos|>"],
        eos_token_id=specials["<|endoftext|>"])
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if name.endswith(("1.weight", "2.weight", "f.weight")) else 0.0, 0.1)
    model.save_pretrained(OUT)
    (OUT / "generation_config.json").unlink()
    ids = torch.randint(vocabulary, (2, 9))
    with torch.no_grad():
        logits = model.double()(ids).logits
    with h5py.File(OUT / "logits.h5", "w", track_order=False) as file:
        file.attrs["transformers"] = transformers.__version__
        file.attrs["torch"] = str(torch.__version__)
        file["ids"] = ids.to(torch.int32).numpy()
        file["logits"] = logits.numpy()


if __name__ == "__main__":
    main()
