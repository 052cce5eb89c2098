"""The scripts that measure the server, on a tiny model: what they print, keep and find out."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import cli
from serving import TINY, Server

BENCH = cli.ROOT / "bench"
sys.path.insert(0, str(BENCH))
import serve_speed  # noqa: E402


class ServeBench(unittest.TestCase):
    def script(self, name, *arguments):
        """Standard output and the rows that were kept."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "rows.jsonl"
            done = subprocess.run([sys.executable, str(BENCH / name), "-m", TINY, "--lockstep", str(cli.BINARY), "-t", "1",
                                   "--out", str(out), *arguments],
                                  capture_output=True, text=True, env=cli.clean_environment(), timeout=300)
            rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
            return done, rows

    def test_speed(self):
        done, rows = self.script("serve_speed.py", "--pairs", "2", "--streams", "3", "-n", "200", "--prefix", "300",
                                 "--only", "http,eight,prefix")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertEqual([line.split(" | ")[0] for line in lines[2:]], ["| http", "| eight", "| prefix"])
        self.assertEqual(len(rows), 12)
        for row in rows:
            self.assertGreater(row["value"], 0)
        second = [r for r in rows if r["arm"] == "second"]
        self.assertTrue(all(r["cache_n"] >= 256 for r in second))
        self.assertTrue(all(r["cache_n"] < 64 for r in rows if r["arm"] == "first"))

    def test_speed_refuses_what_it_cannot_do(self):
        for arguments, says in [(("--only", "nothing"), "nothing"), (("--peer", "x"), "NAME=VALUE"),
                                (("--peer-args", "a=b"), "no --peer a"), (("--lockstep", "/nowhere"), "/nowhere")]:
            done, _ = self.script("serve_speed.py", *arguments)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
            self.assertIn(says, done.stderr)

    def test_an_answer_that_is_not_what_it_was_ends_it(self):
        bench = serve_speed.Bench(serve_speed.parse_arguments(["--out", "x"]), None)
        result = [{"last": {"lockstep": {"token_sha256": "a" * 64}}}]
        bench.check(result, [{"seed": 1}])
        bench.check(result, [{"seed": 1}])
        with self.assertRaises(serve_speed.Failure):
            bench.check([{"last": {"lockstep": {"token_sha256": "b" * 64}}}], [{"seed": 1}])

    def test_apache_bench(self):
        """An existing client, unmodified: HTTP/1.0, with and without connections that are kept."""
        body = {"prompt": "one two three", "max_tokens": 16, "seed": 3}
        with Server("-t", "1", "-np", "4") as server, tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            tokens = server.post("/v1/completions", body)["usage"]["completion_tokens"]
            json.dump(body, file)
            file.flush()
            for kept in ([], ["-k"]):
                done = subprocess.run(["ab", "-l", "-n", "40", "-c", "4", *kept, "-p", file.name, "-T", "application/json",
                                       f"http://127.0.0.1:{server.port}/v1/completions"],
                                      capture_output=True, text=True, errors="replace", timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"Complete requests: +40\n")
                self.assertRegex(done.stdout, r"Failed requests: +0\n")
                self.assertNotIn("Non-2xx", done.stdout)
                if kept:
                    self.assertRegex(done.stdout, r"Keep-Alive requests: +40\n")
            _, _, metrics = server.request("GET", "/metrics")
            self.assertIn(f"llamacpp:tokens_predicted_total {81 * tokens}\n", metrics.decode())

    def test_load(self):
        done, rows = self.script("serve_load.py", "--half", "20", "--unread", "20", "--idle", "10", "--streams", "2", "-n",
                                 "300", "--seconds", "0.5", "--rounds", "1", "--no-wait", "--keep", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ["ratio, median of pairs", "memory beside them", "connections then"]:
            self.assertIn(f"| {name} |", done.stdout)
        self.assertEqual([r["kind"] for r in rows], ["alone", "beside"])
        self.assertTrue(all(r["rate"] > 0 for r in rows))
        self.assertGreaterEqual(rows[1]["connections"], 50)


if __name__ == "__main__":
    unittest.main()
