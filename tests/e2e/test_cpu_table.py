"""bench/cpu_table.py: its statistics, and a whole run against a peer that is made up."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cli

SCRIPT = cli.ROOT / "bench/cpu_table.py"
PEER = """#!/bin/sh
echo "$@" >> "$0.calls"
echo '[{"samples_ns": [2000000], "n_prompt": 0}]'
"""


def load():
    spec = importlib.util.spec_from_file_location("cpu_table", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Statistics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.table = load()

    # Conover, "Practical Nonparametric Statistics": the ranks for the median at 95 %.
    def test_ranks_of_the_interval(self):
        for n, first, last in ((6, 1, 6), (8, 1, 8), (9, 2, 8), (12, 3, 10), (20, 6, 15), (30, 10, 21)):
            self.assertEqual(self.table.median_interval(list(range(n, 0, -1))), (first, last), n)
        for n in range(1, 6):
            self.assertIsNone(self.table.median_interval(list(range(n))))

    def test_calls_alternate(self):
        order = [tool[0] for pair in range(4) for tool in self.table.order_of(pair)]
        self.assertEqual("".join(order), "lppllppl")

    def test_only_pairs_in_one_state_count(self):
        def pair(a, b, state_a, state_b):
            return {"lockstep": {"tok_s": a, "state": state_a}, "peer": {"tok_s": b, "state": state_b}}
        row = self.table.table_row("m", "w8", "p", [pair(30, 10, "slow", "slow"), pair(99, 1, "fast", "slow"),
                                                    pair(40, 10, "fast", "fast"), pair(50, 10, "fast", "fast")])
        self.assertEqual(row, "| m | w8 | p | 40.00 | 10.00 | 4.000 | (too few) | 3/4 | 2 fast, 1 slow |")
        self.assertIn("no pair in one state", self.table.table_row("m", "w8", "p", [pair(1, 1, "fast", "slow")]))

    def test_states(self):
        self.assertEqual([self.table.state_of([50, 60], x) for x in (None, 55, 55.1)], ["", "fast", "slow"])


class WholeRun(cli.CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model, self.peer = self.folder / "tiny.gguf", self.folder / "llama-bench"
        self.check("synth", "llama-tiny@q4_0", "-o", self.model)
        self.peer.write_text(PEER)
        self.peer.chmod(0o755)

    def table(self, *arguments):
        return subprocess.run([sys.executable, SCRIPT, "--lockstep", cli.BINARY, "-m", self.model, "-t", "1",
                               "--out", self.folder / "rows.jsonl", *map(str, arguments)],
                              capture_output=True, text=True, timeout=300, env=cli.clean_environment())

    def test_against_a_peer_that_is_made_up(self):
        done = self.table("--peer", f"one={self.peer}", "--peer-args", "one=-rtr 1 -fa 1", "--tests", "w4,tg2", "--pairs", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        self.assertEqual([row["tool"] for row in rows], ["lockstep", "one", "one", "lockstep"] * 2)
        self.assertEqual({row["ms"] for row in rows if row["tool"] == "one"}, {2.0})
        self.assertEqual({row["tok_s"] for row in rows if row["tool"] == "one"}, {2000.0, 1000.0})
        self.assertTrue(all(len(row["readings"]) == 2 for row in rows))
        calls = pathlib.Path(f"{self.peer}.calls").read_text().splitlines()
        self.assertEqual(len(calls), 4)
        self.assertTrue(calls[0].endswith("-r 1 -o json -t 1 -p 4 -n 0 -b 512 -ub 512 -rtr 1 -fa 1"), calls[0])
        self.assertTrue(calls[2].endswith("-p 0 -n 2 -rtr 1 -fa 1"), calls[2])
        self.assertEqual(len(done.stdout.splitlines()), 4)
        self.assertTrue(done.stdout.splitlines()[2].startswith("| tiny.gguf | w4 | one | "))

    def test_failures_are_one_line(self):
        for arguments, says in ((["--peer", "x"], "NAME=VALUE"), (["--peer", "x=/no/such"], "/no/such: cannot be run"),
                                (["--peer", f"x={self.peer}", "--tests", "w0"], "w0"),
                                (["--peer", "x=/bin/false"], "exit 1"), (["--peer", "x=/bin/true"], "not JSON"),
                                (["--peer", f"x={self.peer}", "--peer-args", "y=-fa 1"], "no --peer y")):
            with self.subTest(arguments):
                done = self.table("--tests", "w1", "--pairs", "1", *arguments)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(says, done.stderr)


if __name__ == "__main__":
    unittest.main()
