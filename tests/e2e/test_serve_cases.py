"""llama-server's own test cases, as far as they apply here and other tests don't have them yet.
docs/server-cases.md lists all of them."""
import concurrent.futures
import unittest

import cli
from serving import TINY, Server

PROMPT = "I believe the meaning of life is"
CHATML = ("--chat-template", "chatml")


class Cases(cli.CliTest):
    def serve(self, *arguments, **options):
        server = Server("-t", "1", *CHATML, *arguments, **options)
        self.addCleanup(server.__exit__)
        return server

    def complete(self, server, **fields):
        return server.post("/completion", {"prompt": PROMPT, "n_predict": 8, **fields})

    def test_completion_same_and_other_seeds(self):
        for slots in (1, 2):
            server = self.serve("-np", str(slots))
            same = [self.complete(server, seed=42, temperature=1.0, cache_prompt=cached)["content"]
                    for cached in (True, False, True, False)]
            self.assertEqual(len(set(same)), 1)  # with a cache and without
            other = [self.complete(server, seed=seed, temperature=1.0)["content"] for seed in range(4)]
            self.assertEqual(len(set(other)), 4)

    def test_completion_other_batch_sizes(self):
        answers = {self.complete(self.serve("-ub", str(rows)), seed=42, temperature=1.0, prompt=PROMPT * 8)["content"]
                   for rows in (1, 16, 32, 64)}
        self.assertEqual(len(answers), 1)

    def test_completion_prompts_of_every_kind(self):
        server = self.serve("-np", "2", "--temp", "0")
        tokens = server.post("/tokenize", {"content": PROMPT, "add_special": True})["tokens"]
        self.assertEqual(type(self.complete(server, prompt=tokens)["content"]), str)
        for prompts in ([tokens, tokens], [tokens, PROMPT], [tokens, {"prompt_string": PROMPT}]):
            answers = self.complete(server, prompt=prompts)
            self.assertEqual(len(answers), 2)
            self.assertEqual(answers[0]["content"], answers[1]["content"])
        self.assertEqual(self.complete(server, prompt={"prompt_string": PROMPT})["content"],
                         self.complete(server)["content"])
        self.complete(server, prompt=[1, 2, 3, PROMPT, 4, 5, PROMPT])
        status, error = server.error("/completion", {"prompt": {"prompt_string": "x", "multimodal_data": "aGk="}})
        self.assertEqual((status, error["param"]), (400, "prompt.multimodal_data"))

    def test_completion_parallel_slots(self):
        for slots, requests in [(1, 3), (2, 2), (2, 4), (4, 2), (4, 6)]:
            with Server("-t", "1", "-np", str(slots)) as server:
                def ask(i):
                    return self.complete(server, prompt=f"{PROMPT} {i}", seed=42, n_predict=40)["content"]
                alone = [ask(i) for i in range(requests)]
                with concurrent.futures.ThreadPoolExecutor(requests) as pool:
                    self.assertEqual(list(pool.map(ask, range(requests))), alone)

    def test_completion_unified(self):
        """More tokens than the pool has: nobody's answer is cut or refused, some wait."""
        for wanted in ([80, 40, 80, 80], [90, 90, 40, 90], [90, 90, 40, 75]):
            with Server("-t", "1", "-np", "4", "-c", "256") as server:
                def ask(n):
                    return self.complete(server, prompt="A", n_predict=n, ignore_eos=True)["timings"]["predicted_n"]
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    self.assertEqual(list(pool.map(ask, wanted)), wanted)

    def test_probabilities_of_a_stream(self):
        server = self.serve()
        chunks, _ = server.stream("/completion", {"prompt": PROMPT, "n_probs": 10, "temperature": 0, "n_predict": 5})
        self.assertEqual(sum(len(c["completion_probabilities"]) for c in chunks), 5)
        for token in (t for c in chunks for t in c["completion_probabilities"]):
            for listed in [token, *token["top_logprobs"]]:
                self.assertEqual({type(listed[name]) for name in ("id", "token", "logprob", "bytes")}, {int, str, float, list})
                self.assertLessEqual(listed["logprob"], 0)
            self.assertEqual(len(token["top_logprobs"]), 10)

    def test_logit_bias_of_texts(self):
        server = self.serve()
        words = [" the ", " a ", " I "]
        for bias in ([[w, -100] for w in words], dict.fromkeys(words, -100)):
            text = self.complete(server, logit_bias=bias, temperature=0, n_predict=64)["content"]
            self.assertFalse([w for w in words if w in text])

    def test_context_exceeded(self):
        server = self.serve("-c", "256")
        body = {"messages": [{"role": "user", "content": "x" * 4000}]}
        for more in ({}, {"stream": True}):
            status, error = server.error("/v1/chat/completions", {**body, **more})
            self.assertEqual((status, error["type"], error["n_ctx"]), (400, "exceed_context_size_error", 256))
            self.assertGreater(error["n_prompt_tokens"], 256)

    def test_progress_of_a_chat(self):
        server = self.serve("-ub", "64")
        body = {"messages": [{"role": "user", "content": "hello " * 200}], "max_tokens": 10, "return_progress": True,
                "cache_prompt": True}
        for cached in (False, True):
            chunks, _ = server.stream("/v1/chat/completions", body)
            progress = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
            if cached:
                self.assertTrue(all(p["cache"] > 0 for p in progress))
                continue
            self.assertGreater(len(progress), 2)
            for before, after in zip(progress, progress[1:]):
                self.assertEqual((before["total"], before["cache"]), (after["total"], after["cache"]))
                self.assertLess(before["processed"], after["processed"])

    def test_timings_of_a_stream(self):
        server = self.serve()
        chunks, _ = server.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "test"}], "max_tokens": 10,
                                                           "timings_per_token": True,
                                                           "stream_options": {"include_usage": True}})
        self.assertNotIn("timings", chunks[0])
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": None})
        self.assertTrue(all("role" not in c["choices"][0]["delta"] for c in chunks[1:-1]))
        self.assertTrue(all("timings" in c for c in chunks[1:-1]))
        one = self.complete(server, n_predict=1, ignore_eos=True)["timings"]
        self.assertEqual((one["predicted_n"], one["predicted_per_second"], one["predicted_per_token_ms"]), (1, 0, 0))
        for n in (1, 8):
            timings = self.complete(server, n_predict=n, cache_prompt=False)["timings"]
            self.assertTrue(all(value is not None and value >= 0 for value in timings.values()), timings)
            self.assertGreater(timings["prompt_per_token_ms"], 0)

    def test_metrics(self):
        server = self.serve("-np", "1")
        outs = [self.complete(server, prompt="the quick brown fox jumps", n_predict=n) for n in (1, 4, 16)]
        status, headers, body = server.request("GET", "/metrics")
        self.assertGreater(int(headers["Process-Start-Time-Unix"]), 1_500_000_000)
        values = dict(l.rsplit(" ", 1) for l in body.decode().splitlines() if not l.startswith("#"))
        for name, key in [("prompt_tokens_total", "prompt_n"), ("prompt_tokens_cached_total", "cache_n"),
                          ("tokens_predicted_total", "predicted_n")]:
            self.assertEqual(float(values["llamacpp:" + name]), sum(o["timings"][key] for o in outs))
        self.assertGreater(float(values["llamacpp:prompt_tokens_cached_total"]), 0)
        self.assertFalse(any(slot["is_processing"] for slot in server.get("/slots")))

    def test_security(self):
        server = self.serve("--api-key", "sk-this-is-the-secret-key")
        for path in ("/health", "/", "/v1/models"):
            self.assertEqual(server.request("GET", path)[0], 200)
        for key, status in [(None, 401), ("invalid-key", 401), ("sk-this-is-the-secret-key", 200)]:
            for headers in ({"Authorization": f"Bearer {key}"}, {"X-Api-Key": key}):
                got, _, body = server.request("POST", "/completions", {"prompt": PROMPT, "n_predict": 2},
                                              headers=headers if key else {})
                self.assertEqual(got, status)
                self.assertEqual(b"authentication_error" in body, status == 401)

    def test_invalid_chats(self):
        server = self.serve()
        for messages in (None, "string", [123], [{}], [{"role": 123}], [{"role": "system", "content": 123}],
                         [{"role": "system", "content": "test"}, {}]):
            status, _ = server.error("/chat/completions", {"messages": messages})
            self.assertEqual(status, 400, messages)

    def test_tokenize(self):
        server = self.serve()
        text = "What is the capital of France ?"
        tokens = server.post("/tokenize", {"content": text})["tokens"]
        self.assertEqual(server.post("/detokenize", {"tokens": tokens})["content"].strip(), text)
        pieces = server.post("/tokenize", {"content": "This is a test string with unicode 媽 and emoji 🤗",
                                           "with_pieces": True})["tokens"]
        whole = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
        self.assertIn("媽 and emoji 🤗", whole.decode())

    def test_ignore_eos(self):
        server = self.serve()
        self.assertEqual(self.complete(server, ignore_eos=True, n_predict=200)["stop_type"], "limit")
        self.assertTrue(self.complete(server, ignore_eos=True)["generation_settings"]["logit_bias"])
        self.assertFalse(self.complete(server, ignore_eos=False)["generation_settings"]["logit_bias"])

    def test_add_generation_prompt(self):
        server = self.serve()
        body = {"messages": [{"role": "user", "content": "What is today?"}]}
        for value, there in [({}, True), ({"add_generation_prompt": True}, True), ({"add_generation_prompt": False}, False)]:
            prompt = server.post("/apply-template", {**body, **value})["prompt"]
            self.assertEqual(prompt.endswith("<|im_start|>assistant\n"), there)

    def test_with_and_without_draft(self):
        body = {"temperature": 0.2, "top_k": 5, "seed": 4242, "n_predict": 64, "return_tokens": True, "prompt": PROMPT * 3}
        plain = self.complete(self.serve(), **body)
        self.assertNotIn("draft_n", plain["timings"])
        for n_min, n_max in [(1, 2), (1, 4), (4, 8), (4, 12), (8, 16)]:
            server = self.serve("--spec-type", "model", "-md", TINY + "1", "--spec-draft-n-min", n_min, "--spec-draft-n-max", n_max)
            drafted = self.complete(server, **body)
            self.assertGreater(drafted["timings"]["draft_n"], 0)
            self.assertEqual(drafted["tokens"], plain["tokens"])


if __name__ == "__main__":
    unittest.main()
