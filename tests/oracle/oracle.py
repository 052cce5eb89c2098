"""Float64 logits of a GGUF model, from the formulas.

An outside reference for Lockstep: it shares no code with the engine and imitates none of its
roundings. Weights are the file's own, dequantised by the block formulas in float64 (exactly, but for
the final add of formats with a minimum); everything after is float64. Architectures: `llama`
(Llama 2/3, SmolLM2), `gemma3`, `qwen2` and `qwen3`; rope scaling: none, linear, and yarn with its
published ramp.
"""
import numpy as np
from gguf import GGUFReader

# ---- block formats: [rows, bytes] uint8 -> [rows, elements] float64 ------------------------------


def _blocks(raw, size):
    return raw.reshape(-1, size)


def _f16(b):
    """Two bytes per block -> one float64 column."""
    return np.ascontiguousarray(b).view(np.float16).astype(np.float64)


def _nibbles(qs):
    """ggml's order for 32-element blocks: all low nibbles, then all high nibbles."""
    return np.concatenate([qs & 15, qs >> 4], axis=1).astype(np.float64)


def _q4_1(raw):
    b = _blocks(raw, 20)  # d, m, 16 bytes of nibbles
    return _f16(b[:, 0:2]) * _nibbles(b[:, 4:]) + _f16(b[:, 2:4])


def _q5_0(raw):
    b = _blocks(raw, 22)  # d, 32 high bits, 16 bytes of nibbles
    high = np.unpackbits(b[:, 2:6], axis=1, bitorder="little").astype(np.float64)
    return _f16(b[:, 0:2]) * (_nibbles(b[:, 6:]) + 16 * high - 16)


def _q8_0(raw):
    b = _blocks(raw, 34)  # d, 32 int8
    return _f16(b[:, 0:2]) * b[:, 2:].view(np.int8).astype(np.float64)


def _q4_k(raw):
    b = _blocks(raw, 144)  # d, dmin, 12 bytes holding 8 scales and 8 minimums of 6 bits, 128 bytes of nibbles
    s = b[:, 4:16]
    scale = np.concatenate([s[:, 0:4] & 63, (s[:, 8:12] & 15) | ((s[:, 0:4] >> 6) << 4)], axis=1)
    minimum = np.concatenate([s[:, 4:8] & 63, (s[:, 8:12] >> 4) | ((s[:, 4:8] >> 6) << 4)], axis=1)
    qs = b[:, 16:].reshape(-1, 4, 1, 32)  # each 32 bytes: low nibbles are one sub-block, high ones the next
    q = np.concatenate([qs & 15, qs >> 4], axis=2).reshape(-1, 8, 32).astype(np.float64)
    d = (_f16(b[:, 0:2]) * scale)[:, :, None]
    m = (_f16(b[:, 2:4]) * minimum)[:, :, None]
    return d * q - m


def _q6_k(raw):
    b = _blocks(raw, 210)  # 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales, d
    low = b[:, 0:128].reshape(-1, 2, 2, 32)  # [half, 32-byte group, byte]
    high = b[:, 128:192].reshape(-1, 2, 32)
    q = np.concatenate([low & 15, low >> 4], axis=2)  # [half, 4 quarters of 32]
    pairs = np.stack([(high >> shift) & 3 for shift in (0, 2, 4, 6)], axis=2)
    q = (q | (pairs << 4)).astype(np.float64).reshape(-1, 16, 16) - 32
    scale = _f16(b[:, 208:210]) * b[:, 192:208].view(np.int8)
    return scale[:, :, None] * q


_FORMATS = {
    "F32": lambda raw: raw.view(np.float32).astype(np.float64),
    "F16": lambda raw: raw.view(np.float16).astype(np.float64),
    "Q4_1": _q4_1, "Q5_0": _q5_0, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q6_K": _q6_k,
}


def dequantise(raw, type_name):
    """[rows, bytes per row] uint8 -> [rows, elements per row] float64."""
    raw = np.ascontiguousarray(raw)
    return _FORMATS[type_name](raw).reshape(raw.shape[0], -1)


class Tensor:
    """A tensor of the file, dequantised anew at every use (float64 copies of a model are large)."""

    def __init__(self, tensor):
        self.type = tensor.tensor_type.name
        self.n_in = int(tensor.shape[0])
        data = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
        self.raw = data.view(np.uint8)  # [out, bytes]
        self.n_out = self.raw.shape[0]

    def rows(self, index):
        return dequantise(self.raw[index], self.type)

    def vector(self):
        return self.rows(slice(None))[0]


# ---- formulas ------------------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rope_frequencies(base, dim):
    return base ** (-np.arange(0, dim, 2) / dim)


def yarn(base, dim, factor, original, turns_kept=32, turns_divided=1):
    """(frequencies, magnitude of cosines and sines), as the YaRN paper's section 3.4 and its reference code.

    Pairs that turn at least `turns_kept` times within the original context keep their frequency, those that
    turn at most `turns_divided` times have it divided by the factor, and a ramp over the pairs' numbers lies between.
    """
    def pair_that_turns(times):
        return dim * np.log(original / (times * 2 * np.pi)) / (2 * np.log(base))

    low = max(np.floor(pair_that_turns(turns_kept)), 0)
    high = min(np.ceil(pair_that_turns(turns_divided)), dim - 1)
    divided = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
    frequencies = rope_frequencies(base, dim)
    return frequencies * (1 - divided) + frequencies / factor * divided, 1 + 0.1 * np.log(factor)


def rotate(x, frequencies, pairing, magnitude=1.0):
    """x [n, heads, head_dim]; pair i turns by position * frequencies[i].

    Pairs are (2i, 2i+1) where the converter permuted Q and K to that order (`adjacent`: llama), or
    (i, i + head_dim/2) (`halves`: the others).
    """
    n, _, dim = x.shape
    angle = np.arange(n)[:, None] * frequencies
    cos, sin = magnitude * np.cos(angle)[:, None, :], magnitude * np.sin(angle)[:, None, :]
    first, second = (
        (slice(0, None, 2), slice(1, None, 2)) if pairing == "adjacent" else (slice(0, dim // 2), slice(dim // 2, None))
    )
    y = np.empty_like(x)
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., first] * sin + x[..., second] * cos
    return y


def attention(q, k, v, scale, window):
    """Causal, grouped heads: q [n, n_head, dim], k and v [n, n_head_kv, dim] -> [n, n_head * dim].

    With a window, a query sees the last `window` positions, its own included.
    """
    n, n_head, dim = q.shape
    n_head_kv = k.shape[1]
    q = q.reshape(n, n_head_kv, n_head // n_head_kv, dim)
    scores = np.einsum("ihgd,jhd->hgij", q, k, optimize=True) * scale
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    visible = distance >= 0
    if window:
        visible &= distance < window
    scores = np.where(visible, scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return np.einsum("hgij,jhd->ihgd", p, v, optimize=True).reshape(n, -1)


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def quantise_activations(x, block, levels=127):
    """What int8 activations in blocks of `block` leave of x: a = max|x|, d = a/levels, round half to even."""
    b = x.reshape(x.shape[0], -1, block)
    a = np.abs(b).max(axis=-1, keepdims=True)
    r = np.divide(levels, a, out=np.zeros_like(a), where=a > 0)
    return (np.rint(b * r) * (a / levels)).reshape(x.shape)


# ---- models --------------------------------------------------------------------------------------


class Oracle:
    """`activation_blocks`: {weight type: block} emulates int8 activations before products with that type.

    `activation_levels` other than 127 give another sample of the same kind of rounding.
    """

    HEAD_CHUNK = 16384

    def __init__(self, path, activation_blocks=None, activation_levels=127):
        self.reader = GGUFReader(path)
        self.tensors = {t.name: Tensor(t) for t in self.reader.tensors}
        self.blocks = activation_blocks or {}
        self.levels = activation_levels
        self.arch = self.reader.fields["general.architecture"].contents()
        if self.arch not in ("llama", "gemma3", "qwen2", "qwen3"):
            raise ValueError(f"{path}: architecture {self.arch} is not known to the oracle")
        scaling = {name.removeprefix(f"{self.arch}.rope.scaling.") for name in self.reader.fields
                   if name.startswith(f"{self.arch}.rope.scaling.")}
        known = self.arch != "gemma3" and scaling <= {"type", "factor", "original_context_length"}
        if (scaling and not known) or "rope_freqs.weight" in self.tensors:
            raise ValueError(f"{path}: this rope scaling is not known to the oracle")
        self.n_embd = self.hparam("embedding_length")
        self.n_layer = self.hparam("block_count")
        self.n_head = self.hparam("attention.head_count")
        self.n_head_kv = self.hparam("attention.head_count_kv", self.n_head)
        self.head_dim = self.hparam("attention.key_length", self.n_embd // self.n_head)
        self.eps = self.hparam("attention.layer_norm_rms_epsilon")
        self.rope_base = self.hparam("rope.freq_base", 10000.0)
        self.n_vocab = self.tensors["token_embd.weight"].n_out

    def hparam(self, name, default=None):
        field = self.reader.fields.get(f"{self.arch}.{name}")
        if field is None and default is None:
            raise ValueError(f"metadata {self.arch}.{name} is missing")
        return default if field is None else field.contents()

    def norm(self, x, name):
        return rms_norm(x, self.tensors[name + ".weight"].vector(), self.eps)

    def linear(self, x, name):
        weight = self.tensors[name + ".weight"]
        return self._activations(x, weight.type) @ weight.rows(slice(None)).T

    def _activations(self, x, weight_type):
        block = self.blocks.get(weight_type)
        return quantise_activations(x, block, self.levels) if block else x

    def hidden(self, sequences):
        """Final normed states of all sequences, one under another [sum of lengths, n_embd]."""
        ids = np.concatenate([np.asarray(s) for s in sequences])
        bounds = np.cumsum([0] + [len(s) for s in sequences])
        spans = [slice(a, b) for a, b in zip(bounds, bounds[1:])]
        x = self.tensors["token_embd.weight"].rows(ids)
        layer = self._gemma3_layer if self.arch == "gemma3" else self._llama_layer
        if self.arch == "gemma3":
            x = x * np.sqrt(self.n_embd)
        for i in range(self.n_layer):
            x = layer(x, i, spans)
        return self.norm(x, "output_norm")

    def head(self, h):
        """Logits [rows, n_vocab]; the embedding is the output matrix where the file has no other."""
        weight = self.tensors.get("output.weight", self.tensors["token_embd.weight"])
        h = self._activations(h, weight.type)
        logits = np.empty((h.shape[0], self.n_vocab))
        for a in range(0, self.n_vocab, self.HEAD_CHUNK):
            chunk = slice(a, min(a + self.HEAD_CHUNK, self.n_vocab))
            logits[:, chunk] = h @ weight.rows(chunk).T
        return logits

    def _heads(self, x, name, n):
        return self.linear(x, name).reshape(x.shape[0], n, self.head_dim)

    # What tells the Qwens from llama. Tests override these to see that each is noticed.

    def rotation(self):
        """(frequencies, magnitude)."""
        kind = self.hparam("rope.scaling.type", "none")
        if kind == "none":
            return rope_frequencies(self.rope_base, self.head_dim), 1.0
        factor = self.hparam("rope.scaling.factor")
        if kind == "linear":
            return rope_frequencies(self.rope_base, self.head_dim) / factor, 1.0
        if kind == "yarn":
            return yarn(self.rope_base, self.head_dim, factor, self.hparam("rope.scaling.original_context_length"))
        raise ValueError(f"rope scaling {kind} is not known to the oracle")

    def pairing(self):
        return "adjacent" if self.arch == "llama" else "halves"

    def bias(self, name):
        """Of the projection `name`, one element per output: Qwen2's q, k and v have one."""
        return self.tensors[name + ".bias"].vector() if self.arch == "qwen2" else 0.0

    def head_norm(self, heads, name):
        """Qwen3's RMS norm over every head of q and k by itself, before the rotation."""
        return self.norm(heads, name) if self.arch == "qwen3" else heads

    def _llama_layer(self, x, i, spans):
        blk = f"blk.{i}."
        a = self.norm(x, blk + "attn_norm")

        def project(name, n):
            y = self.linear(a, blk + name) + self.bias(blk + name)
            return y.reshape(x.shape[0], n, self.head_dim)

        q = self.head_norm(project("attn_q", self.n_head), blk + "attn_q_norm")
        k = self.head_norm(project("attn_k", self.n_head_kv), blk + "attn_k_norm")
        v = project("attn_v", self.n_head_kv)
        frequencies, magnitude = self.rotation()

        def turn(heads):
            return rotate(heads, frequencies, self.pairing(), magnitude)

        heads = np.concatenate([
            attention(turn(q[s]), turn(k[s]), v[s], 1 / np.sqrt(self.head_dim), window=0)
            for s in spans
        ])
        x = x + self.linear(heads, blk + "attn_output")
        f = self.norm(x, blk + "ffn_norm")
        gate, up = self.linear(f, blk + "ffn_gate"), self.linear(f, blk + "ffn_up")
        return x + self.linear(silu(gate) * up, blk + "ffn_down")

    def _gemma3_layer(self, x, i, spans):
        blk = f"blk.{i}."
        is_global = i % 6 == 5  # five layers with a sliding window, then one that sees everything
        base = self.rope_base if is_global else self.hparam("rope.freq_base_swa", 10000.0)
        frequencies = rope_frequencies(base, self.head_dim)
        window = 0 if is_global else self.hparam("attention.sliding_window")
        a = self.norm(x, blk + "attn_norm")
        q = self.norm(self._heads(a, blk + "attn_q", self.n_head), blk + "attn_q_norm")
        k = self.norm(self._heads(a, blk + "attn_k", self.n_head_kv), blk + "attn_k_norm")
        v = self._heads(a, blk + "attn_v", self.n_head_kv)
        heads = np.concatenate([
            attention(rotate(q[s], frequencies, "halves"), rotate(k[s], frequencies, "halves"), v[s],
                      1 / np.sqrt(self.head_dim), window)
            for s in spans
        ])
        x = x + self.norm(self.linear(heads, blk + "attn_output"), blk + "post_attention_norm")
        f = self.norm(x, blk + "ffn_norm")
        gate, up = self.linear(f, blk + "ffn_gate"), self.linear(f, blk + "ffn_up")
        return x + self.norm(self.linear(gelu_tanh(gate) * up, blk + "ffn_down"), blk + "post_ffw_norm")
