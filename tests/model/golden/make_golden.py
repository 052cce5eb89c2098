#!/usr/bin/env python3
"""Makes a golden file for real_model_test: what llama.cpp and an exact forward pass say.

    llama-server -m MODEL.gguf --port 8080 -c 1024     (b11434)
    make_golden.py http://127.0.0.1:8080 exact_logprobs MODEL.gguf TEXT.txt > MODEL.txt

Lines: "greedy" the prompt's ids, "then" what llama.cpp continues them with at temperature 0, "ids" the
text's ids, and for every fourth position the ten likeliest next ids with llama.cpp's log-probabilities
and the exact ones.
"""
import json
import subprocess
import sys
import urllib.request

PROMPT = "The capital of France is"


def post(server, path, body):
    request = urllib.request.Request(server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def main():
    server, exact, model, text = sys.argv[1:]
    tokenize = lambda content: post(server, "/tokenize", {"content": content, "add_special": True})["tokens"]
    prompt = tokenize(PROMPT)
    reply = post(server, "/completion", {"prompt": prompt, "n_predict": 48, "temperature": 0, "return_tokens": True})
    ids = tokenize(open(text, encoding="utf-8").read().strip())
    lines = ["greedy " + " ".join(map(str, prompt)), "then " + " ".join(map(str, reply["tokens"])),
             "ids " + " ".join(map(str, ids))]
    for position in range(4, len(ids), 4):
        reply = post(server, "/completion", {"prompt": ids[:position + 1], "n_predict": 1, "n_probs": 10, "temperature": 0})
        top = reply["completion_probabilities"][0]["top_logprobs"]
        lines.append(f"llama.cpp {position} " + " ".join(f"{t['id']}:{t['logprob']:.5f}" for t in top))
    made = subprocess.run([exact, model], input="\n".join(lines) + "\n", text=True, capture_output=True, check=True)
    sys.stdout.write(made.stdout)


main()
