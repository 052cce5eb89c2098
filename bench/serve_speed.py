#!/usr/bin/env python3
"""What the server costs, and what sharing passes and beginnings gains.

    bench/serve_speed.py -m synth:llama-1.2b@q8_0 -t 2 --slow-below 60 --out rows.jsonl \\
        --peer llama-server=/path/to/llama-server

Four questions, each answered in pairs that take turns, A B B A A B B A ...:

  http     one stream through HTTP against `lockstep run`: tokens a second after the first
  eight    --streams streams at once against one: tokens a second of all, prompts included
  prefix   the second request with a beginning of --prefix tokens against the first: time to the first token
  peer     --streams streams at once against a llama-server -np of as many, the same file and requests

A ratio is A's figure over B's in one pair; only pairs whose two measurements found memory in the same
state count (--slow-below: the read bandwidth, as `lockstep bench` measures it just before and after).
The interval is that of the median by order statistics; below six pairs there is none. Every answer of
Lockstep's must have the token hash that its request has alone: otherwise this ends with exit code 1.
A synthetic model is written to a file first, for the peer to read.

Writes every measurement to --out as a JSON line when it is made, and a Markdown table to standard output.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import serve_clients
from cpu_table import Failure, call, median_interval, named, read_bandwidth, show, state_of
from serve_clients import Server, completion, first_ms, rate_after_first, together, total_rate

QUESTIONS = ("http", "eight", "prefix", "peer")
PROMPT_TOKENS = 16


def prompt(rng, n=PROMPT_TOKENS):
    return [rng.randrange(10, 250) for _ in range(n)]


def body(tokens, ids, seed=1):
    return {"prompt": ids, "n_predict": tokens, "seed": seed, "temperature": 0, "ignore_eos": True, "cache_prompt": False}


def hashes_of(results):
    return [r["last"]["lockstep"]["token_sha256"] for r in results]


class Bench:
    def __init__(self, args, out):
        self.args, self.out, self.rng = args, out, random.Random(1)
        self.model, self.folder = args.model, None
        self.alone = {}   # what each request says when nobody else is there

    def __enter__(self):
        if self.model.startswith("synth:"):
            self.folder = tempfile.TemporaryDirectory()
            self.model = str(Path(self.folder.name) / "model.gguf")
            call_plain([self.args.lockstep, "synth", self.args.model, "-o", self.model])
        with open(self.model, "rb") as file:   # into the page cache, for whoever comes first
            while file.read(1 << 24):
                pass
        return self

    def __exit__(self, *_):
        if self.folder:
            self.folder.cleanup()

    def serve(self):
        args = self.args
        context = args.streams * (args.tokens + PROMPT_TOKENS + 64) + args.prefix + 1024
        return Server("lockstep", [args.lockstep, "serve", "-m", self.model, "--port", 0, "-np", args.streams, "-t",
                                   args.threads, "-c", context, *args.lockstep_args.split()])

    def serve_peer(self, peer):
        args = self.args
        port = serve_clients.free_port()
        context = args.streams * (args.tokens + PROMPT_TOKENS + 64)
        return Server(peer["name"], [peer["path"], "-m", self.model, "--host", "127.0.0.1", "--port", port, "-np",
                                     args.streams, "-t", args.threads, "-c", context, *peer["args"]], port=port)

    def note(self, question, pair, arm, value, **more):
        row = {"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "model": self.args.model, "question": question,
               "threads": self.args.threads, "streams": self.args.streams, "tokens": self.args.tokens, "pair": pair,
               "arm": arm, "value": value, **more}
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()
        return row

    def pairs(self, question, arms):
        """arms: two functions of the pair's number that give a figure; they take turns."""
        rows = []
        for pair in range(self.args.pairs):
            names = list(arms)
            rows.append({})
            for name in names if pair % 2 == 0 else names[::-1]:
                show(f"{question}: pair {pair + 1}/{self.args.pairs}, {name}")
                readings = [self.bandwidth()]
                value = arms[name](pair)
                readings.append(self.bandwidth())
                state = state_of(readings, self.args.slow_below)
                rows[-1][name] = self.note(question, pair, name, value, readings=readings, state=state)
        show("")
        return rows

    def bandwidth(self):
        return read_bandwidth(self.args) if self.args.slow_below is not None else 0.0

    def check(self, results, bodies):
        for got, of in zip(hashes_of(results), bodies):
            key = json.dumps(of)
            if self.alone.setdefault(key, got) != got:
                raise Failure(f"another answer than before: {got[:16]}, not {self.alone[key][:16]}; {key[:200]}")

    def one(self, port):
        request = body(self.args.tokens, prompt(random.Random(7)))
        result = completion(port, request)
        self.check([result], [request])
        return result

    def many(self, port, check=True):
        requests = [body(self.args.tokens, prompt(random.Random(100 + i)), seed=i) for i in range(self.args.streams)]
        results = together(port, requests)
        if check:
            self.check(results, requests)
        return results

    def http(self):
        text = "a b c d e f g"
        request = body(self.args.tokens, text)
        command = [str(word) for word in [self.args.lockstep, "run", "-m", self.model, "-p", text, "-n", self.args.tokens,
                                          "--temp", 0, "-s", 1, "--ignore-eos", "-t", self.args.threads, "-c",
                                          self.args.tokens + 512, "--json"]]

        # Both in a process of their own each time: where the weights happen to lie in memory differs between
        # processes, and one server for all pairs would be held against many places.
        def stream(_):
            with self.serve() as server:
                result = completion(server.port, request)
            self.check([result], [request])
            return rate_after_first(result)

        def run(_):
            out = call(command)["result"]
            self.check([{"last": {"lockstep": out}}], [request])
            return out["decode_tok_s"]

        return self.pairs("http", {"HTTP": stream, "run": run})

    def eight(self):
        with self.serve() as server:
            # Each alone first: what it has to say among others.
            for i in range(self.args.streams):
                request = body(self.args.tokens, prompt(random.Random(100 + i)), seed=i)
                self.check([completion(server.port, request)], [request])
            return self.pairs("eight", {f"{self.args.streams} streams": lambda _: total_rate(self.many(server.port)),
                                        "one": lambda _: total_rate([self.one(server.port)])})

    def prefix(self):
        rows = []
        with self.serve() as server:
            for pair in range(self.args.pairs):
                show(f"prefix: pair {pair + 1}/{self.args.pairs}")
                shared = prompt(random.Random(1000 + pair), self.args.prefix)
                readings, row = [self.bandwidth()], {}
                values = {}
                for number, name in enumerate(("first", "second")):
                    request = {**body(4, shared + prompt(random.Random(number), 20)), "cache_prompt": True}
                    result = completion(server.port, request)
                    values[name] = first_ms(result), result["last"]["timings"]["cache_n"]
                readings.append(self.bandwidth())
                for name in ("second", "first"):
                    row[name] = self.note("prefix", pair, name, values[name][0], cache_n=values[name][1], readings=readings,
                                          state=state_of(readings, self.args.slow_below))
                rows.append(row)
        show("")
        return rows

    def peer(self, peer):
        with self.serve() as server, self.serve_peer(peer) as other:
            return self.pairs("peer " + peer["name"], {
                "lockstep": lambda _: total_rate(self.many(server.port)),
                peer["name"]: lambda _: total_rate(self.many(other.port, check=False))})


def call_plain(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")


UNITS = {"http": "tok/s after the first", "eight": "tok/s of all", "prefix": "ms to the first token"}


def line(question, pairs):
    a, b = list(pairs[0])
    alike = [p for p in pairs if p[a]["state"] == p[b]["state"]]
    head = f"| {question} | {UNITS.get(question, UNITS['eight'])} |"
    if not alike:
        return f"{head} {a} | | {b} | | no pair in one state | | 0/{len(pairs)} | |"
    ratios = [p[a]["value"] / p[b]["value"] for p in alike]
    interval = median_interval(ratios)
    states = [p[a]["state"] for p in alike]
    counts = ", ".join(f"{states.count(s)} {s}" for s in sorted(set(states)) if s)
    return (f"{head} {a} | {statistics.median(p[a]['value'] for p in alike):.2f} | {b} "
            f"| {statistics.median(p[b]['value'] for p in alike):.2f} | {statistics.median(ratios):.4f} "
            f"| {'%.4f to %.4f' % interval if interval else '(too few)'} | {len(alike)}/{len(pairs)} | {counts} |")


def parse_arguments(argv):
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", default="synth:llama-1.2b@q8_0", metavar="FILE", help="(default: %(default)s)")
    parser.add_argument("--lockstep", default=str(root / "build/release/lockstep"), metavar="PATH")
    parser.add_argument("--lockstep-args", default="", metavar="ARGS", help="further arguments of lockstep serve")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PATH", help="a llama-server (again for more)")
    parser.add_argument("--peer-args", action="append", default=[], metavar="NAME=ARGS", help="further arguments of that peer")
    parser.add_argument("--only", default="http,eight,prefix,peer", metavar="LIST", help="questions (default: all)")
    parser.add_argument("--streams", type=int, default=8, metavar="N")
    parser.add_argument("-n", "--tokens", type=int, default=64, metavar="N", help="of an answer (default: 64)")
    parser.add_argument("--prefix", type=int, default=2000, metavar="N", help="tokens shared (default: 2000)")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--pairs", type=int, default=9, metavar="N", help="(default: 9)")
    parser.add_argument("--slow-below", type=float, metavar="GB/S",
                        help="measurements beside a read bandwidth below this are \"slow\", others \"fast\"")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="every measurement as a JSON line, appended")
    args = parser.parse_args(argv)
    peers = {name: {"name": name, "path": path, "args": []} for name, path in (named("--peer", t) for t in args.peer)}
    for name, more in (named("--peer-args", text) for text in args.peer_args):
        if name not in peers:
            raise Failure(f"--peer-args {name}=...: there is no --peer {name}")
        peers[name]["args"] += more.split()
    args.peers = list(peers.values())
    args.only = args.only.split(",")
    for name in args.only:
        if name not in QUESTIONS:
            raise Failure(f"--only {name}: not a question; known are {', '.join(QUESTIONS)}")
    if args.pairs < 1 or args.streams < 1 or args.tokens < 2:
        raise Failure("--pairs and --streams must be 1 or more, --tokens 2 or more")
    return args


def main(argv):
    args = parse_arguments(argv)
    with open(args.out, "a") as out, Bench(args, out) as bench:
        print("| question | figure | A | | B | | A / B | 95 % interval | pairs | state |")
        print("| :--- | :--- | :--- | ---: | :--- | ---: | ---: | :--- | :--- | :--- |", flush=True)
        for name in args.only:
            if name == "peer":
                for peer in args.peers:
                    print(line("peer", bench.peer(peer)), flush=True)
            else:
                print(line(name, getattr(bench, name)()), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"serve_speed: {failure}")
    except OSError as error:
        sys.exit(f"serve_speed: {error.filename}: {error.strerror}")
