"""The law's second implementation against the C++ reference, bit for bit.

LOCKSTEP_BUILD: the build directory (default build/release); LOCKSTEP_LAW_OPS: law_ops itself.
LOCKSTEP_FULL=1: the long form."""
import contextlib
import json
import os
import time
import unittest
import zlib
from unittest import mock

import numpy as np

import check_vectors
import controls
import trials
from compare import HERE, LawOps, difference, isas, law_ops_path, shape_of
from law import attention, hashes, ieee, protocol, sampling, weights

FULL = os.environ.get("LOCKSTEP_FULL") == "1"
SEED = 20240601
CONTROL_TRIALS = 80


def request_of(name, make, k, big=False):
    return make(np.random.default_rng([SEED, zlib.crc32(name.encode()), k]), big)


@contextlib.contextmanager
def patched(patches):
    with contextlib.ExitStack() as stack:
        for where, name, wrong in patches:
            stack.enter_context(mock.patch.dict(where, {name: wrong}) if isinstance(where, dict)
                                else mock.patch.object(where, name, wrong))
        yield


class Vectors(unittest.TestCase):
    def test_committed_vectors(self):
        for name, check in check_vectors.ALL.items():
            with self.subTest(name):
                count, first = check()
                print("%-20s %5d vectors" % (name, count))
                self.assertIsNone(first)

    def test_controls(self):
        for name, what, patches in controls.VECTOR_CONTROLS:
            with self.subTest(name, wrong=what), patched(patches):
                self.assertIsNotNone(check_vectors.ALL[name]()[1], "not noticed")


class Ground(unittest.TestCase):
    def test_fma32_is_libm_fmaf(self):
        r = np.random.default_rng(SEED)
        n = 20000
        a, b, c = (trials.any_bits(r, n).copy() for _ in range(3))
        c[: n // 4] = -(a * b)[: n // 4]
        grid = (1 + r.integers(0, 4096, n) / 4096.0).astype(np.float32)
        a[n // 2:], b[n // 2:] = grid[n // 2:], grid[::-1][n // 2:]
        c[n // 2:] = (r.choice([-1, 0, 1], n) * 2.0 ** r.uniform(-70, 3, n))[n // 2:]
        y = ieee.fma32(a, b, c)
        z = np.array([ieee.libm_fmaf(*t) for t in zip(a, b, c)], np.float32)
        same = (ieee.bits32(y) == ieee.bits32(z)) | (np.isnan(y) & np.isnan(z))
        self.assertTrue(same.all(), [v[~same][:1] for v in (a, b, c, y, z)])

    def test_fp8(self):
        self.assertEqual(list(weights.e4m3([0, 1, 7, 8, 0x38, 0x7E, 0x80, 0xFE])),
                         [0, 2 ** -9, 7 * 2 ** -9, 2 ** -6, 1, 448, 0, -448])
        self.assertEqual(float(weights.e8m0(0)), 2.0 ** -127)

    def test_kv_q4_0(self):
        """What the text says of a few blocks."""
        x = np.zeros((5, 32), np.float32)
        x[0, :4] = [-8, 8, 4, -3]          # d = 1: codes 0, min(15, 16), 12, 5
        x[1, 5] = np.float32(2.0 ** -120)  # below the border
        x[2, 0], x[3, 31] = np.inf, 1e7    # faults: an element; f16(d) infinite
        x[4, :2] = [1, -1]                 # the first of the greatest gives the sign
        row, fault = attention.kv_write("q4_0", x)
        self.assertEqual(list(fault), [False, False, True, True, False])
        self.assertEqual(list(row[0][:6]), [0x00, 0x3C, 0x80, 0x8F, 0x8C, 0x85])
        for k in (1, 2, 3):
            self.assertEqual(bytes(row[k]), b"\0\0" + b"\x88" * 16)
        y = attention.kv_read("q4_0", row, 32)
        self.assertEqual(list(y[0][:4]), [-8, 7, 4, -3])
        self.assertEqual(list(y[4][:2]), [1, -0.875])

    def test_the_words_of_sampling_faults(self):
        """Those of the text and of the C++ side (sampler_test)."""
        text = (HERE.parents[1] / "docs/numerics/sampling.md").read_text()
        for row, allowed, words in (([0.0, np.inf], None, "a logit that is not finite"),
                                    ([0.0, 1.0], [], "no token is left to choose from")):
            self.assertEqual(sampling.choose(row, [], 0, allowed=allowed), (None, words))
            self.assertIn("`%s`" % words, text)

    def test_hashes(self):
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        self.assertEqual(hashes.token_sha256([]), empty)
        self.assertEqual(hashes.row_sha256([1.0]), hashes.token_sha256([0x3F800000]))
        k = np.arange(24, dtype=np.uint8).reshape(6, 2, 2)
        want = hashes.token_sha256(np.concatenate([k[3:5].reshape(-1), k[3:5].reshape(-1)]).view("<i4"))
        self.assertEqual(hashes.state_sha256([(k, k, 3)], 5), want)
        self.assertNotEqual(hashes.state_sha256([(k, k, 0)], 5), want)


class Matrix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not law_ops_path().is_file():
            raise AssertionError("law_ops is not built (LOCKSTEP_BUILD, LOCKSTEP_LAW_OPS)")
        cls.ops = [LawOps(isa) for isa in isas()]

    @classmethod
    def tearDownClass(cls):
        codes = [ops.close() for ops in cls.ops]
        assert not any(codes), codes

    def test_equality(self):
        total, started, counts, widths = 0, time.monotonic(), {}, set()
        for name, make, count in trials.PLAN:
            count *= 5 if FULL else 1
            with self.subTest(name):
                for k in range(count):
                    request = request_of(name, make, k, FULL and k % 3 == 0)
                    want = protocol.answer(request)
                    for ops in self.ops:
                        first = difference(request, want, ops.ask(request))
                        self.assertIsNone(first, "--isa %s, trial %d: %s" % (ops.isa, k, first))
                    if request["op"] == "matmul":
                        widths.add(len(request["x"]) // request["n_in"])
                    total += 1
                    counts[name] = counts.get(name, 0) + 1
        for name, count in counts.items():
            print("%-22s %5d trials equal" % (name, count))
        print("%-22s %5d trials equal, each with %s; %.0f s" % (
            "total", total, " and ".join(o.isa for o in self.ops), time.monotonic() - started))
        self.assertGreaterEqual(total, 10000 if FULL else 2000)
        missing = set(trials.WIDTHS + (trials.WIDER if FULL else [])) - widths
        self.assertFalse(missing, "a width that no product had")

    def test_controls(self):
        makers = {name: make for name, make, _ in trials.PLAN}
        seen = set()
        for name, what, patches in controls.CONTROLS:
            with self.subTest(name, wrong=what):
                seen.add(name)
                for k in range(CONTROL_TRIALS):
                    request = request_of(name, makers[name], k)
                    with patched(patches):
                        wrong = protocol.answer(request)
                    got = self.ops[0].ask(request)
                    if difference(request, wrong, got):
                        self.assertIsNone(difference(request, protocol.answer(request), got))
                        break
                else:
                    self.fail("not noticed in %d trials" % CONTROL_TRIALS)
        print("%d wrong laws noticed, and %d by the vectors" % (
            len(controls.CONTROLS), len(controls.VECTOR_CONTROLS)))
        self.assertEqual(seen, set(makers), "an op has no control")

    def test_ops_vectors(self):
        cases = json.loads((check_vectors.VECTORS / "ops.json").read_text())["cases"]
        for n, case in enumerate(cases):
            request = protocol.decode(case["in"], case["in"], False)
            want = protocol.decode(request, case["out"], True)
            with self.subTest(n, op=request["op"]):
                first = difference(request, want, protocol.answer(request))
                self.assertIsNone(first, "this implementation: %s" % first)
                for ops in self.ops:
                    first = difference(request, want, ops.ask(request))
                    self.assertIsNone(first, "--isa %s: %s" % (ops.isa, first))
        print("ops.json             %5d vectors" % len(cases))

    def test_refusals(self):
        for request in ({"op": "nothing"}, {"op": "add", "a": trials.one(1), "b": np.zeros(2, np.float32)}):
            self.assertIn("error", self.ops[0].ask(request), shape_of(request))


if __name__ == "__main__":
    unittest.main()
