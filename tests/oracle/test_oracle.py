"""The oracle's parts against other ways to the same values. Needs no binary and no model."""
import unittest

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

import oracle


class Formats(unittest.TestCase):
    def test_dequantise_equals_the_gguf_package(self):
        rng = np.random.default_rng(7)
        for name in ("Q4_1", "Q5_0", "Q8_0", "Q4_K", "Q6_K"):
            kind = GGMLQuantizationType[name]
            _, size = GGML_QUANT_SIZES[kind]
            raw = rng.integers(0, 256, (64, 3, size), dtype=np.uint8)
            for at in {"Q4_1": (0, 2), "Q4_K": (0, 2), "Q6_K": (208,)}.get(name, (0,)):
                raw[..., at:at + 2] = rng.normal(0, 0.1, (64, 3, 1)).astype(np.float16).view(np.uint8)
            raw = raw.reshape(64, -1)
            ours, theirs = oracle.dequantise(raw, name), dequantize(raw, kind)
            with self.subTest(name):
                self.assertEqual(ours.shape, theirs.shape)
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


class Formulas(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(11)

    def test_rotation_depends_on_the_distance_alone(self):
        for pairing in ("adjacent", "halves"):
            q, k = self.rng.normal(size=(2, 1, 1, 64))
            frequencies = oracle.rope_frequencies(1e4, 64)
            turned_q, turned_k = (oracle.rotate(np.repeat(x, 9, axis=0), frequencies, pairing) for x in (q, k))
            dots = [float(turned_q[i, 0] @ turned_k[i - 3, 0]) for i in (3, 5, 8)]
            np.testing.assert_allclose(dots, dots[0])

    def test_pairings_are_a_permutation_of_each_other(self):
        x = self.rng.normal(size=(7, 2, 32))
        halves_to_adjacent = np.arange(32).reshape(2, 16).T.ravel()
        frequencies = oracle.rope_frequencies(1e4, 32)
        np.testing.assert_allclose(oracle.rotate(x, frequencies, "halves")[..., halves_to_adjacent],
                                   oracle.rotate(x[..., halves_to_adjacent], frequencies, "adjacent"))

    def test_yarn_keeps_fast_pairs_and_divides_slow_ones(self):
        plain = oracle.rope_frequencies(1e6, 128)
        scaled, magnitude = oracle.yarn(1e6, 128, 8.0, 4096)
        turns = 4096 * plain / (2 * np.pi)
        np.testing.assert_allclose(scaled[turns > 40], plain[turns > 40])
        np.testing.assert_allclose(scaled[turns < 0.8], plain[turns < 0.8] / 8)
        self.assertTrue((np.diff(plain / scaled) > -1e-12).all())
        self.assertAlmostEqual(magnitude, 1.2079441541679836)

    def test_attention_equals_loops(self):
        n, n_head, n_head_kv, dim = 9, 4, 2, 8
        q = self.rng.normal(size=(n, n_head, dim))
        k, v = self.rng.normal(size=(2, n, n_head_kv, dim))
        for window in (0, 4):
            expected = np.zeros((n, n_head, dim))
            for i in range(n):
                keys = range(max(0, i - window + 1) if window else 0, i + 1)
                for h in range(n_head):
                    kv = h // (n_head // n_head_kv)
                    weights = np.exp([0.3 * q[i, h] @ k[j, kv] for j in keys])
                    expected[i, h] = sum(w * v[j, kv] for w, j in zip(weights, keys)) / weights.sum()
            np.testing.assert_allclose(oracle.attention(q, k, v, 0.3, window), expected.reshape(n, -1))

    def test_activations_in_int8(self):
        x = np.array([[127.0, 2.5, 3.5, -0.4, 0.0, 0.0, 0.0, 0.0, -254.0, 1.0, 3.0, 5.1]])
        np.testing.assert_allclose(oracle.quantise_activations(x, 4),
                                   [[127, 2, 4, 0, 0, 0, 0, 0, -254, 0, 4, 6]])


if __name__ == "__main__":
    unittest.main()
