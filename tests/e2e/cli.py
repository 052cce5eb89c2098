"""What the end-to-end tests share: running the binary as a person or a script would."""
import hashlib
import json
import os
import re
import signal
import subprocess
import unittest
from pathlib import Path

# A shell that starts the tests in the background, or nohup, hands down that signals are ignored, and
# the binary would rightly go on ignoring them.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("LOCKSTEP_BIN", ROOT / "build/release/lockstep"))
MODELS = Path(os.environ.get("LOCKSTEP_MODELS", ROOT / "models"))
BUILD = Path(os.environ.get("LOCKSTEP_BUILD", BINARY.parent))
SMOLLM2 = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3 = MODELS / "gemma-3-270m-q4_k_m.gguf"
COMMANDS = ["run", "serve", "prove", "eval", "bench", "inspect", "tokenize", "synth", "flags"]

OK, CHECK_FAILED, BAD_USE, BAD_FILE, RESOURCE, CONTROL_FAILED = range(6)

# Everything a terminal might obey: C0 without newline, DEL, C1 and the line separators in UTF-8.
CONTROL = re.compile(rb"[\x00-\x09\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def clean_environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
    env.update(extra)
    return env


def run(*arguments, input=b"", env=None, timeout=300):
    """The finished process; output as bytes."""
    return subprocess.run([str(BINARY), *map(str, arguments)], input=input, capture_output=True,
                          env=clean_environment(**(env or {})), timeout=timeout)


def binary_sha256():
    """What identities have to say of the binary under test."""
    return hashlib.sha256(BINARY.read_bytes()).hexdigest()


class CliTest(unittest.TestCase):
    maxDiff = None

    def check(self, *arguments, code=OK, **options):
        done = run(*arguments, **options)
        self.assertEqual(done.returncode, code,
                         f"{arguments}: exit {done.returncode}, not {code}\n{done.stderr.decode(errors='replace')[-2000:]}")
        return done

    def json(self, *arguments, **options):
        return json.loads(self.check(*arguments, "--json", **options).stdout)

    def refused(self, *arguments, code=BAD_USE, says=(), **options):
        """Exits with code, nothing on stdout, one clean line on stderr that says everything in says."""
        done = self.check(*arguments, code=code, **options)
        self.assertEqual(done.stdout, b"", f"{arguments}: printed a result")
        # Notes on accepted flags may come before it.
        lines = [line for line in done.stderr.splitlines() if b" is accepted and does nothing" not in line]
        self.assertEqual(len(lines), 1, f"{arguments}: {done.stderr}")
        self.assertTrue(done.stderr.startswith(b"lockstep: "), done.stderr)
        self.assertIsNone(CONTROL.search(done.stderr), done.stderr)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, done.stderr.decode())
        return done
