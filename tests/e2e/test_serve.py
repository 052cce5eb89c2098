"""The server's surfaces: what clients of llama-server and OpenAI send and read."""
import json
import math
import unittest

import cli
from serving import Server

PROMPT = "The quick brown fox jumps over"
CHATML = ("--chat-template", "chatml")


class Surfaces(cli.CliTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-np", "2", "--spec-type", "suffix", "--alias", "tiny", "-t", "1", *CHATML)
        cls.addClassCleanup(cls.server.__exit__)

    def completion(self, **fields):
        return self.server.post("/completion", {"prompt": PROMPT, "n_predict": 12, "seed": 3, **fields})

    def test_what_it_says_of_itself(self):
        s = self.server
        for path in ["/health", "/v1/health"]:
            self.assertEqual(s.get(path), {"status": "ok"})
        for path in ["/models", "/v1/models"]:
            models = s.get(path)
            self.assertEqual(models["object"], "list")
            self.assertEqual([m["id"] for m in models["data"]], ["tiny"])
        self.assertEqual(s.get("/v1/models/tiny")["id"], "tiny")
        self.assertEqual(s.request("GET", "/v1/models/other")[0], 404)
        props = s.get("/props")
        self.assertEqual(props["total_slots"], 2)
        self.assertEqual(props["model_alias"], "tiny")
        self.assertIn("messages", props["chat_template"])
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 2048)
        self.assertEqual(props["default_generation_settings"]["params"]["temperature"], 0.8)
        slots = s.get("/slots")
        self.assertEqual([(x["id"], x["n_ctx"], x["speculative"]) for x in slots], [(0, 2048, True), (1, 2048, True)])

    def test_metrics_count(self):
        def metrics():
            status, headers, body = self.server.request("GET", "/metrics")
            self.assertEqual(status, 200)
            self.assertTrue(headers["Content-Type"].startswith("text/plain"))
            return dict(line.rsplit(" ", 1) for line in body.decode().splitlines() if not line.startswith("#"))
        before = metrics()
        out = self.completion(cache_prompt=False)
        after = metrics()
        def more(name):
            return float(after[name]) - float(before[name])
        self.assertEqual(more("llamacpp:tokens_predicted_total"), out["tokens_predicted"])
        self.assertEqual(more("llamacpp:prompt_tokens_total"), out["tokens_evaluated"])
        self.assertEqual(more("lockstep:answers_finished_total"), 1)
        self.assertEqual(float(after["llamacpp:requests_processing"]), 0)

    def test_the_bits_are_those_of_run(self):
        for flags, fields in [((), {}), (("--temp", "0"), {"temperature": 0}),
                              (("--top-k", "5", "--repeat-penalty", "1.3"), {"top_k": 5, "repeat_penalty": 1.3})]:
            alone = self.json("run", "-m", self.model(), "-p", PROMPT, "-n", "24", "-s", "9", "-t", "1", *flags)
            out = self.server.post("/completion", {"prompt": PROMPT, "n_predict": 24, "seed": 9, "return_tokens": True,
                                                   **fields})
            self.assertEqual(out["tokens"], alone["ids"])
            self.assertEqual(out["content"], alone["text"])
            self.assertEqual(out["lockstep"]["token_sha256"], alone["result"]["token_sha256"])
            other = self.server.post("/completion", {"prompt": PROMPT + "!", "n_predict": 24, "seed": 9, **fields})
            self.assertNotEqual(other["lockstep"]["token_sha256"], alone["result"]["token_sha256"])

    @staticmethod
    def model():
        import serving
        return serving.TINY

    def test_completion_has_llama_servers_fields(self):
        out = self.completion(cache_prompt=False)
        for field in ["index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated",
                      "generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word",
                      "tokens_cached", "timings"]:
            self.assertIn(field, out)
        self.assertTrue(out["stop"])
        self.assertEqual(out["stop_type"], "limit")
        self.assertEqual(out["tokens_predicted"], 12)
        timings = out["timings"]
        self.assertEqual(timings["prompt_n"] + timings["cache_n"], out["tokens_evaluated"])
        self.assertEqual(timings["cache_n"], 0)
        self.assertEqual(timings["predicted_n"], 12)
        self.assertGreater(timings["prompt_ms"], 0)
        steps = out["lockstep"]["draft"]
        first = 12 - round(timings["predicted_per_second"] * timings["predicted_ms"] / 1e3)
        self.assertGreaterEqual(first, 1)
        self.assertAlmostEqual(timings["prompt_per_second"] * timings["prompt_ms"] / 1e3, timings["prompt_n"])
        if "draft_n" in timings:
            self.assertEqual(timings["draft_n"], steps["drafted"])
            self.assertEqual(timings["draft_n_accepted"], steps["accepted"])
        self.assertEqual(out["generation_settings"]["seed"], 3)
        self.assertEqual(out["lockstep"]["identity"]["sampling"]["seed"], 3)
        self.assertEqual(out["lockstep"]["identity"]["binary_sha256"], cli.binary_sha256())

    def test_a_stream_says_what_the_whole_says(self):
        whole = self.completion(return_tokens=True)
        chunks, done = self.server.stream("/completion", {"prompt": PROMPT, "n_predict": 12, "seed": 3, "return_tokens": True,
                                                          "timings_per_token": True, "return_progress": True})
        self.assertFalse(done)  # llama-server's own surface has no [DONE]
        self.assertEqual("".join(c["content"] for c in chunks), whole["content"])
        self.assertEqual(sum((c["tokens"] for c in chunks), []), whole["tokens"])
        self.assertEqual([c["stop"] for c in chunks], [False] * (len(chunks) - 1) + [True])
        self.assertTrue(all("timings" in c for c in chunks if c["tokens"] or c["stop"]))
        self.assertEqual(chunks[-1]["lockstep"]["token_sha256"], whole["lockstep"]["token_sha256"])

    def test_progress_of_a_long_prompt(self):
        chunks, _ = self.server.stream("/completion", {"prompt": list(range(5, 205)), "n_predict": 2, "seed": 1,
                                                       "return_progress": True, "cache_prompt": False})
        progress = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
        self.assertGreaterEqual(len(progress), 2)
        done = [p["processed"] for p in progress]
        self.assertEqual(done, sorted(set(done)))
        self.assertTrue(all(p["total"] == 200 and p["cache"] == 0 for p in progress))

    def test_chat(self):
        body = {"model": "any", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
                "max_tokens": 10, "seed": 4}
        out = self.server.post("/v1/chat/completions", body)
        self.assertEqual(out["object"], "chat.completion")
        self.assertEqual(out["model"], "tiny")  # what answers, not what was asked for, as in llama-server
        choice = out["choices"][0]
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertIn(choice["finish_reason"], ["length", "stop"])
        usage = out["usage"]
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])
        # The same by the template's text.
        prompt = self.server.post("/apply-template", body)["prompt"]
        self.assertTrue(prompt.startswith("<|im_start|>system\nBe brief."))
        plain = self.server.post("/completion", {"prompt": prompt, "n_predict": 10, "seed": 4})
        self.assertEqual(plain["content"], choice["message"]["content"])
        self.assertEqual(plain["lockstep"]["token_sha256"], out["lockstep"]["token_sha256"])
        for path in ["/v1/chat/completions", "/chat/completions"]:
            chunks, done = self.server.stream(path, {**body, "stream_options": {"include_usage": True}})
            self.assertTrue(done)
            self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": None})
            text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
            self.assertEqual(text, choice["message"]["content"])
            self.assertEqual(chunks[-1]["choices"], [])
            self.assertEqual(chunks[-1]["usage"]["completion_tokens"], usage["completion_tokens"])
            self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], choice["finish_reason"])
            self.assertEqual(chunks[-2]["timings"]["predicted_n"], usage["completion_tokens"])
            self.assertTrue(all(c["choices"][0]["finish_reason"] is None for c in chunks[:-2]))
            self.assertEqual({c["id"] for c in chunks}, {chunks[0]["id"]})

    def test_text_completions(self):
        body = {"prompt": PROMPT, "max_tokens": 9, "seed": 4, "n": 3, "temperature": 1.5}
        out = self.server.post("/v1/completions", body)
        self.assertEqual([c["index"] for c in out["choices"]], [0, 1, 2])
        texts = [c["text"] for c in out["choices"]]
        self.assertEqual(len(set(texts)), 3)  # each choice has noise of its own
        # The first choice is that of n = 1, and a stream tells the same.
        self.assertEqual(self.server.post("/v1/completions", {**body, "n": 1})["choices"][0]["text"], texts[0])
        chunks, done = self.server.stream("/v1/completions", body)
        self.assertTrue(done)
        streamed = [""] * 3
        for chunk in chunks:
            streamed[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
        self.assertEqual(streamed, texts)
        several = self.server.post("/v1/completions", {"prompt": [PROMPT, "Another"], "max_tokens": 4, "seed": 4})
        self.assertEqual(len(several["choices"]), 2)
        self.assertEqual(several["usage"]["completion_tokens"],
                         sum(c["timings"]["predicted_n"] for c in several["choices"]))

    def test_probabilities(self):
        out = self.completion(temperature=0, n_probs=5, return_tokens=True)
        listed = out["completion_probabilities"]
        self.assertEqual([p["id"] for p in listed], out["tokens"])
        for p in listed:
            self.assertEqual(len(p["top_logprobs"]), 5)
            self.assertEqual(p["top_logprobs"][0]["id"], p["id"])  # the most probable is taken
            self.assertEqual(p["top_logprobs"][0]["logprob"], p["logprob"])
            self.assertLessEqual(sum(math.exp(t["logprob"]) for t in p["top_logprobs"]), 1 + 1e-9)
            logprobs = [t["logprob"] for t in p["top_logprobs"]]
            self.assertEqual(logprobs, sorted(logprobs, reverse=True))
        chat = self.server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "logprobs": True, "top_logprobs": 2, "seed": 1})
        content = chat["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), chat["usage"]["completion_tokens"])
        self.assertTrue(all(len(t["top_logprobs"]) == 2 for t in content))
        text = self.server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 4, "logprobs": 2, "seed": 1})
        logprobs = text["choices"][0]["logprobs"]
        self.assertEqual(len(logprobs["tokens"]), 4)
        self.assertEqual(len(logprobs["text_offset"]), 4)
        # Whatever is asked for changes no token.
        self.assertEqual(out["lockstep"]["token_sha256"], self.completion(temperature=0)["lockstep"]["token_sha256"])

    def test_stop_and_bias(self):
        text = self.completion()["content"]
        stop = text[len(text) // 2:len(text) // 2 + 2]
        out = self.completion(stop=[stop, "never"])
        self.assertEqual(out["content"], text[:text.index(stop)])
        self.assertEqual((out["stop_type"], out["stopping_word"]), ("word", stop))
        first = self.completion(temperature=0, return_tokens=True)["tokens"][0]
        for bias in [{str(first): -100}, [[first, False]]]:
            self.assertNotEqual(self.completion(temperature=0, logit_bias=bias, return_tokens=True)["tokens"][0], first)
        forced = self.completion(temperature=0, logit_bias={"42": 1000}, return_tokens=True)["tokens"]
        self.assertEqual(set(forced), {42})
        nothing = self.completion(n_predict=0)
        self.assertEqual((nothing["content"], nothing["tokens_predicted"], nothing["timings"]["predicted_n"]), ("", 0, 0))

    def test_prefixes_are_reused_and_change_nothing(self):
        shared = [7 + i % 250 for i in range(300)]
        def ask(tail, **fields):
            return self.server.post("/completion", {"prompt": shared + tail, "n_predict": 8, "seed": 2, **fields})
        cold = [ask([i], cache_prompt=False) for i in [11, 12]]
        ask([10])
        warm = [ask([i]) for i in [11, 12]]
        for a, b in zip(cold, warm):
            self.assertEqual(a["timings"]["cache_n"], 0)
            self.assertEqual(b["timings"]["cache_n"], 300)
            self.assertEqual(b["timings"]["prompt_n"], 1)
            self.assertEqual(a["lockstep"]["token_sha256"], b["lockstep"]["token_sha256"])
        self.assertEqual(ask([13], id_slot=1)["id_slot"], 1)

    def test_tokens_and_back(self):
        for text in ["Hello world", "", "naïve 🦊 text", "a\nb"]:
            ids = self.server.post("/tokenize", {"content": text})["tokens"]
            self.assertEqual(self.server.post("/detokenize", {"tokens": ids})["content"], text)
        pieces = self.server.post("/tokenize", {"content": "é", "with_pieces": True})["tokens"]
        self.assertTrue(all(set(p) == {"id", "piece"} for p in pieces))

    def test_what_is_not_there(self):
        for path in ["/v1/embeddings", "/embedding", "/v1/rerank", "/infill", "/v1/responses", "/v1/messages"]:
            status, error = self.server.error(path, {})
            self.assertEqual((status, error["type"], error["code"]), (501, "not_supported_error", 501))
        self.assertEqual(self.server.request("GET", "/nothing")[0], 404)
        status, headers, _ = self.server.request("GET", "/completion")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertEqual(self.server.request("OPTIONS", "/completion")[0], 405)
        status, _, body = self.server.request("HEAD", "/health")
        self.assertEqual((status, body), (200, b""))

    def test_log_lines_name_the_request(self):
        self.completion()
        lines = [l for l in self.server.log if "POST /completion 200" in l]
        self.assertTrue(lines)
        number = lines[-1].split("request ")[1].split(":")[0]
        self.assertTrue(any(f"request {number}: " in l and "token sha256" in l for l in self.server.log))

    def test_one_connection_serves_many_requests(self):
        connection = self.server.connect()
        for i in range(3):
            connection.request("POST", "/completion", json.dumps({"prompt": PROMPT, "n_predict": 3, "seed": i}))
            self.assertEqual(json.loads(connection.getresponse().read())["tokens_predicted"], 3)
        connection.close()


@unittest.skipUnless(cli.SMOLLM2.exists(), "no models; scripts/fetch_models.sh")
class ARealModel(cli.CliTest):
    def test_its_own_template_and_text(self):
        question = "What is the capital of France?"
        alone = self.json("run", "-m", cli.SMOLLM2, "-cnv", "-st", "-p", question, "--temp", "0", "-n", "12", "-t", "1",
                          "-c", "1024")
        body = {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 12}
        with Server("-t", "1", "-np", "2", "-c", "1024", model=cli.SMOLLM2) as server:
            out = server.post("/v1/chat/completions", body)
            self.assertEqual(out["choices"][0]["message"]["content"], alone["text"])
            self.assertEqual(out["lockstep"]["token_sha256"], alone["result"]["token_sha256"])
            chunks, _ = server.stream("/v1/chat/completions", body)
            text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
            self.assertEqual(text, alone["text"])
            self.assertEqual(server.stop(), 0)


class TheOpenAIClient(cli.CliTest):
    """The openai package, unmodified."""

    @classmethod
    def setUpClass(cls):
        try:
            import openai
        except ImportError:
            raise unittest.SkipTest("no openai package; tests/e2e/requirements.txt")
        cls.server = Server("-t", "1", "-np", "3", "--api-key", "secret", "--alias", "tiny", *CHATML)
        cls.addClassCleanup(cls.server.__exit__)
        cls.openai = openai
        cls.client = openai.OpenAI(base_url=f"http://127.0.0.1:{cls.server.port}/v1", api_key="secret", max_retries=0)

    messages = [{"role": "user", "content": "Hello"}]

    def test_models(self):
        model = self.client.models.list().data[0]
        self.assertEqual(self.client.models.retrieve(model.id).id, model.id)

    def test_chat_stream_and_logprobs(self):
        given = dict(model="m", messages=self.messages, max_tokens=8, seed=5)
        whole = self.client.chat.completions.create(**given, logprobs=True, top_logprobs=3)
        self.assertEqual(len(whole.choices[0].logprobs.content), whole.usage.completion_tokens)
        self.assertEqual(len(whole.choices[0].logprobs.content[0].top_logprobs), 3)
        text, usage, reason = "", None, None
        for chunk in self.client.chat.completions.create(**given, stream=True, stream_options={"include_usage": True}):
            if chunk.choices:
                text += chunk.choices[0].delta.content or ""
                reason = chunk.choices[0].finish_reason or reason
            usage = chunk.usage or usage
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(reason, whole.choices[0].finish_reason)
        self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)
        several = self.client.chat.completions.create(**given, n=3)
        self.assertEqual(len(several.choices), 3)

    def test_completions(self):
        out = self.client.completions.create(model="m", prompt="abc", max_tokens=5, seed=1, logprobs=2, stop=["\x00"])
        self.assertEqual(len(out.choices[0].logprobs.tokens), out.usage.completion_tokens)
        streamed = "".join(c.choices[0].text for c in self.client.completions.create(
            model="m", prompt="abc", max_tokens=5, seed=1, stream=True))
        self.assertEqual(streamed, out.choices[0].text)

    def test_errors_arrive_as_its_own(self):
        with self.assertRaises(self.openai.BadRequestError) as raised:
            self.client.chat.completions.create(model="m", messages=self.messages, temperature="hot")
        self.assertEqual(raised.exception.param, "temperature")
        with self.assertRaises(self.openai.BadRequestError):
            self.client.chat.completions.create(model="m", messages=[])
        wrong = self.openai.OpenAI(base_url=str(self.client.base_url), api_key="wrong", max_retries=0)
        with self.assertRaises(self.openai.AuthenticationError):
            wrong.chat.completions.create(model="m", messages=self.messages)
        with self.assertRaises(self.openai.InternalServerError):
            self.client.embeddings.create(model="m", input="x")


if __name__ == "__main__":
    unittest.main()
