#!/usr/bin/env python3
"""Makes vectors/weight_types.json from docs/numerics/weight-types.md alone.

Each formula below is the page's own. Factors are exact in binary64, and a sum or difference of two
binary32 values that is rounded to binary64 and then to binary32 equals the one rounding the law asks
for (53 >= 2*24 + 2), so plain Python floats are exact enough.

Usage: make_weight_type_vectors.py [--check] FILE     (--check compares instead of writing)
"""

import hashlib
import json
import struct
import sys

T = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
F = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]


def f16(b, a):
    return struct.unpack_from("<e", b, a)[0]


def signed(byte):
    return byte - 256 if byte > 127 else byte


def bit(x, k):
    return (x >> k) & 1


def f32(b):
    return list(struct.unpack("<f", b))


def half(b):
    return [f16(b, 0)]


def bf16(b):
    return list(struct.unpack("<f", b"\0\0" + b))


def q4_0(b):
    return [f16(b, 0) * (((b[2 + i % 16] >> 4 * (i // 16)) & 15) - 8) for i in range(32)]


def q4_1(b):
    return [f16(b, 0) * ((b[4 + i % 16] >> 4 * (i // 16)) & 15) + f16(b, 2) for i in range(32)]


def q5_0(b):
    low = [(b[6 + i % 16] >> 4 * (i // 16)) & 15 for i in range(32)]
    return [f16(b, 0) * ((low[i] | bit(b[2 + i // 8], i % 8) << 4) - 16) for i in range(32)]


def q5_1(b):
    low = [(b[8 + i % 16] >> 4 * (i // 16)) & 15 for i in range(32)]
    return [f16(b, 0) * (low[i] | bit(b[4 + i // 8], i % 8) << 4) + f16(b, 2) for i in range(32)]


def q8_0(b):
    return [f16(b, 0) * signed(b[2 + i]) for i in range(32)]


def iq4_nl(b):
    return [f16(b, 0) * T[(b[2 + i % 16] >> 4 * (i // 16)) & 15] for i in range(32)]


def mxfp4(b):
    return [2.0 ** (b[0] - 128) * F[(b[1 + i % 16] >> 4 * (i // 16)) & 15] for i in range(32)]


def scales_6bit(s):
    scale = [s[j] & 63 if j < 4 else (s[j + 4] & 15) | (s[j - 4] >> 6) << 4 for j in range(8)]
    least = [s[j + 4] & 63 if j < 4 else (s[j + 4] >> 4) | (s[j] >> 6) << 4 for j in range(8)]
    return scale, least


def q2_k(b):
    d, dmin = f16(b, 80), f16(b, 82)
    code = [(b[16 + 32 * (i // 128) + i % 32] >> 2 * ((i // 32) % 4)) & 3 for i in range(256)]
    return [(d * (b[i // 16] & 15)) * code[i] - (dmin * (b[i // 16] >> 4)) for i in range(256)]


def q3_k(b):
    d, s = f16(b, 108), b[96:108]
    low = [s[j] & 15 if j < 8 else s[j - 8] >> 4 for j in range(16)]
    scale = [(low[j] | ((s[8 + j % 4] >> 2 * (j // 4)) & 3) << 4) - 32 for j in range(16)]

    def code(i):
        low_bits = (b[32 + 32 * (i // 128) + i % 32] >> 2 * ((i // 32) % 4)) & 3
        return (low_bits | bit(b[i % 32], i // 32) << 2) - 4

    return [(d * scale[i // 16]) * code(i) for i in range(256)]


def q4_k(b):
    d, dmin = f16(b, 0), f16(b, 2)
    scale, least = scales_6bit(b[4:16])
    code = [(b[16 + 32 * (i // 64) + i % 32] >> 4 * ((i // 32) % 2)) & 15 for i in range(256)]
    return [(d * scale[i // 32]) * code[i] - (dmin * least[i // 32]) for i in range(256)]


def q5_k(b):
    d, dmin = f16(b, 0), f16(b, 2)
    scale, least = scales_6bit(b[4:16])

    def code(i):
        low = (b[48 + 32 * (i // 64) + i % 32] >> 4 * ((i // 32) % 2)) & 15
        return low | bit(b[16 + i % 32], i // 32) << 4

    return [(d * scale[i // 32]) * code(i) - (dmin * least[i // 32]) for i in range(256)]


def q6_k(b):
    d = f16(b, 208)

    def code(i):
        low = (b[64 * (i // 128) + i % 64] >> 4 * ((i // 64) % 2)) & 15
        high = (b[128 + 32 * (i // 128) + i % 32] >> 2 * ((i // 32) % 4)) & 3
        return (low | high << 4) - 32

    return [(d * signed(b[192 + i // 16])) * code(i) for i in range(256)]


def iq4_xs(b):
    d, h = f16(b, 0), b[2] | b[3] << 8
    scale = [
        (((b[4 + j // 2] >> 4 * (j % 2)) & 15) | ((h >> 2 * j) & 3) << 4) - 32 for j in range(8)
    ]

    def code(i):
        return T[(b[8 + 16 * (i // 32) + i % 16] >> 4 * ((i // 16) % 2)) & 15]

    return [(d * scale[i // 32]) * code(i) for i in range(256)]


# name, GGUF number, elements, bytes, values, places of binary16 fields
TYPES = [
    ("f32", 0, 1, 4, f32, []),
    ("f16", 1, 1, 2, half, []),
    ("bf16", 30, 1, 2, bf16, []),
    ("q4_0", 2, 32, 18, q4_0, [0]),
    ("q4_1", 3, 32, 20, q4_1, [0, 2]),
    ("q5_0", 6, 32, 22, q5_0, [0]),
    ("q5_1", 7, 32, 24, q5_1, [0, 2]),
    ("q8_0", 8, 32, 34, q8_0, [0]),
    ("q2_K", 10, 256, 84, q2_k, [80, 82]),
    ("q3_K", 11, 256, 110, q3_k, [108]),
    ("q4_K", 12, 256, 144, q4_k, [0, 2]),
    ("q5_K", 13, 256, 176, q5_k, [0, 2]),
    ("q6_K", 14, 256, 210, q6_k, [208]),
    ("iq4_nl", 20, 32, 18, iq4_nl, [0]),
    ("iq4_xs", 23, 256, 136, iq4_xs, [0]),
    ("mxfp4", 39, 32, 17, mxfp4, []),
]


def stream(label, n):
    """n bytes that look random and never change."""
    out = b""
    for counter in range((n + 31) // 32):
        out += hashlib.sha256(f"{label} {counter}".encode()).digest()
    return out[:n]


def blocks(name, n_bytes, halves):
    ordinary = bytearray(stream(f"{name} ordinary", n_bytes))
    # The bytes whose codes and sub-scales are greatest in magnitude.
    signed_codes = name in ("q4_0", "q5_0", "iq4_nl", "q3_K", "q6_K", "iq4_xs")
    extreme = bytearray([0x80 if name == "q8_0" else 0 if signed_codes else 0xFF] * n_bytes)
    if name == "q6_K":
        extreme[192:208] = b"\x80" * 16
    tiny = bytearray(stream(f"{name} tiny", n_bytes))
    for k, place in enumerate(halves):
        struct.pack_into("<e", ordinary, place, [0.0123, -0.0456][k])
        struct.pack_into("<e", extreme, place, [65504.0, -65504.0][k])
        struct.pack_into("<H", tiny, place, [0x8003, 0x0155][k])
    if name == "mxfp4":
        ordinary[0], extreme[0], tiny[0] = 120, 252, 0
    if name == "f32":
        extreme, tiny = struct.pack("<I", 0x7F7FFFFF), struct.pack("<I", 0x80000001)
    if name == "f16":
        extreme, tiny = struct.pack("<H", 0x7BFF), struct.pack("<H", 0x8001)
    if name == "bf16":
        ordinary, extreme, tiny = (struct.pack("<H", h) for h in (0x3E91, 0xFF7F, 0x0001))
    return [bytes(ordinary), bytes(extreme), bytes(tiny)]


def main():
    types = []
    for name, number, elements, n_bytes, values, halves in TYPES:
        entry = {
            "name": name,
            "gguf_type": number,
            "block_elements": elements,
            "block_bytes": n_bytes,
            "blocks": [],
        }
        for block in blocks(name, n_bytes, halves):
            bits = [struct.unpack("<I", struct.pack("<f", v))[0] for v in values(block)]
            assert len(bits) == elements
            words = " ".join(f"{b:08x}" for b in bits)
            entry["blocks"].append({"bytes": block.hex(), "values": words})
        types.append(entry)
    text = json.dumps({"law": "ls1", "types": types}, indent=1) + "\n"
    path = sys.argv[-1]
    if "--check" in sys.argv:
        with open(path) as file:
            sys.exit(0 if file.read() == text else f"{path} is not what the formulas give")
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
