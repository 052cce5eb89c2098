"""Binary32 functions and the conversions (docs/numerics/elementary.md)."""
import numpy as np

from . import ieee as M
from .ieee import F32


def _h(s):
    return F32(float.fromhex(s))


ROUND = _h("0x1.8p23")
LOG2E = _h("0x1.715476p0")
LN2_HIGH = _h("0x1.62e43p-1")
LN2_LOW = _h("-0x1.05c61p-29")
EXP_C = [_h(s) for s in ("0x1.686a3cp-10", "0x1.123cf6p-7", "0x1.555b82p-5", "0x1.55548cp-3",
                         "0x1.fffff8p-2")] + [F32(1), F32(1)]  # C6 … C2, 1, 1
GELU_C1 = _h("0x1.988454p0")
GELU_C3 = _h("0x1.2444f2p-4")
LOG1P_C = [_h(s) for s in ("0x1.69a9d8p-8", "-0x1.f6959ap-6", "0x1.486ea4p-4", "-0x1.1b5908p-3",
                           "0x1.890812p-3", "-0x1.fd431cp-3", "0x1.5538a4p-2",
                           "-0x1.ffff3p-2")] + [F32(1)]  # C8 … C1, 1


def exp_parts(x):
    t = M.fma32(x, LOG2E, ROUND)
    nf = t - ROUND
    n = (M.bits32(t) - np.uint32(0x4B400000)).view(np.int32).astype(np.int64)
    n = n.reshape(np.shape(x))
    r = M.fma32(nf, -LN2_HIGH, x)
    r = M.fma32(nf, -LN2_LOW, r)
    p = np.broadcast_to(EXP_C[0], np.shape(r))
    for c in EXP_C[1:]:
        p = M.fma32(p, r, c)
    return p, n


def _below(x, lo):
    return np.where(x < F32(lo), F32(lo), x)


def _above(x, hi):
    return np.where(x > F32(hi), F32(hi), x)


def exp(x):
    x = _above(_below(M.f32(x), -110), 89)
    p, n = exp_parts(x)
    n1 = n >> 1
    return (p * M.pow2_32(n1)) * M.pow2_32(n - n1)


def exp_nonpos(x):
    p, n = exp_parts(_below(M.f32(x), -110))
    return (p * M.pow2_32(n + 64)) * F32(2.0 ** -64)


def over_one_plus_exp(a, u):
    v = _above(_below(-u, -64), 110)
    p, n = exp_parts(v)
    s = np.where(u < 0, 64, 0)
    one = np.where(u < 0, F32(2.0 ** -64), F32(1))
    d = one + p * M.pow2_32(n - s)
    return (a / d) * one


def sigmoid(x):
    x = M.f32(x)
    return over_one_plus_exp(F32(1), x)


def silu(x):
    x = M.f32(x)
    return over_one_plus_exp(_below(x, -110), x)


def gelu(x):
    x = M.f32(x)
    u = x * M.fma32(x * x, GELU_C3, GELU_C1)
    return over_one_plus_exp(_below(x, -110), u)


def tanh(x):
    x = M.f32(x)
    e = exp_nonpos(-np.abs(x + x))
    t = (F32(1) - e) / (F32(1) + e)
    b = M.bits32(t) | (M.bits32(x) & np.uint32(0x80000000))
    return M.real32(b).reshape(np.shape(x))


def softplus(x):
    x = M.f32(x)
    e = exp_nonpos(-np.abs(x))
    p = np.broadcast_to(LOG1P_C[0], np.shape(e))
    for c in LOG1P_C[1:]:
        p = M.fma32(p, e, c)
    # a NaN lives in e already: the select gives +0 for it
    return np.where(x > 0, x, F32(0)) + p * e


FUNCTIONS = {"exp": exp, "exp_nonpos": exp_nonpos, "sigmoid": sigmoid, "silu": silu, "gelu": gelu,
             "tanh": tanh, "softplus": softplus}


def f16_to_f32(b):
    """b: binary16 patterns."""
    b = np.asarray(b).astype(np.uint32)
    sign = (b & 0x8000) << 16
    e = (b >> 10) & 31
    f = b & 0x3FF
    value = M.bits32(np.where(e == 0, f * 2.0 ** -24, (1024 + f) * 2.0 ** (e.astype(float) - 25)))
    value = value.reshape(b.shape)
    value = np.where(e == 31, np.uint32(0x7F800000) | (f << 13), value)
    value = np.where((e == 31) & (f != 0), value | 0x400000, value)
    return M.real32((value | sign).astype(np.uint32)).reshape(b.shape)


def f32_to_f16(x):
    """Patterns of binary16."""
    x = M.f32(x)
    b = M.bits32(x).reshape(x.shape)
    sign = (b >> 16) & 0x8000
    a = np.abs(x).astype(np.float64)
    # exponent of the grid: 2^-24 below the normal range
    e = np.maximum((((b >> 23) & 255).astype(np.int64) - 127), -14)
    units = np.round(np.where(np.isfinite(a), a, 0) * 2.0 ** (10.0 - e))  # ties to even
    half = np.where(units == 0, 0, units + (e + 14) * 1024.0)
    half = np.where(a >= 65520, 0x7C00, half).astype(np.uint32)
    half = np.where(np.isnan(a), 0x7E00 | ((b >> 13) & 0x3FF), half)
    return (sign | half).astype(np.uint16)


def bf16_to_f32(b):
    b = np.asarray(b).astype(np.uint32)
    return M.real32(b << 16).reshape(b.shape)


def round_even_i8(x):
    t = M.f32(x) + ROUND
    return (M.bits32(t) - np.uint32(0x4B400000)).astype(np.uint8).view(np.int8).reshape(np.shape(x))
