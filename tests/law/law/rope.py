"""Rotary frequencies, rows and rotation (docs/numerics/rotary.md)."""
import numpy as np

from . import elementary64 as D
from . import ieee as M
from .ieee import F32, F64

PI = F64(float.fromhex("0x1.921fb54442d18p1"))
TWO_PI = F64(2.0) * PI
DEFAULTS = {"base": 10000, "scaling": "none", "factor": 1, "factors": None, "low": 1, "high": 4,
            "ctx": 0, "ext": 1, "attn": 1, "beta_fast": 32, "beta_slow": 1}


class Spec:
    def __init__(self, **fields):
        for name, value in DEFAULTS.items():
            setattr(self, name, value)
        for name, value in fields.items():
            setattr(self, name, value)
        for name in ("base", "factor", "low", "high", "ext", "attn", "beta_fast", "beta_slow"):
            setattr(self, name, F64(F32(getattr(self, name))))


def llama3_factors(s, f):
    wave = TWO_PI / f
    ctx = F64(s.ctx)
    smooth = (ctx / wave - s.low) / (s.high - s.low)
    g = (F64(1) / ((F64(1) - smooth) / s.factor + smooth)).astype(F32)
    g = np.where(wave > ctx / s.low, F32(s.factor), g)
    return np.where(wave < ctx / s.high, F32(1), g)


def yarn_mix(s):
    def pair(beta):
        return (F64(s.n_rot) * D.log(F64(s.ctx) / (beta * TWO_PI))) / (F64(2) * D.log(s.base))
    begin = np.floor(pair(s.beta_fast))
    begin = begin if begin > 0 else F64(0)
    end = np.ceil(pair(s.beta_slow))
    last = F64(s.n_rot) - F64(1)
    end = end if end < last else last
    width = end - begin
    width = width if width > 0.001 else F64(0.001)
    y = (np.arange(s.n_rot // 2).astype(F64) - begin) / width
    y = np.where(y > 0, y, F64(0))
    y = np.where(y < 1, y, F64(1))
    return (F64(1) - y) * s.ext


def frequencies(s):
    i = np.arange(s.n_rot // 2)
    b = D.log(s.base) / D.log(F64(2))
    f = D.exp2(-((2 * i).astype(F64) / F64(s.n_rot)) * b)
    if s.factors is not None:
        f = f / M.f32(s.factors)[:s.n_rot // 2].astype(F64)
    elif s.scaling == "llama3":
        f = f / llama3_factors(s, f).astype(F64)
    if s.scaling == "linear":
        f = f / s.factor
    elif s.scaling == "yarn":
        p = f / s.factor
        if s.ext == 0:
            f = p
        else:
            mix = yarn_mix(s)
            f = p * (F64(1) - mix) + f * mix
    return f


def magnitude(s):
    """(m, applies)"""
    if s.scaling != "yarn":
        return F32(1), False
    if s.ext != 0 and s.factor > 1:
        return F32(s.attn * (F64(1) + F64(0.1) * D.log(s.factor))), True
    return F32(s.attn * F64(1)), True


def row(s, position, f=None):
    f = frequencies(s) if f is None else f
    a = F64(position) * f
    c, d = D.cos(a).astype(F32), D.sin(a).astype(F32)
    m, applies = magnitude(s)
    return (c * m, d * m) if applies else (c, d)


def rotate(x0, x1, c, s):
    return M.fma32(x0, c, -(x1 * s)), M.fma32(x1, c, x0 * s)


def rope(s, pairing, n_head, head_dim, first, x):
    x = M.f32(x)
    y = np.array(x).reshape(x.shape[0], n_head, head_dim)
    f = frequencies(s)
    half = s.n_rot // 2
    at0, at1 = ((slice(0, s.n_rot, 2), slice(1, s.n_rot, 2)) if pairing == "adjacent"
                else (slice(0, half), slice(half, s.n_rot)))
    for r in range(x.shape[0]):
        c, d = row(s, first + r, f)
        y[r, :, at0], y[r, :, at1] = rotate(y[r, :, at0].copy(), y[r, :, at1].copy(), c, d)
    return y.reshape(x.shape)
