#!/usr/bin/env python3
"""What drafts with automatic depth gain over plain decoding, prompt by prompt.

For each prompt of the suite, at each temperature, `lockstep run --json` is called plainly and with each
draft source, in the order A B B A A B B A ..., and the table gives the median ratio of tokens a second in
such pairs, how much of the plain answer had been seen before (the share of its tokens that end a 4-gram
that stands earlier in prompt and answer: what a lookup can hope for), how many drafted tokens were
accepted, and the depths used. The ids must be the same in every run: otherwise this ends with exit code 1.

  bench/auto_depth.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf --out rows.jsonl
  bench/auto_depth.py -m MODEL --only quote-letter,story-mill --pairs 3 --out rows.jsonl
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEED = 1
KINDS = ("story", "edit", "quote", "json", "list", "chat")


class Failure(Exception):
    """Ends the run with one line."""


def show(text):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def load_suite(path):
    """The prompts: a list of {id, kind, repeats, text}; complains about what makes no sense."""
    try:
        suite = json.loads(Path(path).read_text())
    except ValueError as error:
        raise Failure(f"{path}: not JSON: {error}") from None
    prompts = suite.get("prompts") if isinstance(suite, dict) else None
    if not prompts:
        raise Failure(f"{path}: no \"prompts\"")
    seen = set()
    for prompt in prompts:
        for field, kind in (("id", str), ("kind", str), ("repeats", bool), ("text", str)):
            if not isinstance(prompt.get(field), kind):
                raise Failure(f"{path}: prompt {prompt.get('id', len(seen))}: no {field}")
        if prompt["kind"] not in KINDS:
            raise Failure(f"{path}: prompt {prompt['id']}: kind {prompt['kind']}; known are {', '.join(KINDS)}")
        if prompt["id"] in seen:
            raise Failure(f"{path}: prompt {prompt['id']} is there twice")
        seen.add(prompt["id"])
    return prompts


def seen_share(prompt_ids, answer_ids, n=4):
    """Of the answer's tokens, how many end an n-gram that stands earlier in prompt and answer."""
    if not answer_ids:
        return 0.0
    ids = list(prompt_ids) + list(answer_ids)
    grams, seen = set(), 0
    for end in range(n, len(ids) + 1):
        gram = tuple(ids[end - n:end])
        if end > len(prompt_ids):
            seen += gram in grams
        grams.add(gram)
    return seen / len(answer_ids)


def mean_depth(depths):
    steps = sum(depths)
    return sum(depth * n for depth, n in enumerate(depths)) / steps if steps else 0.0


def depths_text(depths):
    """0:12 3:4 15:1, of a histogram."""
    return " ".join(f"{depth}:{n}" for depth, n in enumerate(depths) if n)


def order_of(pair):
    """plain drafted, drafted plain, ...: in a row A B B A A B B A."""
    return ("plain", "drafted") if pair % 2 == 0 else ("drafted", "plain")


def ratio_of(pairs):
    """The median of drafted over plain in pairs of {arm: tokens a second}; None where nothing was timed."""
    ratios = [pair["drafted"] / pair["plain"] for pair in pairs if pair["plain"] > 0 and pair["drafted"] > 0]
    return statistics.median(ratios) if ratios else None


def call(command, input=""):
    try:
        done = subprocess.run(command, capture_output=True, text=True, input=input)
    except OSError as error:
        raise Failure(f"{command[0]}: cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failure(f"{shlex.join(command[:2])}: exit {done.returncode}: {last[0]}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise Failure(f"{shlex.join(command[:2])}: its output is not JSON") from None


def run_once(args, prompt, temperature, source):
    command = [args.lockstep, "run", "-m", args.model, "-p", prompt["text"], "--no-escape", "-cnv", "-st", "--json",
               "-n", args.tokens, "-s", SEED, "--temp", temperature, "-t", args.threads, *args.lockstep_args]
    if args.complete:
        command.remove("-cnv")
        command.remove("-st")
    if source:
        command += ["--spec-type", source]
    return call([str(word) for word in command])


def prompt_ids(args, prompt):
    """Of the text alone: a chat template adds nothing that an answer would repeat."""
    done = call([args.lockstep, "tokenize", "-m", str(args.model), "-p", prompt["text"], "--no-escape", "--json"])
    return done["ids"]


def row_of(prompt, temperature, source, pair, arm, out):
    result = out["result"]
    return {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "prompt": prompt["id"], "kind": prompt["kind"],
            "repeats": prompt["repeats"], "temperature": temperature, "source": source, "pair": pair, "arm": arm,
            "token_sha256": result["token_sha256"], "generated_tokens": result["generated_tokens"],
            "decode_tok_s": result["decode_tok_s"], "draft": result["draft"], "phases_ms": result["phases_ms"],
            "identity": result["identity"]}


def measure(args, prompt, temperature, source, out):
    """The rows of one cell, in the order they were run, and the plain answer's ids."""
    rows, ids = [], None
    for pair in range(args.pairs):
        for arm in order_of(pair):
            show(f"{prompt['id']} T={temperature} {source}: pair {pair + 1}/{args.pairs}, {arm}")
            done = run_once(args, prompt, temperature, source if arm == "drafted" else None)
            row = row_of(prompt, temperature, source, pair, arm, done)
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
            if arm == "plain":
                ids = done["ids"]
    return rows, ids


def summary(rows, seen):
    """What a line of the table says, of the rows of one cell."""
    pairs = {}
    for row in rows:
        pairs.setdefault(row["pair"], {})[row["arm"]] = row["decode_tok_s"]
    drafts = [row["draft"] for row in rows if row["arm"] == "drafted"]
    depths = [sum(column) for column in zip(*(d["depths"] + [0] * (16 - len(d["depths"])) for d in drafts))]
    first = rows[0]
    return {"prompt": first["prompt"], "repeats": first["repeats"], "temperature": first["temperature"],
            "source": first["source"], "tokens": first["generated_tokens"], "seen": seen,
            "ratio": ratio_of(list(pairs.values())), "drafted": sum(d["drafted"] for d in drafts),
            "accepted": sum(d["accepted"] for d in drafts), "depths": depths,
            "identical": len({row["token_sha256"] for row in rows}) == 1}


HEADER = ("| prompt | repeats | T | source | tokens | seen | ratio | accepted | mean depth | depths (tokens:steps) | ids |\n"
          "| :--- | :--- | ---: | :--- | ---: | ---: | ---: | ---: | ---: | :--- | :--- |")


def line(s):
    ratio = f"{s['ratio']:.3f}" if s["ratio"] else "(too short)"
    return (f"| {s['prompt']} | {'yes' if s['repeats'] else 'no'} | {s['temperature']} | {s['source']} | {s['tokens']} "
            f"| {100 * s['seen']:.0f} % | {ratio} | {s['accepted']}/{s['drafted']} | {mean_depth(s['depths']):.2f} "
            f"| {depths_text(s['depths'])} | {'identical' if s['identical'] else 'DIFFERENT'} |")


def medians(summaries):
    """Lines that say the median ratio of each source at each temperature, repeating prompts and others apart."""
    lines = []
    cells = sorted({(s["repeats"], s["temperature"], s["source"]) for s in summaries}, key=lambda c: (not c[0], c[1], c[2]))
    for repeats, temperature, source in cells:
        ratios = [s["ratio"] for s in summaries
                  if (s["repeats"], s["temperature"], s["source"]) == (repeats, temperature, source) and s["ratio"]]
        if ratios:
            lines.append(f"{'repeating' if repeats else 'free'} prompts, T={temperature}, {source}: median ratio "
                         f"{statistics.median(ratios):.3f}, least {min(ratios):.3f}, of {len(ratios)}")
    return lines


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True, metavar="FILE")
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/lockstep"), metavar="PATH")
    parser.add_argument("--lockstep-args", default="", metavar="ARGS", help="further arguments of lockstep run")
    parser.add_argument("--suite", default=str(ROOT / "bench/suite/auto_depth.json"), metavar="FILE")
    parser.add_argument("--only", default="", metavar="LIST", help="ids of the prompts to run (default: all)")
    parser.add_argument("--sources", default="ngram,suffix", metavar="LIST", help="(default: ngram,suffix)")
    parser.add_argument("--temps", default="0,0.8", metavar="LIST", help="(default: 0,0.8)")
    parser.add_argument("-n", "--tokens", type=int, default=200, metavar="N", help="tokens of an answer (default: 200)")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--pairs", type=int, default=4, metavar="N", help="pairs of runs of each cell (default: 4)")
    parser.add_argument("--complete", action="store_true",
                        help="complete the prompts as they are: for a model without a chat template")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="every run as a JSON line, appended")
    args = parser.parse_args(argv)
    args.lockstep_args = shlex.split(args.lockstep_args)
    args.sources = args.sources.split(",")
    args.temps = args.temps.split(",")
    args.prompts = load_suite(args.suite)
    if args.only:
        wanted = args.only.split(",")
        known = {prompt["id"] for prompt in args.prompts}
        for name in wanted:
            if name not in known:
                raise Failure(f"--only {name}: the suite has no such prompt")
        args.prompts = [prompt for prompt in args.prompts if prompt["id"] in wanted]
    if args.pairs < 1 or args.tokens < 1:
        raise Failure("--pairs and -n: give 1 or more")
    return args


def main(argv):
    args = parse_arguments(argv)
    summaries = []
    with open(args.out, "a") as out:
        print(HEADER, flush=True)
        for prompt in args.prompts:
            ids = prompt_ids(args, prompt)
            for temperature in args.temps:
                for source in args.sources:
                    rows, answer = measure(args, prompt, temperature, source, out)
                    summaries.append(summary(rows, seen_share(ids, answer)))
                    show("")
                    print(line(summaries[-1]), flush=True)
    print()
    for text in medians(summaries):
        print(text)
    different = [s["prompt"] for s in summaries if not s["identical"]]
    if different:
        raise Failure(f"the ids differ: {', '.join(sorted(set(different)))}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"auto_depth: {failure}")
    except OSError as error:
        sys.exit(f"auto_depth: {error.filename}: {error.strerror}")
