#!/usr/bin/env python3
"""No text takes more than near-linear time: megabytes of the worst kinds under each vocabulary.

    test_tokenizer_speed.py BATCH [--limit SECONDS] [NAME ...]

Prints seconds of processor time per text of 1,000,000 bytes; fails when one takes longer than the limit (default 20,
for slow sanitizer builds), or when twice the text takes more than four times as long. Vocabularies as
in test_tokenizer_ids.py.
"""
import argparse
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import tokenizer_ids
import tokenizer_texts

ROOT = pathlib.Path(__file__).resolve().parents[2]
SIZE = 1_000_000


def fill(unit, size=SIZE):
    return (unit * (size // len(unit) + 1))[:size]


def kinds():
    r = tokenizer_texts.Random(7)
    return {
        "a": fill(b"a"), "A": fill(b"A"), "space": fill(b" "), "digit": fill(b"7"), "newline": fill(b"\n"), "tab": fill(b"\t"),
        "\"a \"": fill(b"a "), "\" \\n\"": fill(b" \n"), "\"ab\"": fill(b"ab"), "<": fill(b"<"), "<|": fill(b"<|"), "</": fill(b"</"),
        "'": fill(b"'"), ".": fill(b"."), "NUL": fill(b"\0"), "FF": fill(b"\xff"), "E2": fill(b"\xe2"), "CJK": fill("中".encode()),
        "emoji": fill("👩🏽‍🚀".encode()), "accent": fill("\u0301".encode()), "<eos>": fill(b"<eos>"), "<|im_end|>": fill(b"<|im_end|>"),
        "letters": bytes(r.pick(tokenizer_texts.ALPHABET) for _ in range(SIZE)),
        "bytes": bytes(r.below(256) for _ in range(SIZE)),
        "mixed": fill(b"".join(tokenizer_texts.generate()[2000:])),
    }


class Batch:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def seconds(self, text):
        """Processor time, which the machine's other work changes less than the clock's."""
        start = self.cpu_seconds()
        self.process.stdin.write(struct.pack("<BI", 3, len(text)) + text)
        self.process.stdin.flush()
        (count,) = struct.unpack("<I", self.process.stdout.read(4))
        self.process.stdout.read(4 * count)
        return self.cpu_seconds() - start

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batch")
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("names", nargs="*", default=list(tokenizer_ids.VOCABULARIES))
    arguments = parser.parse_intermixed_args()
    models = os.environ.get("LOCKSTEP_MODELS", str(ROOT / "models"))
    vocabs = os.environ.get("LOCKSTEP_VOCABS", str(ROOT / "models" / "vocabs"))
    texts, bad, done = kinds(), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.names:
            path = tokenizer_ids.find_vocabulary(name, models, vocabs, scratch)
            if not path:
                continue
            done += 1
            batch = Batch([arguments.batch, str(path)])
            batch.seconds(b"warm up")
            times = {}
            for kind, text in texts.items():
                times[kind] = batch.seconds(text)
                if times[kind] > 0.3:   # below, the machine's noise decides
                    twice = batch.seconds(text + text)
                    if twice > 4 * times[kind]:
                        bad += 1
                        print(f"{name}: {kind}: {twice:.2f} s for twice the text of {times[kind]:.2f} s")
                if times[kind] > arguments.limit:
                    bad += 1
                    print(f"{name}: {kind}: {times[kind]:.1f} s, limit {arguments.limit}")
            if batch.close() != 0:
                sys.exit(f"{name}: tokenizer_batch failed")
            print(f"{name}: " + ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in times.items()), flush=True)
    if not done:
        sys.exit(77)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
