"""Chats with tools and thoughts: what the openai package reads of what a model writes."""
import json
import pathlib
import tempfile
import unittest

import cli
from serving import Server

# What a template of Hermes' kind does: the tools, the calls and what they gave are in the prompt.
HERMES = """{%- if tools %}{{ '<|im_start|>system\\nTools:' }}
{%- for tool in tools %}{{ '\\n' + (tool | tojson) }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{ '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{%- endfor %}{{ '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"""
# The prompt is what the last message says, so that a small model goes on with what it sees.
LAST = "{# tools <tool_call> #}{{ messages[-1].content }}"

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
ARGUMENTS = '{"city": "Paris", "days": 3}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'


def repeated(answer):
    """A prompt that leaves little doubt about what comes next."""
    return f"Q: What now?\nA: {answer}\n" * 4 + "Q: What now?\nA:"


class Templates(cli.CliTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.template = pathlib.Path(folder.name) / "template.jinja"

    def serve(self, template, *arguments, **options):
        self.template.write_text(template)
        server = Server("-t", "1", "-np", "2", "--alias", "m", "--chat-template-file", self.template, *arguments, **options)
        self.addCleanup(server.__exit__)
        return server

    def test_tools_and_calls_are_rendered(self):
        server = self.serve(HERMES)
        user = {"role": "user", "content": "How is it?"}
        call = {"id": "abc123def", "type": "function", "function": {"name": "weather", "arguments": ARGUMENTS}}
        body = {"tools": [WEATHER], "messages": [
            user, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "abc123def", "content": "rain"}]}
        prompt = server.post("/apply-template", body)["prompt"]
        self.assertEqual(prompt, "<|im_start|>system\nTools:\n" + json.dumps(WEATHER) + "<|im_end|>\n"
                         "<|im_start|>user\nHow is it?<|im_end|>\n<|im_start|>assistant\n" + CALL + "<|im_end|>\n"
                         "<|im_start|>tool\nrain<|im_end|>\n<|im_start|>assistant\n")
        without = server.post("/apply-template", {**body, "tool_choice": "none"})["prompt"]
        self.assertEqual(without, prompt[prompt.index("<|im_start|>user"):])
        # The same tokens as the text alone, so the same answer.
        chat = server.post("/v1/chat/completions", {**body, "max_tokens": 6, "seed": 3})
        plain = server.post("/completion", {"prompt": prompt, "n_predict": 6, "seed": 3})
        self.assertEqual(chat["lockstep"]["token_sha256"], plain["lockstep"]["token_sha256"])
        for wrong, param in [({"tool_choice": "required"}, "tool_choice"),
                             ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, "tool_choice"),
                             ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
                             ({"parallel_tool_calls": "yes"}, "parallel_tool_calls")]:
            status, error = server.error("/v1/chat/completions", {**body, **wrong})
            self.assertEqual((status, error["param"]), (400, param))

    def test_tools_are_refused_where_the_template_has_none(self):
        server = self.serve("{{ messages[-1].content }}")
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
        status, error = server.error("/v1/chat/completions", {**body, "tools": [WEATHER]})
        self.assertEqual((status, error["param"]), (400, "tools"))
        server.post("/v1/chat/completions", {**body, "tools": []})
        server.post("/v1/chat/completions", {**body, "tools": [WEATHER], "tool_choice": "none"})


@unittest.skipUnless(cli.SMOLLM2.exists(), "no models; scripts/fetch_models.sh")
class TheOpenAIClient(Templates):
    """The openai package, unmodified, and a model that writes calls and thoughts since it has seen some."""

    @classmethod
    def setUpClass(cls):
        try:
            import openai
        except ImportError:
            raise unittest.SkipTest("no openai package; tests/e2e/requirements.txt")
        cls.openai = openai

    def open(self, template=LAST, *arguments):
        self.server = self.serve(template, "-c", "4096", "--spec-type", "suffix", "--spec-draft-n-max", "4", *arguments,
                                 model=cli.SMOLLM2)
        return self.openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)

    @staticmethod
    def given(answer, **more):
        return dict(model="any", messages=[{"role": "user", "content": repeated(answer)}], max_tokens=80, temperature=0,
                    stop=["\nQ:"], **more)

    def streamed(self, client, **given):
        """A message, put together from its stream."""
        message, finish, pieces = {"content": "", "reasoning_content": "", "tool_calls": []}, None, 0
        for chunk in client.chat.completions.create(**given, stream=True):
            if not chunk.choices:
                continue
            delta = chunk.choices[0].delta
            message["content"] += delta.content or ""
            message["reasoning_content"] += getattr(delta, "reasoning_content", None) or ""
            for call in delta.tool_calls or []:
                if call.index == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call.id, "name": call.function.name, "arguments": ""})
                message["tool_calls"][call.index]["arguments"] += call.function.arguments
                pieces += 1
            finish = chunk.choices[0].finish_reason or finish
        return message, finish, pieces

    def test_a_call_and_its_answer(self):
        client = self.open()
        given = self.given(CALL, tools=[WEATHER])
        whole = client.chat.completions.create(**given).choices[0]
        self.assertEqual(whole.finish_reason, "tool_calls")
        self.assertIsNone(whole.message.content)
        call, = whole.message.tool_calls
        self.assertEqual((call.type, call.function.name, call.function.arguments), ("function", "weather", ARGUMENTS))
        self.assertEqual(json.loads(call.function.arguments), {"city": "Paris", "days": 3})
        message, finish, pieces = self.streamed(client, **given)
        self.assertEqual((finish, message["content"]), ("tool_calls", ""))
        self.assertEqual([(c["name"], c["arguments"]) for c in message["tool_calls"]], [("weather", ARGUMENTS)])
        self.assertGreater(pieces, 1)  # the arguments came in increments
        # The client's own object goes back with what the tool gave, in the same conversation.
        given["messages"] = [given["messages"][0], whole.message,
                             {"role": "tool", "tool_call_id": call.id, "content": repeated("It rains.")}]
        after = client.chat.completions.create(**given).choices[0]
        self.assertEqual((after.finish_reason, after.message.content.strip()), ("stop", "It rains."))
        # Without tools the same text is content, to the byte.
        given = self.given(CALL)
        self.assertEqual(client.chat.completions.create(**given).choices[0].message.content, " " + CALL)
        given = self.given(CALL, tools=[WEATHER], tool_choice="none")
        self.assertEqual(client.chat.completions.create(**given).choices[0].message.content, " " + CALL)

    def test_a_call_that_is_cut(self):
        client = self.open()
        given = {**self.given(CALL, tools=[WEATHER]), "max_tokens": 18}
        whole = client.chat.completions.create(**given).choices[0]
        self.assertEqual(whole.finish_reason, "length")
        self.assertIsNone(whole.message.tool_calls)
        self.assertTrue((" " + CALL).startswith(whole.message.content), whole.message.content)
        message, finish, _ = self.streamed(client, **given)
        self.assertEqual(finish, "length")

    def test_log_probabilities_of_a_call(self):
        client = self.open()
        given = self.given(CALL, tools=[WEATHER], logprobs=True, top_logprobs=2)
        whole = client.chat.completions.create(**given)
        listed = whole.choices[0].logprobs.content
        self.assertEqual(len(listed), whole.usage.completion_tokens)
        self.assertIn(CALL, "".join(t.token for t in listed))
        told = []
        for chunk in client.chat.completions.create(**given, stream=True):
            for choice in chunk.choices:
                told += choice.logprobs.content if choice.logprobs else []
        self.assertEqual([t.token for t in told], [t.token for t in listed])

    def test_thoughts(self):
        client = self.open()
        given = self.given("<think>\nParis is far.\n</think>\n\nIt rains.")
        whole = client.chat.completions.create(**given).choices[0].message
        self.assertEqual((whole.reasoning_content, whole.content), ("Paris is far.", "It rains."))
        message, finish, _ = self.streamed(client, **given)
        self.assertEqual((message["reasoning_content"], message["content"], finish),
                         ("Paris is far.", "It rains.", "stop"))
        raw = " <think>\nParis is far.\n</think>\n\nIt rains."
        for chosen, reasoning in [("none", ""), ("auto", "Paris is far."), ("deepseek", "Paris is far.")]:
            out = self.server.post("/v1/chat/completions", {**given, "reasoning_format": chosen})["choices"][0]["message"]
            self.assertEqual(out.get("reasoning_content", ""), reasoning)
            self.assertEqual(out["content"], "It rains." if reasoning else raw)
        # The other surfaces never take text apart.
        plain = self.server.post("/completion", {"prompt": repeated(raw.strip()), "n_predict": 80, "temperature": 0,
                                                 "stop": ["\nQ:"]})
        self.assertEqual(plain["content"], raw)

    def test_thoughts_that_the_prompt_begins(self):
        client = self.open(LAST + "{{ ' <think>\\n' }}", "--reasoning-format", "auto")
        given = self.given("<think>\nParis is far.\n</think>\n\nIt rains.")
        whole = client.chat.completions.create(**given).choices[0].message
        self.assertEqual((whole.reasoning_content, whole.content), ("Paris is far.", "It rains."))

    def test_the_servers_own_choice_for_thoughts(self):
        client = self.open(LAST, "--reasoning-format", "none")
        given = self.given("<think>\nParis is far.\n</think>\n\nIt rains.")
        whole = client.chat.completions.create(**given).choices[0].message
        self.assertIn("<think>", whole.content)

    def test_who_proposed_each_token(self):
        self.open()
        body = {**self.given("It rains, and it rains, and it rains."), "token_origins": True}
        del body["stop"]
        chunks, _ = self.server.stream("/v1/chat/completions", body)
        tokens = [t for c in chunks for t in c.get("lockstep", {}).get("tokens", [])]
        drafts = [d for c in chunks for d in c.get("lockstep", {}).get("drafts", [])]
        last = next(c for c in chunks if "timings" in c)
        counts = {o: sum(t["origin"] == o for t in tokens) for o in ("accepted", "corrected", "plain")}
        self.assertEqual(sum(counts.values()), last["timings"]["predicted_n"])
        self.assertEqual(counts["accepted"], last["timings"]["draft_n_accepted"])
        self.assertGreater(counts["accepted"], 0)
        self.assertEqual(sum(d for d, _ in drafts), last["timings"]["draft_n"])
        self.assertEqual(sum(a for _, a in drafts), last["timings"]["draft_n_accepted"])
        self.assertEqual(counts["corrected"], sum(a < d for d, a in drafts))
        text = b"".join(t["piece"].encode() if isinstance(t["piece"], str) else bytes(t["piece"]) for t in tokens)
        content = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
        self.assertEqual(text.decode(), content)
        for path, more in [("/v1/chat/completions", body), ("/completion", {**body, "prompt": "a", "n_predict": 5}),
                           ("/v1/completions", {**body, "prompt": "a"})]:
            whole = self.server.post(path, more)
            self.assertEqual(len(whole["lockstep"]["tokens"]), whole["timings"]["predicted_n"])
            # Nobody is told who did not ask.
            self.assertNotIn("tokens", self.server.post(path, {**more, "token_origins": False})["lockstep"])


if __name__ == "__main__":
    unittest.main()
