"""--device: what a machine without the device says, and what is no device."""
import json
import shutil
import unittest
from cli import BAD_USE, RESOURCE, CliTest, run


def has_device():
    smi = shutil.which("nvidia-smi")
    return smi is not None


class Device(CliTest):
    def commands(self):
        yield "run", ["-p", "a", "-n", "1"]
        yield "prove", ["--quick"]
        yield "bench", ["-p", "0", "-n", "1", "-w", "none", "-r", "1"]

    @unittest.skipIf(has_device(), "this machine may have a device")
    def test_one_line_where_there_is_none(self):
        for command, arguments in self.commands():
            done = run(command, "-m", "synth:llama-tiny", "--device", "cuda", *arguments)
            # 4 where the build has kernels and the machine no driver; 2 where the build has none.
            self.assertIn(done.returncode, (RESOURCE, BAD_USE), done.stderr)
            self.assertEqual(done.stdout, b"")
            lines = done.stderr.strip().splitlines()
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertIn(b"--device cpu", lines[0])

    def test_what_is_no_device(self):
        for name in ("gpu", "cuda:", "cuda:x", "cuda:-1", "CUDA", "CUDA0,CUDA1", ""):
            self.refused("run", "-m", "synth:llama-tiny", "-p", "a", "-n", "1", "--device", name)
        self.refused("run", "-m", "synth:llama-tiny", "-p", "a", "--device", "cuda", "--isa", "scalar", says="--isa")

    def test_cpu_by_its_names(self):
        plain = json.loads(self.check("run", "-m", "synth:llama-tiny", "-p", "a", "-n", "4", "-s", "1", "--json").stdout)
        for name in ("cpu", "none"):
            other = json.loads(self.check("run", "-m", "synth:llama-tiny", "-p", "a", "-n", "4", "-s", "1", "--json",
                                          "--device", name).stdout)
            self.assertEqual(other["result"]["token_sha256"], plain["result"]["token_sha256"])
            self.assertEqual(other["result"]["identity"]["device"], "cpu")

    def test_prove_against_another_device(self):
        """On one machine without a GPU the two are the CPU twice; the machinery is the same."""
        done = self.json("prove", "-m", "synth:llama-tiny", "--quick", "--against", "cpu", "--only", "plain again")
        self.assertEqual((done["device"], done["plain_device"]), ("cpu", "cpu"))
        self.assertEqual(done["identical"], done["configurations"])


if __name__ == "__main__":
    unittest.main()
