"""From a logits row to a token (docs/numerics/sampling.md)."""
import numpy as np

from . import elementary as E
from . import elementary64 as D
from .ieee import F32, F64

GREATEST = F32(float.fromhex("0x1.fffffep127"))
STAGES = ("penalties", "top_k", "top_p", "min_p", "temperature")
DEFAULTS = {"seed": 0, "choice_index": 0, "temperature": F32(0.8), "top_k": 40, "top_p": F32(0.95),
            "min_p": F32(0.05), "repeat_last_n": 64, "repeat_penalty": F32(1),
            "frequency_penalty": F32(0), "presence_penalty": F32(0), "logit_bias": [],
            "stages": list(STAGES)}
ROUNDS = 10


def sat(x):
    x = np.asarray(x, F32)
    return np.where(np.isfinite(x), x, np.copysign(GREATEST, x)).astype(F32)


def philox(counter, key):
    c0, c1, c2, c3 = counter
    k0, k1 = key
    low = 0xFFFFFFFF
    for _ in range(ROUNDS):
        a, b = 0xCD9E8D57 * c2, 0xD2511F53 * c0
        c0, c1, c2, c3 = (a >> 32) ^ c1 ^ k0, a & low, (b >> 32) ^ c3 ^ k1, b & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c0, c1, c2, c3


def noise_of_word(w):
    u = (F64(w) + F64(0.5)) * F64(2.0 ** -32)
    return F64(-D.log(-D.log(u)))


def noise(seed, position, choice_index, token):
    words = philox((position, token // 4, choice_index, 0), (seed & 0xFFFFFFFF, seed >> 32))
    return noise_of_word(words[token % 4])


def weight(d, t):
    """Weights of differences d (binary32) at temperature t: integers."""
    s = (np.asarray(d, F32).astype(F64) / F64(t)).astype(F32)
    return np.rint(E.exp(s).astype(F64) * F64(2.0 ** 40)).astype(np.int64)


def log_probability(raw, token):
    raw = np.asarray(raw, F32)
    top = raw.max()
    total = sum(int(w) for w in weight(raw - top, 1))
    return F64(F64(raw[token] - top) - D.log(F64(total) * F64(2.0 ** -40)))


class Candidates:
    def __init__(self, raw):
        self.id = np.arange(len(raw))
        self.x = np.array(raw, F32)
        self.t = F64(1)

    def sort(self):
        order = np.lexsort((self.id, -self.x))
        self.id, self.x = self.id[order], self.x[order]

    def keep(self, which):
        self.id, self.x = self.id[which], self.x[which]

    def weights(self):
        return weight(self.x - self.x[0], self.t)


def _penalties(s, p, history):
    last, r = p["repeat_last_n"], F32(p["repeat_penalty"])
    frequency, presence = F32(p["frequency_penalty"]), F32(p["presence_penalty"])
    if last == 0 or (r == 1 and frequency == 0 and presence == 0):
        return
    if s.t != 1:
        s.x = sat((s.x.astype(F64) / s.t).astype(F32))
        s.t = F64(1)
    seen = list(history) if last < 0 else list(history)[-last:]
    count = np.zeros(max(list(s.id) + seen) + 1, np.int64)
    np.add.at(count, np.array(seen, np.int64), 1)
    c = count[s.id]
    y = sat(np.where(s.x <= 0, s.x * r, s.x / r))
    y = sat(y - (c.astype(F32) * frequency + presence))
    s.x = np.where(c > 0, y, s.x).astype(F32)


def _top_p(s, top_p):
    if top_p >= 1:
        return
    P = 0 if top_p < 0 else int(np.rint(F64(top_p) * F64(2.0 ** 32)))
    w = [int(v) for v in s.weights()]
    need, have, n = P * sum(w), 0, 0
    while n < len(w):
        have += w[n]
        n += 1
        if have << 32 >= need:
            break
    s.keep(slice(0, n))


def _min_p(s, min_p):
    if min_p <= 0:
        return
    if min_p > 1:
        s.keep(slice(0, 1))
        return
    s.keep(s.weights() >= int(np.rint(F64(min_p) * F64(2.0 ** 40))))


def choose(raw, history, position, **parameters):
    """-> (token, candidates) or (None, fault)."""
    p = dict(DEFAULTS, **parameters)
    raw = np.asarray(raw, F32)
    if not np.isfinite(raw).all():
        return None, "a logit that is not finite"
    s = Candidates(raw)
    for token, bias in p["logit_bias"]:
        at = s.id == token
        if bias is False or bias == -np.inf:
            s.keep(~at)
        else:
            s.x = np.where(at, sat(s.x + F32(bias)), s.x).astype(F32)
    if p.get("allowed") is not None:
        s.keep(np.isin(s.id, list(p["allowed"])))
    if len(s.id) == 0:
        return None, "no token is left to choose from"
    for stage in p["stages"]:
        s.sort()
        if stage == "penalties":
            _penalties(s, p, history)
        elif stage == "top_k" and p["top_k"] > 0:
            s.keep(slice(0, p["top_k"]))
        elif stage == "top_p":
            _top_p(s, F32(p["top_p"]))
        elif stage == "min_p":
            _min_p(s, F32(p["min_p"]))
        elif stage == "temperature":
            if F32(p["temperature"]) <= 0:
                s.keep(slice(0, 1))
            else:
                s.t = F64(F32(p["temperature"]))
    s.sort()
    return int(draw(s, p, position)), [int(i) for i in s.id]


def draw(s, p, position):
    best = None
    for token, x in zip(s.id, s.x):
        g = noise(p["seed"], position, p["choice_index"], int(token))
        v = F64(x - s.x[0]) / s.t + g
        if best is None or v > best[0] or (v == best[0] and token < best[1]):
            best = (v, token)
    return best[1]
