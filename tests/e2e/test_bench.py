"""bench: its rows and what they say of each other. No time is compared with another machine's."""
import csv
import io
import json
import pathlib
import statistics
import subprocess
import tempfile
import unittest

import cli
from cli import BAD_FILE, CliTest, OK, RESOURCE, run

MODEL = "synth:llama-tiny@q4_0,seed=5"
SMALL = ["-m", MODEL, "-p", "20", "-n", "3", "-w", "1,8", "-d", "0,70", "-r", "2", "-t", "1"]
TESTS = ["pp20", "tg3", "w1", "w8", "pp20 @ d70", "tg3 @ d70", "w1 @ d70", "w8 @ d70"]


class Rows(CliTest):
    @classmethod
    def setUpClass(cls):
        done = run("bench", *SMALL, "--json", "--slow-below", "60")
        assert done.returncode == OK, done.stderr
        cls.out = json.loads(done.stdout)

    def test_what_was_asked_for_is_there(self):
        self.assertEqual(self.out["schema"], "lockstep.bench/1")
        self.assertEqual([row["test"] for row in self.out["rows"]], TESTS)
        self.assertGreaterEqual(self.out["read_buffer"]["bytes"], 256 << 20)

    def test_figures_agree_with_each_other(self):
        for row in self.out["rows"]:
            with self.subTest(row["test"]):
                self.assertEqual(row["repetitions"], 2)
                self.assertEqual(len(row["ms_list"]), 2)
                self.assertEqual(len(row["read_gb_s_list"]), 3)   # before the first, after each
                self.assertEqual(row["ms"], statistics.median(row["ms_list"]))
                self.assertEqual((row["ms_min"], row["ms_max"]), (min(row["ms_list"]), max(row["ms_list"])))
                self.assertGreater(row["ms_min"], 0)
                self.assertEqual(row["read_gb_s"], statistics.median(row["read_gb_s_list"]))
                self.assertAlmostEqual(row["gb_s"], row["bytes"] / row["ms"] / 1e6, delta=1e-9 * row["gb_s"])
                self.assertAlmostEqual(row["tok_s"], row["tokens"] / (row["ms"] * row["passes"]) * 1e3,
                                       delta=1e-9 * row["tok_s"])
                read = row["read_gb_s_list"]
                fractions = [row["bytes"] / ms / 1e6 / ((read[i] + read[i + 1]) / 2)
                             for i, ms in enumerate(row["ms_list"])]
                self.assertAlmostEqual(row["fraction"], statistics.median(fractions), delta=1e-9)
                self.assertEqual(row["state"], "slow" if row["read_gb_s"] < 60 else "fast")
                self.assertTrue(row["synthetic"])
                self.assertEqual((row["identity"]["threads"], row["identity"]["law"]), (1, "ls1"))
                self.assertEqual(len(row["identity"]["model_sha256"]), 64)
                self.assertEqual(row["identity"]["binary_sha256"], cli.binary_sha256())

    def test_shapes(self):
        shapes = {row["test"]: (row["kind"], row["tokens"], row["depth"], row["width"], row["passes"])
                  for row in self.out["rows"]}
        self.assertEqual(shapes["pp20"], ("pp", 20, 0, 20, 1))
        self.assertEqual(shapes["tg3 @ d70"], ("tg", 3, 70, 1, 3))
        self.assertEqual(shapes["w8"], ("w", 8, 0, 8, 1))

    def test_bytes_are_what_inspect_says(self):
        inspected = {(row["width"], row["depth"]): row["bytes"]
                     for row in self.json("inspect", "-m", MODEL)["pass_bytes"]}
        rows = {row["test"]: row for row in self.out["rows"]}
        self.assertEqual(rows["w1"]["bytes"], inspected[1, 0])
        # 2 layers of 2 KV heads of 32, K and V in f16: one position.
        position = 2 * 2 * 32 * 2 * 2
        self.assertEqual(rows["w1 @ d70"]["kv_bytes"], 71 * position)
        self.assertEqual(rows["w8 @ d70"]["kv_bytes"], 78 * position)             # one tile of 8 rows
        self.assertEqual(rows["pp20"]["kv_bytes"], (8 + 16 + 20) * position)      # three tiles
        self.assertEqual(rows["tg3 @ d70"]["kv_bytes"], 72 * position)            # the mean of 71, 72, 73
        # Further rows cost a row of the embedding table each (256 of q4_0), the other weights are
        # read once.
        self.assertEqual(rows["w8"]["weight_bytes"] - rows["w1"]["weight_bytes"], 7 * 256 // 32 * 18)

    def test_documented_fields(self):
        documented = (cli.ROOT / "docs/json.md").read_text()
        out = self.json("bench", *SMALL, "--ops")
        row = out["rows"][0]
        for key in [*out, *row, *row["identity"], *row["ops"], *row["ops"]["list"][0], *out["read_buffer"]]:
            self.assertIn(f"`{key}`", documented)


class Formats(CliTest):
    def test_all_say_the_same(self):
        """Times differ from run to run: everything else is equal."""
        timed = {"ms", "ms_min", "ms_max", "ms_list", "tok_s", "gb_s", "read_gb_s", "read_gb_s_list", "fraction"}

        def fixed(row):
            return {k: v for k, v in row.items() if k not in timed}

        rows = self.json("bench", *SMALL)["rows"]
        lines = [json.loads(line) for line in
                 self.check("bench", *SMALL, "-o", "jsonl").stdout.decode().splitlines()]
        table = list(csv.DictReader(io.StringIO(self.check("bench", *SMALL, "-o", "csv").stdout.decode())))
        self.assertEqual([len(rows), len(lines), len(table)], [len(TESTS)] * 3)
        for row, line, record in zip(rows, lines, table):
            self.assertEqual(line.pop("schema"), "lockstep.bench-row/1")
            self.assertEqual(list(line), list(row))
            self.assertEqual(fixed(line), fixed(row))
            flat = {k: v for k, v in row.items() if k != "identity"} | row["identity"]
            self.assertEqual(set(record), set(flat))
            for key, value in fixed(flat).items():
                text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
                self.assertEqual(record[key], text, key)
            self.assertEqual(float(record["ms_min"]), min(map(float, record["ms_list"].split(";"))))

    def test_markdown(self):
        text = self.check("bench", *SMALL, "--slow-below", "1000000").stdout.decode()
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in text.splitlines() if line.startswith("| ")]
        self.assertEqual([row[0] for row in rows], ["test", ":---------------", *TESTS])
        self.assertEqual({len(row) for row in rows}, {12})
        self.assertEqual({row[-1] for row in rows[2:]}, {"slow"})
        self.assertIn("read GB/s: over a buffer of", text)

    def test_lists_of_threads_and_batches(self):
        rows = self.json("bench", "-m", MODEL, "-p", "10", "-n", "0", "-w", "none", "-r", "1", "-t", "1,2", "-b", "4")["rows"]
        self.assertEqual([(r["test"], r["identity"]["threads"], r["passes"], r["width"]) for r in rows],
                         [("pp10", 1, 3, 4), ("pp10", 2, 3, 4)])
        self.assertEqual(rows[0]["identity"]["chunk"], 4)

    def test_sliding_windows_at_falling_depths(self):
        rows = self.json("bench", "-m", "synth:gemma3-tiny", "-p", "40", "-n", "2", "-w", "2", "-d", "200,10,90", "-r", "1",
                         "-t", "1", "-ctk", "q8_0")["rows"]
        self.assertEqual([r["depth"] for r in rows], [200] * 3 + [10] * 3 + [90] * 3)
        self.assertEqual(rows[0]["identity"]["k_type"], "q8_0")


class Ops(CliTest):
    def test_ops_sum_to_the_pass(self):
        # A core can be taken away between two ops too: one of ten runs has to be undisturbed.
        for _ in range(10):
            rows = self.json("bench", "-m", MODEL, "-p", "64", "-n", "0", "-w", "1,16", "-r", "5", "-t", "1", "--ops")["rows"]
            worst = 0
            for row in rows:
                ops = row["ops"]
                names = [(op["kind"], op["name"]) for op in ops["list"]]
                self.assertEqual(len(names), len(set(names)))
                self.assertEqual(ops["passes"], 5)
                self.assertEqual({op["calls"] for op in ops["list"] if op["name"] == "gate_up"}, {2})
                total = sum(op["ms"] for op in ops["list"])
                self.assertAlmostEqual(total + ops["other_ms"], ops["pass_ms"], delta=1e-6 * ops["pass_ms"])
                self.assertAlmostEqual(sum(op["percent"] for op in ops["list"]) + ops["other_percent"], 100, places=6)
                self.assertEqual(sum(op["weight_bytes"] for op in ops["list"]), row["weight_bytes"])
                self.assertEqual(sum(op["kv_bytes"] for op in ops["list"]), row["kv_bytes"])
                for op in ops["list"]:
                    self.assertGreaterEqual(op["bytes"], op["weight_bytes"] + op["kv_bytes"])
                    if op["ms"] > 0:
                        self.assertAlmostEqual(op["gb_s"], op["bytes"] / op["ms"] / 1e6, delta=1e-3 * op["gb_s"])
                worst = max(worst, ops["other_ms"] - 0.03 * ops["pass_ms"])
            if worst < 0.2:   # ms
                return
        self.fail(f"{worst} ms of a pass are in no op")

    def test_the_table(self):
        text = self.check("bench", "-m", MODEL, "-p", "0", "-n", "0", "-w", "4", "-r", "1", "-t", "1", "--ops").stdout.decode()
        self.assertIn("\nops of w4, 1 thread: ", text)
        for part in ("| linear      | gate_up ", "| attention   | attention ", "| other       | between the ops "):
            self.assertIn(part, text)


class TraceFile(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, path):
        return ["bench", "-m", MODEL, "-p", "9", "-n", "2", "-w", "3", "-r", "2", "-t", "1", "--trace", path]

    def test_events_nest_inside_their_passes(self):
        path = self.folder / "a.json"
        self.check(*self.bench(path))
        self.assertEqual([entry.name for entry in self.folder.iterdir()], ["a.json"])
        trace = json.loads(path.read_text())
        self.assertEqual(trace["otherData"]["law"], "ls1")
        events = [e for e in trace["traceEvents"] if e["ph"] != "M"]
        self.assertEqual({e["ph"] for e in events}, {"X"})
        passes = [e for e in events if e["cat"] == "pass"]
        self.assertEqual([(e["name"], e["args"]["rows"], e["args"]["depth"]) for e in passes],
                         [("pp9", 9, 0), ("tg2", 1, 0), ("tg2", 1, 1), ("w3", 3, 0)])
        ops = [e for e in events if e["cat"] != "pass"]
        n_ops = len(ops) // len(passes)
        end = 0
        for i, op in enumerate(ops):
            outer = passes[i // n_ops]
            # Microseconds with three decimals at some 1e12: binary64 keeps 1e-4.
            self.assertGreaterEqual(op["ts"], outer["ts"] - 1e-3)
            self.assertLessEqual(op["ts"] + op["dur"], outer["ts"] + outer["dur"] + 1e-3)
            self.assertGreaterEqual(op["ts"], end - 1e-3)
            end = op["ts"] + op["dur"]
        for i, outer in enumerate(passes):
            mine = ops[i * n_ops:(i + 1) * n_ops]
            self.assertEqual(sum(op["args"]["bytes"] for op in mine), outer["args"]["bytes"])
            self.assertEqual({op["args"]["rows"] for op in mine if op["name"] == "qkv"}, {outer["args"]["rows"]})

    def test_places_that_cannot_be_written(self):
        self.refused(*self.bench(self.folder / "no/such/a.json"), code=RESOURCE, says="a.json")
        self.refused(*self.bench(self.folder), says="not a regular file")
        self.refused(*self.bench("/dev/null"), says="not a regular file")
        self.refused(*self.bench(""), says="--trace")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_failure_later_leaves_nothing(self):
        path = self.folder / "a.json"
        self.refused("bench", "-m", MODEL, "-d", "99999", "--trace", path, says="the model has 2048")
        self.assertEqual(list(self.folder.iterdir()), [])
        path.write_text("kept")
        self.refused("bench", "-m", self.folder / "none.gguf", "--trace", path, code=BAD_FILE, says="none.gguf")
        self.assertEqual(path.read_text(), "kept")


class WrongUse(CliTest):
    def test_a_trace_never_replaces_a_model_or_the_result(self):
        with tempfile.TemporaryDirectory() as folder:
            model, result = pathlib.Path(folder) / "m.gguf", pathlib.Path(folder) / "result.json"
            self.check("synth", MODEL, "-o", model)
            before = model.read_bytes()
            link = pathlib.Path(folder) / "link"
            link.symlink_to(model)
            for path in (model, link):
                self.refused("bench", "-m", model, "-p", "0", "-n", "2", "-w", "none", "-r", "1", "--trace", path,
                             says="is a model file")
            self.assertEqual(model.read_bytes(), before)
            with open(result, "wb") as out:
                done = subprocess.run([cli.BINARY, "bench", "-m", MODEL, "-p", "0", "-n", "2", "-w", "none", "-r", "1",
                                       "--json", "--trace", result], stdout=out, stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, cli.BAD_USE)
            self.assertIn(b"where the result goes", done.stderr)
            self.refused("bench", "-m", MODEL, "-r", "1", "--trace", "x" * 300, says="--trace xxx")

    def test_in_one_line_each(self):
        for flags, says in ((["-w", "0"], "-w 0"), (["-w", "-1"], "give 1 to 512"), (["-w", "1,0,2"], "0 is out of range"),
                            (["-w", "513"], "give 1 to 512"), (["-w", ""], "-w"), (["-w", ","], "-w ,"),
                            (["-w", "1,,2"], "as in 1,2,4"), (["-w", "1,"], "as in 1,2,4"), (["-w", ",1"], "as in 1,2,4"),
                            (["-w", "1 2"], "as in 1,2,4"), (["-w", "eight"], "as in 1,2,4"),
                            (["-w", ",".join(["1"] * 65)], "more than 64"),
                            (["-p", "-5"], "-p -5"), (["-p", "1.5"], "-p 1.5"), (["-n", "x"], "-n x"), (["-d", "-1"], "-d -1"),
                            (["-d", "none"], "-d none"), (["-n", "99999999999999999999"], "-n 9"),
                            (["-d", "2040", "-w", "16"], "2056 positions, the model has 2048"),
                            (["-d", "0,2040"], "the model has 2048"), (["-p", "2049"], "the model has 2048"),
                            (["-p", "0", "-n", "0", "-w", "none"], "nothing to measure"),
                            (["-o", "yaml"], "-o yaml: not a format"), (["-o", "csv", "--json"], "contradict"),
                            (["-o", "csv", "--ops"], "--ops and -o csv"), (["-r", "0"], "-r 0"), 
                            (["-t", "1,x"], "-t 1,x"), (["-b", "0"], "-b 0"), (["--isa", "sse9"], "sse9"),
                            (["-ctk", "q4_1"], "-ctk q4_1"), (["--slow-below", "-1"], "--slow-below"),
                            (["extra"], "extra: not expected")):
            with self.subTest(flags):
                defaults = [] if {"-p", "-n"} & set(flags) else ["-p", "16", "-n", "4"]
                self.refused("bench", "-m", MODEL, *defaults, *flags, says=says)

    def test_models_that_are_not_there(self):
        self.refused("bench", says="no model")
        self.refused("bench", "-m", "/no/such.gguf", code=BAD_FILE, says="/no/such.gguf")
        self.refused("bench", "-m", "synth:none", says="none")

    def test_a_closed_pipe(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([cli.BINARY, "bench", "-m", MODEL, "-p", "0", "-n", "0", "-w", "1", "-r", "1", "-t", "1"],
                                  stdout=full, stderr=subprocess.PIPE, env=cli.clean_environment(), timeout=300)
        self.assertEqual(done.returncode, RESOURCE)
        self.assertIn(b"standard output", done.stderr)


class InspectMeasures(CliTest):
    def test_bandwidth_without_a_number(self):
        ceiling = self.json("inspect", "-m", MODEL, "--bandwidth")["ceiling"]
        self.assertGreaterEqual(ceiling["measured_threads"], 1)
        self.assertGreater(ceiling["bandwidth_gb_s"], 0)
        self.assertIn("read just now by", self.check("inspect", "--bandwidth", "-m", MODEL).stdout.decode())
        self.assertIsNone(self.json("inspect", "-m", MODEL, "--bandwidth", "60")["ceiling"]["measured_threads"])
        self.refused("inspect", "-m", MODEL, "--bandwidth", "0", says="--bandwidth 0")

    def test_the_device_is_a_device(self):
        for name in ("gpu", "cpu,cuda", "cuda:-1"):
            self.refused("inspect", "-m", MODEL, "--device", name, says=name)
        self.assertIn(b"nothing is measured", self.check("inspect", "-m", MODEL, "--device", "cpu").stderr)
        self.assertIsNone(self.json("inspect", "-m", MODEL, "--device", "cpu", "--bandwidth")["ceiling"]["device"])


if __name__ == "__main__":
    unittest.main()
