#!/usr/bin/env python3
"""What decoding costs when the cores are not Lockstep's own: milliseconds a token alone, and with a busy
process on every core.

    bench/contention.py -m models/SmolLM2-135M-Instruct.Q4_1.gguf -t 2 --pairs 5

Each measurement is one `lockstep bench` of its own (-n 64, three repetitions, the median); alone and
contended take turns, A B B A. Two threads that share two cores with two busy processes get half of them,
so that 2.0 is what the scheduler's fairness alone would give.
"""
import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
from pathlib import Path


def burn():
    value = 1
    while True:
        value = value * 1103515245 + 12345 & 0xFFFFFFFF


def milliseconds(binary, model, threads, tokens):
    command = [binary, "bench", "-m", model, "-t", str(threads), "-p", "0", "-n", str(tokens), "-w", "none", "-r", "3",
               "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)["rows"][0]["ms"]


def main():
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-n", "--tokens", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--busy", type=int, default=len(os.sched_getaffinity(0)), help="busy processes")
    parser.add_argument("--lockstep", default=str(root / "build/release/lockstep"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()

    def alone():
        return milliseconds(args.lockstep, args.model, args.threads, args.tokens)

    def contended():
        busy = [multiprocessing.Process(target=burn, daemon=True) for _ in range(args.busy)]
        for process in busy:
            process.start()
        try:
            return alone()
        finally:
            for process in busy:
                process.kill()
                process.join()

    pairs = []
    for i in range(args.pairs):
        if i % 2 == 0:
            a = alone()
            b = contended()
        else:
            b = contended()
            a = alone()
        pairs.append((a, b))
        print(f"alone {a:.3f} ms a token, contended {b:.3f} ms: {b / a:.2f} times", file=sys.stderr)
    result = {"model": Path(args.model).name, "threads": args.threads, "busy": args.busy,
              "alone_ms": statistics.median(a for a, _ in pairs),
              "contended_ms": statistics.median(b for _, b in pairs),
              "ratio": statistics.median(b / a for a, b in pairs), "pairs": pairs}
    if args.json:
        print(json.dumps(result))
    else:
        print(f"{result['model']}: {result['alone_ms']:.3f} ms a token alone, {result['contended_ms']:.3f} ms beside "
              f"{args.busy} busy processes: {result['ratio']:.2f} times")


if __name__ == "__main__":
    main()
