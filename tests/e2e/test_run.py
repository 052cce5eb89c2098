"""`lockstep run` on the real models: text, streams, seeds, stops, chats."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import time
import unittest

import cli
from cli import BAD_USE, CliTest, GEMMA3, OK, RESOURCE, SMOLLM2, run

GREEDY = ["--temp", "0", "-t", "2"]


class Completion(CliTest):
    def test_prompt_then_text_on_stdout_and_figures_on_stderr(self):
        done = self.check("run", "-m", SMOLLM2, "-p", "The capital of France is", "-n", 8, *GREEDY)
        self.assertRegex(done.stdout.decode(), r"^The capital of France is\b.*Paris")
        line = done.stderr.decode()
        self.assertRegex(line, r"^lockstep: 5 prompt tokens \(0 cached\), 8 generated, .* tok/s after the first, "
                               r".* ms to the first, seed \d+, token sha256 [0-9a-f]{16}\n$")
        alone = self.check("run", "-m", SMOLLM2, "-p", "The capital of France is", "-n", 8, "--no-display-prompt", *GREEDY)
        self.assertEqual(b"The capital of France is" + alone.stdout, done.stdout)

    def test_json_has_every_documented_field(self):
        out = self.json("run", "-m", SMOLLM2, "-p", "One two three", "-n", 6, "-s", 7, "--spec-type", "ngram")
        self.assertEqual(list(out), ["schema", "prompt", "text", "ids", "finish", "stop_string", "seed", "load", "result"])
        self.assertEqual((out["schema"], out["seed"], out["finish"], len(out["ids"])), ("lockstep.run/1", 7, "length", 6))
        result = out["result"]
        for key in ("prompt_tokens", "cached_tokens", "generated_tokens", "token_sha256", "ttft_ms", "decode_ms",
                    "decode_tok_s", "wall_tok_s", "draft", "phases_ms", "identity", "synthetic"):
            self.assertIn(key, result)
        self.assertEqual(result["identity"]["model_sha256"],
                         "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")
        self.assertEqual(result["identity"]["binary_sha256"], cli.binary_sha256())
        documented = (cli.ROOT / "docs/json.md").read_text()
        for key in [*out, *result, *result["identity"], *result["draft"]]:
            self.assertIn(f"`{key}`", documented)

    def test_without_a_seed_one_is_drawn_and_repeats(self):
        flags = ["run", "-m", SMOLLM2, "-p", "Once", "-n", 12, "--temp", "1.2"]
        first = self.json(*flags)
        again = self.json(*flags, "-s", first["seed"])
        other = self.json(*flags)
        self.assertEqual(again["ids"], first["ids"])
        self.assertNotEqual(other["seed"], first["seed"])
        self.assertNotEqual(other["ids"], first["ids"])

    def test_whatever_drafts_the_text_is_the_same(self):
        prompt = "one two three four. one two three four. one two"
        for sampling in (["--temp", "0"], ["--temp", "0.9", "-s", "5"],
                         ["--temp", "0.8", "-s", "6", "--repeat-penalty", "1.2", "--presence-penalty", "0.3"]):
            flags = ["run", "-m", SMOLLM2, "-p", prompt, "-n", 24, *sampling]
            plain = self.json(*flags)
            self.assertEqual(plain["result"]["draft"]["drafted"], 0)
            for drafts in (["--spec-type", "ngram", "--spec-draft-n-max", "7"], ["--spec-type", "suffix"],
                           ["-md", SMOLLM2], ["--spec-type", "chain:ngram+draft-simple", "-md", SMOLLM2],
                           ["--spec-type", "ngram", "--spec-draft-n-max", "auto"], ["--spec-type", "ngram-simple,draft-simple", "-md", SMOLLM2],
                           ["-t", "1", "-ub", "3"]):
                with self.subTest(sampling=sampling, drafts=drafts):
                    out = self.json(*flags, *drafts)
                    self.assertEqual(out["ids"], plain["ids"])
                    self.assertEqual(out["text"], plain["text"])
                    self.assertEqual(out["result"]["token_sha256"], plain["result"]["token_sha256"])

    def test_stop_string_ends_the_same_run_for_every_draft(self):
        flags = ["run", "-m", SMOLLM2, "-p", "one two three four. one two three four. one two", "-n", 24, "-r", "four", *GREEDY]
        plain = self.json(*flags)
        self.assertEqual((plain["finish"], plain["stop_string"]), ("stop", "four"))
        self.assertNotIn("four", plain["text"])
        drafted = self.json(*flags, "--spec-type", "suffix", "--spec-draft-n-max", "12")
        self.assertGreater(drafted["result"]["draft"]["accepted"], 0)
        self.assertEqual(drafted["ids"], plain["ids"])
        self.assertEqual(drafted["text"], plain["text"])
        self.assertEqual(drafted["result"]["token_sha256"], plain["result"]["token_sha256"])
        self.assertEqual(drafted["result"]["generated_tokens"], len(plain["ids"]))

    def test_prompt_from_a_file_and_from_stdin(self):
        expected = self.check("run", "-m", SMOLLM2, "-p", "Red, green and", "-n", 6, *GREEDY).stdout
        path = self.temporary("prompt.txt", b"Red, green and\n")
        self.assertEqual(self.check("run", "-m", SMOLLM2, "-f", path, "-n", 6, *GREEDY).stdout, expected)
        self.assertEqual(self.check("run", "-m", SMOLLM2, "-n", 6, *GREEDY, input=b"Red, green and").stdout, expected)

    def test_escapes(self):
        a = self.json("run", "-m", SMOLLM2, "-p", "a\\tb\\x41\\n", "-n", 1, *GREEDY)
        self.assertEqual(a["prompt"], "a\tbA\n")
        b = self.json("run", "-m", SMOLLM2, "-p", "a\\tb", "--no-escape", "-n", 1, *GREEDY)
        self.assertEqual(b["prompt"], "a\\tb")
        c = self.json("run", "-m", SMOLLM2, "-n", 1, *GREEDY, input=b"a\\tb")
        self.assertEqual(c["prompt"], "a\\tb")

    def test_ignore_eos_and_logit_bias(self):
        prompt = "<|im_start|>user\\nSay yes.<|im_end|>\\n<|im_start|>assistant\\n"
        ends = self.json("run", "-m", SMOLLM2, "-p", prompt, "-n", 60, *GREEDY)
        self.assertEqual(ends["finish"], "stop")
        goes_on = self.json("run", "-m", SMOLLM2, "-p", prompt, "-n", 60, "--ignore-eos", *GREEDY)
        self.assertEqual(goes_on["finish"], "length")
        first = ends["ids"][0]
        banned = self.json("run", "-m", SMOLLM2, "-p", prompt, "-n", 1, "-l", f"{first}-inf", *GREEDY)
        self.assertNotEqual(banned["ids"][0], first)
        forced = self.json("run", "-m", SMOLLM2, "-p", prompt, "-n", 3, "-l", "300+100", *GREEDY)
        self.assertEqual(forced["ids"], [300, 300, 300])
        for bad in ("x", "12", "+3", "12+", "999999+1", "12+nan"):
            self.refused("run", "-m", SMOLLM2, "-p", "x", "-l", bad, says=bad.split("+")[0] if bad[0] == "9" else bad)

    def test_bad_sampling_is_named(self):
        for flags, says in ((["--repeat-penalty", "0"], "penalty"), (["--samplers", "top_k;frob"], "frob"),
                            (["--samplers", "dry;top_k"], "dry"), (["--spec-type", "frob"], "frob"),
                            (["--spec-type", "draft-mtp"], "draft-mtp"), (["--spec-type", "model"], "-md"),
                            (["--spec-type", "replay"], "replay"), (["-ctk", "q4_1"], "q4_1"), (["--isa", "sse9"], "sse9"),
                            (["--spec-draft-n-min", "5", "--spec-draft-n-max", "2"], "n-min"),
                            (["-md", SMOLLM2, "--spec-type", "ngram"], "contradict")):
            with self.subTest(flags):
                self.refused("run", "-m", SMOLLM2, "-p", "x", *flags, says=says)

    def test_a_drafter_with_another_vocabulary_is_refused(self):
        self.refused("run", "-m", SMOLLM2, "-md", GEMMA3, "-p", "x", says="vocabulary")
        self.refused("run", "-m", SMOLLM2, "-md", "synth:llama-tiny", "-p", "x", says="vocabulary")

    def test_contexts(self):
        self.refused("run", "-m", SMOLLM2, "-p", "word " * 200, "-c", 64, says=["201", "64", "-c"])
        full = self.json("run", "-m", SMOLLM2, "-p", "word " * 20, "-c", 32, "--ignore-eos", *GREEDY)
        self.assertEqual(full["finish"], "context_full")
        self.assertEqual(full["result"]["prompt_tokens"] + len(full["ids"]), 32)
        self.refused("run", "-m", SMOLLM2, "-p", "", says="empty")
        bos = self.json("run", "-m", GEMMA3, "-p", "", "-n", 1, *GREEDY)
        self.assertEqual(bos["result"]["prompt_tokens"], 1)

    def test_n_zero_one_and_unlimited(self):
        self.assertEqual(self.json("run", "-m", SMOLLM2, "-p", "a", "-n", 0, *GREEDY)["ids"], [])
        self.assertEqual(len(self.json("run", "-m", SMOLLM2, "-p", "a", "-n", 1, *GREEDY)["ids"]), 1)
        for n in (-1, -2):
            out = self.json("run", "-m", SMOLLM2, "-p", "a b c", "-n", n, "-c", 24, "--ignore-eos", *GREEDY)
            self.assertEqual(out["finish"], "context_full")

    def test_prompts_that_are_not_utf8(self):
        for prompt in (b"\xff\xfe\xfa", b"caf\xe9 \xf0\x9f", b"\xc0\x80\xed\xa0\x80", b"a\x00b"):
            for model in (SMOLLM2, GEMMA3):
                with self.subTest(prompt=prompt, model=model.name):
                    done = self.check("run", "-m", model, "-n", 8, "--temp", "1.5", "-s", 3, "--no-display-prompt", input=prompt)
                    done.stdout.decode("utf-8")   # whole characters alone
                    json.loads(self.check("run", "-m", model, "-n", 4, "--json", *GREEDY, input=prompt).stdout)

    def test_hot_text_is_always_whole_characters(self):
        for seed in range(4):
            done = self.check("run", "-m", GEMMA3, "-p", "\U0001f600", "-n", 40, "--temp", "3", "--top-k", "0", "--top-p", "1",
                              "--min-p", "0", "-s", seed, "--spec-type", "suffix")
            done.stdout.decode("utf-8")

    def test_variables_stand_for_flags_and_flags_go_first(self):
        env = {"LLAMA_ARG_MODEL": str(SMOLLM2), "LLAMA_ARG_N_PREDICT": "3", "LLAMA_ARG_TEMPERATURE": "0"}
        self.assertEqual(len(self.json("run", "-p", "One two", env=env)["ids"]), 3)
        self.assertEqual(len(self.json("run", "-p", "One two", "-n", 5, env=env)["ids"]), 5)
        self.refused("run", "-p", "x", env={**env, "LLAMA_ARG_N_PREDICT": "-7"}, says="-7")

    def test_a_closed_pipe_is_one_line(self):
        process = subprocess.Popen([cli.BINARY, "run", "-m", SMOLLM2, "-p", "a", "-n", "400", "--ignore-eos", *GREEDY],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   env=cli.clean_environment())
        process.stdout.read(4)
        process.stdout.close()
        errors = process.stderr.read()
        process.stderr.close()
        self.assertEqual(process.wait(120), RESOURCE)
        self.assertEqual(len(errors.splitlines()), 1, errors)
        self.assertIn(b"closed the pipe", errors)

    def temporary(self, name, data):
        import pathlib
        import tempfile
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, name)
        path.write_bytes(data)
        return path


class Terminal:
    """The binary on a terminal of its own."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(str(cli.BINARY), [str(cli.BINARY), *map(str, arguments)], cli.clean_environment(TERM="dumb"))
        self.seen = b""
        self.mark = 0

    def read_some(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.fd, 65536)
        except OSError:   # the other side has closed
            data = b""
        self.seen += data
        return bool(data)

    def wait_for(self, text, timeout=120):
        """Reads on until text comes after what was waited for last; what came before it."""
        end = time.monotonic() + timeout
        while text not in self.seen[self.mark:]:
            left = end - time.monotonic()
            if left <= 0 or not self.read_some(left) and self.exited():
                raise AssertionError(f"no {text!r} in {self.seen[self.mark:]!r}")
        at = self.seen.index(text, self.mark)
        before = self.seen[self.mark:at]
        self.mark = at + len(text)
        return before

    def exited(self):
        return not select.select([self.fd], [], [], 0)[0]

    def send(self, text):
        os.write(self.fd, text)

    def finish(self, timeout=60):
        end = time.monotonic() + timeout
        while time.monotonic() < end and self.read_some(0.2) or not self.done():
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)
                raise AssertionError(f"still runs: {self.seen!r}")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(self.status)

    def done(self):
        pid, self.status = os.waitpid(self.pid, os.WNOHANG)
        return pid != 0


class Chat(CliTest):
    def start(self, *flags):
        terminal = Terminal("run", "-m", SMOLLM2, "-n", 24, *GREEDY, *flags)
        terminal.wait_for(b"> ")
        return terminal

    def figures(self, terminal):
        line = terminal.wait_for(b"\r\n> ").decode()
        found = re.search(r"(?P<prompt>\d+) prompt tokens \((?P<cached>\d+) cached\), (?P<generated>\d+) generated", line)
        self.assertIsNotNone(found, line)
        return {**{k: int(v) for k, v in found.groupdict().items()}, "sha256": line.split("sha256 ")[1].split()[0]}

    def test_history_and_leaving(self):
        terminal = self.start()
        terminal.send(b"Say hello to Ada.\n")
        first = self.figures(terminal)
        self.assertEqual(first["cached"], 0)
        terminal.send(b"Say hello to Ada.\n")
        second = self.figures(terminal)
        self.assertGreater(second["prompt"], first["prompt"] + first["generated"])
        self.assertGreaterEqual(second["cached"], first["prompt"], "the first turn was computed again")
        terminal.send(b"/clear\n")
        terminal.wait_for(b"> ")
        terminal.send(b"Say hello to Ada.\n")
        third = self.figures(terminal)
        self.assertEqual((third["prompt"], third["sha256"]), (first["prompt"], first["sha256"]))
        terminal.send(b"\x04")
        self.assertEqual(terminal.finish(), OK)

    def test_interrupt_stops_the_answer_and_then_leaves(self):
        terminal = self.start("-n", 2000, "--ignore-eos")
        terminal.send(b"Count to one thousand.\n")
        terminal.wait_for(b"one thousand.\r\n")
        while len(terminal.seen) - terminal.mark < 20:
            terminal.read_some(5)
        terminal.send(b"\x03")
        cut = terminal.wait_for(b"\r\n> ")
        self.assertIn(b"generated", cut)
        terminal.send(b"And now say something else.\n")   # the program, its history and its template helper live on
        while len(terminal.seen) - terminal.mark < 60:
            terminal.read_some(5)
        terminal.send(b"\x03")
        self.assertIn(b"generated", terminal.wait_for(b"\r\n> "))
        terminal.send(b"\x03")
        self.assertEqual(terminal.finish(), OK)

    def test_exit_command_and_long_turns(self):
        terminal = self.start("-c", 128)
        terminal.send(b"word " * 300 + b"\n")
        terminal.wait_for(b"the context 128")
        terminal.wait_for(b"> ")
        terminal.send(b"one \\\n")
        terminal.send(b"two\n")
        self.assertIn(b"generated", terminal.wait_for(b"\r\n> "))
        terminal.send(b"/exit\n")
        self.assertEqual(terminal.finish(), OK)

    def test_control_characters_of_a_model_do_not_reach_the_terminal(self):
        tokens = json.loads(run("tokenize", "-m", SMOLLM2, "-p", "\\x1b", "--json").stdout)["ids"]
        terminal = Terminal("run", "-m", SMOLLM2, "-p", "a", "-n", 3, "-l", f"{tokens[0]}+1000", *GREEDY)
        self.assertEqual(terminal.finish(), OK)
        self.assertIn(b"\\x1B", terminal.seen)
        self.assertNotIn(b"\x1b", terminal.seen.replace(b"\x1b[K", b""))

    def test_single_turn(self):
        flags = ["run", "-m", SMOLLM2, "-cnv", "-st", "-n", 16, *GREEDY]
        said = self.check(*flags, "-p", "What is two plus two?").stdout
        self.assertNotIn(b"What is two", said)
        self.assertNotIn(b"<|im_end|>", said)
        self.assertEqual(self.check(*flags, input=b"What is two plus two?").stdout, said)
        system = self.json(*flags, "-sys", "You are a pirate.", "-p", "Hello")
        plain = self.json(*flags, "-p", "Hello")
        self.assertNotEqual(system["ids"], plain["ids"])
        self.refused("run", "-m", SMOLLM2, "-cnv", "--json", says="-st")

    def test_turns_from_a_pipe(self):
        done = self.check("run", "-m", SMOLLM2, "-cnv", "-n", 8, *GREEDY, input=b"Hello\nAnd again\n")
        self.assertEqual(done.stderr.count(b"generated"), 2)

    def test_templates(self):
        flags = ["run", "-cnv", "-st", "-p", "Hello", "-n", 4, *GREEDY]
        self.refused(*flags, "-m", GEMMA3, says="template")
        self.check(*flags, "-m", GEMMA3, "--chat-template", "gemma")
        own = self.json(*flags, "-m", SMOLLM2, "--chat-template", "{{ messages[0].content }}, she said,")
        raw = self.json("run", "-m", SMOLLM2, "-p", "Hello, she said,", "-n", 4, *GREEDY)
        self.assertEqual(own["ids"], raw["ids"])
        self.refused(*flags, "-m", SMOLLM2, "--chat-template", "{% for", says=["--chat-template", "line 1"])
        self.refused(*flags, "-m", SMOLLM2, "--chat-template", "{{ raise_exception('no \x1b[31m') }}", says="no")
        self.refused(*flags, "-m", SMOLLM2, "--chat-template", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                     code=RESOURCE, says="template")


if __name__ == "__main__":
    unittest.main()
