"""Quantisation of activations and the matrix products (docs/numerics.md, sections 2 to 4)."""
import numpy as np

from . import ieee as M
from . import weights as W
from .ieee import F32

LANES = 8         # of a quantised product
SEGMENT = 256
FLOAT_LANES = 16
TINY = F32(2.0 ** -100)


def round_codes(v):
    return np.rint(v)


def quantize(form, x):
    """x [rows][n] -> q int32 [rows][n], d f32 [rows][n/form], fault bool [rows]."""
    x = M.f32(x)
    rows, n = x.shape
    b = x.reshape(rows, n // form, form)
    bad = ~M.finite(b).all(axis=2)
    a = np.abs(np.where(bad[..., None], F32(0), b)).max(axis=2)
    zero = bad | (a < TINY)
    safe = np.where(zero, F32(1), a)
    d = np.where(zero, F32(0), safe / F32(127))
    r = F32(127) / safe
    q = round_codes(np.where(zero[..., None], F32(0), b) * r[..., None])
    return q.astype(np.int32).reshape(rows, n), d, bad.any(axis=1)


def sums(q, width=32):
    return q.reshape(q.shape[0], -1, width).sum(axis=2)


def final_sum(lane):
    """lane: list of LANES arrays."""
    while len(lane) > 1:
        lane = [lane[i] + lane[i + 1] for i in range(0, len(lane), 2)]
    return lane[0]


def _block_dots(codes, q, width):
    """codes [n_out][nb][width], q [rows][nb][width] -> exact integers [rows][n_out][nb]."""
    a = codes.transpose(1, 0, 2).astype(np.float64)
    b = q.transpose(1, 2, 0).astype(np.float64)
    return np.matmul(a, b).transpose(2, 1, 0)


def quantised(kind, n_in, n_out, data, x):
    form = W.TYPES[kind][2]
    q, dx, fault = quantize(form, x)
    rows = x.shape[0]
    blocks = W.Blocks(kind, data)
    nb = n_in // form
    code = blocks.code.reshape(n_out, nb, form)
    dw = blocks.d.reshape(1, n_out, nb)
    scale = dw * dx[:, None, :]
    mw = None if blocks.m is None else blocks.m.reshape(1, n_out, nb)
    if form == 32:
        segments = _segments32(code, q, scale, mw, dx)
    else:
        segments = _segments256(blocks, code, q, scale, mw, dx)
    lane = [np.zeros((rows, n_out), F32) for _ in range(LANES)]
    for s, acc in enumerate(segments):
        lane[s % LANES] = lane[s % LANES] + acc
    return final_sum(lane), fault


def _segments32(code, q, scale, mw, dx):
    rows, nb = dx.shape
    isum = M.to_f32(_block_dots(code, q.reshape(rows, nb, 32), 32))
    mx = None if mw is None else dx * M.to_f32(sums(q))
    per = SEGMENT // 32
    out = []
    for first in range(0, nb, per):
        acc = np.zeros(isum.shape[:2], F32)
        for b in range(first, min(first + per, nb)):
            acc = M.fma32(isum[..., b], scale[..., b], acc)
            if mw is not None:
                acc = M.fma32(mw[..., b], mx[:, None, b], acc)
        out.append(acc)
    return out


def _segments256(blocks, code, q, scale, mw, dx):
    rows, nb = dx.shape
    n_out = code.shape[0]
    sub = blocks.sub
    per = 256 // sub
    isum = _block_dots(code.reshape(n_out, nb * per, sub), q.reshape(rows, nb * per, sub), sub)
    js = blocks.scale.reshape(1, n_out, nb, per).astype(np.int64)
    t = (js * isum.reshape(rows, n_out, nb, per).astype(np.int64)).sum(axis=3)
    acc = M.to_f32(t) * scale
    if mw is not None:
        jm = blocks.min.reshape(1, n_out, nb, per).astype(np.int64)
        u = (jm * sums(q, sub).reshape(rows, 1, nb, per)).sum(axis=3)
        acc = M.fma32(-M.to_f32(u), mw * dx[:, None, :], acc)
    return [acc[..., s] for s in range(nb)]


def floating(kind, n_in, n_out, data, x):
    w = W.dequantize(kind, n_in, data)
    y = M.tree(M.dot_lanes(w[None, :, :], M.f32(x)[:, None, :], FLOAT_LANES))
    return y, np.zeros(x.shape[0], bool)


def matmul(kind, n_in, n_out, data, x, bias=None):
    x = M.f32(x)
    f = floating if W.TYPES[kind][2] == 0 else quantised
    y, fault = f(kind, n_in, n_out, data, x)
    if bias is not None:
        y = y + bias
    return y, fault


def fp8_matmul(codes, scale, x):
    """codes u8 [n_out][n_in], x f32 [rows][n_in] (docs/numerics/weight-types.md, FP8)."""
    w = W.e4m3(codes)
    x = M.f32(x)
    rows, n_out = x.shape[0], codes.shape[0]
    lane = [np.zeros((rows, n_out), F32) for _ in range(8)]
    of_row = np.arange(n_out) // 128
    for s, k in enumerate(range(0, x.shape[1], 128)):
        dot = M.tree(M.dot_lanes(w[None, :, k:k + 128], x[:, None, k:k + 128], 16))
        lane[s % 8] = lane[s % 8] + dot * M.f32(scale)[of_row, s]
    return final_sum(lane)
