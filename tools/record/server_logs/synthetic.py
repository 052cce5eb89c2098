#!/usr/bin/env python3
"""Writes the made-up logs of tests/data/lab/logs: the lines of generations that no server built today
prints any more, and vLLM's, from their formats (docs/lab-log.md). Their numbers obey the identities.

    synthetic.py OUT
"""
import random
import sys
from pathlib import Path


def timing(head, prompt, prompt_ms, tokens, ms, steps_rate):
    k = tokens - 1 if steps_rate else tokens
    return [f"{head}prompt eval time = {prompt_ms:10.2f} ms / {prompt:5d} tokens ({prompt_ms / prompt:8.2f} ms per token, {prompt * 1000 / prompt_ms:8.2f} tokens per second)",
            f"{head}       eval time = {ms:10.2f} ms / {tokens:5d} tokens ({ms / k:8.2f} ms per token, {k * 1000 / ms:8.2f} tokens per second)",
            f"{head}      total time = {prompt_ms + ms:10.2f} ms / {prompt + tokens:5d} tokens"]


def rows(seed, length, count):
    """(prompt, accepted by position, steps) of `count` rows that draft `length` tokens a step."""
    draw = random.Random(seed)
    for _ in range(count):
        steps = draw.randrange(20, 60)
        falling, left = [], steps
        for _ in range(length):
            left = sum(draw.random() < 0.75 for _ in range(left))
            falling.append(left)
        yield draw.randrange(40, 900), falling, steps


def generation1(out):
    lines = ["build: 4820 (0123abc) with cc for x86_64-linux-gnu",
             "srv          init: initializing slots, n_slots = 1",
             "main: server is listening on http://127.0.0.1:8080 - starting the main loop"]
    for task, (prompt, falling, steps) in enumerate(rows(1, 5, 12)):
        accepted, tokens, ms = sum(falling), 1 + sum(falling) + steps, steps * 31.7
        lines += [f"slot launch_slot_: id  0 | task {task} | processing task",
                  f"slot update_slots: id  0 | task {task} | new prompt, n_ctx_slot = 8192, n_keep = 0, n_prompt_tokens = {prompt}",
                  f"slot update_slots: id  0 | task {task} | kv cache rm [0, end)",
                  f"slot print_timing: id  0 | task {task} | "]
        lines += timing("", prompt, prompt * 1.3, tokens, ms, False)
        lines += [f"slot print_timing: id  0 | task {task} | ",
                  f"draft acceptance rate = {accepted / (steps * 5):0.5f} ({accepted:5d} accepted / {steps * 5:5d} generated)",
                  f"slot      release: id  0 | task {task} | stop processing: n_past = {prompt + tokens - 1}, truncated = 0"]
    (out / "synthetic-gen1.log").write_text("\n".join(lines) + "\n")


def newer(out, name, line, draft, count=8):
    lines = []
    for task, (prompt, falling, steps) in enumerate(rows(2, draft, count)):
        accepted, tokens, ms = sum(falling), 1 + sum(falling) + steps, steps * 24.5
        head = f"{task}.12.345.{task:03d} I slot print_timing: id  0 | task {task} | "
        lines += [f"{task}.01.000.000 I slot launch_slot_: id  0 | task {task} | processing task, is_child = 0"]
        lines += timing(head, prompt, prompt * 0.9, tokens, ms, True)
        lines += [f"{head}   graphs reused = {task * 40:10d}", head + line(accepted, steps, draft, falling),
                  f"{task}.12.346.000 I slot      release: id  0 | task {task} | stop processing: n_tokens = {prompt + tokens - 1}, truncated = 0"]
    (out / name).write_text("\n".join(lines) + "\n")


def generation2(accepted, steps, draft, falling):
    return f"draft acceptance = {accepted / (steps * draft):0.5f} ({accepted:5d} accepted / {steps * draft:5d} generated)"


def generation2b(accepted, steps, draft, falling):
    shares = ", ".join(f"{n / steps:.3f}" for n in falling)
    return (generation2(accepted, steps, draft, falling) +
            f", mean acceptance length = {1 + accepted / steps:5.2f}, acceptance rate per position = ({shares})")


def vllm(out):
    lines = ["(APIServer pid=1) INFO 11-30 10:00:00 [api_server.py:1800] vLLM API server version 0.19.1",
             "(EngineCore pid=9) INFO 11-30 10:00:01 [core.py:60] Initializing a V1 LLM engine with config: model='m', speculative_config=SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)"]
    for i, (_, falling, steps) in enumerate(rows(3, 3, 6)):
        accepted, drafted = sum(falling), steps * 3
        stamp = f"(APIServer pid=1) INFO 11-30 10:0{i}:10"
        shares = ", ".join(f"{n / steps:.3f}" for n in falling)
        lines += [f"{stamp} [loggers.py:271] Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: {(accepted + steps) / 10:.1f} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.4%, Prefix cache hit rate: 0.0%",
                  f"{stamp} [metrics.py:101] SpecDecoding metrics: Mean acceptance length: {1 + accepted / steps:.2f}, Accepted throughput: {accepted / 10:.2f} tokens/s, Drafted throughput: {drafted / 10:.2f} tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position acceptance rate: {shares}, Avg Draft acceptance rate: {100 * accepted / drafted:.1f}%"]
    (out / "synthetic-vllm.log").write_text("\n".join(lines) + "\n")


def main():
    out = Path(sys.argv[1])
    generation1(out)
    newer(out, "synthetic-gen2.log", generation2, 4)
    newer(out, "synthetic-gen2b.log", generation2b, 4)
    vllm(out)


if __name__ == "__main__":
    main()
