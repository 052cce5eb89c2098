"""lockstep lab trace, on a trace that lockstep bench writes here."""
import json
import tempfile
import unittest
from pathlib import Path

from cli import BAD_FILE, BAD_USE, CHECK_FAILED, CliTest, OK, run

MODEL = ["-m", "synth:llama-tiny@q4_0,seed=5", "-t", "1"]


class Trace(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.folder_object = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.folder_object.name)
        cls.trace = cls.folder / "trace.json"
        done = run("bench", *MODEL, "-p", "16", "-n", "4", "-w", "2", "-r", "1", "--trace", cls.trace, "--json")
        assert done.returncode == OK, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder_object.cleanup()

    def test_own_times_add_up(self):
        events = [e for e in json.loads(self.trace.read_text())["traceEvents"] if e["ph"] == "X"]
        passes = [e for e in events if e["cat"] == "pass"]
        result = self.json("lab", "trace", self.trace)
        self.assertEqual(result["schema"], "lockstep.lab.trace/1")
        self.assertEqual(result["events"], len(events))
        self.assertAlmostEqual(sum(g["own_ms"] for g in result["groups"]), result["busy_ms"], 3)
        # Every pass holds its ops, so that the durations are the time about twice.
        self.assertAlmostEqual(result["busy_ms"], sum(e["dur"] for e in passes) / 1e3, 3)
        self.assertAlmostEqual(result["sum_ms"], sum(e["dur"] for e in events) / 1e3, 3)
        self.assertEqual({p["rows"] for p in result["passes"]}, {e["args"]["rows"] for e in passes})
        self.assertEqual(result["crossing"], 0)
        text = self.check("lab", "trace", self.trace).stdout.decode()
        self.assertIn("kinds of pass are mixed", text)

    def test_one_kind_of_pass(self):
        everything = self.json("lab", "trace", self.trace)
        one = self.json("lab", "trace", self.trace, "--rows", 1)
        self.assertEqual(one["events"] + one["left_out"], everything["events"])
        (kind,) = [p for p in everything["passes"] if p["rows"] == 1]
        self.assertAlmostEqual(one["busy_ms"], kind["ms"], 6)
        self.refused("lab", "trace", self.trace, "--rows", 7, says="no pass of 7 rows")

    def test_ops_that_did_not_run(self):
        ops = sorted({g["name"] for g in self.json("lab", "trace", self.trace)["groups"]})
        self.check("lab", "trace", self.trace, "--has", f"{ops[0]},{ops[-1]}")
        out = self.json("lab", "trace", self.trace, "--has", f"{ops[0]},fused_gemv", code=CHECK_FAILED)
        self.assertEqual(out["missing"], ["fused_gemv"])
        self.refused("lab", "trace", self.trace, "--has", ",", says="--has")

    def test_bad_files(self):
        def write(data):
            path = self.folder / "bad.json"
            path.write_bytes(data)
            return path
        good = self.trace.read_bytes()
        for data in (b"\xff\xfe{\0", good.decode().encode("utf-16"), b"hello", b"{}", b"[]", b"\0" * 99, b"[" * 100_000):
            self.refused("lab", "trace", write(data), code=BAD_FILE, says="bad.json")
        self.refused("lab", "trace", write(b""), code=BAD_FILE, says="bad.json")
        self.refused("lab", "trace", self.folder, code=BAD_FILE, says="directory")
        self.refused("lab", "trace", code=BAD_USE, says="no trace")
        half = self.json("lab", "trace", write(good[:len(good) // 2]))
        self.assertTrue(half["cut_off"])
        self.assertGreater(half["events"], 0)


if __name__ == "__main__":
    unittest.main()
