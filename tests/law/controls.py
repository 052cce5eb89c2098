"""Deliberately wrong laws. The comparison must see a difference for each: (plan name, what is
wrong, patches), a patch being (module or dict, name, wrong thing)."""
import numpy as np

from law import attention as A
from law import elementary as E
from law import elementary64 as D
from law import ieee as M
from law import matmul as P
from law import ops as O
from law import rope as R
from law import sampling as S
from law import weights as W
from trials import CODED

F32 = np.float32
F64 = np.float64
_quantize, _values, _right_penalties = P.quantize, W.Blocks.values, S._penalties


def unfused32(a, b, c):
    return M.f32(a) * M.f32(b) + M.f32(c)


def unfused64(a, b, c):
    return np.asarray(a, F64) * np.asarray(b, F64) + np.asarray(c, F64)


def adjacent_tree(lanes):
    while lanes.shape[-1] > 1:
        lanes = lanes[..., 0::2] + lanes[..., 1::2]
    return lanes[..., 0]


def serial_tree(lanes):
    y = lanes[..., 0]
    for i in range(1, lanes.shape[-1]):
        y = y + lanes[..., i]
    return y


def strided_sum(lane):
    while len(lane) > 1:
        h = len(lane) // 2
        lane = [lane[i] + lane[i + h] for i in range(h)]
    return lane[0]


def silu_of_sigmoid(x):
    return x * E.sigmoid(x)


def truncated_half(x):
    return ((M.bits32(x).reshape(np.shape(x)) & np.uint32(0xFFFFE000)).view(F32)
            .astype(np.float16).view(np.uint16))


def flushed_half(b):
    b = np.asarray(b).astype(np.uint16)
    y = b.view(np.float16).astype(F32)
    return np.where(b & 0x7C00, y, np.copysign(F32(0), y)).astype(F32)


def rounded_bf16(b):
    return (np.asarray(b).astype(np.uint32) << 16 | 0x8000).astype(np.uint32).view(F32)


def interleaved_nibbles(B, at):
    return (B[:, at + W.I32 // 2] >> 4 * (W.I32 % 2)) & 15


def scales_without_top(S):
    j = np.arange(4)
    return (np.concatenate([S[:, j] & 63, S[:, j + 8] & 15], axis=1),
            np.concatenate([S[:, j + 4] & 63, S[:, j + 8] >> 4], axis=1))


def added_minimum(self):
    self.m = None if self.m is None else -self.m
    return _values(self)


def scaled_in_two_steps(kind, n, data, tokens, scale):
    size, data = W.row_bytes(kind, n), bytes(data)
    rows = b"".join(data[t * size:(t + 1) * size] for t in map(int, tokens))
    return (W.dequantize(kind, n, rows) * (F32(scale) / F32(3))) * F32(3)


def eps_first(ss, n, eps):
    return F32(1) / np.sqrt((ss + F32(eps)) / F32(n))


def root_of_inverse(ss, n, eps):
    return np.sqrt(F32(1) / (ss / F32(n) + F32(eps)))


def ties_away(v):
    return np.trunc(v + np.copysign(F32(0.5), v))


def divided_by_128(form, x):
    q, d, fault = _quantize(form, x)
    return q, d * F32(127) / F32(128), fault


def divided_codes(form, x):
    q, d, fault = _quantize(form, x)
    s = np.repeat(np.where(d == 0, F32(1), d), form, axis=1)
    return np.where(np.repeat(d == 0, form, axis=1), 0, np.rint(x / s)).astype(np.int32), d, fault


def silent(form, x):
    q, d, fault = _quantize(form, x)
    return q, d, np.zeros_like(fault)


def power_frequencies(s):
    i = np.arange(s.n_rot // 2)
    return F64(s.base) ** (-(2.0 * i) / s.n_rot)


def binary32_row(s, position, f=None):
    f = R.frequencies(s) if f is None else f
    a = (F32(position) * f.astype(F32)).astype(F64)
    return D.cos(a).astype(F32), D.sin(a).astype(F32)


def unfused_rotation(x0, x1, c, s):
    return x0 * c - x1 * s, x1 * c + x0 * s


def other_rotation(x0, x1, c, s):
    return M.fma32(-x1, s, x0 * c), M.fma32(x0, s, x1 * c)


def rounded_scale_q8(x):
    b = x.reshape(x.shape[0], -1, 32)
    q, d, _ = _quantize(32, x)
    h = E.f32_to_f16(d)
    bad = ~M.finite(b).all(axis=2) | ((h & 0x7C00) == 0x7C00)
    d = E.f16_to_f32(np.where(bad, 0, h))
    q = np.where((d == 0)[..., None], 0, np.rint(b / np.where(d == 0, F32(1), d)[..., None]))
    q = np.where(bad[..., None], 0, np.clip(q, -127, 127)).astype(np.int8)
    out = np.concatenate([np.where(bad, 0, h).astype("<u2")[..., None].view(np.uint8),
                          q.view(np.uint8)], axis=2)
    return out.reshape(x.shape[0], -1), bad.any(axis=1)


def inverse_of_stored(d):
    h = E.f16_to_f32(E.f32_to_f16(d))
    return np.where((h == 0) | ~M.finite(h), F32(0), F32(1) / np.where(h == 0, F32(1), h))


def unfused_merge(a, b):
    m = np.where(a[0] > b[0], a[0], b[0])
    ea, eb = E.exp(a[0] - m), E.exp(b[0] - m)
    return m, b[1] * eb + a[1] * ea, b[2] * eb[..., None] + a[2] * ea[..., None]


def swapped_merge(a, b):
    m = np.where(a[0] > b[0], a[0], b[0])
    ea, eb = E.exp(a[0] - m), E.exp(b[0] - m)
    l = M.fma32(a[1], ea, b[1] * eb)
    return m, l, M.fma32(a[2], ea[..., None], b[2] * eb[..., None])


def scale_on_query(q, k, scale, cap):
    s = M.tree(M.dot_lanes(q * F32(scale), k, 16))
    bad = ~M.finite(s)
    s = np.where(bad, F32(0), s)
    return (O.capped(cap, s) if cap else s), bad


def flushed_add(a, b):
    y = M.f32(a) + M.f32(b)
    return np.where(np.abs(y) < F32(2.0 ** -126), np.copysign(F32(0), y), y)


def product_first(act, gate, up):
    return E.FUNCTIONS[act](gate) * up if act == "gelu" else (gate * up) * E.sigmoid(gate), \
        ~M.finite(gate).all(axis=1)


def nan_only(act, gate, up):
    return E.FUNCTIONS[act](gate) * up, np.isnan(gate).any(axis=1)


def reciprocal_cap(cap, x):
    return F32(cap) * E.tanh(x * (F32(1) / F32(cap)))


def strict_top_p(s, top_p):
    if top_p < 1:
        w = [int(v) for v in s.weights()]
        need, have, n = max(0, int(np.rint(F64(top_p) * 2.0 ** 32))) * sum(w), 0, 0
        while n < len(w) and (n == 0 or have << 32 <= need):
            have, n = have + w[n], n + 1
        s.keep(slice(0, n))


def noise_without_half(w):
    return F64(-D.log(-D.log(F64(max(w, 1)) * F64(2.0 ** -32))))


def cut_weight(d, t):
    s = (np.asarray(d, F32).astype(F64) / F64(t)).astype(F32)
    return np.floor(E.exp(s).astype(F64) * F64(2.0 ** 40)).astype(np.int64)


def upside_down_penalties(s, p, history):
    """What repeats becomes likelier."""
    _right_penalties(s, dict(p, repeat_penalty=F32(1) / F32(p["repeat_penalty"])), history)


FMA = (M, "fma32", unfused32)
CONTROLS = [
    ("elementary", "a product and a sum for each fma", [FMA]),
    ("elementary", "the host's exp", [(E.FUNCTIONS, "exp", np.exp)]),
    ("elementary", "silu as x times sigmoid", [(E.FUNCTIONS, "silu", silu_of_sigmoid)]),
    ("elementary", "ln 2 in one part", [(E, "LN2_LOW", F32(0))]),
    ("elementary", "gelu's cubic constant one ulp off", [(E, "GELU_C3", np.nextafter(E.GELU_C3, F32(1)))]),
    ("elementary64", "a product and a sum for each fma", [(M, "fma64", unfused64)]),
    ("elementary64", "log with ln 2 in one part", [(D, "LN2_LOW", F64(0))]),
    ("elementary64", "π/2 in two parts, the second cut", [(D, "HALF_PI2", F64(F32(D.HALF_PI2)))]),
    ("convert", "binary16 by truncation", [(E, "f32_to_f16", truncated_half)]),
    ("convert", "binary16 subnormals flushed", [(E, "f16_to_f32", flushed_half)]),
    ("convert", "bfloat16 with a half added", [(E, "bf16_to_f32", rounded_bf16)]),
    ("dequantize", "nibbles interleaved", [(W, "_nibbles", interleaved_nibbles)]),
    ("dequantize", "6-bit scales without their top bits", [(W, "_scales6", scales_without_top)]),
    ("dequantize", "bytes unsigned", [(W, "_signed", lambda b: b)]),
    ("dequantize", "minimum of the other sign", [(W.Blocks, "values", added_minimum)]),
    ("embed", "the scale in two roundings", [(O, "embed", scaled_in_two_steps)]),
    ("rms_norm", "128 lanes", [(O, "NORM_LANES", 128)]),
    ("rms_norm", "squares not fused", [FMA]),
    ("rms_norm", "tree of neighbours", [(M, "tree", adjacent_tree)]),
    ("rms_norm", "eps before the mean", [(O, "inverse_root", eps_first)]),
    ("rms_norm", "root of the inverse", [(O, "inverse_root", root_of_inverse)]),
    ("quantize_activations", "ties away from zero", [(P, "round_codes", ties_away)]),
    ("quantize_activations", "x ÷ d for x · r", [(P, "quantize", divided_codes)]),
    ("quantize_activations", "no border at 2^-100", [(P, "TINY", F32(2.0 ** -149))]),
    ("quantize_activations", "a ÷ 128", [(P, "quantize", divided_by_128)]),
    ("quantize_activations", "no faults", [(P, "quantize", silent)]),
    ("rope_frequencies", "the host's power", [(R, "frequencies", power_frequencies)]),
    ("rope_frequencies", "a product and a sum for each fma", [(M, "fma64", unfused64)]),
    ("rope_row", "the angle in binary32", [(R, "row", binary32_row)]),
    ("rope", "rotation not fused", [(R, "rotate", unfused_rotation)]),
    ("rope", "the other product fused", [(R, "rotate", other_rotation)]),
    ("kv_write", "codes by the rounded scale", [(A, "_write_q8", rounded_scale_q8)]),
    ("kv_write", "codes of q4_0 by the rounded scale", [(A, "inverse", inverse_of_stored)]),
    ("kv_write", "binary16 by truncation", [(E, "f32_to_f16", truncated_half)]),
    ("kv_write", "ties away from zero", [(P, "round_codes", ties_away)]),
    ("attention", "8 lanes", [(A, "LANES", 8)]),
    ("attention", "pages of 32", [(A, "PAGE", 32)]),
    ("attention", "pages of 128", [(A, "PAGE", 128)]),
    ("attention", "nothing fused", [FMA]),
    ("attention", "tree of neighbours", [(M, "tree", adjacent_tree)]),
    ("attention", "merging not fused", [(A, "merge", unfused_merge)]),
    ("attention", "merging fuses the other product", [(A, "merge", swapped_merge)]),
    ("attention", "scale on the query", [(A, "scores", scale_on_query)]),
    ("attention", "cap times reciprocal", [(O, "capped", reciprocal_cap)]),
    ("attention far", "spans of 4 pages", [(A, "SPAN", 4)]),
    ("attention far", "no spans", [(A, "SPAN", 1 << 20)]),
    ("add", "subnormals flushed", [(O, "add", flushed_add)]),
    ("gated_act", "gate and up multiplied first", [(O, "gated_act", product_first)]),
    ("gated_act", "infinities pass", [(O, "gated_act", nan_only)]),
    ("softcap", "times the reciprocal", [(O, "capped", reciprocal_cap)]),
    ("check_logits", "infinities pass", [(O, "check_logits", lambda x: np.isnan(x).any(axis=1))]),
]

for kind in CODED:
    name = "matmul " + kind
    if W.TYPES[kind][2] == 0:
        CONTROLS += [(name, "8 lanes", [(P, "FLOAT_LANES", 8)]),
                     (name, "tree of neighbours", [(M, "tree", adjacent_tree)]),
                     (name, "lanes one after another", [(M, "tree", serial_tree)])]
        if kind == "F32":  # a product of binary16 or bfloat16 and binary32 may hide in rare cases
            CONTROLS.append((name, "not fused", [FMA]))
        continue
    CONTROLS += [(name, "4 lanes", [(P, "LANES", 4)]),
                 (name, "sum of strided lanes", [(P, "final_sum", strided_sum)]),
                 (name, "a ÷ 128", [(P, "quantize", divided_by_128)])]
    if W.TYPES[kind][2] == 32:
        CONTROLS += [(name, "segments of 128", [(P, "SEGMENT", 128)])]
    if W.TYPES[kind][2] == 32 or kind in ("Q4_K", "Q5_K"):
        CONTROLS += [(name, "not fused", [FMA])]

# Seen by the committed vectors: (file, what is wrong, patches).
VECTOR_CONTROLS = [
    ("elementary.json", "a product and a sum for each fma", [FMA]),
    ("elementary.json", "binary64 fma as product and sum", [(M, "fma64", unfused64)]),
    ("weight_types.json", "nibbles interleaved", [(W, "_nibbles", interleaved_nibbles)]),
    ("weight_types.json", "IQ4 table with one entry off", [(W, "T", W.T + (np.arange(16) == 8))]),
    ("weight_types.json", "MXFP4's index 8 not zero", [(W, "F", W.F - (np.arange(16) == 8))]),
    ("sampling.json", "Philox of 7 rounds", [(S, "ROUNDS", 7)]),
    ("sampling.json", "noise without the half", [(S, "noise_of_word", noise_without_half)]),
    ("sampling.json", "weights cut, not rounded", [(S, "weight", cut_weight)]),
    ("sampling.json", "top_p by >", [(S, "_top_p", strict_top_p)]),
    ("sampling.json", "the repeat penalty inverted", [(S, "_penalties", upside_down_penalties)]),
]
