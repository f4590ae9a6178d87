"""Writes tests/reference/tokenizer/: two small tokenizers by Hugging Face `tokenizers`, the text
they were trained on, and the ids that `tokenizers` and `tiktoken` (which must agree) give to
fuzzed text over the code points assigned in Unicode 14.

    python tests/reference/make_tokenizer_vectors.py --gpt2 FOLDER

FOLDER holds GPT-2's vocab.bpe and encoder.json. Made with Python 3.11 (unicodedata 14.0.0),
tokenizers 0.23.3 and tiktoken 0.14.0. No text here is anybody's: it is drawn at random.

  corpus.txt        documents, each ended by the byte 0x1E
  gpt2.json         trained on it with GPT-2's pattern, saved by `tokenizers`
  gpt4.json         trained on it with the GPT-4-like pattern
  vectors_*.txt     lines of: text in hexadecimal, tab, ids with spaces between
                    (gpt2, gpt4: the tokenizers above; openai: GPT-2's own vocabulary)
"""

import argparse
import json
import pathlib
import random
import sys
import unicodedata

import tiktoken
import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent / "tokenizer"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT4 = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,2}"
        r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SPACES = [chr(c) for c in [*range(0x9, 0xE), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
                           0x2028, 0x2029, 0x202F, 0x205F, 0x3000]]
SPECIALS = ["<|endoftext|>", "<|bos|>"]
VOCAB_SIZE = 1200


def assigned():
    """Code points assigned in Unicode 14 by kind; surrogates cannot stand in text."""
    kinds = {"L": [], "N": [], "other": []}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category in ("Cn", "Cs"):
            continue
        kind = category[0] if category[0] in "LN" else "other"
        kinds[kind].append(chr(code))
    return kinds


def make_corpus(rng):
    syllables = {
        "latin": ["ba", "ren", "to", "li", "sha", "on", "the", "er", "ing", "qu", "a", "st"],
        "greek": ["\u03b1\u03bb", "\u03c0\u03bf", "\u03bc\u03b5", "\u03c3\u03c4", "\u03b7"],
        "cyrillic": ["\u043f\u0440", "\u043e\u0432", "\u043d\u0430", "\u0441\u0442", "\u044f"],
        "han": ["\u4e2d", "\u6587", "\u5b57", "\u4eba", "\u6c34"],
        "devanagari": ["\u0915\u093e", "\u092e\u0947", "\u0930\u093f", "\u0928"],
    }
    words = {script: ["".join(rng.choices(parts, k=rng.randint(1, 5))) for _ in range(300)]
             for script, parts in syllables.items()}
    weights = [1 / (i + 1) for i in range(300)]
    documents = []
    for _ in range(400):
        script = rng.choices(list(words), weights=[8, 1, 1, 1, 1])[0]
        text = ""
        for _ in range(rng.randint(1, 60)):
            word = rng.choices(words[script], weights=weights)[0]
            if rng.random() < 0.1:
                word = word.capitalize() + rng.choice(["", "'s", "'ll", "'RE", "n't"])
            if rng.random() < 0.08:
                word = str(rng.randint(0, 10 ** rng.randint(1, 7)))
            text += word + rng.choices([" ", ", ", ". ", "\n", "\n\n    ", "  ", " -- ", "\t"],
                                       weights=[30, 3, 2, 1, 1, 1, 1, 1])[0]
        documents.append(text)
    return documents


def make_texts(rng, count):
    kinds = assigned()
    every = kinds["L"] + kinds["N"] + kinds["other"]
    ascii_words = ["the", "bar", "Shaon", "don't", "I'LL", "x'S", "we've", "'tis", "ren", "toli"]

    def part():
        kind = rng.randrange(12)
        n = rng.choice([1, 1, 1, 2, 2, 3, 5, 9])
        if kind == 0:
            return "".join(rng.choices(kinds["L"], k=n))
        if kind == 1:
            return "".join(rng.choices(kinds["N"], k=n))
        if kind == 2:
            return "".join(rng.choices(kinds["other"], k=n))
        if kind == 3:
            return "".join(rng.choices(SPACES, k=n))
        if kind == 4:
            return "".join(rng.choices(" \n\r\t", k=n))
        if kind == 5:
            return "".join(rng.choices("0123456789", k=n))
        if kind == 6:
            return "".join(rng.choices("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", k=n))
        if kind == 7:
            return "'" + rng.choice(["s", "S", "t", "re", "RE", "vE", "ll", "lL", "D", "m", "\u017f",
                                     "l", "r", "v", "\u212a", "st", "re\u0301"])
        if kind == 8:
            return "".join(rng.choices(every, k=n))
        return rng.choice(["", " ", " "]) + rng.choice(ascii_words)

    texts = ["".join(part() for _ in range(rng.randint(1, 12))) for _ in range(count)]
    # Pieces beyond any threshold of the encoder, and special tokens spelled out.
    texts += ["ab" * 200, "the" * 100 + " ", " " * 300 + "x", "a" * 1000, "\u00e9" * 500,
              "\n" * 70 + "  \n  a", "ren <|bos|> toli", "x<|endoftext|>"]
    return texts


def train(documents, pattern):
    tokenizer = Tokenizer(models.BPE())
    if pattern == GPT2:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def byte_of():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable}, **{chr(256 + i): b for i, b in enumerate(others)}}


def hf_ids(path):
    """Ids of ordinary text: the special tokens are taken out of the file first."""
    file = json.loads(path.read_text())
    file["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(file))
    return lambda t: tokenizer.encode(t, add_special_tokens=False).ids


def tiktoken_ids(path, pattern):
    vocab = json.loads(path.read_text())["model"]["vocab"]
    letters = byte_of()
    ranks = {bytes(letters[c] for c in token): id - len(SPECIALS)
             for token, id in vocab.items() if token not in SPECIALS}
    encoding = tiktoken.Encoding(name="small", pat_str=pattern, mergeable_ranks=ranks,
                                 special_tokens={})
    return lambda t: [id + len(SPECIALS) for id in encoding.encode_ordinary(t)]


def openai_ids(folder):
    entries = json.loads((folder / "encoder.json").read_text())
    letters = byte_of()
    ranks = {bytes(letters[c] for c in token): id for token, id in entries.items()
             if token != "<|endoftext|>"}
    encoding = tiktoken.Encoding(name="gpt2", pat_str=GPT2, mergeable_ranks=ranks,
                                 special_tokens={})
    merges = [tuple(line.split()) for line in
              (folder / "vocab.bpe").read_text().splitlines()[1:] if line]
    del entries["<|endoftext|>"]
    tokenizer = Tokenizer(models.BPE(vocab=entries, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return encoding.encode_ordinary, lambda t: tokenizer.encode(t).ids


def write(name, texts, first, second):
    lines = []
    for text in texts:
        ids = first(text)
        if ids != second(text):
            sys.exit(f"{name}: tiktoken and tokenizers differ on {text!r}")
        lines.append(text.encode().hex() + "\t" + " ".join(map(str, ids)))
    (HERE / name).write_text("\n".join(lines) + "\n")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--gpt2", type=pathlib.Path, required=True)
    options.add_argument("--texts", type=int, default=600)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--out", type=pathlib.Path, default=HERE)
    arguments = options.parse_args()
    globals()["HERE"] = arguments.out
    if unicodedata.unidata_version != "14.0.0":
        sys.exit("needs a Python with Unicode 14.0.0, such as 3.11")
    print("tokenizers", tokenizers.__version__, "tiktoken", tiktoken.__version__)
    HERE.mkdir(exist_ok=True)
    rng = random.Random(arguments.seed)
    documents = make_corpus(rng)
    (HERE / "corpus.txt").write_bytes(b"".join(d.encode() + b"\x1e" for d in documents))
    texts = make_texts(rng, arguments.texts)
    for name, pattern in (("gpt2", GPT2), ("gpt4", GPT4)):
        path = HERE / f"{name}.json"
        train(documents, pattern).save(str(path), pretty=False)
        write(f"vectors_{name}.txt", texts, tiktoken_ids(path, pattern), hf_ids(path))
    write("vectors_openai.txt", texts, *openai_ids(arguments.gpt2))


main()
