"""The committed vectors against this implementation. Each check returns (count, first difference)."""
import json

import numpy as np

from compare import HERE
from law import elementary, elementary64, ieee, sampling, weights

VECTORS = HERE / "vectors"


def load(name):
    return json.loads((VECTORS / name).read_text())


def _f(text):
    return np.array(int(text, 16), np.uint32).view(np.float32)[()]


def _d(text):
    return np.array(int(text, 16), np.uint64).view(np.float64)[()]


def _one(name, text):
    """Bits of the named function of one input, as an integer; None for NaN."""
    b = int(text, 16)
    if name in elementary64.FUNCTIONS:
        y = elementary64.FUNCTIONS[name](np.array([_d(text)]))
        return None if np.isnan(y[0]) else int(ieee.bits64(y)[0])
    if name in ("f16_to_f32", "bf16_to_f32"):
        y = getattr(elementary, name)(np.array([b], np.uint16))
        return int(ieee.bits32(y)[0])
    x = np.array([_f(text)])
    if name == "f32_to_f16":
        return int(elementary.f32_to_f16(x)[0])
    if name == "round_even_i8":
        return int(elementary.round_even_i8(x).view(np.uint8)[0])
    y = elementary.FUNCTIONS[name](x)
    return None if np.isnan(y[0]) else int(ieee.bits32(y)[0])


def elementary_vectors():
    count = 0
    for name, pairs in load("elementary.json")["functions"].items():
        for x, y in pairs:
            count += 1
            got, want = _one(name, x), None if y == "nan" else int(y, 16)
            if got != want:
                return count, "%s(%s): got %s, expected %s" % (name, x, got and hex(got), y)
    return count, None


def weight_vectors():
    count = 0
    for kind in load("weight_types.json")["types"]:
        for k, block in enumerate(kind["blocks"]):
            count += 1
            got = ieee.bits32(weights.values(kind["name"].upper(), bytes.fromhex(block["bytes"])))
            want = np.array([int(v, 16) for v in block["values"].split()], np.uint32)
            if got.shape != want.shape:
                return count, "%s block %d: %d values" % (kind["name"], k, got.size)
            if (got != want).any():
                i = int(np.flatnonzero(got != want)[0])
                return count, "%s block %d element %d: got 0x%08x, expected 0x%08x" % (
                    kind["name"], k, i, got[i], want[i])
    return count, None


def _parameters(p):
    out = dict(p)
    out["seed"] = int(p["seed"], 16)
    for name in ("temperature", "top_p", "min_p", "repeat_penalty", "frequency_penalty",
                 "presence_penalty"):
        out[name] = _f(p[name])
    out["logit_bias"] = [(i, False if b is False else _f(b)) for i, b in p["logit_bias"]]
    return out


def _cases():
    s = load("sampling.json")
    for c in s["philox"]:
        words = sampling.philox([int(v, 16) for v in c["counter"]], [int(v, 16) for v in c["key"]])
        yield "philox", c, list(words), [int(v, 16) for v in c["words"]]
    for c in s["noise_of_word"]:
        g = sampling.noise_of_word(int(c["word"], 16))
        yield "noise_of_word", c, int(ieee.bits64(g).item()), int(c["g"], 16)
    for c in s["noise"]:
        g = sampling.noise(int(c["seed"], 16), c["position"], c["choice_index"], c["id"])
        yield "noise", c, int(ieee.bits64(g).item()), int(c["g"], 16)
    for c in s["weights"]:
        yield "weight", c, sampling.weight(_f(c["d"]), _f(c["t"])).item(), c["w"]
    for c in s["logprobs"]:
        row = [_f(v) for v in c["row"].split()]
        g = sampling.log_probability(row, c["id"])
        yield "logprob", {"id": c["id"]}, int(ieee.bits64(g).item()), int(c["logprob"], 16)
    for c in s["choices"]:
        row = [_f(v) for v in c["row"].split()]
        got = sampling.choose(row, c["history"], c["position"], **_parameters(c["parameters"]))
        want = (None, c["fault"]) if "fault" in c else (c["token"], c["candidates"])
        yield "choice", {"name": c["name"]}, got, want


def sampling_vectors():
    count = 0
    for what, case, got, want in _cases():
        count += 1
        if got != want:
            return count, "%s %s: got %s, expected %s" % (what, case, got, want)
    return count, None


ALL = {"elementary.json": elementary_vectors, "weight_types.json": weight_vectors,
       "sampling.json": sampling_vectors}
