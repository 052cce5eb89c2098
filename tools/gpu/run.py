#!/usr/bin/env python3
"""What a machine with a GPU has to show for the CUDA kernels, from built binaries alone.

In a folder made by pack.sh, in this order, each part within its own time:
  conformance   kernels_cuda_test: every op, type, KV type and width against the scalar reference, by bits
  sanitizer     the same with few trials under compute-sanitizer: memcheck, racecheck, synccheck
  prove         prove --device cuda --against cpu --quick on each model
  texts         20 texts of the suite, 256 tokens each, greedy and at temperature 0.8: ids, logits rows and KV
                pages as the CPU's, on each model
  long          run, plainly and with drafts, greedy and at temperature 1, behind a prompt of some 2,700 tokens, on
                small synthetic models whose heads are those of large ones, where attention reads pages through
                rings: ids as the CPU's
  portable      conformance with few trials, and prove --quick, with --kernels portable's code
  bench         w1, w2, w4, w8, w16 and pp512 of each model
Prints one Markdown table last, and keeps every part's whole output in --out. Exit code 1 when a part
failed or found no device; a part that was left out for time says so and is no failure.

    python3 run.py --models MODELS --out RESULTS [--parts conformance,bench] [--seconds 560]
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SANITIZERS = ["memcheck", "racecheck", "synccheck"]
PARTS = ["conformance", "sanitizer", "prove", "texts", "long", "portable", "bench"]
TEXTS, TEXT_TOKENS, TEXT_THREADS = 20, 256, 4
LONG_MODELS = ["synth:llama-tiny@q8_0,heads=16,kv_heads=8,head_dim=64,ctx=8192",
               "synth:llama-tiny@q4_0,heads=32,kv_heads=8,head_dim=128,ctx=8192"]
LONG_TOKENS = 96
LONG_CHARACTERS = 3500  # some 2,700 tokens of these models


class Run:
    def __init__(self, options):
        self.out = Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.end = time.monotonic() + options.seconds
        self.rows = []  # (part, what, result)
        self.failed = False
        self.env = dict(os.environ)
        self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(HERE / "lib"), os.environ.get("LD_LIBRARY_PATH")]))

    def left(self):
        return self.end - time.monotonic()

    def command(self, name, arguments, most_seconds, **env):
        """(exit code, output, seconds); code None: no time was left or it ran out."""
        seconds = min(most_seconds, self.left() - 5)
        if seconds < 10:
            return None, "", 0.0
        log = self.out / f"{name}.log"
        begin = time.monotonic()
        with open(log, "wb") as stream:
            try:
                done = subprocess.run(arguments, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                      env={**self.env, **env}, timeout=seconds)
                code = done.returncode
            except subprocess.TimeoutExpired:
                code = None
        text = log.read_text(errors="replace")
        return code, text, time.monotonic() - begin

    def add(self, part, what, result, good):
        self.rows.append((part, what, result))
        self.failed |= good is False
        print(f"{part}: {what}: {result}", flush=True)


def verdict(code, seconds):
    if code is None:
        return f"not finished after {seconds:.0f} s" if seconds else "left out: no time"
    return f"exit {code}, {seconds:.0f} s"


def tail(text, lines=25):
    print("\n".join("    " + line for line in text.splitlines()[-lines:]), flush=True)


def conformance(run):
    code, text, seconds = run.command("conformance", [HERE / "bin/kernels_cuda_test"], 240)
    for name, comparisons, elements in re.findall(r"\[ matrix   \] (.*): (\d+) comparisons, (\d+) elements", text):
        run.rows.append(("conformance", name, f"{comparisons} comparisons, {elements} elements, equal bits"
                         if code == 0 else f"{comparisons} comparisons before the end"))
    for name, seen, trials in re.findall(r"\[ control  \] (.*): seen in (\d+) of (\d+)", text):
        run.rows.append(("control", name, f"seen in {seen} of {trials}"))
    skipped = "[ skipped  ]" in text
    run.add("conformance", "kernels_cuda_test", verdict(code, seconds) + (", NO DEVICE" if skipped else ""),
            None if code is None and not seconds else code == 0 and not skipped)
    if code != 0 or skipped:
        failures = [line for line in text.splitlines() if "Failure" in line or "FAILED" in line or "skipped" in line]
        tail("\n".join(failures[:30]))
        tail(text)


def sanitizer(run):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        run.add("sanitizer", "compute-sanitizer", "not on this machine", None)
        return
    for kind in SANITIZERS:
        code, text, seconds = run.command(
            f"sanitizer-{kind}", [tool, f"--tool={kind}", "--error-exitcode=9", HERE / "bin/kernels_cuda_test"],
            100, LOCKSTEP_FEW_TRIALS="1")
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", text)
        run.add("sanitizer", kind, f"{verdict(code, seconds)}: {summary[-1] if summary else 'no summary'}",
                None if code is None else code == 0)
        if code:
            tail(text)


def models(options):
    """(name, -m) of each."""
    found = sorted(Path(options.models).glob("*.gguf")) if options.models else []
    return ([(path.stem, str(path)) for path in found] +
            [(re.sub(r"[^A-Za-z0-9_.-]", "-", spec), spec) for spec in options.synth]) or [(None, None)]


def texts(run, options):
    suite = suite_prompts()[:TEXTS]
    at_once = max(1, (os.cpu_count() or 1) // TEXT_THREADS)
    for name, model in models(options):
        if name is None:
            run.add("texts", "models", "none given", None)
            return
        begin = time.monotonic()

        def one(prompt):
            return run.command(f"texts-{name}-{prompt['id']}",
                               [HERE / "bin/lockstep", "prove", "-m", model, "--device", "cuda", "--against", "cpu",
                                "-t", str(TEXT_THREADS), "-p", prompt["text"], "-n", str(TEXT_TOKENS),
                                "--only", "plain again", "--json"], 120)
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            done = list(pool.map(one, suite))
        lines = [line for code, text, _ in done if code == 0 for line in json.loads(text[text.index("{"):])["lines"]]
        same = sum(code == 0 for code, _, _ in done)
        cut = sum(code is None for code, _, _ in done)
        for code, text, _ in done:
            if code:
                tail(text)
        run.add("texts", f"{name}: {len(suite)} texts, {TEXT_TOKENS} tokens, greedy and T=0.8",
                f"{same}/{len(suite) - cut} identical{f', {cut} left out: no time' if cut else ''}, "
                f"{sum(line['tokens'] for line in lines)} tokens and "
                f"{sum(line['logits_rows'] for line in lines)} rows of logits compared, {time.monotonic() - begin:.0f} s",
                False if same + cut < len(suite) else None if cut else True)


def suite_prompts():
    return json.loads((HERE / "auto_depth.json").read_text())["prompts"]


def long(run):
    text = " ".join(prompt["text"] for prompt in suite_prompts())[:LONG_CHARACTERS]
    drafts = ["--spec-type", "suffix", "--spec-draft-n-max", "7"]
    for model in LONG_MODELS:
        for temperature in ("0", "1"):
            hashes = {}
            for device, more in (("cpu", []), ("cuda", []), ("cuda", drafts)):
                code, out, _ = run.command(
                    f"long-{len(run.rows)}-{device}-{len(more)}",
                    [HERE / "bin/lockstep", "run", "-m", model, "--device", device, "-p", text, "-n", str(LONG_TOKENS),
                     "--temp", temperature, "-s", "1", "--json", *more], 60)
                found = re.search(r'"token_sha256": "([0-9a-f]{64})"', out)
                hashes[device, len(more)] = found[1] if code == 0 and found else f"exit {code}"
            same = len(set(hashes.values())) == 1 and re.fullmatch("[0-9a-f]{64}", hashes["cpu", 0])
            run.add("long", f"{model}: {len(text)} characters, {LONG_TOKENS} tokens at T={temperature}, plain and drafts of 7",
                    "the CPU's ids" if same else f"not the same: {hashes}", bool(same))


def portable(run, options):
    code, text, seconds = run.command("portable-conformance", [HERE / "bin/kernels_cuda_test"], 200,
                                      LOCKSTEP_FEW_TRIALS="1", CUDA_FORCE_PTX_JIT="1")
    run.add("portable", "kernels_cuda_test, few trials", verdict(code, seconds), None if code is None else code == 0)
    for name, model in models(options):
        if name is None:
            return
        code, text, seconds = run.command(
            f"portable-{name}", [HERE / "bin/lockstep", "prove", "-m", model, "--device", "cuda", "--kernels", "portable",
                                 "--against", "cpu", "--quick"], 200)
        lines = re.findall(r"\d+/\d+ identical", text)
        run.add("portable", f"{name}: prove --kernels portable --against cpu --quick",
                f"{lines[-1] if lines else 'no verdict'}, {verdict(code, seconds)}", None if code is None else code == 0)


def prove(run, options):
    for name, model in models(options):
        if name is None:
            run.add("prove", "models", "none given", None)
            return
        code, text, seconds = run.command(
            f"prove-{name}",
            [HERE / "bin/lockstep", "prove", "-m", model, "--device", "cuda", "--against", "cpu", "--quick"], 200)
        lines = re.findall(r"\d+/\d+ identical", text)
        run.add("prove", f"{name}: --device cuda --against cpu --quick",
                f"{lines[-1] if lines else 'no verdict'}, {verdict(code, seconds)}",
                None if code is None else code == 0)
        print(text[-6000:], flush=True)


def bench(run, options):
    for name, model in models(options):
        if name is None:
            run.add("bench", "models", "none given", None)
            return
        code, text, seconds = run.command(
            f"bench-{name}",
            [HERE / "bin/lockstep", "bench", "-m", model, "--device", "cuda", "-p", "512", "-n", "32",
             "-w", "1,2,4,8,16", "-r", "5"], 120)
        run.add("bench", name, verdict(code, seconds), None if code is None else code == 0)
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) > 10 and re.match(r"^(pp|tg|w)\d", cells[0]):
                run.rows.append(("bench", f"{name} {cells[0]}",
                                 f"{cells[3]} ms a pass, {cells[8]} GB/s, read {cells[9]} GB/s, {cells[10]}"))
        print(text[-4000:], flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", help="a folder of GGUF files")
    parser.add_argument("--synth", action="append", default=[], metavar="SPEC",
                        help="a synthetic model too, which needs no file: synth:llama-135m@q4_1 (again for more)")
    parser.add_argument("--out", required=True, help="where every part's output goes")
    parser.add_argument("--parts", default=",".join(PARTS), help="which, in which order")
    parser.add_argument("--seconds", type=float, default=560, help="for everything")
    options = parser.parse_args()
    run = Run(options)
    parts = options.parts.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    smi = shutil.which("nvidia-smi")
    device = subprocess.run([smi, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                            capture_output=True, text=True).stdout.strip() if smi else "no nvidia-smi"
    for part in parts:
        if part == "conformance":
            conformance(run)
        elif part == "sanitizer":
            sanitizer(run)
        elif part == "prove":
            prove(run, options)
        elif part == "texts":
            texts(run, options)
        elif part == "long":
            long(run)
        elif part == "portable":
            portable(run, options)
        else:
            bench(run, options)
    commit = (HERE / "commit").read_text().strip() if (HERE / "commit").exists() else "unknown"
    table = [f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M} UTC, commit {commit}, {device}", "",
             "| part | what | result |", "|---|---|---|"]
    table += [f"| {part} | {what} | {result} |" for part, what, result in run.rows]
    text = "\n".join(table) + "\n"
    (run.out / "table.md").write_text(text)
    print(text)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
