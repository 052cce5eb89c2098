"""Binary64 functions (docs/numerics/elementary.md)."""
import numpy as np

from . import ieee as M
from .ieee import F64


def _h(*names):
    return [F64(float.fromhex(s)) for s in names]


LN2_HIGH, LN2_LOW = _h("0x1.62e42fefa39efp-1", "0x1.abc9e3b39803fp-56")
LOG_C = _h("0x1.2b5cae0386852p-3", "0x1.39fe025e78d96p-3", "0x1.7462b78a4d11fp-3",
           "0x1.c71c62dbbd736p-3", "0x1.2492492df79dfp-2", "0x1.99999999952d7p-2",
           "0x1.5555555555558p-1")
ROUND = F64(float.fromhex("0x1.8p52"))
EXP2_C = _h("0x1.e973179a994acp-32", "0x1.e61d43321746dp-28", "0x1.b52522bc15f8fp-24",
            "0x1.62bfc6596be12p-20", "0x1.ffcbfc6685f06p-17", "0x1.4309130f6cbdbp-13",
            "0x1.5d87fe789e96fp-10", "0x1.3b2ab6fb9fda6p-7", "0x1.c6b08d704a12cp-5",
            "0x1.ebfbdff82c5a6p-3", "0x1.62e42fefa39efp-1", "0x1p0")
TWO_OVER_PI, HALF_PI1, HALF_PI2, HALF_PI3 = _h(
    "0x1.45f306dc9c883p-1", "0x1.921fb54442d18p0", "0x1.1a62633145c07p-54",
    "-0x1.f1976b7ed8fbcp-110")
SIN_C = _h("0x1.5e11b11f57865p-33", "-0x1.ae602161d7c5dp-26", "0x1.71de37b224f1ap-19",
           "-0x1.a01a019ea1749p-13", "0x1.1111111110c84p-7", "-0x1.5555555555555p-3")
COS_C = _h("-0x1.9073e56390a19p-37", "0x1.1eeb5865374f9p-29", "-0x1.27e4fa037cc16p-22",
           "0x1.a01a019f38b6dp-16", "-0x1.6c16c16c168ccp-10", "0x1.5555555555555p-5",
           "-0x1p-1", "0x1p0")


def _horner(c, x):
    p = np.broadcast_to(c[0], np.shape(x))
    for k in c[1:]:
        p = M.fma64(p, x, k)
    return p


def log(x):
    x = np.asarray(x, F64)
    sub = x < F64(2.0 ** -1022)
    ix = M.bits64(np.where(sub, x * F64(2.0 ** 54), x)).reshape(x.shape)
    k = (ix - np.uint64(0x3FE6A09E667F3BCD)).view(np.int64) >> 52
    m = M.real64(ix - (k << 52).view(np.uint64)).reshape(x.shape)
    kd = (k - np.where(sub, 54, 0)).astype(F64)
    f = m - F64(1)
    s = f / (F64(2) + f)
    z = s * s
    p = _horner(LOG_C, z)
    h = (F64(0.5) * f) * f
    c = M.fma64(s, h + z * p, kd * LN2_LOW)
    y = M.fma64(kd, LN2_HIGH, f - (h - c))
    y = np.where(x == 0, -np.inf, y)
    y = np.where(x == np.inf, np.inf, y)
    return np.where((x < 0) | np.isnan(x), np.nan, y)


def exp2(x):
    x = np.asarray(x, F64)
    x = np.where(x < -1100, F64(-1100), x)
    x = np.where(x > 1100, F64(1100), x)
    t = x + ROUND
    r = x - (t - ROUND)
    n = (M.bits64(t) & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32).astype(np.int64)
    n = n.reshape(x.shape)
    p = _horner(EXP2_C, r)
    n1 = n >> 1
    return (p * M.pow2_64(n1)) * M.pow2_64(n - n1)


def _circle(a):
    a = np.asarray(a, F64)
    a = np.where(np.abs(a) < 2.0 ** 30, a, np.nan)
    t = M.fma64(a, TWO_OVER_PI, ROUND)
    kd = t - ROUND
    q = (M.bits64(t) & np.uint64(3)).astype(np.int64).reshape(a.shape)
    r = M.fma64(kd, -HALF_PI1, a)
    r = M.fma64(kd, -HALF_PI2, r)
    r = M.fma64(kd, -HALF_PI3, r)
    z = r * r
    s = M.fma64(r * z, _horner(SIN_C, z), r)
    return q, s, _horner(COS_C, z)


def sin(a):
    q, s, c = _circle(a)
    return np.choose(q, [s, c, -s, -c])


def cos(a):
    q, s, c = _circle(a)
    return np.choose(q, [c, -s, -c, s])


FUNCTIONS = {"log": log, "exp2": exp2, "sin": sin, "cos": cos}
