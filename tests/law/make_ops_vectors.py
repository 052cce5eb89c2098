"""Writes vectors/ops.json: small requests of PROTOCOL.md for every op, and the answers that this
implementation gives."""
import json
import zlib

import numpy as np

import trials
from check_vectors import VECTORS
from law import protocol

LIMIT, PER_OP, GREATEST = 390_000, 12, 1500


def cases():
    for name, make, _ in trials.PLAN:
        want, k = (4 if name.startswith("matmul") or name == "attention" else PER_OP), 0
        if name == "attention far":
            continue
        size = GREATEST
        while want and k < 20000:
            request = make(np.random.default_rng([7, zlib.crc32(name.encode()), k]), False)
            k += 1
            if k % 500 == 0:
                size *= 1.3
            if sum(v.nbytes for v in request.values() if isinstance(v, np.ndarray)) > size:
                continue
            case = {"in": protocol.encode(request, request, False)}
            case["out"] = protocol.encode(request, protocol.answer(request), True)
            if len(json.dumps(case)) <= 2.2 * size:
                want -= 1
                yield case


def main():
    lines = [json.dumps(c) for c in cases()]
    text = ('{"law": "ls1",\n"about": "requests of PROTOCOL.md and their answers; where fault is 1 only '
            'the flag is law, and NaN is any NaN",\n"cases": [\n' + ",\n".join(lines) + "\n]}\n")
    assert len(text) < LIMIT, len(text)
    (VECTORS / "ops.json").write_text(text)
    print(len(lines), "cases,", len(text), "bytes")


if __name__ == "__main__":
    main()
