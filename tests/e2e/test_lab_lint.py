"""lab lint: V1 to V12 on result files and ledger rows. Every outcome of every rule is in tests/lab/lint/."""
import json
import tempfile
import unittest
from pathlib import Path

import cli
from cli import BAD_FILE, BAD_USE, CHECK_FAILED, CliTest, OK, RESOURCE, run

TABLE = cli.ROOT / "tests/data/lab/gemma4-b70-runs.csv"
MODEL = ["-m", "synth:llama-tiny@q4_0,seed=5", "-t", "1"]
RULES = [f"V{i}" for i in range(1, 13)]


class Lint(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.folder_object = tempfile.TemporaryDirectory()
        cls.folder = Path(cls.folder_object.name)
        for name, flags in (("plain", []), ("draft", ["--spec-type", "ngram", "--spec-draft-n-max", "4"])):
            done = run("run", *MODEL, "-p", "hello hello hello", "-n", "24", "-s", "1", "--temp", "0", "--json", *flags)
            assert done.returncode == OK, done.stderr
            (cls.folder / f"{name}.json").write_bytes(done.stdout)
        cls.ledger = str(cls.folder / "ledger.db")
        done = run("lab", "import", TABLE, cls.folder / "plain.json", "--ledger", cls.ledger)
        assert done.returncode == OK, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder_object.cleanup()

    def file(self, name, value):
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def lint(self, *arguments, code=CHECK_FAILED, ledger=None):
        """Outcomes and sentences of each row, by rule."""
        result = self.json("lab", "lint", *arguments, *(["--ledger", ledger] if ledger else []), code=code)
        self.assertEqual(result["schema"], "lockstep.lab.lint/1")
        rows = []
        for row in result["rows"]:
            self.assertEqual([r["rule"] for r in row["rules"]], RULES)
            for rule in row["rules"]:
                self.assertTrue(rule["sentence"])
                self.assertEqual(rule["do"] is None, rule["outcome"] == "holds", rule)
            rows.append({r["rule"]: (r["outcome"], r["sentence"]) for r in row["rules"]})
        outcomes = [o for row in rows for o, _ in row.values()]
        self.assertEqual([result[k] for k in ("holds", "fails", "unknown")],
                         [outcomes.count(k) for k in ("holds", "fails", "unknown")])
        return rows

    def expect(self, row, **outcomes):
        for rule, (outcome, says) in outcomes.items():
            self.assertEqual(row[rule][0], outcome, row[rule])
            self.assertIn(says, row[rule][1])

    def test_our_own_result(self):
        (row,) = self.lint(self.folder / "draft.json", "--oracle", self.folder / "plain.json")
        self.expect(row, V1=("holds", "first row"), V2=("holds", "2 witnesses"), V4=("holds", "complete"),
                    V5=("holds", "oracle's"), V6=("holds", "accepted"), V7=("holds", "n - 1"), V8=("holds", "24 tokens"),
                    V9=("fails", "made up"), V10=("holds", "drafted with ngram"))

    def test_one_changed_token_fails(self):
        changed = json.loads((self.folder / "draft.json").read_text())
        changed["result"]["token_sha256"] = "0" * 64
        (row,) = self.lint(self.file("changed.json", changed), "--oracle", self.folder / "plain.json")
        self.expect(row, V5=("fails", "not the oracle's"))
        # An oracle that drafted is none.
        (row,) = self.lint(self.folder / "plain.json", "--oracle", self.folder / "draft.json")
        self.expect(row, V5=("unknown", "drafting on"))

    def test_counts_that_do_not_add_up(self):
        for field, value in (("accepted", 99), ("steps", 5), ("drafted", 16)):
            changed = json.loads((self.folder / "draft.json").read_text())
            changed["result"]["draft"][field] = value
            with self.subTest(field):
                (row,) = self.lint(self.file("counts.json", changed))
                self.expect(row, V6=("fails", "does not add up"))

    def test_a_planted_cached_prefix_is_refused(self):
        changed = json.loads((self.folder / "plain.json").read_text())
        changed["result"]["cached_tokens"] = 1
        (row,) = self.lint(self.file("cached.json", changed))
        self.expect(row, V2=("fails", "cached_tokens = 1"))
        del changed["result"]["cached_tokens"]
        (row,) = self.lint(self.file("missing.json", changed))
        self.expect(row, V2=("unknown", "one witness alone"))

    def test_the_table(self):
        rows = self.lint(TABLE)
        self.assertEqual(len(rows), 221)
        for row in rows:
            self.expect(row, V1=("holds", "first row"), V2=("unknown", "one witness"), V4=("fails", "no identity"),
                        V7=("unknown", "not recorded"))
        # Screens on four cards in the same minute.
        self.assertGreater(sum(row["V9"][0] == "fails" and "other lanes" in row["V9"][1] for row in rows), 100)
        text = self.check("lab", "lint", TABLE, code=CHECK_FAILED).stdout.decode()
        self.assertIn("221 rows may not be quoted", text)

    def test_the_ledger_is_asked_for_what_was_rejected(self):
        again = "run,change,fresh_tok_s,verdict\nx,MTP_P_MIN=0.10,100,control\n"
        head = "gemma4-q8-gpu0-rowargmax-deferh-pmin010-again-20270101T0000Z"
        rejected = self.file("again.csv", again.replace("\nx,", f"\n{head.replace('-again', '')},"))
        (row,) = self.lint(rejected, ledger=self.ledger)
        self.expect(row, V12=("fails", "rejected before under gemma4-q8"))
        # Another recipe under the same lane is for a person to judge.
        other = self.file("other.csv", again.replace("\nx,", f"\n{head},"))
        (row,) = self.lint(other, ledger=self.ledger)
        self.expect(row, V12=("unknown", "another recipe"))
        fresh = self.file("fresh.csv", again.replace("0.10", "0.99").replace("\nx,", "\ngemma4-q8-gpu0-new,"))
        (row,) = self.lint(fresh, ledger=self.ledger)
        self.expect(row, V12=("holds", "no rejection"))
        # The table itself, imported already, is no earlier attempt of its own rows.
        rows = self.lint(TABLE, ledger=self.ledger)
        self.assertNotIn("fails", {row["V12"][0] for row in rows})

    def test_rows_of_the_ledger(self):
        found = self.json("lab", "tried", "p_min=0.136 threads=12", "--ledger", self.ledger)["found"]
        (row,) = self.lint(found[0]["run"], ledger=self.ledger)
        self.expect(row, V4=("fails", "no identity"))
        self.refused("lab", "lint", found[0]["candidate"], "--ledger", self.ledger, says="neither a row nor a run")

    def test_llama_bench(self):
        test = {"build_commit": "8cf427ff", "build_number": 5163, "cpu_info": "c", "gpu_info": "g", "model_type": "m",
                "n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ns": 1076767880, "avg_ts": 118.881588,
                "samples_ts": [119.03, 120.178, 119.43, 118.307, 117.464]}
        path = self.file("llama-bench.json", [test])
        (row,) = self.lint(path)
        self.expect(row, V1=("fails", "5 repetitions"), V2=("unknown", ""), V4=("fails", "model.sha256"),
                    V6=("holds", "mean of 5 samples"), V7=("holds", "all n"), V8=("holds", "forced"),
                    V11=("unknown", "bandwidth"))
        (row,) = self.lint(path, "--bandwidth", "640", "--bytes", "4677120000")
        self.expect(row, V11=("holds", "of the memory's limit"))
        (row,) = self.lint(path, "--bandwidth", "64", "--bytes", "4677120000")
        self.expect(row, V11=("fails", "of the memory's limit"))
        test["avg_ts"] = 150
        (row,) = self.lint(self.file("forged.json", [test]))
        self.expect(row, V6=("fails", "is said"), V7=("fails", "neither"))

    def test_vllm(self):
        result = {"model_id": "m", "backend": "vllm", "request_throughput": 1.0, "output_throughput": 20.0,
                  "max_concurrency": 8, "num_prompts": 2, "completed": 1, "failed": 1, "duration": 1.0}
        (row,) = self.lint(self.file("vllm.json", result))
        self.expect(row, V4=("unknown", "asked for"), V8=("fails", "1 of 2"), V9=("fails", "8 requests at a time"))

    def test_a_log(self):
        log = {"schema": "lockstep.lab.log/1", "servers": [{"engine": "llama-server", "started_here": True, "n_slots": 1,
               "speculation": [{"type": "draft-dflash", "n_max": 7}], "draft_length": {"effective": 5}}],
               "requests": [
                   {"server": 0, "ordinal": 1, "prompt_tokens": 588, "cached_tokens": 0, "cached_from": "prompt",
                    "evaluated_tokens": 588, "generated_tokens": 70, "decode_ms": 1000.0, "decode_tok_s": 69.0,
                    "witnesses": ["lru"], "draft": {"drafted": 105, "accepted": 47, "mean_accepted_len": 3.24}},
                   {"server": 0, "ordinal": 2, "prompt_tokens": 588, "cached_tokens": 500, "evaluated_tokens": 88,
                    "generated_tokens": 70, "decode_ms": 1000.0, "decode_tok_s_printed": 70.0, "decode_tok_s": 69.0,
                    "witnesses": ["similarity"]}],
               "contradictions": []}
        first, second = self.lint(self.file("log.json", log))
        self.expect(first, V1=("holds", "first"), V2=("holds", "588 of 588"), V4=("fails", "n_max: requested 7, effective 5"),
                    V6=("holds", "drafted in 21 steps"))
        self.expect(second, V1=("fails", "row 2 since"), V2=("fails", "begins alike"), V10=("fails", "absent is not 100 %"))
        # The second request's rate divides all its tokens, the first one's does not.
        self.expect(first, V7=("fails", "divide different things"))

    def test_a_row_that_may_be_quoted_exits_0(self):
        # Nothing fails, though not all can be judged.
        path = self.file("log.json", {"schema": "lockstep.lab.log/1", "requests": [{"ordinal": 1, "generated_tokens": 5}]})
        (row,) = self.lint(path, code=OK)
        self.assertNotIn("fails", {outcome for outcome, _ in row.values()})

    def test_wrong_use_in_one_line(self):
        self.refused("lab", "lint", says="no result")
        self.refused("lab", "lint", self.folder / "none.json", code=BAD_FILE, says="no such file")
        self.refused("lab", "lint", self.folder, code=BAD_FILE, says="a directory")
        self.refused("lab", "lint", self.file("words", "hello"), code=BAD_FILE, says="neither JSON nor CSV")
        plain = self.folder / "plain.json"
        self.refused("lab", "lint", plain, "--bandwidth", "0", says="--bandwidth 0")
        self.refused("lab", "lint", plain, "--ledger", self.folder / "none.db", says="no ledger here")
        self.refused("lab", "lint", plain, "--control", "abcd1234", "--ledger", self.ledger, says="abcd1234")

    def test_a_control(self):
        (row,) = self.lint(self.folder / "draft.json", "--control", self.folder / "plain.json")
        self.expect(row, V4=("fails", "not declared: effective.draft.source"))
        # The same against itself, and as if another binary had run.
        (row,) = self.lint(self.folder / "plain.json", "--control", self.folder / "plain.json")
        self.expect(row, V4=("holds", "complete"))
        other = json.loads((self.folder / "plain.json").read_text())
        identity = other["result"]["identity"]
        self.assertEqual(identity["binary_sha256"], cli.binary_sha256())
        identity["binary_sha256"] = "0" * 64
        (row,) = self.lint(self.file("binary.json", other), "--control", self.folder / "plain.json")
        self.expect(row, V4=("fails", "engine.binary_sha256"))
        identity["binary_sha256"] = None
        (row,) = self.lint(self.file("no-binary.json", other))
        self.expect(row, V4=("fails", "lacks engine.binary_sha256"))


if __name__ == "__main__":
    unittest.main()
