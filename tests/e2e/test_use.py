"""Help, flags and wrong use: no model is read."""
import json
import unittest

import cli
from cli import BAD_FILE, BAD_USE, CliTest, RESOURCE, run


class Help(CliTest):
    def test_every_command_has_help_with_an_example(self):
        for command in cli.COMMANDS:
            with self.subTest(command):
                text = self.check(command, "--help").stdout.decode()
                self.assertIn(f"Usage: lockstep {command}", text)
                self.assertIn(f"Example:\n  lockstep {command}", text)
                if command != "serve":  # which answers in JSON over HTTP
                    self.assertIn("--json", text)
                self.assertIn("Exit codes:", text)

    def test_the_program_names_its_commands(self):
        text = self.check("--help").stdout.decode()
        for command in cli.COMMANDS:
            self.assertIn(f"\n  {command} ", text)

    def test_version_names_the_law(self):
        self.assertRegex(self.check("--version").stdout.decode(), r"^lockstep \d+\.\d+\.\d+ \(law ls1\)\n$")

    def test_no_and_unknown_commands(self):
        self.refused(says="no command")
        self.refused("serv", says="serv: no such command")
        self.refused("--halp", says="no such command")


def command_of(flag):
    """One that takes the flag, and what it needs to get past its flags, to a model that is missing."""
    command = (flag["commands"] or ["run"])[0]
    return [command], ["-p", "x"] if command in ("run", "prove", "tokenize") else []


class FlagTable(CliTest):
    @classmethod
    def setUpClass(cls):
        cls.flags = json.loads(run("flags", "--json").stdout)["flags"]

    def test_docs_are_what_the_table_says(self):
        committed = (cli.ROOT / "docs/flags.md").read_text()
        self.assertEqual(self.check("flags").stdout.decode(), committed,
                         "docs/flags.md is old: lockstep flags > docs/flags.md")

    def test_names_are_told_apart(self):
        for command in cli.COMMANDS:
            seen = {}
            for flag in self.flags:
                if flag["commands"] and command not in flag["commands"]:
                    continue
                for name in flag["names"]:
                    self.assertNotIn(name, seen, f"{command}: {name}")
                    seen[name] = flag

    def test_every_refused_flag_says_what_to_do(self):
        for flag in self.flags:
            if flag["kind"] != "refused":
                continue
            for name in flag["names"]:
                with self.subTest(name):
                    value = ["12345"] if flag["value"] else []
                    command, _ = command_of(flag)
                    self.refused(*command, name, *value, says=[name, flag["text"]])

    def test_refused_flags_are_accepted_where_they_are_off(self):
        for flag in self.flags:
            if flag["accepted"]:
                # Past the flags: the model is missing.
                command, rest = command_of(flag)
                self.refused(*command, flag["names"][-1], flag["accepted"], *rest, says="no model")

    def test_every_noted_flag_is_noted(self):
        for flag in self.flags:
            if flag["kind"] != "noted":
                continue
            for name in flag["names"]:
                with self.subTest(name):
                    value = ["1"] if flag["value"] else []
                    command, rest = command_of(flag)
                    done = self.refused(*command, name, *value, *rest, says="no model")
                    self.assertIn(f"{name} is accepted and does nothing: {flag['text']}", done.stderr.decode())

    def test_refused_by_an_environment_variable(self):
        for flag in self.flags:
            if flag["kind"] == "refused" and flag["env"]:
                command, rest = command_of(flag)
                self.refused(*command, *rest, env={flag["env"]: "12345"}, says=flag["env"])

    def test_underscores_and_equals_signs(self):
        self.refused("run", "--ctx_size", "64", "-p", "x", says="no model")
        self.refused("run", "--ctx-size=64", "--prompt=x", says="no model")
        self.refused("run", "--ctx-size=many", "--prompt=x", says="not a whole number")
        self.refused("run", "--json=1", says="takes no value")


class WrongUse(CliTest):
    def test_unknown_flags(self):
        for command in cli.COMMANDS:
            self.refused(command, "--frobnicate", says="--frobnicate: no such flag")
            self.refused(command, "-zz", says="-zz: no such flag")
        self.refused("inspect", "--temp", "1", says="not a flag of inspect, but of: run")

    def test_missing_values(self):
        self.refused("run", "-m", says="-m: needs a value")
        self.refused("eval", "--ids", says="--ids: needs a value")

    def test_values_out_of_range(self):
        for flags in (["-n", "-5"], ["-n", "-3"], ["-n", "x"], ["-n", "1.5"], ["-n", ""], ["-t", "0x4"],
                      ["-t", "-2"], ["-t", "100000"], ["-c", "-1"], ["-c", "99999999999999999999"],
                      ["-ub", "0"], ["-s", "-2"], ["--temp", "hot"], ["--temp", "nan"], ["--top-p", "1e999"],
                      ["--spec-draft-n-max", "-1"], ["--spec-draft-n-max", "some"], ["--spec-draft-p-min", "2"]):
            with self.subTest(flags):
                self.refused("run", "-m", cli.SMOLLM2, "-p", "x", *flags, says=flags[0])

    def test_contradictions(self):
        for flags in (["-cnv", "-no-cnv"], ["-p", "a", "-f", "b"], ["-cnv", "-sys", "a", "-sysf", "b"],
                      ["-e", "--no-escape"], ["--display-prompt", "--no-display-prompt"],
                      ["-cnv", "--chat-template", "a", "--chat-template-file", "b"]):
            with self.subTest(flags):
                self.refused("run", "-m", cli.SMOLLM2, *flags, says="contradict")
        self.refused("eval", "-m", cli.SMOLLM2, "--ids", "a", "-f", "b", says="contradict")
        self.refused("prove", "-m", cli.SMOLLM2, "-p", "a", "-f", "b", says="contradict")
        self.refused("tokenize", "-m", cli.SMOLLM2, "-p", "a", "--stdin", says="more than one")
        self.refused("run", "-m", cli.SMOLLM2, "-p", "a", "-sys", "b", says="add -cnv")
        self.refused("run", "-m", cli.SMOLLM2, "-p", "a", "-st", says="add -cnv")

    def test_nothing_to_do(self):
        self.refused("run", "-p", "x", says="-m FILE")
        self.refused("inspect", says="-m FILE")
        self.refused("eval", "-m", cli.SMOLLM2, says="nothing to evaluate")
        self.refused("tokenize", "-m", cli.SMOLLM2, says="no text")
        self.refused("prove", "-m", cli.SMOLLM2, "--only", "no such line", says="no configuration")

    def test_missing_and_wrong_files(self):
        for command in (["run", "-p", "x"], ["inspect"], ["tokenize", "-p", "x"], ["prove"], ["eval", "-f", "x"]):
            with self.subTest(command):
                self.refused(*command, "-m", "/nonexistent/model.gguf", code=BAD_FILE, says="/nonexistent/model.gguf")
                self.refused(*command, "-m", "/", code=BAD_FILE, says="not a regular file")
                self.refused(*command, "-m", __file__, code=BAD_FILE, says="test_use.py")
        self.refused("run", "-m", cli.SMOLLM2, "-f", "/nonexistent/prompt", code=BAD_FILE, says="/nonexistent/prompt")

    def test_control_characters_are_escaped(self):
        self.refused("run", "-m", "\x1b]0;owned\x07.gguf", "-p", "x", code=BAD_FILE, says="\\x1B]0;owned\\x07")
        self.refused("run", "--\x1b[31m", says="\\x1B")
        self.refused("\x9b\x1b[2J", says="\\x1B")

    def test_bad_id_lists(self):
        for text in ("", "{}", "[1]", "[[]]", "[[1]]", "[]", "[[1,2,-1]]", "[[1,999999999]]", "[[1,2.5]]",
                     "[[1,\"2\"]]", "[[1,2]", "[" * 100000, "[[1,99999999999999999999]]"):
            with self.subTest(text[:20]):
                path = self.temporary("ids.json", text)
                self.refused("eval", "-m", cli.SMOLLM2, "--ids", path, code=BAD_FILE, says="ids.json")

    def test_closed_and_full_output(self):
        import subprocess
        with open("/dev/full", "wb") as full:
            done = subprocess.run([cli.BINARY, "flags"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, RESOURCE)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = subprocess.run(["/bin/sh", "-c", f"(sleep 0.2; '{cli.BINARY}' flags; echo $? >&2) 3>&1 | true"],
                              stderr=subprocess.PIPE)
        lines = done.stderr.decode().splitlines()
        self.assertEqual(lines[-1], str(RESOURCE), lines)
        self.assertIn("closed the pipe", lines[0])
        self.assertEqual(len(lines), 2, lines)

    def temporary(self, name, text):
        import pathlib
        import tempfile
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, name)
        path.write_text(text)
        return path


if __name__ == "__main__":
    unittest.main()
