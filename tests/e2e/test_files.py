"""Files in, files out: hostile models, inspect, tokenize, eval, synth."""
import json
import math
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import unittest

import cli
from cli import BAD_FILE, BAD_USE, CliTest, GEMMA3, OK, RESOURCE, SMOLLM2

LIMIT_BYTES = 4 << 30    # address space: what a refusal may take, the mapped file and thread stacks included
LIMIT_SECONDS = 60


def limited():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Temporary(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, data):
        path = self.folder / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path


class Hostile(Temporary):
    def test_every_hostile_file_is_refused_in_one_line(self):
        maker = cli.BUILD / "tests/support/make_hostile"
        self.assertTrue(maker.exists(), f"{maker}: build the tests first")
        subprocess.run([maker, self.folder], check=True, stdout=subprocess.DEVNULL)
        index = json.loads((self.folder / "index.json").read_text())
        self.assertGreaterEqual(len(index), 60)
        commands = {"inspect": ["inspect"], "run": ["run", "-p", "x", "-n", "1", "-t", "1"]}
        for entry in index:
            for command in entry["commands"]:
                with self.subTest(file=entry["file"], what=entry["what"], command=command):
                    done = subprocess.run([cli.BINARY, *commands[command], "-m", self.folder / entry["file"]],
                                          stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_SECONDS,
                                          preexec_fn=limited, env=cli.clean_environment())
                    self.assertEqual(done.returncode, entry["expect_exit"], done.stderr)
                    self.assertEqual(done.stdout, b"")
                    self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                    self.assertLess(len(done.stderr), 4096)
                    self.assertIsNone(cli.CONTROL.search(done.stderr.rstrip(b"\n")), done.stderr)
        print(f"{len(index)} hostile files")


class Inspect(CliTest):
    def test_what_the_facts_say(self):
        out = self.json("inspect", "-m", GEMMA3, "--bandwidth", 100)
        self.assertEqual(out["sha256"], "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818")
        self.assertEqual((out["architecture"], out["parameters"], len(out["tensors"]), len(out["metadata"])),
                         ("gemma3", 268098176, 236, 33))
        self.assertEqual((out["hyperparameters"]["n_layer"], out["hyperparameters"]["window"]), (18, 512))
        types = {t["type"]: t["tensors"] for t in out["tensor_types"]}
        self.assertEqual(sum(types.values()), 236)
        # 18 layers, one KV head of 256: 2 (K and V) x 2 bytes.
        self.assertEqual(out["kv_bytes_per_position"]["f16"], 18 * 256 * 2 * 2)
        rows = {(r["width"], r["depth"]): r["bytes"] for r in out["pass_bytes"]}
        tensors = sum(t["bytes"] for t in out["tensors"])
        self.assertLess(abs(rows[1, 0] - tensors), 40000)   # every tensor once, and the first KV row
        ceiling = out["ceiling"]["rows"][0]
        self.assertAlmostEqual(ceiling["tok_s"], 100e9 / rows[1, ceiling["depth"]], places=6)
        text = self.check("inspect", "-m", GEMMA3).stdout.decode()
        for part in ("gemma3.block_count", "268098176", "q5_0", out["sha256"]):
            self.assertIn(part, text)

    def test_documented_fields(self):
        documented = (cli.ROOT / "docs/json.md").read_text()
        out = self.json("inspect", "-m", SMOLLM2, "--bandwidth", 60)
        for key in [*out, *out["hyperparameters"], *out["ceiling"], *out["metadata"][0], *out["tensors"][0]]:
            self.assertIn(f"`{key}`", documented)

    def test_sources_in_memory(self):
        out = self.json("inspect", "-m", "synth:llama-tiny@q4_0,seed=3")
        self.assertEqual((out["synthetic"], out["runnable"]), (True, True))
        self.refused("inspect", "-m", "synth:no-such-shape", says="no-such-shape")
        self.refused("inspect", "-m", "synth:llama-tiny@q9_9", says="q9_9")


class UnknownArchitecture(Temporary):
    def test_is_shown_with_a_note(self):
        self.check("synth", "llama-tiny", "-o", self.folder / "a.gguf")
        data = (self.folder / "a.gguf").read_bytes()
        # The same length, so that no other length changes.
        key = b"general.architecture"
        at = data.index(key) + len(key) + 4 + 8
        self.assertEqual(data[at:at + 5], b"llama")
        path = self.write("b.gguf", data[:at] + b"mambo" + data[at + 5:])
        done = self.check("inspect", "-m", path)
        self.assertIn("mambo", done.stderr.decode())
        self.assertIn("mambo", done.stdout.decode())
        out = self.json("inspect", "-m", path)
        self.assertEqual((out["runnable"], out["hyperparameters"], out["architecture"]), (False, None, "mambo"))
        self.refused("run", "-m", path, "-p", "x", code=BAD_FILE, says="mambo")


class Tokenize(Temporary):
    def test_forms(self):
        text = "Hello world"
        listed = self.check("tokenize", "-m", SMOLLM2, "-p", text).stdout.decode()
        self.assertEqual(listed, " 19556 -> 'Hello'\n   905 -> ' world'\n")
        self.assertEqual(self.check("tokenize", "-m", SMOLLM2, "-p", text, "--ids").stdout, b"[19556, 905]\n")
        counted = self.check("tokenize", "-m", SMOLLM2, "--stdin", "--show-count", "--ids", input=text.encode()).stdout
        self.assertEqual(counted, b"[19556, 905]\nTotal number of tokens: 2\n")
        out = self.json("tokenize", "-m", GEMMA3, "-p", text)
        self.assertEqual(out["ids"][0], 2)
        self.assertEqual(self.json("tokenize", "-m", GEMMA3, "-p", text, "--no-bos")["ids"], out["ids"][1:])
        self.assertEqual(out["count"], len(out["ids"]))

    def test_special_tokens(self):
        text = "<|im_start|>"
        self.assertEqual(self.json("tokenize", "-m", SMOLLM2, "-p", text)["ids"], [1])
        self.assertGreater(self.json("tokenize", "-m", SMOLLM2, "-p", text, "--no-parse-special")["count"], 3)

    def test_files_are_taken_to_the_last_byte(self):
        path = self.write("t.txt", "a\n")
        self.assertEqual(self.json("tokenize", "-m", SMOLLM2, "-f", path)["count"], 2)
        self.refused("tokenize", "-m", SMOLLM2, "-f", self.folder / "none", code=BAD_FILE, says="none")


class Eval(Temporary):
    def test_ids_as_given(self):
        ids = [[1, 19556, 905, 30], [19556, 905]]
        path = self.write("ids.json", json.dumps(ids))
        out = self.json("eval", "-m", SMOLLM2, "--ids", path, "--top", 5)
        self.assertEqual([s["ids"] for s in out["sequences"]], ids)
        self.assertEqual([len(s["logprobs"]) for s in out["sequences"]], [3, 1])
        everything = [p for s in out["sequences"] for p in s["logprobs"]]
        self.assertAlmostEqual(out["mean_logprob"], sum(everything) / len(everything), places=12)
        self.assertAlmostEqual(out["perplexity"], math.exp(-out["mean_logprob"]), places=9)
        for sequence in out["sequences"]:
            for t, top in enumerate(sequence["top"]):
                self.assertEqual(len(top), 5)
                self.assertEqual(top, sorted(top, key=lambda entry: -entry["logprob"]))
                for entry in top:
                    if entry["id"] == sequence["ids"][t + 1]:
                        self.assertEqual(entry["logprob"], sequence["logprobs"][t])

    def test_passes_and_threads_do_not_matter(self):
        text = self.write("t.txt", "The tide comes in twice a day, and twice a day it goes out again. " * 3)
        plain = self.json("eval", "-m", SMOLLM2, "-f", text, "--top", 3, "-ub", 1, "-t", 1)
        for flags in (["-ub", 7], ["-ub", 64, "-t", 3], ["--isa", "scalar"]):
            self.assertEqual(self.json("eval", "-m", SMOLLM2, "-f", text, "--top", 3, *flags), plain)
        split = self.json("eval", "-m", SMOLLM2, "-f", text, "-c", 16)
        self.assertGreater(len(split["sequences"]), 2)

    def test_kl_against_a_saved_result(self):
        text = self.write("t.txt", "The tide comes in twice a day.")
        saved = self.write("saved.json", self.check("eval", "-m", SMOLLM2, "-f", text, "--json", "--top", 50).stdout)
        same = self.json("eval", "-m", SMOLLM2, "-f", text, "--kl", saved)["kl"]
        self.assertAlmostEqual(same["mean"], 0, places=9)
        self.assertEqual(same["top1_agreement"], 1)
        other = self.json("eval", "-m", SMOLLM2, "-f", text, "--kl", saved, "-ctk", "q8_0", "-ctv", "q8_0")["kl"]
        self.assertGreater(other["mean"], 1e-7)
        self.assertLess(other["mean"], 0.1)
        self.assertIn("mean KL", self.check("eval", "-m", SMOLLM2, "-f", text, "--kl", saved).stdout.decode())

    def test_saved_results_that_do_not_fit(self):
        text = self.write("t.txt", "The tide comes in twice a day.")
        without = self.write("a.json", self.check("eval", "-m", SMOLLM2, "-f", text, "--json").stdout)
        self.refused("eval", "-m", SMOLLM2, "-f", text, "--kl", without, code=BAD_FILE, says="--top")
        other = self.write("b.json", self.check("eval", "-m", SMOLLM2, "-f", self.write("u.txt", "One two"), "--json",
                                                "--top", 3).stdout)
        self.refused("eval", "-m", SMOLLM2, "-f", text, "--kl", other, code=BAD_FILE, says="not the same ids")
        for junk in ("", "[]", "{}", '{"sequences": [{"top": 3}]}', '{"sequences": [{"top": [[{"id": 1}]]}]}'):
            self.refused("eval", "-m", SMOLLM2, "-f", text, "--kl", self.write("j.json", junk), code=BAD_FILE, says="j.json")

    def test_lists_longer_than_the_context(self):
        path = self.write("ids.json", json.dumps([[5] * 100]))
        self.refused("eval", "-m", SMOLLM2, "--ids", path, "-c", 64, says=["100", "64"])


class Synth(Temporary):
    def test_the_same_spec_gives_the_same_bytes_and_a_model_that_runs(self):
        a, b = self.folder / "a.gguf", self.folder / "b.gguf"
        out = self.json("synth", "gemma3-tiny@q4_0,seed=5", "-o", a)
        self.assertEqual(out["bytes"], a.stat().st_size)
        self.check("synth", "synth:gemma3-tiny@q4_0,seed=5", "-o", b)
        self.assertEqual(a.read_bytes(), b.read_bytes())
        from_file = self.json("run", "-m", a, "-p", "abc", "-n", 8, "-s", 1)
        in_memory = self.json("run", "-m", "synth:gemma3-tiny@q4_0,seed=5", "-p", "abc", "-n", 8, "-s", 1)
        self.assertEqual(from_file["ids"], in_memory["ids"])
        self.assertTrue(from_file["result"]["synthetic"])
        self.check("prove", "-m", a, "--quick", "--only", "draft replay", "-t", 1)

    def test_a_full_disk_leaves_nothing(self):
        def no_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)   # so that write says EFBIG
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        done = subprocess.run([cli.BINARY, "synth", "llama-tiny", "-o", self.folder / "t.gguf"], capture_output=True,
                              preexec_fn=no_room)
        self.assertEqual((done.returncode, done.stdout), (RESOURCE, b""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(b"t.gguf", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    @unittest.skipUnless(os.geteuid() == 0, "only root can mount a small disk")
    def test_a_small_disk_leaves_nothing(self):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", self.folder], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("no right to mount here")
        try:
            self.refused("synth", "llama-tiny", "-o", self.folder / "t.gguf", code=RESOURCE, says="t.gguf")
            self.assertEqual(list(self.folder.iterdir()), [])
        finally:
            subprocess.run(["umount", self.folder], check=True)

    def test_bad_use(self):
        self.refused("synth", says="no SPEC")
        self.refused("synth", "llama-tiny", says="-o")
        self.refused("synth", "llama-tiny", "-o", "/dev/null", says="not a regular file")
        self.refused("synth", "llama-tiny", "-o", self.folder / "no/such/t.gguf", code=RESOURCE, says="t.gguf")
        for spec in ("", "frob", "llama-tiny@frob", "llama-tiny,layers=0", "llama-tiny,layers=x", "llama-tiny,frob=1",
                     "llama-tiny,heads=7", "llama-tiny,vocab=99999999999"):
            with self.subTest(spec):
                self.refused("synth", spec, "-o", self.folder / "t.gguf")
        self.refused("synth", "llama-tiny", "more", "-o", "x")
        self.refused("inspect", "-m", "synth:llama-8b,layers=1000", code=RESOURCE, says="bytes")


if __name__ == "__main__":
    unittest.main()
