"""docs/lab.md is true: its commands are run on the committed data, and print what it shows.

A ```console block holds commands ("$ ...") and what they print. "..." on a line of its own stands for any
lines; what is shown between two of them must appear in the output in that order, without gaps. A line
"(exit code N)" says how the command ends; without one it is 0. All blocks run in one folder, in order."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import cli

DOCUMENT = cli.ROOT / "docs/lab.md"
README = cli.ROOT / "README.md"
STATUS = ("caught", "flagged", "not visible")


def steps(text):
    """(command, exit code, shown lines) of every console block."""
    out = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                out.append([line[2:], 0, []])
            elif code := re.fullmatch(r"\(exit code (\d+)\)", line):
                out[-1][1] = int(code[1])
            else:
                out[-1][2].append(line)
    return out


def missing(shown, printed):
    """The first run of shown lines that the printed ones don't hold, or None."""
    runs, at = [[]], 0
    for line in shown:
        if line.strip() == "...":
            runs.append([])
        else:
            runs[-1].append(line.rstrip())
    printed = [line.rstrip() for line in printed]
    for run in runs:
        if not run:
            continue
        for start in range(at, len(printed) - len(run) + 1):
            if printed[start:start + len(run)] == run:
                at = start + len(run)
                break
        else:
            return run
    return None


class Walk(unittest.TestCase):
    maxDiff = None

    def in_folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        (pathlib.Path(folder.name) / "tests").symlink_to(cli.ROOT / "tests")
        (pathlib.Path(folder.name) / "bin").mkdir()
        (pathlib.Path(folder.name) / "bin/lockstep").symlink_to(cli.BINARY.resolve())
        env = cli.clean_environment(PATH=f"{folder.name}/bin:{os.environ['PATH']}")
        env.pop("LOCKSTEP_LEDGER", None)
        return folder.name, env

    def run_steps(self, listed):
        folder, env = self.in_folder()
        for command, code, shown in listed:
            done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=600)
            with self.subTest(command=command):
                self.assertEqual(done.returncode, code, done.stderr)
                printed = (done.stdout + done.stderr).splitlines()
                absent = missing(shown, printed)
                self.assertIsNone(absent, f"{command}\nnot printed: {absent}\nprinted:\n" + "\n".join(printed))

    def test_every_command_of_the_walk_prints_what_is_shown(self):
        listed = steps(DOCUMENT.read_text())
        used = {command.split()[2] for command, _, _ in listed if command.startswith("lockstep lab ")}
        self.assertLessEqual({"log", "whatif", "import", "noise", "power", "ab", "records", "report"}, used)
        self.assertTrue(any(shown for _, _, shown in listed))
        self.run_steps(listed)

    def test_every_command_of_the_readme_s_section_runs(self):
        text = README.read_text()
        section = text[text.index("\n## The lab"):]
        section = section[:section.index("\n## ", 4)]
        commands = re.findall(r"^(?:\$ )?(?:build/release/)?(lockstep lab .*?)(?:  +#.*)?$", section, re.M)
        self.assertGreaterEqual(len(commands), 2)
        self.run_steps([[command, 0, []] for command in commands])

    def test_a_line_that_is_not_printed_is_found(self):
        """The control: a changed figure, a changed order, and a gap that isn't marked."""
        printed = ["a 1", "b 2", "c 3"]
        self.assertIsNone(missing(["a 1", "...", "c 3"], printed))
        self.assertEqual(missing(["a 1", "...", "c 4"], printed), ["c 4"])
        self.assertEqual(missing(["c 3", "...", "a 1"], printed), ["a 1"])
        self.assertEqual(missing(["a 1", "c 3"], printed), ["a 1", "c 3"])


class FailureModes(unittest.TestCase):
    """The table of failure modes names tests that exist."""

    def rows(self):
        return [[cell.strip() for cell in line.strip("|").split(" | ")]
                for line in DOCUMENT.read_text().splitlines() if re.match(r"\| *\d+ \|", line)]

    def existing(self):
        found = set()
        for path in (cli.ROOT / "tests/lab").rglob("*.cc"):
            for suite, name in re.findall(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", path.read_text(), re.M):
                found.add(f"{suite}.{name}")
        for path in (cli.ROOT / "tests/e2e").glob("test_lab_*.py"):
            for name in re.findall(r"def (test_\w+)", path.read_text()):
                found.add(f"{path.name}::{name}")
        return found

    def test_all_62_modes_have_one_status(self):
        rows = self.rows()
        self.assertEqual([int(row[0]) for row in rows], list(range(1, 63)))
        for row in rows:
            self.assertEqual(len(row), 5, row)
            self.assertIn(row[2], STATUS, row)

    def test_what_is_caught_or_flagged_names_a_test_and_all_of_them_exist(self):
        there = self.existing()
        self.assertIn("V1First.Fails", there)
        self.assertNotIn("V1First.Flies", there)
        for row in self.rows():
            named = re.findall(r"`([^`]+)`", row[4])
            if row[2] in ("caught", "flagged"):
                self.assertTrue(named, f"{row[0]}: no test")
            else:
                self.assertEqual(named, [], f"{row[0]}: a test of what isn't seen")
            for name in named:
                self.assertIn(name, there, f"{row[0]}: no such test")

    def test_the_counts_in_the_text(self):
        text = DOCUMENT.read_text()
        for status in STATUS:
            count = sum(row[2] == status for row in self.rows())
            self.assertIn(f"{count} {status}", text)


if __name__ == "__main__":
    unittest.main()
