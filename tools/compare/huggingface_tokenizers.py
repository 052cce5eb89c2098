#!/usr/bin/env python3
"""Where llama.cpp's ids differ from those of Hugging Face's tokenizers, for SmolLM2.

    python3 -m venv /tmp/hf && /tmp/hf/bin/pip install tokenizers
    /tmp/hf/bin/python tools/compare/huggingface_tokenizers.py BATCH MODEL.gguf

BATCH is the built tokenizer_batch (whose ids are llama.cpp's: tests/text/test_tokenizer_ids.py). The
other tokenizer is put together from the vocabulary and merges in the model file and the steps of
SmolLM2's tokenizer.json: single digits, then byte level with GPT-2's expression. The texts are those
of tests/text/tokenizer_texts.py. docs/tokenizers.md has the result.
"""
import pathlib
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "text"))
import tokenizer_ids
import tokenizer_texts


def metadata(path):
    """The tokenizer.* keys of a GGUF file."""
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:
        def number(form):
            return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

        def value(kind):
            if kind == 8:
                return file.read(number("Q")).decode()
            if kind == 9:
                element, count = number("I"), number("Q")
                return [value(element) for _ in range(count)]
            return number(sizes[kind])

        file.read(8)
        number("Q")
        return {key: value(number("I")) for key in (value(8) for _ in range(number("Q")))}


def other_tokenizer(path, with_special):
    keys = metadata(path)
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE(vocab={token: id for id, token in enumerate(tokens)}, merges=merges))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    if with_special:
        kinds = keys["tokenizer.ggml.token_type"]
        made.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                 for token, kind in zip(tokens, kinds) if kind == 3])
    return made


def unassigned_here(text):
    return any(unicodedata.category(c) == "Cn" for c in text)


def main():
    batch, model = sys.argv[1:3]
    texts = tokenizer_texts.generate()
    readable = []
    for text in texts:
        try:
            readable.append((text, text.decode("utf-8")))
        except UnicodeDecodeError:
            pass
    print(f"tokenizers {tokenizers.__version__}: {len(readable)} of {len(texts)} texts are UTF-8 and can be compared")
    for with_special in (False, True):
        made = other_tokenizer(model, with_special)
        flags = 2 if with_special else 0
        ours = tokenizer_ids.ask([batch, model], [(flags, text) for text, _ in readable])
        differing = []
        for (_, text), answer in zip(readable, ours):
            mine, theirs = tokenizer_ids.ids_of(answer), made.encode(text, add_special_tokens=False).ids
            if mine != theirs:
                differing.append((text, mine, theirs))
        print(f"special tokens {'parsed' if with_special else 'not parsed'}: {len(differing)} differ")
        for text, mine, theirs in differing[:int(sys.argv[3]) if len(sys.argv) > 3 else 5]:
            at = next((i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b), min(len(mine), len(theirs)))
            decode = lambda ids: [made.id_to_token(i) for i in ids]
            print(f"  {text!r:.120}: from token {at}: {decode(mine[at:at + 5])} here, {decode(theirs[at:at + 5])} there")


if __name__ == "__main__":
    main()
