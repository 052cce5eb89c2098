"""bench/auto_depth.py: its suite, its statistics, and a whole run on a tiny model."""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import cli

SCRIPT = cli.ROOT / "bench/auto_depth.py"


def load():
    spec = importlib.util.spec_from_file_location("auto_depth", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows_of(rates, sha=("a", "a")):
    """One cell: pairs of (plain, drafted) tokens a second."""
    rows = []
    for pair, (plain, drafted) in enumerate(rates):
        for arm, rate, hash in (("plain", plain, sha[0]), ("drafted", drafted, sha[1])):
            rows.append({"prompt": "p", "repeats": True, "temperature": "0", "source": "ngram", "pair": pair, "arm": arm,
                         "token_sha256": hash, "generated_tokens": 9, "decode_tok_s": rate,
                         "draft": {"drafted": 6, "accepted": 4, "depths": [2, 0, 3]} if arm == "drafted" else
                                  {"drafted": 0, "accepted": 0, "depths": [9]}})
    return rows


class Statistics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bench = load()

    def test_the_suite_has_what_it_promises(self):
        prompts = self.bench.load_suite(cli.ROOT / "bench/suite/auto_depth.json")
        self.assertEqual(len(prompts), 24)
        self.assertGreaterEqual(sum(p["repeats"] for p in prompts), 8)
        self.assertGreaterEqual(sum(not p["repeats"] for p in prompts), 8)
        self.assertEqual({p["kind"] for p in prompts}, set(self.bench.KINDS))

    def test_a_suite_that_makes_no_sense_is_refused(self):
        good = {"id": "a", "kind": "story", "repeats": False, "text": "x"}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "suite.json"
            for text, says in (("{", "not JSON"), ("[]", "prompts"), ('{"prompts": []}', "prompts"),
                               (json.dumps({"prompts": [{**good, "kind": "poem"}]}), "poem"),
                               (json.dumps({"prompts": [{**good, "repeats": 1}]}), "repeats"),
                               (json.dumps({"prompts": [good, good]}), "twice")):
                path.write_text(text)
                with self.subTest(text), self.assertRaisesRegex(self.bench.Failure, says):
                    self.bench.load_suite(path)

    def test_share_of_what_was_seen_before(self):
        share = self.bench.seen_share
        self.assertEqual(share([1, 2, 3, 4, 5], []), 0.0)
        self.assertEqual(share([1, 2, 3, 4, 5], [6, 7, 8, 9]), 0.0)
        # The first three end 4-grams that begin in the prompt's tail; the others are copies.
        self.assertEqual(share([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6]), 3 / 6)
        self.assertEqual(share([9, 9, 9, 9], [9, 9]), 1.0)
        self.assertEqual(share([], [1, 2, 3, 4, 1, 2, 3, 4]), 1 / 8)   # of the answer itself too

    def test_runs_alternate_and_ratios_are_of_pairs(self):
        order = [arm[0] for pair in range(4) for arm in self.bench.order_of(pair)]
        self.assertEqual("".join(order), "pddppddp")
        pairs = [{"plain": 10, "drafted": 20}, {"plain": 10, "drafted": 11}, {"plain": 40, "drafted": 60}]
        self.assertEqual(self.bench.ratio_of(pairs), 1.5)
        self.assertIsNone(self.bench.ratio_of([{"plain": 0, "drafted": 5}]))

    def test_a_line_says_what_happened(self):
        s = self.bench.summary(rows_of([(10, 20), (10, 30)]), 0.5)
        self.assertEqual(s["depths"][:4], [4, 0, 6, 0])
        self.assertEqual(self.bench.line(s), "| p | yes | 0 | ngram | 9 | 50 % | 2.500 | 8/12 | 1.20 | 0:4 2:6 | identical |")
        self.assertIn("DIFFERENT", self.bench.line(self.bench.summary(rows_of([(1, 1)], sha=("a", "b")), 0)))
        self.assertEqual(self.bench.medians([s, {**s, "ratio": 0.9}, {**s, "ratio": None}, {**s, "repeats": False}]),
                         ["repeating prompts, T=0, ngram: median ratio 1.700, least 0.900, of 2",
                          "free prompts, T=0, ngram: median ratio 2.500, least 2.500, of 1"])


class WholeRun(cli.CliTest):
    def bench(self, folder, *arguments):
        return subprocess.run([sys.executable, SCRIPT, "--lockstep", cli.BINARY, "-m", "synth:llama-tiny@q4_0", "-t", "1",
                               "--out", pathlib.Path(folder) / "rows.jsonl", "--complete", *map(str, arguments)],
                              capture_output=True, text=True, timeout=300, env=cli.clean_environment())

    def test_on_a_tiny_model(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.bench(folder, "--only", "story-mill,list-verses", "--pairs", 2, "-n", 12, "--sources", "ngram,suffix")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = [json.loads(line) for line in (pathlib.Path(folder) / "rows.jsonl").read_text().splitlines()]
        self.assertEqual(len(rows), 2 * 2 * 2 * 4)   # prompts, temperatures, sources, runs
        self.assertEqual([row["arm"] for row in rows[:4]], ["plain", "drafted", "drafted", "plain"])
        self.assertEqual({row["identity"]["depth"]["policy"] for row in rows if row["arm"] == "drafted"}, {"auto"})
        self.assertEqual({row["draft"]["source"] for row in rows if row["arm"] == "plain"}, {""})
        self.assertEqual(done.stdout.count("identical"), 8)

    def test_failures_are_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments, says in ((["--only", "nothing"], "nothing"), (["--pairs", "0"], "--pairs"),
                                    (["--suite", "/no/such"], "/no/such"), (["--sources", "frob"], "frob")):
                with self.subTest(arguments):
                    done = self.bench(folder, *arguments)
                    self.assertEqual(done.returncode, 1)
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertIn(says, done.stderr)


if __name__ == "__main__":
    unittest.main()
