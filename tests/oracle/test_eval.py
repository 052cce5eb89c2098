"""`lockstep eval` against the float64 oracle and llama.cpp's recorded figures.

  LOCKSTEP_BIN     the binary (default build/release/lockstep)
  LOCKSTEP_MODELS  the folder with the GGUF files of judge.MODELS (default models/)
  LOCKSTEP_FULL=1  run the oracle anew instead of reading its committed top ids: whole float64 rows,
                   1024 ids of the engine, and a check that the committed ones are still what it gives

A missing binary or model file is a failure, never a skip.
"""
import hashlib
import json
import os
import subprocess
import unittest
from pathlib import Path

import judge

ROOT = judge.HERE.parents[1]
BINARY = Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/release/lockstep"))
MODELS = Path(os.environ.get("LOCKSTEP_MODELS", ROOT / "models"))
FULL = os.environ.get("LOCKSTEP_FULL", "") not in ("", "0")


def run_eval(model_path, ids_path, top):
    if not BINARY.exists():
        raise AssertionError(f"{BINARY}: no such binary; build it or set LOCKSTEP_BIN")
    command = [BINARY, "eval", "-m", model_path, "--ids", ids_path, "--top", str(top), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


class EvalTest:
    """One model; `model` is set below."""

    @classmethod
    def setUpClass(cls):
        cls.path = MODELS / f"{cls.model}.gguf"
        cls.reference = judge.load_reference(cls.model)
        if not cls.path.exists():
            raise AssertionError(f"{cls.path}: no such model file; put it there or set LOCKSTEP_MODELS")
        with open(cls.path, "rb") as f:
            sha256 = hashlib.file_digest(f, "sha256").hexdigest()
        if sha256 != cls.reference["sha256"]:
            raise AssertionError(f"{cls.path}: SHA-256 {sha256} is not the recorded file's {cls.reference['sha256']}")
        cls.form = f"top {judge.TOP_FULL if FULL else judge.TOP_ORACLE}"
        cls.llama = judge.load_llama(cls.model, cls.form)
        cls.result = run_eval(cls.path, judge.ids_path(cls.model), judge.TOP_FULL if FULL else judge.TOP_ENGINE)

    def summary(self, result):
        if not FULL:
            return judge.judge_recorded(self.model, result).summary()
        from oracle import Oracle
        from record import judged_rows
        rows = judged_rows(Oracle(self.path), judge.load_ids(self.model))
        return judge.judge((judge.WholeRows(*r) for r in rows), result).summary()

    def test_as_near_to_float64_as_llama_cpp(self):
        summary = self.summary(self.result)
        print(f"\n{self.model}, {summary['positions']} positions, {self.form}: mean KL {summary['mean_kl']:.6f} "
              f"(llama.cpp {self.llama['mean_kl']:.6f}), top-1 {summary['top1_percent']:.2f} % "
              f"({self.llama['top1_percent']:.2f} %), mean log-probability of the text {summary['mean_next_logprob']:.5f} "
              f"(float64 {summary['oracle_mean_next_logprob']:.5f})")
        self.assertEqual(summary["positions"], self.reference["positions"])
        self.assertEqual(judge.verdict(summary, self.llama), [])

    def test_logprobs_are_those_of_top(self):
        sequences = zip(judge.load_ids(self.model), self.reference["sequences"], self.result["sequences"], strict=True)
        for ids, recorded, sequence in sequences:
            for t in range(recorded["first"], len(ids) - 1):
                for entry in sequence["top"][t]:
                    if entry["id"] == ids[t + 1]:
                        self.assertAlmostEqual(entry["logprob"], sequence["logprobs"][t], delta=1e-6)

    def control(self, result):
        return judge.verdict(judge.judge_recorded(self.model, result).summary(),
                             judge.load_llama(self.model, f"top {judge.TOP_ORACLE}"))

    def test_control_noise_fails(self):
        faults = self.control(judge.with_noise(self.result, self.llama["mean_kl"]))
        self.assertTrue(any("mean KL" in fault for fault in faults), faults)

    def test_control_off_by_one_fails(self):
        self.assertEqual(len(self.control(judge.one_late(self.result))), 2)

    @unittest.skipUnless(FULL, "part of the full run")
    def test_recorded_oracle_is_what_the_oracle_gives(self):
        from oracle import Oracle
        from record import judged_rows
        rows = judged_rows(Oracle(self.path), judge.load_ids(self.model))
        for recorded, (first, following, p) in zip(self.reference["sequences"], rows, strict=True):
            self.assertEqual(recorded["first"], first)
            self.assertEqual(len(recorded["top"]), len(p))
            for i, (ids, logprobs) in enumerate(recorded["top"]):
                self.assertLess(abs(p[i, ids] - logprobs).max(), 1e-5)
                self.assertLess(abs(p[i, following[i]] - recorded["next"][i]), 1e-5)


class SmolLM2(EvalTest, unittest.TestCase):
    model = judge.MODELS[0]


class Gemma3(EvalTest, unittest.TestCase):
    model = judge.MODELS[1]


if __name__ == "__main__":
    unittest.main()
