"""What a session of trying to break the command line found: flags, chats, signals, templates."""
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import tempfile
import time
import unittest

import cli
from cli import BAD_FILE, CHECK_FAILED, CliTest, RESOURCE

TINY = "synth:llama-tiny"
GREEDY = ["--temp", "0", "-t", "1"]
ECHO = ["--chat-template", "{{ messages[0].content }}"]
SLOW = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


class Case(CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def temporary(self, name, data=None):
        path = self.folder / name
        if data is not None:
            path.write_bytes(data)
        return path

    def overflowing_model(self):
        """llama-tiny with its last weights so large that sums overflow: a fault in every pass."""
        path = self.temporary("overflow.gguf")
        self.check("synth", "llama-tiny@f32", "-o", path)
        data = bytearray(path.read_bytes())
        n = len(data) // 8
        data[len(data) - 4 * n:] = struct.pack("<f", 3e38) * n
        path.write_bytes(data)
        return path

    def start(self, *arguments):
        process = subprocess.Popen([cli.BINARY, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=cli.clean_environment())
        self.addCleanup(process.kill)
        return process


class OneValueEach(Case):
    def test_words_after_a_value_are_not_swallowed(self):
        for command in (["run", "-m", TINY, "-n", "3", "-p", "hi", "junk"], ["run", "-m", TINY, "junk", "-p", "hi"],
                        ["run", "-m", TINY, "-p", "hi", "-n", "4", "junk"], ["inspect", "-m", TINY, "junk"],
                        ["synth", "llama-tiny", "-o", self.temporary("a.gguf"), "junk"]):
            with self.subTest(command):
                self.refused(*command, says="junk: not expected")
        self.assertFalse(self.temporary("a.gguf").exists())

    def test_a_positional_after_a_flag(self):
        self.check("synth", "-o", self.temporary("a.gguf"), "llama-tiny")
        self.assertTrue(self.temporary("a.gguf").exists())

    def test_the_last_of_a_flag_given_twice(self):
        out = self.json("run", "-m", TINY, "-p", "hi", "-p", "ho", "-n", "9", "-n", "2", *GREEDY)
        self.assertEqual((out["prompt"], len(out["ids"])), ("ho", 2))

    def test_values_are_taken_as_they_are(self):
        for text in ("{}", "[a,b]", "[]", "--", "-p", "%%"):
            with self.subTest(text):
                self.assertEqual(self.json("run", "-m", TINY, "-n", "1", "-p", text, *GREEDY)["prompt"], text)

    def test_two_dashes_end_the_flags(self):
        self.refused("run", "-m", TINY, "-n", "1", "-p", "a", "--", "-p", says="-p: not expected")
        self.check("synth", "-o", self.temporary("a.gguf"), "--", "llama-tiny")

    def test_a_variable_is_named(self):
        self.refused("run", "-m", TINY, "-p", "a", env={"LLAMA_ARG_THREADS": "junk"},
                     says="LLAMA_ARG_THREADS=junk (environment): not a whole number")
        self.refused("run", "-m", TINY, "-p", "a", env={"LLAMA_ARG_CTX_SIZE": "-4"},
                     says="LLAMA_ARG_CTX_SIZE=-4 (environment): out of range")

    def test_a_variable_of_a_text_flag_is_named(self):
        tiny = {"LLAMA_ARG_MODEL": TINY}
        other = self.temporary("other.gguf")
        self.check("synth", "llama-tiny,vocab=300", "-o", other)
        for variables, flags, says in (
                ({"LLAMA_ARG_MODEL": "absent.gguf"}, [], "LLAMA_ARG_MODEL (environment): absent.gguf: cannot open"),
                ({"LLAMA_ARG_MODEL": "synth:odd"}, [], "LLAMA_ARG_MODEL (environment): \"synth:odd\": no shape"),
                ({"LLAMA_ARG_CACHE_TYPE_K": "q9"}, [], "LLAMA_ARG_CACHE_TYPE_K=q9 (environment): not a KV type"),
                ({"LLAMA_ARG_CACHE_TYPE_V": "q9"}, [], "LLAMA_ARG_CACHE_TYPE_V=q9 (environment): not a KV type"),
                ({"LLAMA_ARG_SPEC_TYPE": "frob"}, [], "LLAMA_ARG_SPEC_TYPE (environment): \"frob\" is not a draft"),
                ({"LLAMA_ARG_SPEC_TYPE": "replay"}, [], "LLAMA_ARG_SPEC_TYPE=replay (environment): drafts from a"),
                ({"LLAMA_ARG_SPEC_TYPE": "model"}, [], "LLAMA_ARG_SPEC_TYPE=model (environment): model needs a draft"),
                ({"LLAMA_ARG_SPEC_TYPE": "ngram"}, ["-md", other],
                 "LLAMA_ARG_SPEC_TYPE=ngram (environment) contradict each other"),
                ({"LLAMA_ARG_SPEC_DRAFT_MODEL": str(other)}, [], "(environment): its vocabulary is not the model's"),
                ({"LLAMA_ARG_SPEC_DRAFT_MODEL": "absent.gguf"}, [],
                 "LLAMA_ARG_SPEC_DRAFT_MODEL (environment): absent.gguf: cannot open"),
                ({"LLAMA_ARG_CHAT_TEMPLATE": "frob"}, ["-cnv", "-st"],
                 "LLAMA_ARG_CHAT_TEMPLATE (environment) \"frob\" is no name"),
                ({"LLAMA_ARG_CHAT_TEMPLATE": "{% for"}, ["-cnv", "-st"],
                 "chat template of LLAMA_ARG_CHAT_TEMPLATE (environment): "),
                ({"LLAMA_ARG_CHAT_TEMPLATE": "{{ 1 }}"}, ["--chat-template-file", "x"],
                 "LLAMA_ARG_CHAT_TEMPLATE (environment) and --chat-template-file contradict each other"),
                ({"LLAMA_ARG_CHAT_TEMPLATE_FILE": "absent.jinja"}, ["-cnv", "-st"],
                 "LLAMA_ARG_CHAT_TEMPLATE_FILE (environment): absent.jinja: cannot open")):
            with self.subTest(variables, flags=flags):
                code = BAD_FILE if "cannot open" in says else cli.BAD_USE
                self.refused("run", "-p", "a", *flags, env={**tiny, **variables}, code=code, says=says)
        self.refused("run", "-m", TINY, "-p", "a", "--spec-type", "frob", env={"LLAMA_ARG_SPEC_TYPE": "ngram"},
                     says="--spec-type: \"frob\"")   # the flag goes before the variable

    def test_long_values_are_cut(self):
        long = "x" * 5000
        run = ["run", "-m", TINY, "-p", "a"]
        for arguments in ([*run, "-n", long], [*run, "--" + long], [*run, "-ctk", long], [*run, "-l", long],
                          [*run, long], [*run, "-cnv", "--chat-template", long], [*run, "--isa", long],
                          [*run, "--spec-type", "ngram," + long], [*run, "--samplers", "top_k;" + long],
                          ["run", "-m", "synth:" + long, "-p", "a"],
                          ["synth", "llama-tiny,vocab=" + long, "-o", self.temporary("a.gguf")],
                          ["synth", "llama-tiny@" + long, "-o", self.temporary("a.gguf")]):
            with self.subTest([argument[:20] for argument in map(str, arguments)]):
                message = self.refused(*arguments).stderr
                self.assertIn(b"x" * 80 + b"...", message)
                self.assertNotIn(b"x" * 101, message)
                self.assertLess(len(message), 500)

    def test_values_with_control_characters_are_escaped(self):
        for flags in (["--isa", "a\x1b[2Jb"], ["--spec-type", "a\x1b[2Jb"], ["--samplers", "a\x1b[2Jb"]):
            with self.subTest(flags[0]):
                self.refused("run", "-m", TINY, "-p", "a", *flags, says="\"a\\x1B[2Jb\"")


class Chats(Case):
    FLAGS = ["run", "-m", TINY, "-cnv", "-n", "2", *ECHO, *GREEDY]

    def test_an_empty_message_is_bad_use(self):
        for json_flag in ([], ["--json"]):
            self.refused(*self.FLAGS, "-st", *json_flag, says="the message is empty")
            self.refused(*self.FLAGS, "-st", "-p", "", *json_flag, says="the message is empty")

    def test_the_message_of_a_single_turn_is_text(self):
        for text in ("/exit", "/clear"):
            self.assertEqual(self.json(*self.FLAGS, "-st", "-p", text)["prompt"], text)

    def test_a_fault_is_exit_code_1(self):
        model = self.overflowing_model()
        flags = ["run", "-m", model, "-n", "2", *GREEDY]
        self.assertIn(b"fault: ", self.check(*flags, "-p", "a", code=CHECK_FAILED).stderr)
        self.check(*flags, "-cnv", "-st", *ECHO, "-p", "a", code=CHECK_FAILED)
        self.check(*flags, "-cnv", *ECHO, input=b"a\nb\n", code=CHECK_FAILED)

    def test_a_fault_of_the_draft_model_is_told_once(self):
        flags = ["run", "-m", TINY + "@f32", "-p", "a b c", "-n", "8", "--ignore-eos", *GREEDY]
        plain = self.check(*flags)
        drafted = self.check(*flags, "-md", self.overflowing_model())
        self.assertEqual(drafted.stdout, plain.stdout)
        self.assertEqual(drafted.stderr.count(b"the draft model: "), 1, drafted.stderr)


class Templates(Case):
    FLAGS = ["run", "-m", TINY, "-cnv", "-st", "-p", "a", "-n", "1"]

    def test_where_a_broken_template_came_from(self):
        self.refused(*self.FLAGS, "--chat-template", "{% for", says="--chat-template")
        path = self.temporary("broken.jinja", b"{% for")
        self.refused(*self.FLAGS, "--chat-template-file", path, code=BAD_FILE, says="broken.jinja")

    def test_a_template_that_renders_to_nothing(self):
        self.refused(*self.FLAGS, "--chat-template", "{# #}", says=["--chat-template", "nothing"])
        path = self.temporary("empty.jinja", b"{# #}")
        self.refused(*self.FLAGS, "--chat-template-file", path, code=BAD_FILE, says=["empty.jinja", "nothing"])

    def test_sizes_are_bounded(self):
        path = self.temporary("large.jinja", b"{{ 1 }}" * 1_000_000)
        self.refused(*self.FLAGS, "--chat-template-file", path, code=BAD_FILE, says=["large.jinja", "4.0 MB"])
        path = self.temporary("large.txt", b"")
        os.truncate(path, 2 << 30)   # no disk is used
        start = time.monotonic()
        self.refused("run", "-m", TINY, "-f", path, code=BAD_FILE, says=["large.txt", "268.4 MB"])
        self.assertLess(time.monotonic() - start, 10)

    def test_few_open_files_are_not_a_missing_python(self):
        done = subprocess.run([cli.BINARY, *self.FLAGS, *ECHO], stdin=subprocess.DEVNULL, capture_output=True,
                              env=cli.clean_environment(),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4)))
        self.assertEqual(done.returncode, RESOURCE)
        self.assertIn(b"ulimit", done.stderr)
        self.assertNotIn(b"apt-get", done.stderr)


class Signals(Case):
    ENDLESS = ["run", "-m", TINY, "-p", "a", "-c", "1000000", "--ignore-eos", *GREEDY]

    def test_a_generation_ends_in_order(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start(*self.ENDLESS)
            process.stdout.read(8)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertIn(b"token sha256", errors)

    def test_the_object_is_printed(self):
        process = self.start(*self.ENDLESS, "--json")
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertEqual(json.loads(output)["finish"], "cancelled")

    def test_one_answer_of_a_chat(self):
        process = self.start(*self.ENDLESS, "-cnv", "-st", *ECHO)
        process.stdout.read(8)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn(b"token sha256", errors)

    def test_a_template_that_renders(self):
        process = self.start("run", "-m", TINY, "-p", "a", "-cnv", "-st", "--chat-template", SLOW)
        time.sleep(3)
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - start, 3)
        self.assertIn(process.returncode, (130, -signal.SIGINT), errors)


class Memory(Case):
    def test_no_flag_that_is_not_there_is_advised(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
        path = self.temporary("text.txt", b"a b " * (50 << 18))
        done = subprocess.run([cli.BINARY, "tokenize", "-m", TINY, "-f", path], stdin=subprocess.DEVNULL,
                              capture_output=True, env=cli.clean_environment(), preexec_fn=limit)
        self.assertEqual(done.returncode, RESOURCE, done.stderr)
        self.assertNotIn(b"-c", done.stderr)


if __name__ == "__main__":
    unittest.main()
