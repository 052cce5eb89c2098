"""The KV cache's types and attention (docs/numerics.md, sections 8 and 9)."""
import numpy as np

from . import elementary as E
from . import ieee as M
from . import matmul
from . import ops
from .ieee import F32

LANES = 16
PAGE = 64
SPAN = 16  # pages


def kv_write(kind, x):
    """x [rows][head_dim] -> bytes u8 [rows][row bytes], fault bool [rows]."""
    x = M.f32(x)
    rows = x.shape[0]
    if kind == "f32":
        bad = ~M.finite(x)
        stored = np.where(bad, F32(0), x).astype("<f4")
        return stored.view(np.uint8).reshape(rows, -1), bad.any(axis=1)
    if kind == "f16":
        h = E.f32_to_f16(x)
        bad = (h & 0x7C00) == 0x7C00
        return np.where(bad, 0, h).astype("<u2").view(np.uint8).reshape(rows, -1), bad.any(axis=1)
    if kind == "q8_0":
        return _write_q8(x)
    return _write_q4(x)


def _write_q8(x):
    rows, n = x.shape
    q, d, _ = matmul.quantize(32, x)
    b = x.reshape(rows, n // 32, 32)
    h = E.f32_to_f16(d)
    bad = ~M.finite(b).all(axis=2) | ((h & 0x7C00) == 0x7C00)
    h = np.where(bad, 0, h).astype("<u2")
    q = np.where(bad[..., None], 0, q.reshape(b.shape)).astype(np.int8)
    out = np.concatenate([h[..., None].view(np.uint8), q.view(np.uint8)], axis=2)
    return out.reshape(rows, -1), bad.any(axis=1)


def inverse(d):
    return F32(1) / d


def _write_q4(x):
    rows, n = x.shape
    b = x.reshape(rows, n // 32, 32)
    bad = ~M.finite(b).all(axis=2)
    b = np.where(bad[..., None], F32(0), b)
    at = np.abs(b).argmax(axis=2)  # the first of the greatest
    v = np.take_along_axis(b, at[..., None], axis=2)[..., 0]
    zero = bad | (np.abs(v) < matmul.TINY)
    d = np.where(zero, F32(0), v / F32(-8))
    r = np.where(zero, F32(0), inverse(np.where(zero, F32(1), d)))
    q = np.minimum(15, np.trunc(b * r[..., None] + F32(8.5))).astype(np.int32)
    h = E.f32_to_f16(d)
    bad |= (h & 0x7C00) == 0x7C00
    h = np.where(bad, 0, h).astype("<u2")
    q = np.where(bad[..., None], 8, q)
    codes = (q[..., :16] | q[..., 16:] << 4).astype(np.uint8)
    return np.concatenate([h[..., None].view(np.uint8), codes], axis=2).reshape(rows, -1), bad.any(axis=1)


def kv_read(kind, data, head_dim):
    """u8 [rows][row bytes] -> f32 [rows][head_dim]."""
    from . import weights
    name = {"f32": "F32", "f16": "F16", "q8_0": "Q8_0", "q4_0": "Q4_0"}[kind]
    return weights.values(name, np.ascontiguousarray(data).tobytes()).reshape(-1, head_dim)


def default_scale(head_dim):
    return F32(np.float64(1) / np.sqrt(np.float64(head_dim)))


def scores(q, k, scale, cap):
    """q [rows][1][head][dim], k [1][positions][head][dim] -> s, bad [rows][positions][head]."""
    s = M.tree(M.dot_lanes(q, k, LANES)) * F32(scale)
    bad = ~M.finite(s)
    s = np.where(bad, F32(0), s)
    if cap:
        s = ops.capped(cap, s)
    return s, bad


def page_sums(s, v, seen):
    """s, seen [rows][page][key][head], v [page][key][head][dim] -> m, l, o of every page."""
    low = np.where(seen, s, F32(-np.inf))
    m = low.max(axis=2)
    e = E.exp(np.where(seen, s - np.where(np.isfinite(m), m, F32(0))[:, :, None], F32(0)))
    l = np.zeros(m.shape, F32)
    o = np.zeros(m.shape + v.shape[-1:], F32)
    for j in range(s.shape[2]):
        on = seen[:, :, j]
        if not on.any():
            continue
        l = np.where(on, l + e[:, :, j], l)
        o = np.where(on[..., None], M.fma32(e[:, :, j, :, None], v[None, :, j], o), o)
    return m, l, o


def merge(a, b):
    m = np.where(a[0] > b[0], a[0], b[0])
    ea, eb = E.exp(a[0] - m), E.exp(b[0] - m)
    l = M.fma32(b[1], eb, a[1] * ea)
    o = M.fma32(b[2], eb[..., None], a[2] * ea[..., None])
    return m, l, o


def attention(q, k, v, n_head, n_head_kv, head_dim, first, scale, cap, window):
    """q [rows][n_head·head_dim]; k, v [positions][n_head_kv·head_dim], as the cache reads back."""
    rows = q.shape[0]
    positions = first + rows
    start = max(0, first - window + 1) // PAGE * PAGE if window else 0
    pages = (positions - start + PAGE - 1) // PAGE
    of = np.arange(n_head) // (n_head // n_head_kv)

    def paged(x):
        y = np.zeros((pages * PAGE, n_head, head_dim), F32)
        y[:positions - start] = x.reshape(positions, n_head_kv, head_dim)[start:][:, of]
        return y
    k, v = paged(k), paged(v).reshape(pages, PAGE, n_head, head_dim)
    p = first + np.arange(rows)[:, None]
    j = start + np.arange(pages * PAGE)[None, :]
    seen = j <= p
    if window:
        seen &= p - j < window
    s, bad = scores(q.reshape(rows, 1, n_head, head_dim), k[None], scale, cap)
    fault = (bad & seen[..., None]).any(axis=(1, 2))
    shape = (rows, pages, PAGE, n_head)
    mask = np.broadcast_to(seen[..., None], s.shape).reshape(shape)
    m, l, o = page_sums(s.reshape(shape), v, mask)
    y = np.zeros((rows, n_head, head_dim), F32)
    for r in range(rows):
        spans = {}
        for g in range(pages):
            if not mask[r, g].any():
                continue
            this = (m[r, g], l[r, g], o[r, g])
            key = (start // PAGE + g) // SPAN
            spans[key] = merge(spans[key], this) if key in spans else this
        total = None
        for key in sorted(spans):
            total = merge(total, spans[key]) if total else spans[key]
        y[r] = total[2] / total[1][:, None]
    return y.reshape(rows, n_head * head_dim), fault
