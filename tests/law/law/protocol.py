"""The requests of PROTOCOL.md answered by this implementation. Arrays are numpy arrays."""
import base64

import numpy as np

from . import attention as A
from . import elementary as E
from . import elementary64 as D
from . import ieee as M
from . import matmul as P
from . import ops as O
from . import rope as R
from . import weights as W

F64_FIELDS = {("elementary64", "x"), ("elementary64", "y"), ("rope_frequencies", "f")}
F32_FIELDS = {"x", "y", "scale", "weight", "eps", "d", "bias", "base", "factor", "factors", "low",
              "high", "ext", "attn", "beta_fast", "beta_slow", "mscale", "cos", "sin", "softcap",
              "k", "v", "a", "b", "gate", "up", "cap"}
OTHER = {"tokens": "<i4", "sums": "<i4", "w": "u1", "row": "u1", "fault": "u1"}
SPEC = ("n_rot", "base", "scaling", "factor", "factors", "low", "high", "ctx", "ext", "attn",
        "beta_fast", "beta_slow")


def dtype_of(request, name, answer):
    op = request["op"]
    if (op, name) in F64_FIELDS:
        return "<f8"
    if op == "convert" and name in ("x", "y"):
        is_half = request["fn"] != "f32_to_f16"
        return "u1" if is_half != answer else "<f4"
    if name == "q":
        return "i1" if answer else "<f4"
    return OTHER.get(name) or ("<f4" if name in F32_FIELDS else None)


def encode(request, fields, answer):
    out = {}
    for name, value in fields.items():
        if isinstance(value, np.ndarray):
            kind = dtype_of(request, name, answer)
            value = base64.b64encode(np.ascontiguousarray(value).astype(kind).tobytes()).decode()
        out[name] = value
    return out


def decode(request, fields, answer):
    out = {}
    for name, value in fields.items():
        kind = dtype_of(request, name, answer) if isinstance(value, str) else None
        out[name] = np.frombuffer(base64.b64decode(value), kind) if kind else value
    return out


def _spec(q):
    fields = {}
    for name in SPEC:
        if name in q:
            v = q[name]
            fields[name] = v[0] if isinstance(v, np.ndarray) and name != "factors" else v
    return R.Spec(**fields)


def _elementary(q):
    return {"y": E.FUNCTIONS[q["fn"]](q["x"])}


def _elementary64(q):
    return {"y": D.FUNCTIONS[q["fn"]](q["x"])}


def _convert(q):
    if q["fn"] == "f32_to_f16":
        return {"y": E.f32_to_f16(q["x"]).astype("<u2").view(np.uint8)}
    half = np.ascontiguousarray(q["x"]).view("<u2")
    return {"y": (E.f16_to_f32 if q["fn"] == "f16_to_f32" else E.bf16_to_f32)(half)}


def _dequantize(q):
    return {"y": W.dequantize(q["type"], q["n"], q["w"].tobytes())}


def _embed(q):
    return {"y": O.embed(q["type"], q["n"], q["w"].tobytes(), q["tokens"], q["scale"][0])}


def _rms_norm(q):
    y, fault = O.rms_norm(q["group"], q["x"].reshape(-1, q["n"]), q["weight"], q["eps"][0])
    return {"y": y, "fault": fault}


def _quantize(q):
    codes, d, fault = P.quantize(q["form"], q["x"].reshape(-1, q["n"]))
    return {"q": codes, "d": d, "sums": P.sums(codes), "fault": fault}


def _matmul(q):
    y, fault = P.matmul(q["type"], q["n_in"], q["n_out"], q["w"].tobytes(),
                        q["x"].reshape(-1, q["n_in"]), q.get("bias"))
    return {"y": y, "fault": fault}


def _frequencies(q):
    s = _spec(q)
    m, applies = R.magnitude(s)
    return {"f": R.frequencies(s), "mscale": np.array([m]), "scaled": bool(applies)}


def _rope_row(q):
    c, s = R.row(_spec(q), q["position"])
    return {"cos": c, "sin": s}


def _rope(q):
    x = q["x"].reshape(-1, q["n_head"] * q["head_dim"])
    return {"y": R.rope(_spec(q), q["pairing"], q["n_head"], q["head_dim"], q["first_position"], x)}


def _kv_write(q):
    row, fault = A.kv_write(q["kv_type"], q["x"].reshape(-1, q["head_dim"]))
    y = A.kv_read(q["kv_type"], row, q["head_dim"])
    y = M.fma32(np.float32(1), y, np.float32(0)) / np.float32(1)
    return {"row": row, "y": y, "fault": fault}


def _attention(q):
    dim, heads_kv = q["head_dim"], q["n_head_kv"]
    cache = []
    for name in ("k", "v"):
        row, fault = A.kv_write(q[name + "_type"], q[name].reshape(-1, dim))
        assert not fault.any()
        cache.append(A.kv_read(q[name + "_type"], row, dim).reshape(-1, heads_kv * dim))
    y, fault = A.attention(q["q"].reshape(-1, q["n_head"] * dim), *cache, q["n_head"], heads_kv, dim,
                           q["first_position"], q["scale"][0], q["softcap"][0], q["window"])
    return {"y": y, "fault": fault}


def _add(q):
    return {"y": O.add(q["a"], q["b"])}


def _gated_act(q):
    y, fault = O.gated_act(q["act"], q["gate"].reshape(-1, q["n"]), q["up"].reshape(-1, q["n"]))
    return {"y": y, "fault": fault}


def _softcap(q):
    y, fault = O.softcap(q["cap"][0], q["x"].reshape(-1, q["n"]))
    return {"y": y, "fault": fault}


def _check_logits(q):
    return {"fault": O.check_logits(q["x"].reshape(-1, q["n"]))}


OPS = {"elementary": _elementary, "elementary64": _elementary64, "convert": _convert,
       "dequantize": _dequantize, "embed": _embed, "rms_norm": _rms_norm,
       "quantize_activations": _quantize, "matmul": _matmul, "rope_frequencies": _frequencies,
       "rope_row": _rope_row, "rope": _rope, "kv_write": _kv_write, "attention": _attention,
       "add": _add, "gated_act": _gated_act, "softcap": _softcap, "check_logits": _check_logits}


def answer(request):
    out = OPS[request["op"]](request)
    return decode(request, encode(request, out, True), True)
