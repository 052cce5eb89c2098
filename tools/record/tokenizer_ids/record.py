#!/usr/bin/env python3
"""Records what llama.cpp makes of the texts of tests/text/tokenizer_texts.py.

    record.py --llama TREE --models DIR --vocabs DIR [NAME ...]

TREE is a llama.cpp tree (b11434) with its static libraries built in TREE/build; DIR/… hold the files
of tokenizer_ids.VOCABULARIES. Writes tests/text/data/NAME.ids and NAME.json.
"""
import argparse
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "tests" / "text"))
import tokenizer_ids
import tokenizer_texts

EXAMPLES = 300
LIBRARIES = ["src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a"]


def build(tree, out):
    command = ["g++", "-O2", "-std=c++17", "-fopenmp", f"-I{tree}/include", f"-I{tree}/ggml/include",
               str(HERE / "llama_ids.cc"), *(f"{tree}/build/{library}" for library in LIBRARIES),
               "-lpthread", "-ldl", "-o", str(out)]
    subprocess.run(command, check=True)
    return out


def readable(text):
    try:
        return {"text": text.decode("utf-8")}
    except UnicodeDecodeError:
        return {"hex": text.hex()}


def record(name, command, texts):
    hashes, examples, threw = bytearray(), [], 0
    every = len(texts) // EXAMPLES
    for number, (text, four) in enumerate(zip(texts, tokenizer_ids.answers(command, texts))):
        hashes += tokenizer_ids.short_hash(four)
        threw += any(answer is None for answer in four)
        # Short texts, spread over the whole list; the combination of flags goes round.
        if len(examples) < EXAMPLES and number // every >= len(examples) and len(text) <= 40 and None not in four:
            flags = len(examples) % 4
            examples.append({"number": number, **readable(text), "flags": flags, "ids": tokenizer_ids.ids_of(four[flags])})
    facts = tokenizer_ids.facts(command)
    for key, mode in (("pieces_sha256", "--pieces"), ("special_pieces_sha256", "--special-pieces")):
        pieces = subprocess.run([*command, mode], check=True, stdout=subprocess.PIPE).stdout
        facts[key] = hashlib.sha256(pieces).hexdigest()
    summary = {"recorded_from": "llama.cpp b11434", "texts": len(texts), "texts_sha256": tokenizer_ids.texts_hash(texts),
               "threw": threw, "facts": facts}
    tokenizer_ids.DATA.mkdir(exist_ok=True)
    (tokenizer_ids.DATA / f"{name}.ids").write_bytes(hashes)
    lines = ",\n".join("  " + json.dumps(example, separators=(",", ":")) for example in examples)
    head = json.dumps(summary, indent=1)[:-2]
    (tokenizer_ids.DATA / f"{name}.json").write_text(f'{head},\n "examples": [\n{lines}\n ]\n}}\n')
    print(f"{name}: {len(texts)} texts, {threw} at which llama.cpp threw, {len(examples)} examples")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--vocabs", required=True)
    parser.add_argument("names", nargs="*", default=list(tokenizer_ids.VOCABULARIES))
    arguments = parser.parse_args()
    texts = tokenizer_texts.generate()
    with tempfile.TemporaryDirectory() as scratch:
        program = build(arguments.llama, pathlib.Path(scratch, "llama_ids"))
        for name in arguments.names:
            path = tokenizer_ids.find_vocabulary(name, arguments.models, arguments.vocabs, scratch)
            if not path:
                sys.exit(f"{name}: no {tokenizer_ids.VOCABULARIES[name][1]}")
            record(name, [str(program), str(path)], texts)


if __name__ == "__main__":
    main()
