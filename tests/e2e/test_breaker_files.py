"""Files that change, shrink, end early or lie; disks and memory that run out."""
import copy
import json
import os
import resource
import signal
import struct
import subprocess
import time
import unittest

import cli
from cli import BAD_FILE, OK, RESOURCE
from test_files import Temporary

TINY = "synth:llama-tiny"
LARGE = "llama-135m@f32"   # takes seconds to write


def limit(which, amount):
    def set_it():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(which, (amount, amount))
    return set_it


def limited(arguments, before):
    return subprocess.run([str(cli.BINARY), *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          preexec_fn=before, env=cli.clean_environment(), timeout=300)


class SynthFiles(Temporary):
    def test_a_signal_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(number):
                process = subprocess.Popen([cli.BINARY, "synth", LARGE, "-o", self.folder / "x.gguf"],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(0.3)
                self.assertIsNone(process.poll(), "finished before the signal")
                process.send_signal(number)
                self.assertEqual(process.wait(60), -number)
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_the_file_size_limit(self):
        done = limited(["synth", "llama-tiny", "-o", self.folder / "uf.gguf"], limit(resource.RLIMIT_FSIZE, 100 * 1024))
        self.assertEqual((done.returncode, done.stdout), (RESOURCE, b""), done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(b"bytes of disk", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_names_that_cannot_be_written(self):
        self.refused("synth", "llama-tiny", "-o", "", says="-o")
        done = self.refused("synth", "llama-tiny", "-o", self.folder / "no/t.gguf", code=RESOURCE, says="make it first")
        self.assertNotIn(b"bytes of disk", done.stderr)

    def test_a_link_is_written_through_and_a_file_replaced(self):
        old = self.write("old.gguf", "old")
        (self.folder / "link.gguf").symlink_to("old.gguf")
        (self.folder / "dangling.gguf").symlink_to("new.gguf")
        for link, target in (("link.gguf", old), ("dangling.gguf", self.folder / "new.gguf")):
            self.check("synth", "llama-tiny", "-o", self.folder / link)
            self.assertTrue((self.folder / link).is_symlink())
            self.assertEqual(target.read_bytes()[:4], b"GGUF")
        self.assertEqual(len(list(self.folder.iterdir())), 4)

    def test_a_file_without_the_right_to_write_is_kept(self):
        path = self.write("kept.gguf", "kept")
        path.chmod(0o444)
        self.folder.chmod(0o777)
        done = limited(["synth", "llama-tiny", "-o", path], (lambda: os.setuid(65534)) if os.geteuid() == 0 else None)
        self.assertEqual(done.returncode, RESOURCE, done.stderr)
        self.assertEqual(path.read_bytes(), b"kept")
        self.assertEqual(list(self.folder.iterdir()), [path])

    def test_a_key_given_twice(self):
        for spec in ("llama-tiny,layers=1,layers=2", "llama-tiny,seed=1@q4_0,seed=1"):
            self.refused("synth", spec, "-o", self.folder / "x.gguf", says="twice")


class Memory(Temporary):
    def test_tokenize_json_takes_little_and_fails_in_one_line(self):
        path = self.write("t.txt", "The tide comes in twice a day. 1234567890 \\n" * 140_000)
        arguments = ["tokenize", "-m", TINY, "-f", path, "--json"]
        for megabytes in (60, 100, 140, 180, 220, 300):
            with self.subTest(megabytes):
                done = limited(arguments, limit(resource.RLIMIT_AS, megabytes * 1_000_000))
                self.assertIn(done.returncode, (OK, RESOURCE), done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 0 if done.returncode == OK else 1, done.stderr)
                if done.returncode == OK:
                    out = json.loads(done.stdout)
                    self.assertEqual((out["count"], len(out["tokens"])), (len(out["ids"]), len(out["ids"])))
        # 6 MB of text, mostly one token a byte.
        self.assertEqual(limited(arguments, limit(resource.RLIMIT_AS, 500_000_000)).returncode, OK)

    def test_eval_json_fails_in_one_line(self):
        path = self.write("ids.json", json.dumps([[5, 6, 7, 8] * 100]))
        seen = set()
        for kilobytes in (*range(26_000, 48_000, 1000), 61_440, 80_000, 120_000):
            done = limited(["eval", "-m", TINY, "--ids", path, "--json", "--top", 500, "-t", 1],
                           limit(resource.RLIMIT_AS, kilobytes * 1024))
            if done.returncode == 127:
                continue  # not even the loader had room
            seen.add(done.returncode)
            self.assertIn(done.returncode, (OK, RESOURCE), (kilobytes, done.stderr))
            self.assertEqual(len(done.stderr.splitlines()), 0 if done.returncode == OK else 1, done.stderr)
        self.assertEqual(seen, {OK, RESOURCE})


class Oddities(Temporary):
    """Keys of a model file that contradict each other: refused where they would be used, else told."""

    def odd(self, *changes):
        """A model with bytes changed: (text, bytes after it up to the place, old, new)."""
        path = self.folder / "odd.gguf"
        self.check("synth", "llama-tiny", "-o", path)
        data = bytearray(path.read_bytes())
        for key, distance, old, new in changes:
            at = data.index(key) + len(key) + distance
            self.assertEqual(data[at:at + len(old)], old)
            data[at:at + len(new)] = new
        path.write_bytes(data)
        return path

    @staticmethod
    def number(key, old, new):   # u32, after its type
        return key, 4, struct.pack("<I", old), struct.pack("<I", new)

    def test_ids_that_are_no_tokens(self):
        n = self.json("inspect", "-m", TINY)["hyperparameters"]["n_vocab"]
        for key, old in ((b"bos", 256), (b"eos", 257), (b"eot", 259)):
            path = self.odd(self.number(b"tokenizer.ggml." + key + b"_token_id", old, n))
            says = f'odd.gguf: metadata key "tokenizer.ggml.{key.decode()}_token_id" is {n}; accepted: the id of a token'
            self.refused("run", "-m", path, "-p", "a", "-n", 1, code=BAD_FILE, says=says)
            notes = self.json("inspect", "-m", path)["notes"]
            self.assertEqual(len(notes), 1)
            self.assertIn("the tokenizer cannot be used: " + str(path), notes[0])

    def test_what_does_no_harm_is_told(self):
        run = ["run", "-p", "a", "-n", 2, "-s", 1, "-t", 1]
        plain = self.check(*run, "-m", self.odd())
        self.assertNotIn(b"note: ", plain.stderr)
        n = self.json("inspect", "-m", TINY)["hyperparameters"]["n_vocab"]
        # The first merge, after the array's types and its own length: its space becomes a letter.
        path = self.odd(self.number(b"llama.vocab_size", n, n - 1),
                        (b"tokenizer.ggml.merges", 4 + 4 + 8 + 8 + 2, b" ", b"\x1b"))
        done = self.check(*run, "-m", path)
        notes = [line for line in done.stderr.splitlines() if b"note: " in line]
        self.assertEqual(len(notes), 2, done.stderr)
        self.assertIn(b'lockstep: note: %s: metadata key "llama.vocab_size" is %d' % (str(path).encode(), n - 1), notes[0])
        self.assertIn(b"1 of ", notes[1])
        self.assertIn(b"\\x1B", notes[1])
        self.assertIsNone(cli.CONTROL.search(done.stderr))
        out = self.json("inspect", "-m", path)
        self.assertEqual([note.encode() for note in out["notes"]], [note[len("lockstep: note: "):] for note in notes])
        self.assertEqual(self.check("inspect", "-m", path).stdout.count(b"\nnote  "), 2)

    def test_real_models_have_no_oddities(self):
        for model in (cli.SMOLLM2, cli.GEMMA3):
            self.assertEqual(self.json("inspect", "-m", model)["notes"], [])


class Saved(Temporary):
    def test_only_a_whole_result_of_these_ids_is_compared(self):
        ids = self.write("ids.json", "[[5, 6, 7], [8, 9]]")
        good = self.json("eval", "-m", TINY, "--ids", ids, "--top", 3)
        self.assertIn("`n_vocab`", (cli.ROOT / "docs/json.md").read_text())

        def compare(saved):
            return ["eval", "-m", TINY, "--ids", ids, "--kl", self.write("saved.json", json.dumps(saved))]
        self.assertEqual(self.check(*compare(good)).stderr, b"")
        top = ("sequences", 0, "top", 1)
        cases = [(("schema",), "lockstep.eval/2", "schema"), (("schema",), 3, "schema"), (("n_vocab",), 7, "n_vocab"),
                 (("law",), 1, "law"), (("model_sha256",), None, "model_sha256"),
                 (("sequences",), {}, "sequences"), (("sequences", 1, "ids", 1), 10, "sequences[1].ids[1]"),
                 (("sequences", 1, "ids", 1), 9.0, "sequences[1].ids[1]"), (("sequences", 0, "top"), [], "sequences[0].top"),
                 (top, [], "sequences[0].top[1]"), (top, good["sequences"][0]["top"][1][:2], "sequences[0].top[1]"),
                 ((*top, 2, "id"), 1.5, "top[1][2].id"), ((*top, 2, "id"), -1, "top[1][2].id"),
                 ((*top, 2, "id"), good["n_vocab"], "top[1][2].id"),
                 ((*top, 2, "id"), good["sequences"][0]["top"][1][0]["id"], "twice"),
                 ((*top, 0, "logprob"), 0.5, "top[1][0].logprob"), ((*top, 0, "logprob"), None, "top[1][0].logprob"),
                 ((*top, 2, "logprob"), -1e-9, "top[1][2].logprob"), ((*top, 0), 7, "top[1][0].id"),
                 (top, [{"id": i, "logprob": -0.1} for i in range(3)], "add up")]
        for path, value, says in cases:
            with self.subTest(path=path, value=value):
                bad = copy.deepcopy(good)
                at = bad
                for step in path[:-1]:
                    at = at[step]
                at[path[-1]] = value
                self.refused(*compare(bad), code=BAD_FILE, says=["saved.json", says])

    def test_another_model_and_law_are_said(self):
        ids = self.write("ids.json", "[[5, 6, 7]]")
        saved = self.json("eval", "-m", TINY + "@q4_0", "--ids", ids, "--top", 3)
        saved["law"] = "other"
        done = self.check("eval", "-m", TINY, "--ids", ids, "--kl", self.write("saved.json", json.dumps(saved)))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(b"another model", done.stderr)
        self.assertIn(b"law", done.stderr)


class Inputs(Temporary):
    def test_mistakes_in_json(self):
        for text, says in ((b"[[1, 2],, [3]]", "byte 9"), (b"[[1, 2]", "ends after 7 bytes"), (b"", "ends after 0"),
                           (b"[[1, 2]]\0[[3", "byte 9 is zero"), (b"[[1, 2]] x", "byte 10"), (b"[[1e999, 2]]", "number")):
            with self.subTest(text):
                done = self.refused("eval", "-m", TINY, "--ids", self.write("i.json", text), code=BAD_FILE, says=says)
                self.assertNotIn(b"json.exception", done.stderr)

    def test_a_context_of_one(self):
        self.refused("eval", "-m", TINY, "-f", self.write("t.txt", "some text"), "-c", 1, says="-c 1")

    def test_endless_files(self):
        done = limited(["eval", "-m", TINY, "-f", "/dev/zero"], limit(resource.RLIMIT_AS, 1_200_000_000))
        self.assertEqual(done.returncode, BAD_FILE, done.stderr)
        self.assertIn(b"/dev/zero: more than", done.stderr)

    def test_a_model_that_shrinks_under_the_reader(self):
        path = self.folder / "m.gguf"
        self.check("synth", "llama-135m@q4_0", "-o", path)
        process = subprocess.Popen([cli.BINARY, "run", "-m", path, "-p", "a", "-n", "5000", "-c", "5002", "-t", "2"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(1)
        self.assertIsNone(process.poll(), "finished before the file shrank")
        os.truncate(path, 4096)
        error = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, BAD_FILE, error)
        self.assertIn(b"lockstep: a mapped file got shorter while it was read", error)


if __name__ == "__main__":
    unittest.main()
