"""Row operations: embedding, RMSNorm, residual, gate, softcap, logits (docs/numerics.md 5, 6, 10)."""
import numpy as np

from . import elementary as E
from . import ieee as M
from . import weights as W
from .ieee import F32

NORM_LANES = 256


def embed(kind, n, data, tokens, scale):
    size = W.row_bytes(kind, n)
    data = bytes(data)
    rows = b"".join(data[t * size:(t + 1) * size] for t in map(int, tokens))
    return W.dequantize(kind, n, rows) * F32(scale)


def inverse_root(ss, n, eps):
    return F32(1) / np.sqrt(ss / F32(n) + F32(eps))


def rms_norm(group, x, weight, eps):
    x = M.f32(x)
    rows, n = x.shape
    g = x.reshape(rows, n // group, group)
    ss = M.tree(M.dot_lanes(g, g, NORM_LANES))
    r = inverse_root(ss, group, eps)
    y = (g * r[..., None]) * M.f32(weight)
    return y.reshape(rows, n), ~M.finite(ss).all(axis=1)


def add(a, b):
    return M.f32(a) + M.f32(b)


def gated_act(act, gate, up):
    gate = M.f32(gate)
    return E.FUNCTIONS[act](gate) * M.f32(up), ~M.finite(gate).all(axis=1)


def capped(cap, x):
    return F32(cap) * E.tanh(x / F32(cap))


def softcap(cap, x):
    x = M.f32(x)
    return capped(cap, x), ~M.finite(x).all(axis=1)


def check_logits(x):
    return ~M.finite(M.f32(x)).all(axis=1)
