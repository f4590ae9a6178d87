#!/usr/bin/env python3
"""Loads what `anabranch checkpoint export` wrote of a gpt2 run with Hugging Face `transformers` and
compares its logits with those of the run itself.

    anabranch checkpoint export RUN --out FOLDER
    anabranch checkpoint export RUN --format generic --out GENERIC
    python tests/reference/check_hf_export.py FOLDER GENERIC [--tolerance 1e-4]

The run's logits come from GENERIC by the model written out in replay.py, which has no code of
`transformers`. Then FOLDER's tokenizer must give back a text, and the model continue it. Needs
torch, transformers, h5py; exits with 1 if a logit differs by more. Slow, and no part of the tests.
"""

import argparse
import json
import pathlib
import sys

import replay
import torch
import torch.nn.functional as F
import transformers


def logits_of(w, config, ids):
    """As replay.forward_loss_sum, up to the logits: it takes them through its last call."""
    kept = []
    original = F.cross_entropy
    F.cross_entropy = lambda logits, *_, **__: kept.append(logits) or logits.sum()
    try:
        padded = torch.cat([ids, ids[:, :1]], 1)
        replay.forward_loss_sum(w, config, padded)
    finally:
        F.cross_entropy = original
    return kept[0].view(*ids.shape, -1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("generic", type=pathlib.Path)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    args = parser.parse_args()
    config = json.loads((args.generic / "config.json").read_text())
    w = replay.load_weights(args.generic / "model.safetensors", config, torch.float32)
    model, report = transformers.GPT2LMHeadModel.from_pretrained(
        args.folder, output_loading_info=True)
    if any(report.get(key) for key in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        sys.exit(f"{args.folder}: {report}")
    torch.manual_seed(1)
    ids = torch.randint(config["vocab_size"], (4, config["n_positions"]))
    with torch.no_grad():
        gap = (model.eval()(ids).logits - logits_of(w, config, ids)).abs().max().item()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.folder)
    text = "In the beginning"
    tokens = tokenizer(text, return_tensors="pt")
    same = tokenizer.decode(tokens["input_ids"][0], skip_special_tokens=True) == text
    room = config["n_positions"] - tokens["input_ids"].shape[1]
    out = model.generate(**tokens, max_new_tokens=min(room, 8), do_sample=False,
                         pad_token_id=tokenizer.eos_token_id)
    print(f"transformers {transformers.__version__}: {len(tokenizer)} tokens of "
          f"{config['vocab_size']}; largest difference of a logit {gap:.1e}")
    print(repr(tokenizer.decode(out[0])))
    return 0 if gap <= args.tolerance and same and len(tokenizer) == config["vocab_size"] else 1


if __name__ == "__main__":
    sys.exit(main())
