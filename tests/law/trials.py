"""Random requests for law_ops: every op, types, widths and odd shapes, and difficult numbers."""
import numpy as np

from law import attention, weights

F32 = np.float32
WIDTHS = list(range(1, 18)) + [31, 32, 33, 64, 100]
WIDER = [256, 512]  # of big requests
CODED = list(weights.TYPES)


def one(x):
    return np.array([x], F32)


def pick(r, items):
    return items[int(r.integers(len(items)))]


def width(r, big):
    """Wide passes cost what many narrow ones do: one request in eight is one."""
    return pick(r, WIDTHS[:16] if r.random() < 0.875 else WIDTHS[16:] + (WIDER if big else []))


def any_bits(r, n):
    return r.integers(0, 2 ** 32, n, dtype=np.uint64).astype(np.uint32).view(F32)


def normal(r, n, spread=0.0):
    x = r.standard_normal(n)
    if spread:
        x = x * 2.0 ** r.uniform(-spread, spread, n)
    return x.astype(F32)


def numbers(r, n):
    """Finite numbers of one of several kinds."""
    kind = int(r.integers(8))
    if kind == 0:
        x = normal(r, n)
    elif kind == 7:  # about the borders between two codes of a quantised row
        a = F32(r.uniform(0.5, 3))
        x = ((r.integers(-127, 127, n) + 0.5) * (float(a) / 127)).astype(F32)
        x[::32] = a
    elif kind == 1:
        x = normal(r, n, 20)
    elif kind == 2:  # ties when scaled and rounded: odd multiples of a half, greatest 127
        x = (r.integers(-253, 254, n) / 2).astype(F32)
        x[::32] = 127
        x[r.integers(n, size=max(1, n // 16))] = F32(-0.0)
    elif kind == 3:  # subnormals and small
        x = (r.integers(-2 ** 20, 2 ** 20, n) * 2.0 ** -149).astype(F32)
    elif kind == 4:  # mostly zeros of both signs
        x = np.where(r.random(n) < 0.8, np.copysign(F32(0), normal(r, n)), normal(r, n)).astype(F32)
    elif kind == 5:  # about the border 2^-100
        x = (normal(r, n) * F32(2.0 ** -100)).astype(F32)
    else:
        x = normal(r, n) * F32(2.0 ** int(r.integers(-60, 40)))
    return x.astype(F32)


def mixed(r, n):
    x = numbers(r, n)
    if n > 8 and r.random() < 0.5:
        x[: n // 2] = normal(r, n // 2)
    return x


def spoil(r, x, rows, chance=0.15):
    """Sometimes puts NaN and infinities into some rows."""
    if r.random() < chance:
        x = x.reshape(rows, -1)
        for row in range(rows):
            if r.random() < 0.4:
                x[row, r.integers(x.shape[1])] = pick(r, [np.nan, np.inf, -np.inf])
    return x.reshape(-1)


HALF_AT = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,),
           "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
           "IQ4_NL": (0,), "IQ4_XS": (0,)}


def halves(r, n):
    kind = int(r.integers(4))
    if kind == 0:
        h = (r.standard_normal(n) * 0.01).astype(np.float16)
    elif kind == 1:
        h = r.integers(0, 0x7C00, n).astype(np.uint16).view(np.float16)
    elif kind == 2:
        h = r.integers(0, 0x400, n).astype(np.uint16).view(np.float16)
    else:
        h = pick(r, [0.0, -0.0, 65504.0, 1.0, 2.0 ** -24]) * np.ones(n, np.float16)
    h = h.astype(np.float16)
    return np.where(r.random(n) < 0.3, -h, h).astype(np.float16)


def weight_bytes(r, kind, rows, n):
    count = rows * n
    if kind == "F32":
        return mixed(r, count).view(np.uint8)
    if kind == "F16":
        return halves(r, count).view(np.uint8)
    if kind == "BF16":
        return (mixed(r, count).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    elements, size = weights.TYPES[kind][:2]
    b = r.integers(0, 256, (count // elements, size), dtype=np.uint8)
    if r.random() < 0.1:
        b[:] = pick(r, [0, 255])
    for at in HALF_AT.get(kind, ()):
        b[:, at:at + 2] = halves(r, len(b))[:, None].view(np.uint8)
    if kind == "MXFP4":
        b[:, 0] = np.minimum(b[:, 0], 252)
    return b.reshape(-1)


def elementary(r, big):
    fn = pick(r, ["exp", "sigmoid", "silu", "gelu", "tanh", "softplus"])
    n = int(r.integers(1, 600))
    kind = int(r.integers(3))
    x = any_bits(r, n) if kind == 0 else (r.uniform(-120, 120, n) if kind == 1
                                          else r.standard_normal(n) * 4).astype(F32)
    x[: n // 20] = pick(r, [np.nan, np.inf, -np.inf, 0.0, -0.0, 89.0, -110.0])
    return {"op": "elementary", "fn": fn, "x": x}


def elementary64(r, big):
    fn = pick(r, ["log", "exp2", "sin", "cos"])
    n = int(r.integers(1, 60))
    kind = int(r.integers(3))
    if kind == 0:
        x = r.integers(0, 2 ** 64, n, dtype=np.uint64).view(np.float64).copy()
    elif fn == "log":
        x = np.abs(r.standard_normal(n)) * 2.0 ** r.uniform(-1080 if kind == 1 else -3, 3, n)
    elif fn == "exp2":
        x = r.uniform(-1080, 1030, n) if kind == 1 else np.rint(r.uniform(-40, 40, n) * 2) / 2
    else:
        x = r.uniform(-2.0 ** 30, 2.0 ** 30, n) if kind == 1 else np.rint(r.uniform(0, 99, n)) * np.pi / 2
    x[: n // 20] = pick(r, [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 2.0 ** 30])
    return {"op": "elementary64", "fn": fn, "x": x}


def convert(r, big):
    fn = pick(r, ["f16_to_f32", "bf16_to_f32", "f32_to_f16"])
    n = int(r.integers(1, 300))
    if fn == "f32_to_f16":
        x = any_bits(r, n)
        if r.random() < 0.7:
            x = (r.standard_normal(n) * 2.0 ** r.uniform(-26, 17, n)).astype(F32)
            tie = x.view(np.uint32) & np.uint32(0xFFFFE000) | np.uint32(0x1000)
            x = np.where(r.random(n) < 0.4, tie.view(F32), x).astype(F32)
        return {"op": "convert", "fn": fn, "x": x}
    return {"op": "convert", "fn": fn, "x": r.integers(0, 256, 2 * n, dtype=np.uint8)}


def dequantize(r, big):
    kind = pick(r, CODED)
    n = int(r.integers(1, 5)) * max(1, weights.TYPES[kind][0]) * pick(r, [1, 3])
    return {"op": "dequantize", "type": kind, "n": n, "w": weight_bytes(r, kind, int(r.integers(1, 5)), n)}


def embed(r, big):
    kind, vocab = pick(r, CODED), int(r.integers(1, 9))
    n = int(r.integers(1, 4)) * (weights.TYPES[kind][0] if weights.TYPES[kind][0] > 1 else 48)
    tokens = r.integers(0, vocab, width(r, big)).astype(np.int32)
    scale = pick(r, [1.0, float(F32(np.sqrt(float(n)))), 0.3, -7.5])
    return {"op": "embed", "type": kind, "n": n, "w": weight_bytes(r, kind, vocab, n),
            "tokens": tokens, "scale": one(scale)}


def rms_norm(r, big):
    rows, group = width(r, big), pick(r, [32, 48, 64, 80, 128, 256, 288, 300, 512, 576, 1152, 2048])
    groups = pick(r, [1, 1, 2, 3])
    x = spoil(r, mixed(r, rows * group * groups), rows)
    if r.random() < 0.05:
        x[:: group] = F32(3e38)  # the sum overflows
    return {"op": "rms_norm", "n": group * groups, "group": group, "x": x,
            "weight": normal(r, group, 2), "eps": one(pick(r, [1e-5, 1e-6, 0.0, 1.0]))}


def quantize_activations(r, big):
    form, rows = pick(r, [32, 256]), width(r, big)
    n = form * int(r.integers(1, 7))
    x = np.concatenate([mixed(r, n) for _ in range(rows)])
    return {"op": "quantize_activations", "form": form, "n": n, "x": spoil(r, x, rows, 0.3)}


def matmul_of(kind):
    def make(r, big):
        rows, form = width(r, big), weights.TYPES[kind][2]
        n_out = int(r.integers(1, 12 if rows < 31 else 5 if rows <= 100 else 3))
        if form == 256:
            n_in = 256 * pick(r, [1, 2, 3, 5, 8, 9, 11] + ([16, 23] if big else []))
        else:
            n_in = 32 * pick(r, [1, 2, 3, 7, 8, 9, 11, 16, 23, 40] + ([71, 80] if big else []))
        if form == 0 and r.random() < 0.3:
            n_in = int(r.integers(1, 200))
        x = spoil(r, np.concatenate([mixed(r, n_in) for _ in range(rows)]), rows)
        q = {"op": "matmul", "type": kind, "n_in": n_in, "n_out": n_out,
             "w": weight_bytes(r, kind, n_out, n_in), "x": x}
        if r.random() < 0.3:
            q["bias"] = normal(r, n_out, 4)
        return q
    return make


def spec(r, n_rot):
    scaling = pick(r, ["none", "linear", "llama3", "yarn"])
    q = {"n_rot": n_rot, "scaling": scaling,
         "base": one(pick(r, [10000.0, 500000.0, 1000000.0, 10.0, float(r.uniform(2, 1e6))]))}
    if scaling != "none":
        q["factor"] = one(pick(r, [8.0, 32.0, 4.0, 0.5, 1.0, float(r.uniform(0.3, 40))]))
    if r.random() < 0.3:
        q["factors"] = r.uniform(0.5, 40, n_rot // 2).astype(F32)
    if scaling in ("llama3", "yarn"):
        q["ctx"] = pick(r, [8192, 4096, 32768, 100, int(r.integers(1, 200000))])
    if scaling == "llama3" and r.random() < 0.7:
        q["low"], q["high"] = one(pick(r, [1.0, 0.5, 2.0])), one(pick(r, [4.0, 3.3, 8.0]))
    if scaling == "yarn" and r.random() < 0.7:
        q["ext"], q["attn"] = one(pick(r, [1.0, 0.0, 0.7])), one(pick(r, [1.0, 1.2, 0.37]))
        q["beta_fast"], q["beta_slow"] = one(pick(r, [32.0, 20.0])), one(pick(r, [1.0, 2.5]))
    return q


def position(r):
    return pick(r, [0, 1, 63, 64, 1023, 1024, 131071, int(r.integers(0, 2 ** 20)), int(r.integers(0, 9999))])


def rope_frequencies(r, big):
    return {"op": "rope_frequencies", **spec(r, pick(r, [32, 48, 64, 80, 128, 256, 2, 6]))}


def rope_row(r, big):
    at = position(r) if r.random() < 0.9 else 2 ** 31 - 5
    return {"op": "rope_row", "position": at, **spec(r, pick(r, [32, 48, 64, 80, 128, 2]))}


def rope(r, big):
    dim = pick(r, [32, 48, 64, 80, 128])
    n_rot = pick(r, [dim, dim, dim // 2, 2])
    rows, heads = pick(r, WIDTHS[:20] if big else WIDTHS[:6]), int(r.integers(1, 5))
    return {"op": "rope", "pairing": pick(r, ["adjacent", "halves"]), "n_head": heads, "head_dim": dim,
            "first_position": position(r), "x": mixed(r, rows * heads * dim), **spec(r, n_rot)}


def kv_write(r, big):
    kind, dim = pick(r, ["f32", "f16", "q8_0", "q4_0"]), pick(r, [32, 64, 96, 128, 256])
    if kind in ("f32", "f16"):
        dim = pick(r, [32, 48, 64, 80, 128, 256])
    rows = width(r, big)
    x = np.concatenate([mixed(r, dim) for _ in range(rows)])
    if r.random() < 0.2:
        x = x * F32(2.0 ** int(r.integers(0, 80)))
    return {"op": "kv_write", "kv_type": kind, "head_dim": dim, "x": spoil(r, x, rows, 0.3)}


def attention_of(far):
    def make(r, big):
        dim = pick(r, [32, 64, 128, 256] if r.random() < 0.6 else [48, 80, 96, 112, 40, 33, 8])
        types = ["f32", "f16"] + (["q8_0", "q4_0"] if dim % 32 == 0 else [])
        kv, groups = pick(r, [1, 1, 2]), pick(r, [1, 2, 3])
        rows = pick(r, [1, 2, 3, 5, 9, 17, 31, 32, 33] if r.random() < 0.95 else [64, 100] + (WIDER if big else []))
        first = pick(r, [0, 1, 7, 62, 63, 64, 100, 127, 128, int(r.integers(0, 260))])
        if far:
            dim, kv, groups = pick(r, [32, 48]), 1, pick(r, [1, 2])
            types, rows = ["f32", "f16"] + (["q8_0", "q4_0"] if dim == 32 else []), pick(r, [1, 2, 4])
            first = pick(r, [1022, 1023, 1024, 1087, 1100] + ([2046, 2050, 3071, 3100] if big else []))
        elif dim >= 128:
            rows = min(rows, 5)
        n, heads = first + rows, kv * groups
        spread = pick(r, [0, 0, 3])
        k, v, q = normal(r, n * kv * dim, spread), normal(r, n * kv * dim, spread), normal(r, rows * heads * dim)
        if r.random() < 0.1:
            q = q * F32(1e30) if r.random() < 0.5 else q * F32(200)
        if r.random() < 0.1:
            q = q * F32(0)  # equal scores, zeros of both signs
        window = 0 if r.random() < 0.5 else pick(r, [1, 2, 5, 63, 64, 65, 100, 512, 1024])
        return {"op": "attention", "k_type": pick(r, types), "v_type": pick(r, types), "n_head": heads,
                "n_head_kv": kv, "head_dim": dim, "first_position": first,
                "scale": one(attention.default_scale(dim) if r.random() < 0.8 else 0.0625),
                "softcap": one(pick(r, [0.0, 0.0, 50.0, 3.0])), "window": window,
                "k": k, "v": v, "q": spoil(r, q, rows, 0.05)}
    return make


def add(r, big):
    n = int(r.integers(1, 2000))
    a, b = (any_bits(r, n), any_bits(r, n)) if r.random() < 0.3 else (mixed(r, n), mixed(r, n))
    return {"op": "add", "a": a, "b": b}


def gated_act(r, big):
    rows, n = width(r, big), int(r.integers(1, 130))
    gate = spoil(r, mixed(r, rows * n), rows) * F32(pick(r, [1, 1, 10]))
    return {"op": "gated_act", "act": pick(r, ["silu", "gelu"]), "n": n, "gate": gate, "up": mixed(r, rows * n)}


def softcap(r, big):
    rows, n = width(r, big), int(r.integers(1, 130))
    return {"op": "softcap", "cap": one(pick(r, [30.0, 50.0, 1.0, 0.7])), "n": n,
            "x": spoil(r, mixed(r, rows * n) * F32(pick(r, [1, 10, 100])), rows)}


def check_logits(r, big):
    rows, n = width(r, big), int(r.integers(1, 300))
    return {"op": "check_logits", "n": n, "x": spoil(r, mixed(r, rows * n), rows, 0.7)}


# name, maker, trials of the default run
PLAN = ([("elementary", elementary, 180), ("elementary64", elementary64, 120), ("convert", convert, 90),
         ("dequantize", dequantize, 130), ("embed", embed, 110), ("rms_norm", rms_norm, 150),
         ("quantize_activations", quantize_activations, 160), ("rope_frequencies", rope_frequencies, 80),
         ("rope_row", rope_row, 60), ("rope", rope, 100), ("kv_write", kv_write, 120), ("add", add, 80),
         ("gated_act", gated_act, 90), ("softcap", softcap, 70), ("check_logits", check_logits, 50),
         ("attention", attention_of(False), 110), ("attention far", attention_of(True), 20)]
        + [("matmul " + kind, matmul_of(kind), 48) for kind in CODED])
