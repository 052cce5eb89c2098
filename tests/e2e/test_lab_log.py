"""lockstep lab log, whatif and roof from outside: recorded logs, what is refused, and (in --full) a real
server's log of this very moment against the timings that it gave itself."""
import json
import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from cli import BAD_FILE, BAD_USE, CHECK_FAILED, CONTROL, GEMMA3, MODELS, ROOT, SMOLLM2, CliTest

LOGS = ROOT / "tests/data/lab/logs"
RECORD = ROOT / "tools/record/server_logs"


def recorded():
    """(name, log, what the server said over HTTP) of each recorded log."""
    for path in sorted(LOGS.glob("*.json")):
        yield path.stem, path.with_suffix(".log"), json.loads(path.read_text())


class ServerTimings:
    """Compares lab log's requests with the `timings` that the server sent to its clients."""

    def agree(self, name, log, said):
        result = self.json("lab", "log", log)
        rows = [r for r in result["requests"]]
        answers = said["answers"]
        ik = said["engine"] == "ik_llama.cpp"
        for server, command in zip(result["servers"], said["commands"], strict=True):
            self.assertEqual(server["engine"], "ik_llama.cpp" if ik else "llama-server", name)
            self.assertEqual(server["n_slots"], int(command[command.index("-np") + 1]), name)
        lines = {generation for generation, count in result["generation"]["draft_lines"].items() if count}
        drafted = any("draft_n" in answer["timings"] for answer in answers)
        self.assertEqual(lines - {"none"}, {"1" if ik else "3"} if drafted else set(), name)
        self.assertEqual(len(rows), len(answers), name)
        # Requests sent together end in any order: matched by their times.
        for answer in answers:
            t = answer["timings"]
            match = [r for r in rows if r["server"] == answer["life"] and r["generated_tokens"] == t["predicted_n"]
                     and abs(r["decode_ms"] - t["predicted_ms"]) < 0.006 and abs(r["prompt_ms"] - t["prompt_ms"]) < 0.006]
            self.assertEqual(len(match), 1, f"{name}: {t}")
            row = match[0]
            if answer.get("id_slot") is not None:
                self.assertEqual(row["slot"], answer["id_slot"], name)
            self.assertEqual(row["evaluated_tokens"], t["prompt_n"], name)
            # ik_llama.cpp says how long the prompt was, and not what was taken over.
            prompt = answer["tokens_evaluated"]
            cached = t["cache_n"] if "cache_n" in t else prompt - t["prompt_n"]
            self.assertIn(row["prompt_tokens"], (None, prompt), name)
            self.assertIn(row["cached_tokens"], (None, cached), name)
            if row["warm"] is not None:
                self.assertEqual(row["warm"], cached > 0, name)
            if answer.get("tokens_cached") is not None:
                self.assertIn(row["end_tokens"], (None, answer["tokens_cached"]), name)
            if "draft_n" in t:
                self.assertEqual(row["draft"]["drafted"], t["draft_n"], name)
                self.assertEqual(row["draft"]["accepted"], t["draft_n_accepted"], name)
                # ik_llama.cpp: as many steps had a draft as had a first place in it.
                if t.get("draft_by_depth") and row["draft"]["steps"] is not None:
                    self.assertEqual(row["draft"]["steps"], t["draft_by_depth"][0]["draft_n"], name)
            else:
                self.assertIsNone(row["draft"], name)
            # The server's own rate, by the denominator that was found in the log.
            if t["predicted_n"] > 1:
                self.assertIn(row["denominator"], ("n" if ik else "n-1", "either"), name)
            if row["denominator"] in ("n", "n-1") and t["predicted_per_second"]:
                mine = row["decode_tok_s_all"] if row["denominator"] == "n" else row["decode_tok_s"]
                self.assertLess(abs(mine / t["predicted_per_second"] - 1), 0.006 / t["predicted_ms"] + 1e-9, name)
        return result


class RecordedLogs(ServerTimings, CliTest):
    def test_every_log_agrees_with_the_server(self):
        names = []
        for name, log, said in recorded():
            with self.subTest(name):
                result = self.agree(name, log, said)
                self.assertEqual(result["contradictions"], [], name)
                self.assertEqual(sum(f["garbled"] for f in result["files"]), 0, name)
                self.assertEqual(len(result["servers"]), len(said["commands"]), name)
                names.append(name)
        self.assertGreaterEqual(len(names), 11)

    def test_a_changed_log_does_not_agree(self):
        name, log, said = next(recorded())
        text = re.sub(rb"(accepted /\s+)(\d+)( generated)", lambda m: m[1] + str(int(m[2]) + 1).encode() + m[3], log.read_bytes())
        self.assertNotEqual(text, log.read_bytes())
        with tempfile.TemporaryDirectory() as folder:
            changed = Path(folder, "changed.log")
            changed.write_bytes(text)
            with self.assertRaises(AssertionError):
                self.agree(name, changed, said)
            self.assertIn("acceptance_ratio", {c["id"] for c in self.json("lab", "log", changed)["contradictions"]})

    def test_synthetic_generations(self):
        for name, lines, denominator in (("gen1", "1", "n"), ("gen2", "2", "n-1"), ("gen2b", "2b", "n-1")):
            with self.subTest(name):
                result = self.json("lab", "log", LOGS / f"synthetic-{name}.log")
                self.assertEqual(result["contradictions"], [])
                self.assertEqual(result["generation"]["draft_lines"][lines], len(result["requests"]))
                self.assertEqual({r["denominator"] for r in result["requests"]}, {denominator})
                # Five a step in generation 1, four in the others; without means it is divisibility alone.
                self.assertEqual(result["servers"][0]["draft_length"]["effective"], 5 if name == "gen1" else 4)
                self.assertTrue(result["servers"][0]["draft_length"]["proved"])
                for row in result["requests"]:
                    self.assertEqual(row["generated_tokens"], 1 + row["draft"]["accepted"] + row["draft"]["steps"])

    def test_vllm(self):
        result = self.json("lab", "log", LOGS / "synthetic-vllm.log")
        self.assertEqual(result["contradictions"], [])
        self.assertEqual(len(result["intervals"]), 6)
        server = result["servers"][0]
        self.assertEqual((server["engine"], server["draft_length"]["effective"], server["speculation"][0]["n_max"]), ("vllm", 3, 3))
        self.assertAlmostEqual(result["totals"]["draft"]["mean_accepted_len"],
                               1 + result["totals"]["draft"]["accepted"] / (result["totals"]["draft"]["drafted"] / 3))


class Output(CliTest):
    log = LOGS / "synthetic-gen2b.log"

    def test_text(self):
        out = self.check("lab", "log", self.log).stdout.decode()
        for part in ("draft lines of generation 2b", "over the n-1 tokens", "effective draft length 4", "accepted by position",
                     "no contradictions", "already running"):
            self.assertIn(part, out)

    def test_html_is_whole_and_self_contained(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder, "page.html")
            self.check("lab", "log", self.log, "--html", page)
            text = page.read_text()
            self.assertTrue(text.startswith("<!DOCTYPE html>") and text.rstrip().endswith("</html>"))
            self.assertEqual(text.count("<svg"), 3)
            for word in ("<script", "http:", "https:", "<link", "src="):
                self.assertNotIn(word, text)

    def test_compare(self):
        result = self.json("lab", "log", "--compare", self.log, LOGS / "synthetic-gen1.log")
        self.assertEqual(result["schema"], "lockstep.lab.log-compare/1")
        parts = result["acceptance"]["ln"] + result["rest"]["ln"] + (result["context"]["ln"] if result["context"] else 0)
        self.assertAlmostEqual(parts, result["ln_ratio"])
        same = self.json("lab", "log", "--compare", self.log, self.log)
        self.assertEqual(same["ln_ratio"], 0)
        self.refused("lab", "log", "--compare", self.log, says="two logs")

    def test_whatif(self):
        result = self.json("lab", "whatif", self.log, "--depth", "1..6", "--draft-ms", 1, "--verify-ms", 20)
        self.assertEqual([row["depth"] for row in result["depths"]], [0, 1, 2, 3, 4, 5, 6])
        self.assertEqual([row["beyond"] for row in result["depths"]], [False] * 5 + [True] * 2)
        for row in result["depths"]:
            self.assertLessEqual(row["tok_s_low"], row["tok_s"])
            self.assertGreaterEqual(row["tok_s_high"], row["tok_s"])
        self.refused("lab", "whatif", self.log, says="--draft-ms", code=CHECK_FAILED)
        # No positions, and drafting so dear that the assumption decides.
        self.refused("lab", "whatif", LOGS / "synthetic-gen2.log", "--depth", "1..16", "--draft-ms", 6, "--verify-ms", 20,
                     says="by position", code=CHECK_FAILED)
        for depth in ("0..3", "1..65", "x", "", "4..2"):
            self.refused("lab", "whatif", self.log, "--depth", depth, says="--depth")

    def test_roof(self):
        result = self.json("lab", "roof", "bytes=17.6e9,kv=16x4x256", "--bandwidth", 640, "--depth", "0,52000", "--width", 1)
        self.assertEqual(result["kv_bytes_per_position"], {"f16": 65536, "q8_0": 34816, "q4_0": 18432})
        rate = {(row["depth"], row["kv_type"]): row["tok_s"] for row in result["rows"]}
        self.assertAlmostEqual(rate[0, "q8_0"], 36.4, 1)
        self.assertAlmostEqual(rate[52000, "q8_0"], 33.0, 1)
        self.refused("lab", "roof", "bytes=1e9", says="--bandwidth")
        self.refused("lab", "roof", "bytes=1e9,kv=1x", "--bandwidth", 1, says="KV is LxHxD")
        self.refused("lab", "roof", "no-such.gguf", "--bandwidth", 1, code=BAD_FILE, says="no-such.gguf")

    @unittest.skipUnless(SMOLLM2.exists() and GEMMA3.exists(), "models missing")
    def test_roof_of_a_model_is_what_inspect_says(self):
        for model in (SMOLLM2, GEMMA3):
            inspected = self.json("inspect", "-m", model, "--bandwidth", 100)
            # inspect counts the pass's own position among those that are read.
            depths = sorted({row["depth"] + 1 for row in inspected["pass_bytes"]})
            result = self.json("lab", "roof", model, "--bandwidth", 100, "--depth", ",".join(map(str, depths)),
                               "--width", "1,2,8", "--kv-types", "f16")
            rows = {(row["width"], row["depth"]): row["bytes"] for row in result["rows"]}
            for row in inspected["pass_bytes"]:
                if row["width"] in (1, 2, 8):
                    self.assertAlmostEqual(rows[row["width"], row["depth"] + 1] / row["bytes"], 1, 9, (model.name, row))


class BadInput(CliTest):
    def write(self, data):
        path = Path(self.folder.name, "server.log")
        path.write_bytes(data)
        return path

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_files_that_are_no_logs(self):
        text = (LOGS / "synthetic-gen2b.log").read_text()
        for data, says in ((b"", "is empty"), (text.encode("utf-16"), "UTF-16"), (text.encode("utf-16-le"), "UTF-16"),
                           (bytes(range(256)) * 64, "binary"), (b"\x1f\x8b\x08" + b"x" * 99, "gzip"), (b"\0" * 999, "NUL"),
                           (b"GGUF\x03\0\0\0", "inspect"), (b"hello\nworld\n", "no request")):
            self.refused("lab", "log", self.write(data), code=BAD_FILE, says=["server.log", says])
            self.refused("lab", "whatif", self.write(data), code=BAD_FILE, says=["server.log", says])
        self.refused("lab", "log", self.folder.name, code=BAD_FILE, says="directory")
        self.refused("lab", "log", "missing.log", code=BAD_FILE, says="missing.log")
        self.refused("lab", "log", says="no log")

    def test_the_good_part_of_a_damaged_log(self):
        good = (LOGS / "synthetic-gen2b.log").read_bytes()
        whole = self.json("lab", "log", LOGS / "synthetic-gen2b.log")
        damaged = b"\xef\xbb\xbf" + b"x" * 10_000_000 + b"\n" + good.replace(b"\n", b"\r\n") + b"\0\0 nul \0\n\x1b[31mslot\x1b[0m \xff\xfe\n"
        result = self.json("lab", "log", self.write(damaged + b"slot print_timing: id  0 | task 99 |        eval time = 12"))
        self.assertEqual(len(result["requests"]), len(whole["requests"]))
        self.assertEqual(result["totals"], whole["totals"])
        facts = result["files"][0]
        self.assertEqual((facts["cut"], facts["garbled"], facts["unfinished"], facts["byte_order_mark"]), (1, 1, True, True))
        self.assertGreater(facts["crlf"], 0)

    def test_a_page_does_not_take_the_place_of_its_log(self):
        log = self.write((LOGS / "plain-np4.log").read_bytes())
        kept = Path(log).read_bytes()
        self.refused("lab", "log", log, "--html", log, says="--html")
        self.assertEqual(Path(log).read_bytes(), kept)

    def test_cut_anywhere(self):
        good = (LOGS / "synthetic-gen1.log").read_bytes()
        for end in range(1500, len(good), 997):
            result = self.json("lab", "log", self.write(good[:end]))
            self.assertGreaterEqual(len(result["requests"]), 1)

    def test_nothing_reaches_the_terminal(self):
        good = (LOGS / "synthetic-gen2b.log").read_bytes()
        evil = good.replace(b"I slot print", b"I slot print", 1) + b"adding speculative implementation '\x1b]0;x\x07'\n- n_max=3\nbuild: \x9b31m\n"
        out = self.check("lab", "log", self.write(evil)).stdout
        self.assertIsNone(CONTROL.search(out))


@unittest.skipUnless(os.environ.get("LOCKSTEP_FULL"), "records a real server's log: only in --full")
@unittest.skipUnless(SMOLLM2.exists(), "model missing")
class RealServer(ServerTimings, CliTest):
    def test_a_log_of_this_moment(self):
        # A binary that is there already saves the build, which is most of this test's time.
        server = os.environ.get("LOCKSTEP_LLAMA_SERVER")
        if not server:
            built = subprocess.run([RECORD / "build_peer.sh"], capture_output=True, text=True, timeout=7200)
            if built.returncode != 0:
                self.skipTest(f"the peer can't be built here: {built.stderr[-300:]}")
            server = built.stdout.split()[-1]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["/usr/bin/python3", RECORD / "record.py", "--server", server, "--models", MODELS, "--out", folder,
                            "draft7-lv4", "draft5-restart", "plain-np4", "plain-cold", "ngram-lv4", "ngram-mod", "jsonl"],
                           check=True, timeout=7200)
            made = sorted(Path(folder).glob("*.json"))
            self.assertEqual(len(made), 7)
            for path in made:
                with self.subTest(path.stem):
                    result = self.agree(path.stem, path.with_suffix(".log"), json.loads(path.read_text()))
                    self.assertEqual(result["contradictions"], [], path.stem)


if __name__ == "__main__":
    unittest.main()
