"""Architectures of which no real file is at hand, on tiny random models that `lockstep synth` writes:
`lockstep eval` against the float64 oracle, and against llama.cpp's recorded log-probabilities.

  LOCKSTEP_BIN  the binary (default build/release/lockstep)

A missing binary is a failure, never a skip.
"""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import numpy as np

import judge
import tiny
from oracle import Oracle, rope_frequencies

BINARY = Path(os.environ.get("LOCKSTEP_BIN", judge.HERE.parents[1] / "build/release/lockstep"))

# How far a log-probability may be from llama.cpp's: about twice the measured distance. llama.cpp rounds activations to
# f16 where weights are; in q8_0 both round them to int8, and one code that falls on the other side shows.
MOST_FROM_LLAMA = {"f32": 0.0004, "f16": 0.011, "q8_0": 0.12}
CONTROL = 20  # a wrong formula's mean KL is at least this many times what is allowed


class WithoutBias(Oracle):
    def bias(self, name):
        return 0.0


class WithoutOneBias(Oracle):
    def bias(self, name):
        return 0.0 if name.endswith(self.left_out) else super().bias(name)


class WithoutKeyBias(WithoutOneBias):
    left_out = "attn_k"


class WithoutValueBias(WithoutOneBias):
    left_out = "attn_v"


class WithoutHeadNorms(Oracle):
    def head_norm(self, heads, name):
        return heads


class NormAfterAllHeads(Oracle):
    """One norm over the row of all heads, as some architectures have it, with the weight repeated."""

    def head_norm(self, heads, name):
        scale = 1 / np.sqrt(np.mean(heads * heads, axis=(1, 2), keepdims=True) + self.eps)
        return heads * scale * self.tensors[name + ".weight"].vector()


class AdjacentPairs(Oracle):
    def pairing(self):
        return "adjacent"


class WithoutScaling(Oracle):
    def rotation(self):
        return rope_frequencies(self.rope_base, self.head_dim), 1.0


WRONG = {
    "qwen2": (WithoutBias, WithoutKeyBias, WithoutValueBias, AdjacentPairs),
    "qwen3": (WithoutHeadNorms, NormAfterAllHeads, AdjacentPairs),
}


class TinyTest:
    """One architecture; `architecture` is set below."""

    @classmethod
    def setUpClass(cls):
        if not BINARY.exists():
            raise AssertionError(f"{BINARY}: no such binary; build it or set LOCKSTEP_BIN")
        cls.recorded = json.loads(tiny.RECORDED.read_text())["models"]
        cls.specs = [spec for spec in tiny.SPECS if spec.startswith(cls.architecture)]
        cls.exact, cls.engine, cls.wrong = {}, {}, {}
        with tempfile.TemporaryDirectory() as folder:
            ids = tiny.write_ids(folder)
            for spec in cls.specs:
                path, sha256 = tiny.write_model(BINARY, spec, folder)
                if sha256 != cls.recorded[spec]["sha256"]:
                    raise AssertionError(f"{spec}: not the model that llama.cpp was recorded on; run record.py tiny")
                command = [BINARY, "eval", "-m", path, "--ids", ids, "--top", str(tiny.N_VOCAB), "--json"]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode != 0:
                    raise AssertionError(f"{spec}: exit {done.returncode}: {done.stderr.strip()}")
                cls.engine[spec] = tiny.eval_rows(json.loads(done.stdout))
                cls.exact[spec] = tiny.oracle_rows(Oracle(path))
                wrong = WRONG[cls.architecture] + ((WithoutScaling,) if "rope_scaling" in spec else ())
                cls.wrong[spec] = {kind.__name__: tiny.oracle_rows(kind(path)) for kind in wrong}

    def verdict(self, spec, exact, engine):
        return judge.verdict(tiny.figures(exact, engine), self.recorded[spec])

    def distance(self, spec, rows):
        """The greatest difference to llama.cpp's log-probabilities, where they were recorded."""
        picked = rows[::tiny.SAMPLED]
        return max(abs(row[i] - logprob)
                   for row, top in zip(picked, self.recorded[spec]["top"], strict=True) for i, logprob in top)

    def test_as_near_to_float64_as_llama_cpp(self):
        for spec in self.specs:
            with self.subTest(spec):
                ours, llama = tiny.figures(self.exact[spec], self.engine[spec]), self.recorded[spec]
                print(f"\n{spec}: mean KL {ours['mean_kl']:.3e} (llama.cpp {llama['mean_kl']:.3e}), top-1 "
                      f"{ours['top1_percent']:.2f} % ({llama['top1_percent']:.2f} %), "
                      f"from llama.cpp at most {self.distance(spec, self.engine[spec]):.5f}")
                self.assertEqual(self.verdict(spec, self.exact[spec], self.engine[spec]), [])

    def test_near_to_llama_cpp_itself(self):
        for spec in self.specs:
            with self.subTest(spec):
                self.assertLess(self.distance(spec, self.engine[spec]), MOST_FROM_LLAMA[spec.split("@")[1]])

    def test_control_wrong_formulas_are_noticed(self):
        for spec in self.specs:
            allowed = judge.KL_RATIO * self.recorded[spec]["mean_kl"]
            for name, rows in self.wrong[spec].items():
                with self.subTest(spec, formula=name):
                    kl = tiny.figures(self.exact[spec], rows)["mean_kl"]
                    distance = self.distance(spec, rows)
                    print(f"\n{spec}, {name}: mean KL {kl:.3e}, {kl / allowed:.0f} times what is allowed; from llama.cpp "
                          f"at most {distance:.3f}")
                    self.assertGreater(kl, CONTROL * allowed)
                    self.assertGreater(distance, MOST_FROM_LLAMA[spec.split("@")[1]])
                    self.assertNotEqual(self.verdict(spec, rows, self.engine[spec]), [])


class Qwen2(TinyTest, unittest.TestCase):
    architecture = "qwen2"


class Qwen3(TinyTest, unittest.TestCase):
    architecture = "qwen3"


if __name__ == "__main__":
    unittest.main()
