"""Tiny random models that `lockstep synth` writes, for architectures of which no real file is at hand.

The same line gives the same bytes everywhere, so nothing but llama.cpp's figures is committed
(recorded/tiny.json, made by `record.py tiny`); the float64 oracle runs anew in every test.
"""
import hashlib
import json
import subprocess
from pathlib import Path

import numpy as np

import judge
from oracle import log_softmax

SPECS = tuple(f"{shape}@{kind}" for shape in ("qwen2-tiny", "qwen3-tiny") for kind in ("f32", "f16", "q8_0")) + (
    "qwen2-tiny,rope_scaling=linear@f16", "qwen3-tiny,rope_scaling=yarn@f16")
N_VOCAB = 512
N_SEQUENCES, LENGTH = 8, 96
SAMPLED = 48  # llama.cpp's likeliest ids are committed for every 48th of all positions ...
TOP = 4       # ... this many

RECORDED = judge.HERE / "recorded" / "tiny.json"


def sequences():
    """Ids without a pattern, from a linear congruential generator (Numerical Recipes' constants)."""
    state, out = 1, []
    for _ in range(N_SEQUENCES):
        ids = []
        for _ in range(LENGTH):
            state = (1664525 * state + 1013904223) % 2**32
            ids.append((state >> 16) % N_VOCAB)
        out.append(ids)
    return out


def write_model(binary, spec, folder):
    """(path, SHA-256) of the model's file."""
    path = Path(folder) / (spec.replace("@", ".") + ".gguf")
    subprocess.run([binary, "synth", spec, "-o", path], check=True, capture_output=True)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def write_ids(folder):
    path = Path(folder) / "ids.json"
    path.write_text(json.dumps(sequences()))
    return path


def oracle_rows(oracle):
    """Log-probabilities of every row that has a next token [N_SEQUENCES * (LENGTH - 1), N_VOCAB]."""
    return next_rows(log_softmax(oracle.head(oracle.hidden(sequences()))))


def next_rows(rows):
    return rows.reshape(N_SEQUENCES, LENGTH, N_VOCAB)[:, :-1].reshape(-1, N_VOCAB)


def eval_rows(result):
    """The same from an eval result whose `top` is the whole vocabulary."""
    rows = np.full((N_SEQUENCES * (LENGTH - 1), N_VOCAB), np.nan)
    tops = (top for sequence in result["sequences"] for top in sequence["top"][:LENGTH - 1])
    for row, top in zip(rows, tops, strict=True):
        row[[e["id"] for e in top]] = [e["logprob"] for e in top]
    if not np.isfinite(rows).all():
        raise judge.BadResult("an id of the vocabulary is missing from `top`, or not finite")
    return rows


def figures(p, q):
    """Of rows q against the exact rows p."""
    kl = judge.whole_row_kl(p, q)
    return {"mean_kl": float(kl.mean()), "max_kl": float(kl.max()),
            "top1_percent": 100 * float((p.argmax(axis=-1) == q.argmax(axis=-1)).mean())}


def sample(rows):
    """[[id, log-probability] ...] of the TOP likeliest ids, for every SAMPLED-th position."""
    picked = rows[::SAMPLED]
    best = np.argsort(-picked, axis=-1, kind="stable")[:, :TOP]
    return [[[int(i), round(float(row[i]), 5)] for i in ids] for row, ids in zip(picked, best)]
