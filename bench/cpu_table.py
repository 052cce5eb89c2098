#!/usr/bin/env python3
"""Lockstep against other programs' llama-bench on this machine's CPU: pairs, ratios, an interval.

    bench/cpu_table.py -m a.gguf b.gguf -t 2 --tests w1,w8,pp512,tg32 \\
        --peer llama.cpp=/path/to/llama-bench --peer ik-rtr=/path/to/other/llama-bench \\
        --peer-args "ik-rtr=-rtr 1" --slow-below 60 --out rows.jsonl

Every call is a process of its own with one repetition after a warm-up. Calls go A B B A A B B A ..., so
that a machine that drifts drifts over both. A call's state is the read bandwidth beside it: Lockstep's
own readings, and for a peer those of `lockstep bench` on a tiny model just before and after it. A ratio
is Lockstep's tokens a second over the peer's in one pair; only pairs whose two calls were in the same
state count. The interval is that of the median by order statistics, which supposes nothing about how
ratios are distributed; below six pairs there is none.

Tests: ppN, a prompt of N tokens; tgN, N tokens one at a time; wN, one pass of N rows. llama-bench has no
wN: it runs a prompt of N tokens, and computes the logits of the last row alone where Lockstep computes
those of all N. That favours the peer.

Writes every call to --out as a JSON line when it is made, and a Markdown table to standard output.
"""
import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

METER = "synth:llama-tiny@q4_0"
TIMEOUT = 3600   # seconds a call may take


class Failure(Exception):
    """One line: what, where, what to do."""


def call(command):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT)
    except OSError as error:
        raise Failure(f"{command[0]}: cannot be run: {error.strerror}; check the path") from None
    except subprocess.TimeoutExpired:
        raise Failure(f"{shlex.join(command)}: more than {TIMEOUT} s; use a smaller test") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise Failure(f"{shlex.join(command)}: exit {done.returncode}: {last}")
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise Failure(f"{shlex.join(command)}: its standard output is not JSON") from None


def show(progress):
    if sys.stderr.isatty():
        print(f"\r\x1b[K{progress}", end="", file=sys.stderr, flush=True)


def parse_test(name):
    found = re.fullmatch(r"(pp|tg|w)([1-9][0-9]*)", name)
    if not found:
        raise Failure(f"--tests {name}: not a test; give ppN, tgN or wN, as in w8,pp512,tg32")
    return found[1], int(found[2])


def run_lockstep(args, model, kind, tokens):
    chosen = {"pp": ["-p", tokens, "-n", 0, "-w", "none"], "tg": ["-p", 0, "-n", tokens, "-w", "none"],
              "w": ["-p", 0, "-n", 0, "-w", tokens]}[kind]
    command = [args.lockstep, "bench", "-m", model, *chosen, "-d", args.depth, "-r", 1, "-t", args.threads, "-o", "json",
               *args.lockstep_args]
    row = call([str(word) for word in command])["rows"][0]
    return {"ms": row["ms_list"][0] * row["passes"], "readings": row["read_gb_s_list"], "raw": row}


def read_bandwidth(args):
    command = [args.lockstep, "bench", "-m", METER, "-p", "0", "-n", "0", "-w", "1", "-r", "1", "-t", str(args.threads),
               "-o", "json"]
    return statistics.mean(call(command)["rows"][0]["read_gb_s_list"])


def run_peer(args, peer, model, kind, tokens):
    before = read_bandwidth(args)
    command = [peer["path"], "-m", model, "-r", 1, "-o", "json", "-t", args.threads]
    if kind == "tg":
        command += ["-p", 0, "-n", tokens]
    else:
        rows = max(tokens, 512)
        command += ["-p", tokens, "-n", 0, "-b", rows, "-ub", rows]
    if args.depth:
        command += ["-d", args.depth]
    rows = call([str(word) for word in command + peer["args"]])
    if not rows or "samples_ns" not in rows[0]:
        raise Failure(f"{peer['path']}: no samples_ns in its JSON; is it a llama-bench?")
    return {"ms": rows[0]["samples_ns"][0] / 1e6, "readings": [before, read_bandwidth(args)], "raw": rows[0]}


def state_of(readings, slow_below):
    if slow_below is None:
        return ""
    return "slow" if statistics.mean(readings) < slow_below else "fast"


def median_interval(values, confidence=0.95):
    """Order statistics that hold the median with at least this confidence (None below six values)."""
    n = len(values)
    outside, k = 0.0, 0
    while True:   # the greatest k with P(fewer than k of n fall below the median), both sides, small enough
        outside += 2 * math.comb(n, k) / 2 ** n
        if outside > 1 - confidence:
            break
        k += 1
    if k == 0:
        return None
    ordered = sorted(values)
    return ordered[k - 1], ordered[n - k]


def order_of(pair):
    """A B, B A, A B, ...: in a row A B B A A B B A."""
    return ("lockstep", "peer") if pair % 2 == 0 else ("peer", "lockstep")


def measure(args, model, test, peer, out):
    """The pairs of one cell: a list of {tool: call}."""
    kind, tokens = parse_test(test)
    pairs = []
    for pair in range(args.pairs):
        calls = {}
        for tool in order_of(pair):
            name = peer["name"] if tool == "peer" else "lockstep"
            show(f"{model.name} {test}: pair {pair + 1}/{args.pairs}, {name}")
            done = (run_lockstep(args, model, kind, tokens) if tool == "lockstep" else
                    run_peer(args, peer, model, kind, tokens))
            done["tok_s"] = tokens / done["ms"] * 1e3
            done["state"] = state_of(done["readings"], args.slow_below)
            calls[tool] = done
            out.write(json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "model": model.name,
                                  "test": test, "depth": args.depth, "threads": args.threads, "peer": peer["name"],
                                  "tool": name, "pair": pair, **done}) + "\n")
            out.flush()
        pairs.append(calls)
    return pairs


def table_row(model, test, peer, pairs):
    alike = [p for p in pairs if p["lockstep"]["state"] == p["peer"]["state"]]
    head = f"| {model} | {test} | {peer} |"
    if not alike:
        return f"{head} | | no pair in one state | | 0/{len(pairs)} | |"
    ratios = [p["lockstep"]["tok_s"] / p["peer"]["tok_s"] for p in alike]
    interval = median_interval(ratios)
    states = [p["lockstep"]["state"] for p in alike]
    counts = ", ".join(f"{states.count(s)} {s}" for s in sorted(set(states)) if s)
    return (f"{head} {statistics.median(p['lockstep']['tok_s'] for p in alike):.2f} "
            f"| {statistics.median(p['peer']['tok_s'] for p in alike):.2f} | {statistics.median(ratios):.3f} "
            f"| {'%.3f to %.3f' % interval if interval else '(too few)'} | {len(alike)}/{len(pairs)} | {counts} |")


def named(option, text):
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise Failure(f"{option} {text}: give NAME=VALUE")
    return name, value


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = Path(__file__).resolve().parents[1]
    parser.add_argument("-m", "--models", nargs="+", type=Path, required=True, metavar="FILE")
    parser.add_argument("--lockstep", default=str(root / "build/release/lockstep"), metavar="PATH")
    parser.add_argument("--lockstep-args", default="", metavar="ARGS", help="further arguments of lockstep bench")
    parser.add_argument("--peer", action="append", required=True, metavar="NAME=PATH", help="a llama-bench (again for more)")
    parser.add_argument("--peer-args", action="append", default=[], metavar="NAME=ARGS", help="further arguments of that peer")
    parser.add_argument("--tests", default="w1,w8,pp512,tg32", metavar="LIST")
    parser.add_argument("-d", "--depth", type=int, default=0, metavar="N", help="positions already remembered")
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--pairs", type=int, default=10, metavar="N", help="pairs of calls of each cell (default: 10)")
    parser.add_argument("--slow-below", type=float, metavar="GB/S",
                        help="calls beside a read bandwidth below this are \"slow\", others \"fast\"")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="every call as a JSON line, appended")
    args = parser.parse_args(argv)
    args.lockstep_args = shlex.split(args.lockstep_args)
    peers = {}
    for name, path in (named("--peer", text) for text in args.peer):
        peers[name] = {"name": name, "path": path, "args": []}
    for name, more in (named("--peer-args", text) for text in args.peer_args):
        if name not in peers:
            raise Failure(f"--peer-args {name}=...: there is no --peer {name}")
        peers[name]["args"] += shlex.split(more)
    args.peers = list(peers.values())
    args.tests = args.tests.split(",")
    for test in args.tests:
        parse_test(test)
    if args.pairs < 1:
        raise Failure(f"--pairs {args.pairs}: give 1 or more (9 and more for a claim)")
    return args


def main(argv):
    args = parse_arguments(argv)
    with open(args.out, "a") as out:
        print("| model | test | peer | Lockstep tok/s | peer tok/s | ratio | 95 % interval | pairs | state |")
        print("| :--- | :--- | :--- | ---: | ---: | ---: | :--- | ---: | :--- |", flush=True)
        for model in args.models:
            with open(model, "rb") as file:   # into the page cache, for whoever comes first
                while file.read(1 << 24):
                    pass
            for test in args.tests:
                for peer in args.peers:
                    row = table_row(model.name, test, peer["name"], measure(args, model, test, peer, out))
                    show("")
                    print(row, flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Failure as failure:
        sys.exit(f"cpu_table: {failure}")
    except OSError as error:
        sys.exit(f"cpu_table: {error.filename}: {error.strerror}")
