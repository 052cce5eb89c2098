#!/usr/bin/env python3
"""What opening a model takes: seconds to the end of one token, milliseconds of packing, and peak memory
against the file's size.

    bench/load.py models/SmolLM2-135M-Instruct.Q4_1.gguf

Runs `lockstep run -m FILE -p "a b c" -n 1 -c 512 --json`; the peak is the process's largest resident set,
file pages included.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main():
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="+")
    parser.add_argument("--lockstep", default=str(root / "build/release/lockstep"))
    args = parser.parse_args()
    print("| file | seconds | packing ms | peak MB | file MB | peak / file |\n|---|---|---|---|---|---|")
    for model in args.model:
        command = [args.lockstep, "run", "-m", model, "-p", "a b c", "-n", "1", "-c", "512", "--json"]
        start = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        if status != 0:
            sys.exit(f"{' '.join(command)}: exit {os.waitstatus_to_exitcode(status)}")
        size, peak = os.path.getsize(model), usage.ru_maxrss * 1024
        print(f"| {Path(model).name} | {seconds:.2f} | {json.loads(output)['load']['ms']:.0f} | {peak / 1e6:.0f} | "
              f"{size / 1e6:.0f} | {peak / size:.3f} |")


if __name__ == "__main__":
    main()
