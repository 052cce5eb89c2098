"""Ground: binary32 and binary64 arithmetic with one rounding per operation, on arrays."""
import ctypes
import ctypes.util

import numpy as np

F32 = np.float32
F64 = np.float64
np.seterr(all="ignore")

_libm = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
_libm.fma.restype = ctypes.c_double
_libm.fma.argtypes = [ctypes.c_double] * 3
_libm.fmaf.restype = ctypes.c_float
_libm.fmaf.argtypes = [ctypes.c_float] * 3
_fma64_each = np.frompyfunc(_libm.fma, 3, 1)


def f32(x):
    return np.asarray(x, dtype=F32)


def bits32(x):
    return np.ascontiguousarray(x, dtype=F32).view(np.uint32)


def real32(b):
    return np.ascontiguousarray(b, dtype=np.uint32).view(F32)


def bits64(x):
    return np.ascontiguousarray(x, dtype=F64).view(np.uint64)


def real64(b):
    return np.ascontiguousarray(b, dtype=np.uint64).view(F64)


def finite(x):
    return np.isfinite(x)


def libm_fmaf(a, b, c):
    """Scalar, for checking fma32."""
    return F32(_libm.fmaf(float(a), float(b), float(c)))


def fma32(a, b, c):
    """a*b + c with one rounding. The product is exact in binary64; the sum is rounded to odd there
    wherever the second rounding could see a difference."""
    p = np.asarray(a, dtype=F32).astype(F64) * np.asarray(b, dtype=F32).astype(F64)
    c = np.asarray(c, dtype=F32).astype(F64)
    s = np.asarray(p + c)
    r = s.astype(F32)
    doubt = (s.view(np.int64) & 0x1FFFFFFF) == 0x10000000
    doubt |= np.abs(r) <= F32(2.0 ** -125)
    if not doubt.any():
        return r
    p = np.broadcast_to(p, s.shape)[doubt]
    c = np.broadcast_to(c, s.shape)[doubt]
    t = s[doubt]
    v = t - p
    err = (p - (t - v)) + (c - v)
    tb = t.view(np.int64)
    move = np.isfinite(t) & (err != 0) & ((tb & 1) == 0)
    step = np.where((err > 0) == (t > 0), 1, -1)
    t = np.where(move, tb + step, tb).view(F64)
    r = np.array(r)
    r[doubt] = t.astype(F32)
    return r


def fma64(a, b, c):
    r = _fma64_each(np.asarray(a, F64), np.asarray(b, F64), np.asarray(c, F64))
    return np.asarray(r).astype(F64)


def pow2_32(n):
    """2^n for n in the normal range; elsewhere (only beside NaN) something finite."""
    n = np.clip(np.asarray(n, dtype=np.int64), -126, 127)
    return real32(((n + 127) << 23).astype(np.uint32))


def pow2_64(n):
    n = np.clip(np.asarray(n, dtype=np.int64), -1022, 1023)
    return real64(((n + 1023) << 52).astype(np.uint64))


def tree(lanes):
    """tree(L) over the last axis."""
    lanes = np.asarray(lanes, dtype=F32)
    h = lanes.shape[-1] // 2
    while h >= 1:
        lanes = lanes[..., :h] + lanes[..., h:2 * h]
        h //= 2
    return lanes[..., 0]


def dot_lanes(a, b, lanes):
    """For k ascending: lane[k mod lanes] = fma(a_k, b_k, lane); over the last axis."""
    n = a.shape[-1]
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    acc = np.zeros(shape + (lanes,), dtype=F32)
    for k in range(0, n, lanes):
        w = min(lanes, n - k)
        acc[..., :w] = fma32(a[..., k:k + w], b[..., k:k + w], acc[..., :w])
    return acc


def to_f32(x):
    """float(x) of integers (exact in binary64) and binary64."""
    return np.asarray(x).astype(F64).astype(F32)
