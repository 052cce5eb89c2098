#!/usr/bin/env python3
"""Records the logs of a real llama-server (llama.cpp or ik_llama.cpp) and the timings that it gave over
HTTP at the same time, for the tests of `lockstep lab log`.

    record.py --server build/peer/build/bin/llama-server --models models --out /tmp/logs [SCENARIO...]

Each scenario makes OUT/SCENARIO.log, the server's own output with the models' directory replaced by
/models, and OUT/SCENARIO.json: the command (same replacement) and, for each request in the order of its
answer, the settings and the `timings` object. Standard library alone.
"""
import argparse
import concurrent.futures
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

SMOLLM2 = "SmolLM2-135M-Instruct.Q4_1.gguf"

STORY = "Once upon a time there was a small lighthouse on a rock in the sea, and its keeper"
LIST = "Count upwards, one number a line.\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n"
CODE = "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n    return a * b\n\ndef"


def one(prompt, n, temperature=0.0, **more):
    return {"prompt": prompt, "n_predict": n, "temperature": temperature, "seed": 7, "ignore_eos": True, **more}


# name: (engine, lives); a life is (arguments, requests); a list among the requests is sent at once.
DRAFT = ["-md", "MODEL", "--spec-type", "draft-simple"]
SCENARIOS = {
    "draft7-lv4": ("llama.cpp", [(DRAFT + ["--spec-draft-n-max", "7", "-np", "1", "-lv", "4"], [
        one(STORY, 64, 1.0), one(LIST, 48), one(CODE, 64, 0.8), one(CODE, 40, 0.8), one(STORY, 1), one(LIST * 8, 72, 1.2)])]),
    "draft5-restart": ("llama.cpp", [
        (DRAFT + ["--spec-draft-n-max", "5", "-np", "1"], [one(STORY, 48, 1.0), one(CODE, 48, 1.0), one(LIST, 33, 1.0)]),
        (DRAFT + ["--spec-draft-n-max", "3", "-np", "1"], [one(STORY, 48, 1.0), one(CODE, 48, 1.0), one(STORY, 32, 1.0)])]),
    "ngram-lv4": ("llama.cpp", [(["--spec-type", "ngram-simple", "-np", "1", "-lv", "4"], [
        one(CODE * 2, 96), one(LIST * 2, 96), one(STORY, 40)])]),
    "ngram-mod": ("llama.cpp", [(["--spec-type", "ngram-mod", "-np", "1"], [one(CODE * 3, 96), one(CODE * 3, 96), one(STORY, 32)])]),
    "plain-np4": ("llama.cpp", [(["-np", "4"], [one(STORY, 32), [one(CODE, 40), one(LIST, 40), one(STORY + " was", 40), one("The", 40)]])]),
    "plain-cold": ("llama.cpp", [(["-np", "1", "--cache-ram", "0", "--ctx-checkpoints", "0"], [
        one(STORY, 100, cache_prompt=False), one(CODE, 100, cache_prompt=False), one(STORY, 32, cache_prompt=True)])]),
    "jsonl": ("llama.cpp", [(DRAFT + ["--spec-draft-n-max", "4", "-np", "1", "-lv", "4", "--log-jsonl"], [one(STORY, 24, 1.0), one(CODE, 24, 1.0)])]),
    "ik-draft": ("ik_llama.cpp", [(["-md", "MODEL", "--spec-type", "draft:n_max=6,p_min=0.0", "-np", "1"], [
        one(STORY, 48, 1.0), one(CODE, 48, 1.0), one(CODE, 32, 1.0)])]),
    # One slot, six requests at once: five wait, and each begins as soon as the one before is released.
    "ik-queued": ("ik_llama.cpp", [(["-np", "1", "--cache-ram", "0"], [[
        one(STORY, 24), one(CODE, 24), one(LIST, 24), one(CODE, 16), one("The", 20), one(STORY, 12)]])]),
    "ik-plain-np2": ("ik_llama.cpp", [(["-np", "2"], [one(STORY, 32), [one(CODE, 32), one(LIST, 32)], one(STORY, 16)])]),
    "ik-json": ("ik_llama.cpp", [(["-np", "1", "--log-format", "json"], [one(STORY, 24), one(CODE, 24), one(STORY, 16)])]),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, body):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=1800) as answer:
        return json.load(answer)


def wait_ready(port, process):
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.3)
    raise RuntimeError("the server did not get ready")


def record(server, models, out, name, extra):
    engine, lives = SCENARIOS[name]
    model = str(models / SMOLLM2)
    raw, answers, commands = out / f"{name}.raw", [], []
    # ik_llama.cpp's server leaves a file of its own where it runs.
    with open(raw, "wb") as log, tempfile.TemporaryDirectory() as folder:
        for arguments, requests in lives:
            port = free_port()
            command = [str(server), "-m", model, "-c", "2048", "-t", "1", "--host", "127.0.0.1", "--port", str(port)]
            command += [model if word == "MODEL" else word for word in arguments] + extra
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
            try:
                wait_ready(port, process)
                for item in requests:
                    together = item if isinstance(item, list) else [item]
                    with concurrent.futures.ThreadPoolExecutor(len(together)) as pool:
                        for body, answer in zip(together, pool.map(lambda b: post(port, b), together)):
                            answers.append({"life": len(commands), "request": body, "timings": answer.get("timings"),
                                            "tokens_evaluated": answer.get("tokens_evaluated"), "id_slot": answer.get("id_slot"),
                                            "tokens_cached": answer.get("tokens_cached")})
                time.sleep(0.5)
            finally:
                process.terminate()
                process.wait(60)
            commands.append(["llama-server"] + [str(word).replace(str(models), "/models") for word in command[1:]])
    text = raw.read_bytes()
    for path in {str(models), str(models.resolve())}:
        text = text.replace(path.encode(), b"/models")
    # Of the loading of a model only a screenful matters here.
    text = re.sub(rb"(?m)^.*(?:llama_model_loader: - kv|llama_model_loader: - type|print_info: |load: |common_params_fit|~llama|"
                  rb"llama_context: |sched_reserve|create_tensor|chat template, example|"
                  rb"llm_load_|llama_init_from_model: |^Layer +\d).*\n", b"", text)
    (out / f"{name}.log").write_bytes(text)
    raw.unlink()
    (out / f"{name}.json").write_text(json.dumps({"engine": engine, "commands": commands, "answers": answers}, indent=1) + "\n")
    print(f"{name}: {len(text)} bytes, {len(answers)} answers")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--server-flag", action="append", default=[],
                        help="one more word for the server's command line (--server-flag=--no-repack)")
    parser.add_argument("scenarios", nargs="*")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.scenarios or SCENARIOS:
        record(options.server.resolve(), options.models.absolute(), options.out, name, options.server_flag)


if __name__ == "__main__":
    sys.exit(main())
