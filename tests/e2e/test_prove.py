"""`lockstep prove`: identical where it must be, and found where something was planted."""
import unittest

import cli
from cli import BAD_USE, CHECK_FAILED, CliTest, GEMMA3, SMOLLM2

TINY = ["synth:llama-tiny", "synth:gemma3-tiny@q4_0"]


class Prove(CliTest):
    def test_tiny_models_whole(self):
        for model in [*TINY, "synth:qwen2-tiny", "synth:qwen3-tiny@q4_k"]:
            with self.subTest(model):
                done = self.check("prove", "-m", model, "-t", 1, "-n", 8, timeout=900)
                last = done.stdout.decode().splitlines()[-1]
                self.assertRegex(last, r"^(\d+)/\1 identical$")
                self.assertGreater(int(last.split("/")[0]), 100)

    def test_json_lines_say_what_they_exercised(self):
        out = self.json("prove", "-m", TINY[1], "--quick", "-t", 1, "-n", 8, timeout=900)
        documented = (cli.ROOT / "docs/json.md").read_text()
        self.assertEqual(out["schema"], "lockstep.prove/1")
        self.assertEqual(out["identical"], out["configurations"])
        for key in [*out, *out["lines"][0]]:
            self.assertIn(f"`{key}`", documented)
        alone = [line for line in out["lines"] if line["name"].startswith("ids alone")]
        self.assertEqual(len(alone), 3)
        for line in out["lines"]:
            if line in alone:
                self.assertEqual(line["logits_rows"], 0, line["name"])
                self.assertGreater(line["tokens"], 0, line["name"])
            else:
                self.assertGreater(line["logits_rows"], 0, line["name"])
            self.assertGreater(line["kv_states"], 0, line["name"])
            self.assertEqual(line["rejected"], line["proposed"] - line["accepted"])
            self.assertIsNone(line["first_difference"])
        lines = {line["name"]: line for line in out["lines"]}
        for source in ("ngram n=4", "suffix n=8", "replay n=15"):
            self.assertGreater(lines[f"draft {source}"]["accepted"], 0)
            self.assertGreater(lines[f"draft {source}"]["rejected"], 0)
        self.assertIn("16", lines["draft replay n=15"]["widths"])
        self.assertIn("64", lines["width 64"]["widths"])
        self.assertGreater(lines["prefix: the same prompt again"]["pages_reused"], 0)

    def test_every_thing_that_must_not_matter_has_a_line(self):
        names = [line["name"] for line in self.json("prove", "-m", TINY[0], "-t", 1, "-n", 8, timeout=900)["lines"]]
        for source in ("ngram", "suffix", "replay", "model (itself)", "model (random)"):
            for depth in range(1, 16):
                self.assertIn(f"draft {source} n={depth}", names)
        for width in [*range(2, 18), 33, 64]:
            self.assertIn(f"width {width}", names)
        for part in ("threads 1", "threads 3", "threads 4", "prompt in chunks of 7", "prefix: ", "truncated", "snapshot",
                     "sampling T=0.8", "KV q8_0/q8_0", "KV f32/f32", "all at once", "long prompt"):
            self.assertTrue(any(part in name for name in names), part)

    def test_own_prompts_and_drafters(self):
        self.check("prove", "-m", TINY[0], "-md", TINY[0], "--quick", "--only", "model (-md)", "-t", 1)
        self.check("prove", "-m", TINY[0], "-p", "abc def abc def", "--quick", "--only", "sampling", "-t", 1)
        self.refused("prove", "-m", TINY[0], "-md", TINY[1], "--quick", says="vocabulary")
        self.refused("prove", "-m", "synth:llama-tiny,ctx=64", "--quick", says="positions")


class Corrupt(CliTest):
    def test_every_plant_that_must_be_found_is_found(self):
        documented = (cli.ROOT / "docs/json.md").read_text()
        for model in [*TINY, SMOLLM2]:
            for seed in ((1, 2, 3) if model in TINY else (1,)):
                with self.subTest(model=model, seed=seed):
                    out = self.json("prove", "-m", model, "--corrupt", "-t", 1, "-s", seed, code=CHECK_FAILED)
                    self.assertEqual((out["schema"], out["planted"], out["missed"]), ("lockstep.prove-corrupt/1", 20, 0))
                    for key in [*out, *out["plants"][0]]:
                        self.assertIn(f"`{key}`", documented)
                    for plant in out["plants"]:
                        self.assertTrue(plant["applied"])
                        if plant["kind"] != "elsewhere":
                            self.assertTrue(plant["found"], plant)
                    kinds = [plant["kind"] for plant in out["plants"]]
                    self.assertGreaterEqual(min(kinds.count(kind) for kind in ("logits", "KV", "elsewhere")), 6)
                    absorbed = sum(not plant["found"] for plant in out["plants"])
                    self.assertEqual(absorbed, out["absorbed"])

    def test_seeds_plant_elsewhere(self):
        places = [[(p["op"], p["element"]) for p in self.json("prove", "-m", TINY[0], "--corrupt", "-s", seed,
                                                              code=CHECK_FAILED)["plants"]] for seed in (1, 2)]
        self.assertNotEqual(*places)


class RealModels(CliTest):
    def test_quick_proof(self):
        for model in (SMOLLM2, GEMMA3):
            with self.subTest(model.name):
                done = self.check("prove", "-m", model, "--quick", timeout=1200)
                self.assertRegex(done.stdout.decode().splitlines()[-1], r"^(\d+)/\1 identical$")


if __name__ == "__main__":
    unittest.main()
