#!/usr/bin/env python3
"""How many of the numbers behind a greedy text change when drafts are switched on.

    bench/bits_changed.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf --peer-server /path/to/llama-server

40 prompts, 160 greedy tokens each. For the peer (llama.cpp's llama-server) the log-probability of every
token it wrote, plain against with drafts: from the model itself as drafter at depth 7, and from n-grams;
a value counts as changed when its printed digits differ. For Lockstep the SHA-256 of every whole logits
row and of the KV pages, by `lockstep prove` with the same two sources at depth 7. Without --peer-server
only Lockstep is counted.
"""
import argparse
import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

OPENINGS = ["The old lighthouse keeper climbed the stairs and", "In the year the river froze,",
            "My grandmother's recipe for bread begins with", "The two astronauts looked at each other and",
            "Once upon a time there was a fox who", "The committee met on Tuesday to discuss",
            "A short history of the bicycle:", "Dear neighbour, I am writing to you because",
            "The capital of France is Paris. The capital of Italy is", "To boil an egg, first",
            "She opened the letter, read it twice, and", "Water is made of hydrogen and oxygen, and",
            "List the months of the year: January, February,", "The dog barked at the postman because",
            "def add(a, b):\n    return a + b\n\ndef subtract(a, b):", "Rain fell on the market square while",
            "The train to the north leaves at", "What is the difference between a lake and a sea?",
            "He had never seen snow before, so", "The museum's newest painting shows"]
FRAMES = ["{}", "Write the next paragraph.\n\n{}"]
MODES = {"draft model, depth 7": ("draft model (-md) n=7", ["--spec-type", "draft-simple", "--spec-draft-n-max", "7",
                                                            "--spec-draft-p-min", "0"]),
         "n-gram drafts": ("draft ngram n=7", ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3",
                                               "--spec-ngram-simple-size-m", "7"])}


class Server:
    def __init__(self, binary, model, threads, port, extra):
        self.url = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen([binary, "-m", model, "-t", str(threads), "-c", "2048", "-np", "1", "--port",
                                         str(port), *extra], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"{' '.join(self.process.args)}: ended with {self.process.returncode}")
            try:
                if json.load(urllib.request.urlopen(self.url + "/health"))["status"] == "ok":
                    return self
            except OSError:
                pass
            time.sleep(0.2)
        sys.exit("the server did not become ready")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def tokens(self, prompt, n):
        body = {"prompt": prompt, "n_predict": n, "temperature": 0, "n_probs": 1, "ignore_eos": True,
                "cache_prompt": False}
        request = urllib.request.Request(self.url + "/completion", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        answer = json.load(urllib.request.urlopen(request, timeout=600))
        return [(t["id"], t["logprob"]) for t in answer["completion_probabilities"]]


def peer_counts(args, prompts):
    def texts(port, extra):
        with Server(args.peer_server, args.model, args.threads, port, extra) as server:
            return [server.tokens(p, args.tokens) for p in prompts]

    plain = texts(args.port, [])
    counts = {}
    for i, (name, (_, flags)) in enumerate(MODES.items()):
        extra = [*flags, *(["-md", args.model] if "model" in name else [])]
        other = texts(args.port + 1 + i, extra)
        total = texts_differ = changed = 0
        for a, b in zip(plain, other):
            texts_differ += [t for t, _ in a] != [t for t, _ in b]
            total += len(a)
            changed += len(a) - len(b) if len(b) < len(a) else 0
            changed += sum(x != y for x, y in zip(a, b))
        counts[name] = {"compared": total, "changed": changed, "texts_differ": texts_differ}
    return counts


def lockstep_counts(args, prompts):
    counts = {}
    for name, (line_name, _) in MODES.items():
        total = differ = states = 0
        for prompt in prompts:
            command = [args.lockstep, "prove", "-m", args.model, "-md", args.model, "-t", str(args.threads), "-p", prompt,
                       "-n", str(args.tokens), "--only", line_name, "--json"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode not in (0, 1):
                sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
            for line in json.loads(done.stdout)["lines"]:
                total += line["logits_rows"]
                states += line["kv_states"]
                # prove stops comparing at the first difference: everything from there counts.
                if line["first_difference"]:
                    differ += line["logits_rows"]
        counts[name] = {"compared": total, "changed": differ, "kv_states": states}
    return counts


def main():
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--peer-server")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("-n", "--tokens", type=int, default=160)
    parser.add_argument("--port", type=int, default=18080)
    parser.add_argument("--lockstep", default=str(root / "build/release/lockstep"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    prompts = [frame.format(opening) for frame in FRAMES for opening in OPENINGS][:args.prompts]
    result = {"model": Path(args.model).name, "prompts": len(prompts), "tokens": args.tokens,
              "lockstep": lockstep_counts(args, prompts)}
    if args.peer_server:
        result["peer"] = peer_counts(args, prompts)
    if args.json:
        print(json.dumps(result))
        return
    print("| drafts | program | compared | changed |\n|---|---|---|---|")
    for program, what in (("lockstep", "logits rows"), ("peer", "log-probabilities")):
        for name, count in result.get(program, {}).items():
            print(f"| {name} | {program} | {count['compared']} {what} | {count['changed']} |")


if __name__ == "__main__":
    main()
