"""Makes everything under tests/oracle/ids and tests/oracle/recorded; README.md has the commands.

  ids          token ids of texts/, by llama.cpp's own tokenizer
  reference    the oracle's float64 log-probabilities: the most probable ids of every judged position
  llama        llama.cpp's mean KL and top-1 agreement to the oracle, from its whole rows
  activations  what int8 activations cost by themselves, by block size
  tiny         llama.cpp on the tiny random models of tiny.py: figures and some log-probabilities
"""
import argparse
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import judge
import tiny
from oracle import Oracle, log_softmax

SHORT = 80          # ids of each text
LONG = 640          # ids of all texts one after another: past Gemma 3's window of 512 ...
LONG_FIRST = 512    # ... and only positions where the window hides something are judged
K_QUANTS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
BLOCK_32 = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")


def model_path(args, model):
    return Path(args.models) / f"{model}.gguf"


def file_sha256(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def first_judged(sequences):
    return [LONG_FIRST if len(ids) == LONG else 0 for ids in sequences]


def judged_rows(oracle, sequences):
    """Yields (first judged position, ids that follow it and later ones, their rows of log-probabilities).

    One of each per sequence. The last row of a sequence has no next token and is left out.
    """
    hidden = oracle.hidden(sequences)
    begin = 0
    for ids, first in zip(sequences, first_judged(sequences)):
        yield first, ids[first + 1:], log_softmax(oracle.head(hidden[begin + first:begin + len(ids) - 1]))
        begin += len(ids)


def write_json(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    print(f"{path}: {len(text)} bytes", file=sys.stderr)


def make_ids(args):
    texts = sorted((judge.HERE / "texts").glob("*.txt"))
    everything = Path(args.work) / "all-texts.txt"
    everything.parent.mkdir(parents=True, exist_ok=True)
    everything.write_bytes(b"".join(t.read_bytes() for t in texts))
    for model in judge.MODELS:
        sequences = []
        for text, limit in [(t, SHORT) for t in texts] + [(everything, LONG)]:
            command = [args.llama_tokenize, "-m", model_path(args, model), "--ids", "--log-disable", "-f", text]
            ids = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            sequences.append(ids[:limit])
        write_json(judge.ids_path(model), "[" + ",\n".join(json.dumps(s) for s in sequences) + "]\n")


def make_reference(args):
    for model in judge.MODELS:
        path = model_path(args, model)
        started = time.time()
        lines, positions = [], 0
        for first, following, rows in judged_rows(Oracle(path), judge.load_ids(model)):
            top = judge.eval_sequence(following, rows, judge.TOP_ORACLE)
            positions += len(rows)
            lines.append('{"first": %d, "next": [%s],\n"top": [\n%s]}' % (
                first,
                ",".join(f"{x:.5f}" for x in top["logprobs"]),
                ",\n".join("[[%s],[%s]]" % (",".join(str(e["id"]) for e in t), ",".join(f"{e['logprob']:.5f}" for e in t))
                           for t in top["top"]),
            ))
        print(f"{model}: {positions} positions, {time.time() - started:.1f} s", file=sys.stderr)
        head = json.dumps({"model": path.name, "sha256": file_sha256(path), "positions": positions,
                           "top": judge.TOP_ORACLE})
        write_json(judge.HERE / "recorded" / f"{model}.json",
                   head[:-1] + ',\n"sequences": [\n' + ",\n".join(lines) + "]}\n")


def add_whole_rows(figures, following, p, q):
    """Judges the rows q of one sequence, every id of the vocabulary a part by itself."""
    at = np.arange(len(following))
    figures.kl += judge.whole_row_kl(p, q).tolist()
    figures.top1 += (p.argmax(axis=-1) == q.argmax(axis=-1)).tolist()
    figures.next_logprob += q[at, following].tolist()
    figures.oracle_next_logprob += p[at, following].tolist()


LLAMA_RUNS = {
    "batch": [],                         # a prompt as a user's: one batch, f16 KV
    "token by token": ["--width", "1"],  # as in generation
    "batch, f32 KV, no flash attention": ["--kv", "f32", "--no-fa"],
}


def measure_llama(args):
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    recorded = {"llama.cpp": args.build, "runs": {}, "models": {}}
    for model in judge.MODELS:
        recorded["models"][model] = {}
        for name, options in LLAMA_RUNS.items():
            print(f"{model}, {name}", file=sys.stderr)
            rows_path = work / "llama-rows.f32"
            command = [args.llama_logits, model_path(args, model), judge.ids_path(model), rows_path, *options]
            used = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            recorded["runs"][name] = {k: v for k, v in used.items() if k not in ("rows", "n_vocab")}
            figures, result = compare_llama(args, model, np.memmap(rows_path, "<f4", "r").reshape(-1, used["n_vocab"]))
            rows_path.unlink()
            recorded["models"][model][name] = figures
            slug = name.replace(",", "").replace(" ", "-")
            write_json(work / f"{model}.llama-{slug}.json", json.dumps(result))
    write_json(judge.HERE / "recorded" / "llama_cpp.json", json.dumps(recorded, indent=1) + "\n")


def compare_llama(args, model, logits):
    """Figures, and the result that `lockstep eval --top` would give for these rows.

    The rows before the first judged one are fillers in it.
    """
    whole, top_full, result = judge.Figures(), judge.Figures(), {"sequences": []}
    begin = 0
    sequences = judge.load_ids(model)
    for ids, (first, following, p) in zip(sequences, judged_rows(Oracle(model_path(args, model)), sequences)):
        q = log_softmax(logits[begin + first:begin + len(ids) - 1].astype(np.float64))
        begin += len(ids)
        add_whole_rows(whole, following, p, q)
        engine = judge.eval_sequence(following, q, judge.TOP_FULL)
        top_full.add("sequence", judge.WholeRows(0, following, p), engine)
        result["sequences"].append({
            "logprobs": engine["logprobs"][:1] * first + engine["logprobs"],
            "top": [top[:judge.TOP_ENGINE] for top in engine["top"][:1] * first + engine["top"]],
        })
    return {
        "whole rows": whole.summary(),
        f"top {judge.TOP_ORACLE}": judge.judge_recorded(model, result).summary(),
        f"top {judge.TOP_FULL}": top_full.summary(),
    }, result


def measure_tiny(args):
    work = Path(args.work)
    work.mkdir(parents=True, exist_ok=True)
    ids_path, rows_path = tiny.write_ids(work), work / "tiny-rows.f32"
    recorded = {"llama.cpp": args.build, "models": {}}
    for spec in tiny.SPECS:
        path, sha256 = tiny.write_model(args.lockstep, spec, work)
        command = [args.llama_logits, path, ids_path, rows_path]
        used = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        recorded["run"] = {k: v for k, v in used.items() if k not in ("rows", "n_vocab")}
        q = tiny.next_rows(log_softmax(np.fromfile(rows_path, "<f4").astype(np.float64).reshape(-1, tiny.N_VOCAB)))
        recorded["models"][spec] = {"sha256": sha256, **tiny.figures(tiny.oracle_rows(Oracle(path)), q),
                                    "top": tiny.sample(q)}
        path.unlink()
    models = ",\n".join(f"{json.dumps(spec)}: {json.dumps(model, separators=(',', ':'))}"
                        for spec, model in recorded.pop("models").items())
    write_json(tiny.RECORDED, json.dumps(recorded)[:-1] + ',\n"models": {\n' + models + "}}\n")


def activation_forms(types):
    """{name: arguments of Oracle} worth measuring for a file with these weight types."""
    others = dict.fromkeys(BLOCK_32, 32)
    if not types & set(K_QUANTS):
        return {"32": (others,)}

    def k_quants(block):
        return others | dict.fromkeys(K_QUANTS, block)

    forms = {f"K-quants {block}, others 32": (k_quants(block),) for block in (256, 128, 64, 32)}
    forms |= {f"the first, {levels} levels": (k_quants(256), levels) for levels in (126.9, 126.8)}
    forms["K-quants exact, others 32"] = (others,)
    forms["K-quants 256, others exact"] = (dict.fromkeys(K_QUANTS, 256),)
    return forms


def measure_activations(args):
    print("| model | activation blocks | positions | mean KL | largest KL | top-1 agreement, % |")
    print("|---|---|---|---|---|---|")
    for model in judge.MODELS:
        path = model_path(args, model)
        sequences = judge.load_ids(model)
        exact = Oracle(path)
        forms = activation_forms({t.type for t in exact.tensors.values()})
        emulated = {name: judged_rows(Oracle(path, *form), sequences) for name, form in forms.items()}
        figures = {name: judge.Figures() for name in forms}
        for _, following, p in judged_rows(exact, sequences):
            for name, rows in emulated.items():
                add_whole_rows(figures[name], following, p, next(rows)[2])
        for name, s in ((name, f.summary()) for name, f in figures.items()):
            print(f"| {model} | {name} | {s['positions']} | {s['mean_kl']:.5f} | {s['max_kl']:.3f} | {s['top1_percent']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, action in [("ids", make_ids), ("reference", make_reference), ("llama", measure_llama),
                         ("activations", measure_activations), ("tiny", measure_tiny)]:
        sub = commands.add_parser(name)
        sub.set_defaults(action=action)
        if name == "tiny":
            sub.add_argument("--lockstep", required=True, help="the binary, whose synth makes the models")
        else:
            sub.add_argument("--models", required=True, help="the folder with the GGUF files")
        if name == "ids":
            sub.add_argument("--llama-tokenize", required=True, help="llama.cpp's llama-tokenize")
        if name in ("llama", "tiny"):
            sub.add_argument("--llama-logits", required=True, help="tools/record/llama_logits.cc, built")
            sub.add_argument("--build", required=True, help="llama.cpp's build, to be recorded: b11434")
        if name in ("ids", "llama", "tiny"):
            sub.add_argument("--work", default="build/oracle", help="folder for large files (default %(default)s)")
    args = parser.parse_args()
    args.action(args)


if __name__ == "__main__":
    main()
