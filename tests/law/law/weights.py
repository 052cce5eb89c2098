"""Weight types: bytes to codes, scales and values (docs/numerics/weight-types.md)."""
import numpy as np

from . import ieee as M
from .elementary import bf16_to_f32, f16_to_f32
from .ieee import F32

#            elements, bytes, form (0: float product), sub-block
TYPES = {
    "F32": (1, 4, 0, 0), "F16": (1, 2, 0, 0), "BF16": (1, 2, 0, 0),
    "Q4_0": (32, 18, 32, 0), "Q4_1": (32, 20, 32, 0), "Q5_0": (32, 22, 32, 0),
    "Q5_1": (32, 24, 32, 0), "Q8_0": (32, 34, 32, 0), "IQ4_NL": (32, 18, 32, 0),
    "MXFP4": (32, 17, 32, 0),
    "Q2_K": (256, 84, 256, 16), "Q3_K": (256, 110, 256, 16), "Q4_K": (256, 144, 256, 32),
    "Q5_K": (256, 176, 256, 32), "Q6_K": (256, 210, 256, 16), "IQ4_XS": (256, 136, 256, 32),
}
T = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int32)
F = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int32)
I32 = np.arange(32)
I256 = np.arange(256)


def row_bytes(kind, n):
    elements, size = TYPES[kind][:2]
    assert n % elements == 0
    return n // elements * size


def _half(B, k):
    return f16_to_f32(B[:, k] | B[:, k + 1] << 8)


def _signed(b):
    return np.where(b >= 128, b - 256, b)


def _nibbles(B, at):
    return (B[:, at + I32 % 16] >> 4 * (I32 // 16)) & 15


def _blocks32(kind, B):
    m = None
    if kind == "MXFP4":
        e = B[:, 0].astype(np.int64)
        d = np.ldexp(1.0, e - 128).astype(F32)
        return d, None, F[_nibbles(B, 1)]
    d = _half(B, 0)
    if kind == "Q4_0":
        code = _nibbles(B, 2) - 8
    elif kind == "Q4_1":
        m, code = _half(B, 2), _nibbles(B, 4)
    elif kind == "Q5_0":
        code = (_nibbles(B, 6) | ((B[:, 2 + I32 // 8] >> I32 % 8) & 1) << 4) - 16
    elif kind == "Q5_1":
        m, code = _half(B, 2), _nibbles(B, 8) | ((B[:, 4 + I32 // 8] >> I32 % 8) & 1) << 4
    elif kind == "Q8_0":
        code = _signed(B[:, 2:34])
    else:
        code = T[_nibbles(B, 2)]
    return d, m, code


def _scales6(S):
    j = np.arange(4)
    scale = np.concatenate([S[:, j] & 63, (S[:, j + 8] & 15) | (S[:, j] >> 6) << 4], axis=1)
    low = np.concatenate([S[:, j + 4] & 63, (S[:, j + 8] >> 4) | (S[:, j + 4] >> 6) << 4], axis=1)
    return scale, low


def _blocks256(kind, B):
    i = I256
    m = minimum = None
    if kind == "Q2_K":
        scale, minimum = B[:, 0:16] & 15, B[:, 0:16] >> 4
        code = (B[:, 16 + 32 * (i // 128) + i % 32] >> 2 * ((i // 32) % 4)) & 3
        d, m = _half(B, 80), _half(B, 82)
    elif kind == "Q3_K":
        S = B[:, 96:108]
        j = np.arange(16)
        low = np.where(j < 8, S[:, j % 8] & 15, S[:, j % 8] >> 4)
        scale = (low | ((S[:, 8 + j % 4] >> 2 * (j // 4)) & 3) << 4) - 32
        bits = (B[:, 32 + 32 * (i // 128) + i % 32] >> 2 * ((i // 32) % 4)) & 3
        code = (bits | ((B[:, i % 32] >> i // 32) & 1) << 2) - 4
        d = _half(B, 108)
    elif kind == "Q4_K":
        d, m = _half(B, 0), _half(B, 2)
        scale, minimum = _scales6(B[:, 4:16])
        code = (B[:, 16 + 32 * (i // 64) + i % 32] >> 4 * ((i // 32) % 2)) & 15
    elif kind == "Q5_K":
        d, m = _half(B, 0), _half(B, 2)
        scale, minimum = _scales6(B[:, 4:16])
        low = (B[:, 48 + 32 * (i // 64) + i % 32] >> 4 * ((i // 32) % 2)) & 15
        code = low | ((B[:, 16 + i % 32] >> i // 32) & 1) << 4
    elif kind == "Q6_K":
        scale = _signed(B[:, 192:208])
        low = (B[:, 64 * (i // 128) + i % 64] >> 4 * ((i // 64) % 2)) & 15
        high = (B[:, 128 + 32 * (i // 128) + i % 32] >> 2 * ((i // 32) % 4)) & 3
        code = (low | high << 4) - 32
        d = _half(B, 208)
    else:
        d = _half(B, 0)
        H = (B[:, 2] | B[:, 3] << 8)[:, None]
        j = np.arange(8)
        scale = (((B[:, 4 + j // 2] >> 4 * (j % 2)) & 15) | ((H >> 2 * j) & 3) << 4) - 32
        code = T[(B[:, 8 + 16 * (i // 32) + i % 16] >> 4 * ((i // 16) % 2)) & 15]
    return d, m, code, scale, minimum


class Blocks:
    """What a run of blocks of one quantised type holds: d, m (or dmin), code, scale, min."""

    def __init__(self, kind, data):
        elements, size, self.form, self.sub = TYPES[kind]
        B = np.frombuffer(bytes(data), np.uint8).reshape(-1, size).astype(np.int32)
        self.scale = self.min = None
        if self.form == 32:
            self.d, self.m, self.code = _blocks32(kind, B)
        else:
            self.d, self.m, self.code, self.scale, self.min = _blocks256(kind, B)

    def values(self):
        code = self.code.astype(F32)
        d = self.d[:, None]
        if self.form == 32:
            v = d * code
            return v if self.m is None else v + self.m[:, None]
        v = np.repeat(d * self.scale.astype(F32), self.sub, axis=1) * code
        if self.m is None:
            return v
        return v - np.repeat(self.m[:, None] * self.min.astype(F32), self.sub, axis=1)


def values(kind, data):
    """Every element of `data` (whole blocks), flat."""
    data = bytes(data)
    if kind == "F32":
        return np.frombuffer(data, "<f4").astype(F32)
    if kind == "F16":
        return f16_to_f32(np.frombuffer(data, "<u2"))
    if kind == "BF16":
        return bf16_to_f32(np.frombuffer(data, "<u2"))
    return Blocks(kind, data).values().reshape(-1)


def dequantize(kind, n, data):
    return values(kind, data).reshape(-1, n)


def e4m3(b):
    b = np.asarray(b).astype(np.int64)
    e, f = (b >> 3) & 15, b & 7
    v = np.where(e == 0, np.ldexp(f.astype(float), -9), np.ldexp(8.0 + f, e - 10))
    return np.where(b >> 7, -v, v).astype(F32)


def e8m0(b):
    return np.ldexp(1.0, np.asarray(b).astype(np.int64) - 127).astype(F32)


def fp8_values(codes, scale):
    """codes u8 [n_out][n_in], scale f32 [⌈n_out/128⌉][⌈n_in/128⌉]."""
    s = np.repeat(np.repeat(scale, 128, axis=0), 128, axis=1)[:codes.shape[0], :codes.shape[1]]
    return M.f32(s) * e4m3(codes)
