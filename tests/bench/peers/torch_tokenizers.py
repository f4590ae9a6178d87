#!/usr/bin/env python3
"""Times tiktoken and Hugging Face tokenizers: GPT-2 encoding on one thread, and BPE training.

    taskset -c 0 python tests/bench/peers/torch_tokenizers.py encode --text FILE --vocab-dir DIR
    taskset -c 0,1 python tests/bench/peers/torch_tokenizers.py train --text FILE [--threads 2]

DIR holds GPT-2's vocab.bpe and encoder.json. Needs tiktoken and tokenizers; no network. --json
prints one object a line.

encode: the text is cut before the clock starts into pieces of about --piece-kib that end with a
line (0 = one piece), and every piece is encoded without special tokens; --repeat rounds,
alternating between the two, the median counts. Hugging Face runs encode_batch_fast, which skips
offsets. tokens and crc32 (of the ids as little-endian uint32) tell whether two encoders agree; they
are equal only for equal pieces.
train: Hugging Face byte-level BPE with GPT-2's split pattern, --entries entries with the 256 bytes
and <|endoftext|> among them, from the file itself; reading is part of the time, as for a user.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import struct
import sys
import time
import zlib


def cut(text, piece_bytes):
    """Pieces of whole lines of at least piece_bytes characters, which together are the text."""
    if piece_bytes <= 0:
        return [text]
    pieces, begin = [], 0
    while begin < len(text):
        end = text.find("\n", begin + piece_bytes)
        end = len(text) if end < 0 else end + 1
        pieces.append(text[begin:end])
        begin = end
    return pieces


def tiktoken_encoder(directory):
    os.environ["TIKTOKEN_CACHE_DIR"] = ""  # it would keep a copy of the local files under /tmp
    import tiktoken
    from tiktoken.load import data_gym_to_mergeable_bpe_ranks

    ranks = data_gym_to_mergeable_bpe_ranks(
        str(directory / "vocab.bpe"), str(directory / "encoder.json")
    )
    pattern = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
    encoding = tiktoken.Encoding("gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return tiktoken.__version__, lambda pieces: [
        encoding.encode_ordinary(piece) for piece in pieces
    ]


def hugging_face_encoder(directory):
    import tokenizers
    from tokenizers import models, pre_tokenizers

    vocab = json.loads((directory / "encoder.json").read_text(encoding="utf-8"))
    lines = (directory / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:-1]
    merges = [tuple(line.split(" ")) for line in lines]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    return tokenizers.__version__, lambda pieces: [
        e.ids for e in encode(pieces, add_special_tokens=False)
    ]


def checksum(lists):
    value, count = 0, 0
    for ids in lists:
        value = zlib.crc32(struct.pack(f"<{len(ids)}I", *ids), value)
        count += len(ids)
    return count, f"{value:08x}"


def run_encode(args):
    text = args.text.read_text(encoding="utf-8", errors="replace")
    size = len(text.encode("utf-8"))
    pieces = cut(text, args.piece_kib * 1024)
    peers = {
        "tiktoken": tiktoken_encoder(args.vocab_dir),
        "tokenizers": hugging_face_encoder(args.vocab_dir),
    }
    seconds = {name: [] for name in peers}
    results = {}
    for _ in range(args.repeat):
        for name, (_, encode) in peers.items():
            begin = time.perf_counter()
            lists = encode(pieces)
            seconds[name].append(time.perf_counter() - begin)
            results[name] = checksum(lists)
    for name, (version, _) in peers.items():
        median = statistics.median(seconds[name])
        tokens, crc = results[name]
        yield {
            "peer": name,
            "version": version,
            "task": "encode",
            "bytes": size,
            "pieces": len(pieces),
            "threads": 1,
            "seconds": median,
            "all_seconds": seconds[name],
            "mib_per_second": size / 2**20 / median,
            "tokens": tokens,
            "crc32": crc,
        }


def run_train(args):
    import tokenizers
    from tokenizers import models, pre_tokenizers, trainers

    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=args.entries,
        show_progress=False,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    begin = time.perf_counter()
    tokenizer.train([str(args.text)], trainer)
    seconds = time.perf_counter() - begin
    yield {
        "peer": "tokenizers",
        "version": tokenizers.__version__,
        "task": "train",
        "threads": args.threads,
        "bytes": args.text.stat().st_size,
        "entries": tokenizer.get_vocab_size(),
        "seconds": seconds,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["encode", "train"])
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--vocab-dir", type=pathlib.Path)
    parser.add_argument("--piece-kib", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--entries", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=2, help="training only")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if args.task == "encode" and args.vocab_dir is None:
        parser.error("encode needs --vocab-dir")
    return args


def main():
    args = parse_arguments()
    threads = 1 if args.task == "encode" else args.threads
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # read when tokenizers starts its pool
    os.environ["TOKENIZERS_PARALLELISM"] = "false" if threads == 1 else "true"
    for result in run_encode(args) if args.task == "encode" else run_train(args):
        if args.json:
            print(json.dumps(result))
        elif args.task == "encode":
            print(
                f"{result['peer']} {result['version']}: {result['mib_per_second']:.2f} MiB/s "
                f"on one thread "
                f"({result['tokens']} tokens, crc32 {result['crc32']})"
            )
        else:
            print(
                f"{result['peer']} {result['version']}: {result['entries']} entries "
                f"from {result['bytes']} bytes "
                f"in {result['seconds']:.2f} s on {threads} threads, "
                f"peak {result['peak_rss_mib']:.0f} MiB"
            )


if __name__ == "__main__":
    sys.exit(main())
