"""lab noise, lab power and lab ab: from files to a verdict."""
import copy
import json
import math
import pathlib
import random
import statistics
import tempfile
import unittest

import cli
from cli import BAD_FILE, CHECK_FAILED, CliTest

TABLE = cli.ROOT / "tests/data/lab/gemma4-b70-runs.csv"
REPORTED = "98.617,101.428,101.482,101.602,103.299"


def experiment(blocks=10, gain=0.0, noise=0.5, seed=1, arm=None):
    """Both arms as (control, candidate), or one of them."""
    numbers = random.Random(seed)
    arms = []
    for name, factor in (("control", 1), ("candidate", 1 + gain / 100)):
        arms.append({"schema": "lockstep.lab.runs/1", "arm": name, "metric": "after-first",
                     "exactness": "tokens", "blocks": []})
    for i in range(blocks):
        for name, out in zip(("control", "candidate"), arms):
            factor = 1 if name == "control" else 1 + gain / 100
            level = math.exp(numbers.gauss(0, noise / 100 / math.sqrt(2)))
            rows = []
            for p, base in enumerate((90, 100, 120)):
                rate = base * level * factor
                rows.append({"prompt": f"p{p}", "class": "code" if p else "prose", "order": p,
                             "prompt_tokens": 40, "cached_tokens": 0, "generated_tokens": 512,
                             "decode_ms": 511 / rate * 1000, "decode_tok_s": rate, "token_sha256": f"{p:064x}",
                             "draft": {"steps": 66, "drafted": 462, "accepted": 445}})
            out["blocks"].append({"block": i, "starts": [{"start": f"{name} {i}", "rows": rows}]})
    return arms


class Files(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, content):
        path = self.folder / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def pair(self, **options):
        a, b = experiment(**options)
        return self.write("a.json", a), self.write("b.json", b)


class Ab(Files):
    def test_better_not_better_unknown(self):
        a, b = self.pair(gain=3)
        out = self.json("lab", "ab", a, b)
        self.assertEqual((out["schema"], out["verdict"]), ("lockstep.lab.ab/1", "better"))
        effect = out["effect"]
        self.assertLess(abs(effect["rate_percent"] - 3), 0.8)
        self.assertLess(effect["interval_percent"][0], effect["rate_percent"])
        self.assertAlmostEqual(effect["level"], 1 - 50 / 1024, places=9)   # ten blocks
        self.assertTrue(effect["tokens_per_step_same"])
        self.assertEqual(out["no_worse"]["answer"], "yes")
        self.assertEqual(len(out["blocks"]), 10)
        self.assertEqual(self.json("lab", "ab", b, a)["verdict"], "not_better")
        self.assertEqual(self.json("lab", "ab", a, a)["verdict"], "unknown")
        self.assertEqual(self.json("lab", "ab", a, b, "--min-effect", "10")["verdict"], "not_better")

    def test_the_estimate_is_hodges_lehmann(self):
        a, b = experiment(gain=1, blocks=7)
        out = self.json("lab", "ab", self.write("a.json", a), self.write("b.json", b))
        d = []
        for x, y in zip(a["blocks"], b["blocks"]):
            logs = [math.log(q["decode_tok_s"] / p["decode_tok_s"])
                    for p, q in zip(x["starts"][0]["rows"], y["starts"][0]["rows"])]
            d.append(statistics.median([logs[0], statistics.median(logs[1:])]))
        walsh = sorted((d[i] + d[j]) / 2 for i in range(7) for j in range(i, 7))
        self.assertAlmostEqual(out["effect"]["rate_percent"], 100 * math.expm1(statistics.median(walsh)), places=9)
        self.assertAlmostEqual(out["effect"]["sd_percent"], 100 * math.expm1(statistics.stdev(d)), places=9)
        # Seven blocks: the third least and third largest average.
        self.assertAlmostEqual(out["effect"]["interval_percent"][0], 100 * math.expm1(walsh[2]), places=9)
        self.assertAlmostEqual(out["effect"]["interval_percent"][1], 100 * math.expm1(walsh[-3]), places=9)

    def test_text(self):
        a, b = self.pair(gain=3, blocks=12)
        text = self.check("lab", "ab", a, b).stdout.decode()
        self.assertTrue(text.startswith("verdict: better\n"), text)
        for part in ("Hodges-Lehmann", "cluster bootstrap", "no worse than 0.50 %: yes", "tokens a step:",
                     "the same in every block", "level 95.75 %"):
            self.assertIn(part, text)

    def test_five_blocks(self):
        a, b = self.pair(gain=20, blocks=5)
        out = self.json("lab", "ab", a, b)
        self.assertEqual(out["verdict"], "unknown")
        self.assertAlmostEqual(out["effect"]["level"], 0.9375)
        self.assertIn("it takes 6 blocks", out["reasons"][0]["text"])

    def test_one_server(self):
        a, b = experiment(gain=20, blocks=12)
        for block in b["blocks"]:
            block["starts"][0]["start"] = "the same"
        out = self.json("lab", "ab", self.write("a.json", a), self.write("b.json", b))
        self.assertEqual((out["verdict"], out["effect"]), ("unknown", None))
        self.assertEqual(out["b"]["starts"], 1)

    def test_refusals(self):
        a, b = experiment(gain=20)
        plain = self.write("a.json", a)

        def refused(change, verdict, rule):
            changed = copy.deepcopy(b)
            change(changed)
            out = json.loads(self.check("lab", "ab", plain, self.write("c.json", changed), "--json",
                                        code=CHECK_FAILED).stdout)
            self.assertEqual((out["verdict"], out["reasons"][0]["rule"], out["effect"]), (verdict, rule, None))

        def row(runs):
            return runs["blocks"][3]["starts"][0]["rows"][1]

        refused(lambda c: c.update(metric="wall"), "invalid", "V7 metric")
        refused(lambda c: row(c).update(cached_tokens=12), "invalid", "V2 fresh")
        refused(lambda c: row(c).update(prompt="other"), "invalid", "V8 whole")
        refused(lambda c: row(c).update(token_sha256="0" * 63 + "f"), "inexact", "V5 exact")

        def old_denominator(runs):
            for block in runs["blocks"]:
                for r in block["starts"][0]["rows"]:
                    r["decode_tok_s"] *= 512 / 511

        refused(old_denominator, "invalid", "V7 metric")
        self.assertEqual(self.json("lab", "ab", plain, self.write("b.json", b))["verdict"], "better")

    def test_sequential(self):
        a, b = self.pair(gain=3, blocks=30, noise=0.9)
        out = self.json("lab", "ab", a, b, "--looks", "6,12,18,24,30")
        self.assertEqual((out["method"], out["verdict"]), ("group-sequential", "better"))
        self.assertLess(len(out["blocks"]), out["blocks_given"])
        self.assertEqual(out["looks"][-1]["blocks"], len(out["blocks"]))
        out = self.json("lab", "ab", a, b, "--always-valid", "--gain", "3", "--sd", "0.9")
        self.assertEqual((out["method"], out["verdict"]), ("always-valid", "better"))
        self.assertGreater(out["sign_e_value"], 1)
        self.assertIsNone(out["looks"][0]["interval_percent"][0])   # two blocks exclude nothing
        a, b = self.pair(gain=0, blocks=30, noise=0.9, seed=3)
        out = self.json("lab", "ab", a, b, "--looks", "6,12,18,24,30", "--gain", "3")
        self.assertEqual((out["verdict"], out["reasons"][0]["rule"]), ("unknown", "futility"))

    def test_csv_of_both_arms(self):
        lines = ["block,arm,start,prompt,tok_s"]
        for i in range(8):
            lines += [f"{i},candidate,c{i},p,{103 + 0.1 * (i % 3)}", f"{i},control,s{i},p,{100 + 0.1 * (i % 2)}"]
        out = self.json("lab", "ab", self.write("pairs.csv", "\n".join(lines + ["9,control,s9,p,fast"])))
        self.assertEqual((out["verdict"], out["a"]["arm"]), ("better", "control"))
        self.assertFalse(out["exactness"]["judged"])
        self.assertIn("no token hashes", " ".join(out["notes"]))
        self.assertIn("1 row could not be read", " ".join(out["notes"]))

    def test_bad_use(self):
        a, b = self.pair()
        self.refused("lab", "ab", says="two files")
        self.refused("lab", "ab", a, b, a, says="two files")
        self.refused("lab", "ab", a, says="one arm")
        self.refused("lab", "ab", a, b, "--looks", "6,6", says="rise")
        self.refused("lab", "ab", a, b, "--looks", "6", "--always-valid", says="exclude")
        self.refused("lab", "ab", a, b, "--gain", "1", says="--gain")
        self.refused("lab", "ab", a, b, "--alpha", "0.9", says="--alpha")

    def test_bad_files(self):
        a, _ = self.pair()
        for content, says in ((b"", "empty"), (b"\xff\xfeb\0l\0", "UTF-16"), (b"a\0b", "NUL"), (b"{", "JSON"),
                              (b'{"schema": "lockstep.run/1"}', "lockstep.lab.runs/1"),
                              (b"x,y\n1,2\n", "columns"), (b"block,start,tok_s\n1,s,\n", "none of its 1 rows"),
                              (b"\x1b[2J{", "columns"), (b"," * 10_000_000, "header")):
            with self.subTest(content[:20]):
                self.refused("lab", "ab", a, self.write("bad", content), code=BAD_FILE, says=says)
        self.refused("lab", "ab", a, self.folder / "nothing", code=BAD_FILE, says="nothing")


class Noise(Files):
    def test_the_floor(self):
        a, b = experiment(blocks=30, noise=0.9)
        out = self.json("lab", "noise", self.write("a.json", a), self.write("b.json", b))
        self.assertEqual(out["schema"], "lockstep.lab.noise/1")
        floor = out["runs"]
        self.assertEqual(len(floor["blocks"]), 30)
        self.assertLess(floor["sd_interval_percent"][0], 0.9)
        self.assertGreater(floor["sd_interval_percent"][1], 0.9)
        self.assertEqual([row["blocks"] for row in floor["provable"]], [6, 8, 10, 12, 16, 20, 30, 40, 50])
        self.assertIn("prompts", floor["warm_up"]["why_not"])
        text = self.check("lab", "noise", self.folder / "a.json", self.folder / "b.json").stdout.decode()
        self.assertIn("smallest gain that can be proved", text)
        # One arm alone.
        self.assertEqual(len(self.json("lab", "noise", self.folder / "a.json")["runs"]["blocks"]), 15)

    def test_planted_drift_step_and_warm_up(self):
        lines = ["block,arm,start,prompt,tok_s"]
        numbers = random.Random(5)
        for i in range(40):
            level = 100 * (0.94 if i >= 20 else 1)
            for order in range(4):
                slow = 0.97 if order == 0 else 1
                lines.append(f"{i // 2},x,s{i},p{(i + order) % 4},{level * slow * math.exp(numbers.gauss(0, 0.003))}")
        out = self.json("lab", "noise", self.write("one.csv", "\n".join(lines)))["runs"]
        self.assertTrue(out["warm_up"]["found"])
        self.assertLess(out["warm_up"]["effect_percent"], -2)
        self.assertEqual([step["index"] for step in out["controls"]["change_points"]], [20])
        self.assertLess(out["controls"]["drift"]["p"], 0.01)

    def test_the_gemma_table(self):
        out = self.json("lab", "noise", TABLE, "--reported", REPORTED)["table"]
        self.assertEqual((out["rows"], out["rows_used"], out["rows_placed"]), (221, 216, 116))
        self.assertEqual(len(out["not_placed"]), 100)
        controls = out["named_controls"]
        self.assertEqual((controls["all"]["n"], controls["without_outliers"]["n"]), (18, 17))
        self.assertAlmostEqual(controls["without_outliers"]["mean"], 101.22, delta=0.005)
        self.assertAlmostEqual(controls["without_outliers"]["sd"], 0.79, delta=0.005)
        # By hand, from what is printed: the SD within recipes, and what two rows have to differ by.
        squares = freedom = 0
        for recipe in out["recipes"]:
            rates = [row["tok_s"] for row in recipe["rows"]]
            if len(rates) > 1:
                squares += sum((r - statistics.mean(rates)) ** 2 for r in rates)
                freedom += len(rates) - 1
        self.assertEqual(freedom, out["row_sd"]["degrees_of_freedom"])
        self.assertAlmostEqual(math.sqrt(squares / freedom), out["row_sd"]["tok_s"], places=9)
        limit = 2.0301 * out["row_sd"]["tok_s"] * math.sqrt(2)
        self.assertAlmostEqual(out["difference_beyond_noise"]["tok_s"], limit, places=3)
        promoted, reported = out["ladders"]
        self.assertEqual([round(v, 3) for v in promoted["values"]], [101.602, 102.031, 103.299])
        self.assertEqual([s["more_than_noise"] for s in promoted["steps"]], [False, False])
        self.assertEqual([s["more_than_noise"] for s in reported["steps"]], [True, False, False, False])
        self.assertEqual(reported["source"], "reported")
        text = self.check("lab", "noise", TABLE, "--reported", REPORTED).stdout.decode()
        for part in ("how rows were grouped", "101.428 -> 101.482: +0.054 tok/s: cannot be told from noise",
                     "by hand", "n  17, mean 101.22, SD 0.79", "sampled-map cleanup only"):
            self.assertIn(part, text)

    def test_bad_use(self):
        self.refused("lab", "noise", says="no file")
        self.refused("lab", "noise", TABLE, TABLE, says="alone")
        self.refused("lab", "noise", TABLE, "--reported", "1,x", says="--reported")
        a, _ = self.pair()
        self.refused("lab", "noise", a, "--reported", "1,2", says="--reported")
        one, _ = self.pair(blocks=1)
        self.refused("lab", "noise", one, code=BAD_FILE, says="two at least")


class Power(CliTest):
    def test_the_table(self):
        """Blocks by SD and gain at 80 % power and 5 %: normal approximation, no fewer than 6."""
        expected = {0.3: [12, 6, 6, 6], 0.5: [32, 8, 6, 6], 1.0: [126, 32, 8, 6], 1.5: [283, 71, 18, 6]}
        for sd, counts in expected.items():
            # Log ratios and per cent differ by half a per cent of an effect of 1 %: exact in small units.
            out = self.json("lab", "power", "--sd", sd / 100)
            self.assertEqual(out["schema"], "lockstep.lab.power/1")
            for gain, count in zip([0.25, 0.5, 1, 2], counts):
                out = self.json("lab", "power", "--sd", sd / 100, "--gain", gain / 100)
                self.assertEqual(out["by_gain"][0]["blocks_normal"], count, (sd, gain))
                self.assertGreaterEqual(out["by_gain"][0]["blocks_signed_rank"], 6)

    def test_budget_and_sequential(self):
        out = self.json("lab", "power", "--sd", "0.9", "--blocks", "5")
        self.assertIsNone(out["by_blocks"][0]["gain_percent_signed_rank"])
        self.assertIn("cannot reach", self.check("lab", "power", "--sd", "0.9", "--blocks", "5").stdout.decode())
        out = self.json("lab", "power", "--sd", "0.9", "--gain", "1", "--looks", "6,12,18,24")["sequential"]
        self.assertGreater(out["found"], 0.95)
        self.assertTrue(6 < out["mean_blocks"] < 24)
        out = self.json("lab", "power", "--sd", "0.9", "--gain", "1", "--always-valid", "--blocks", "60")
        self.assertTrue(6 < out["sequential"]["mean_blocks"] < 20)

    def test_bad_use(self):
        self.refused("lab", "power", says="--sd")
        self.refused("lab", "power", "--sd", "1", "--looks", "6,12", says="--gain")
        self.refused("lab", "power", "--sd", "0", says="--sd")


class Documents(CliTest):
    def test_fields_are_documented(self):
        documented = (cli.ROOT / "docs/lab-statistics.md").read_text()

        def keys(value):
            if isinstance(value, dict):
                for key, inner in value.items():
                    yield key
                    yield from keys(inner)
            elif isinstance(value, list):
                for inner in value:
                    yield from keys(inner)

        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, arm in zip("ab", experiment(blocks=12)):
                paths.append(pathlib.Path(folder) / name)
                paths[-1].write_text(json.dumps(arm))
            for out in (self.json("lab", "ab", *paths), self.json("lab", "noise", *paths),
                        self.json("lab", "noise", TABLE),
                        self.json("lab", "power", "--sd", "1", "--gain", "1", "--looks", "6,12")):
                for key in set(keys(out)):
                    self.assertIn(f"`{key}`", documented)

    def test_help_has_an_example(self):
        for command in ("ab", "noise", "power"):
            self.assertIn(f"lockstep lab {command} ", self.check("lab", command, "--help").stdout.decode())


if __name__ == "__main__":
    unittest.main()
