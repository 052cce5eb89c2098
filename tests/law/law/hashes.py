"""Hashes (docs/numerics.md, section 13)."""
import hashlib

import numpy as np


def token_sha256(ids):
    return hashlib.sha256(np.asarray(ids, "<i4").tobytes()).hexdigest()


def row_sha256(row):
    return hashlib.sha256(np.asarray(row, "<f4").tobytes()).hexdigest()


def state_sha256(layers, n):
    """layers: of each (K, V, window), K and V u8 [positions][n_head_kv][row bytes]."""
    h = hashlib.sha256()
    for k, v, window in layers:
        first = max(0, n - window + 1) if window else 0
        for rows in (k, v):
            h.update(np.ascontiguousarray(rows[first:n], np.uint8).tobytes())
    return h.hexdigest()
