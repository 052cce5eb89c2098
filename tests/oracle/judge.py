"""Judges a `lockstep eval --json` result against float64: mean KL and top-1 agreement.

An engine names its most probable ids only, and so does the committed form of the oracle. What is
computed is the least KL(oracle || engine) that the two lists allow, so it never exceeds the KL over
whole rows; llama.cpp's recorded figures are made by this same code (and over whole rows too).
"""
import json
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
MODELS = ("SmolLM2-135M-Instruct.Q4_1", "gemma-3-270m-q4_k_m")  # file names without .gguf
TOP_ORACLE = 64   # ids recorded per position
TOP_ENGINE = 256  # ids asked of the engine, so that the oracle's 64 are among them
TOP_FULL = 1024   # ids asked of the engine when the oracle's whole rows are at hand

KL_RATIO = 1.1     # the engine's mean KL may be this many times llama.cpp's
TOP1_POINTS = 2.0  # its top-1 agreement may be this many points below llama.cpp's

TINY = 1e-12       # stands for a mass that rounding made 0 or less


class BadResult(Exception):
    """An eval result that does not have the shape or the values it must have."""


def ids_path(model):
    return HERE / "ids" / f"{model}.json"


def load_ids(model):
    return json.loads(ids_path(model).read_text())


def load_reference(model):
    return json.loads((HERE / "recorded" / f"{model}.json").read_text())


def load_llama(model, form):
    """llama.cpp's figures on a prompt in one batch; form: "whole rows", "top 64" or "top 1024"."""
    return json.loads((HERE / "recorded" / "llama_cpp.json").read_text())["models"][model]["batch"][form]


def whole_row_kl(p_log, q_log):
    """KL of every row, both [rows, n_vocab] float64 log-probabilities."""
    return np.sum(np.exp(p_log) * (p_log - q_log), axis=-1)


def least_kl(p_ids, p_log, q_ids, q_log):
    """The least KL(p || q) of two rows of which each side names some ids; q names its most probable ones.

    Ids that both name count one by one. The others are merged, which can only lower a KL, into those
    that p alone names, whose mass in q is not known but bounded by q's least named probability and by
    what q has left, and the rest.
    """
    common, in_p, in_q = np.intersect1d(p_ids, q_ids, assume_unique=True, return_indices=True)
    p_common, q_common = p_log[in_p], q_log[in_q]
    kl = np.sum(np.exp(p_common) * (p_common - q_common))
    p_all = np.exp(p_log).sum()
    p_alone = p_all - np.exp(p_common).sum()
    p_left = max(0.0, 1 - np.exp(p_common).sum())
    q_left = max(TINY, 1 - np.exp(q_common).sum())
    if len(common) < len(p_ids):
        q_alone = min((len(p_ids) - len(common)) * np.exp(q_log.min()), max(TINY, 1 - np.exp(q_log).sum()))
        if q_alone < q_left * p_alone / p_left:  # else the least is reached when the two have one ratio: one part
            kl += p_alone * np.log(p_alone / q_alone)
            p_left = max(0.0, 1 - p_all)
            q_left = max(TINY, q_left - q_alone)
    return kl + (p_left * np.log(p_left / q_left) if p_left > 0 else 0.0)


class RecordedSequence:
    """The committed top ids of one sequence. Position t is the row after token t; those before `first` are not judged."""

    def __init__(self, recorded):
        self.positions = range(recorded["first"], recorded["first"] + len(recorded["top"]))
        self._next = recorded["next"]
        self._top = recorded["top"]

    def named(self, t, _engine_ids):
        """(ids, their log-probabilities, the most probable id) at position t."""
        ids, logprobs = self._top[t - self.positions.start]
        return np.array(ids), np.array(logprobs), ids[0]

    def next_logprob(self, t):
        return self._next[t - self.positions.start]


class WholeRows:
    """The same from whole rows [judged positions, n_vocab] of log-probabilities: every id is named."""

    def __init__(self, first, following, rows):
        self.positions = range(first, first + len(rows))
        self._following, self._rows = following, rows

    def named(self, t, engine_ids):
        row = self._rows[t - self.positions.start]
        return engine_ids, row[engine_ids], int(row.argmax())

    def next_logprob(self, t):
        i = t - self.positions.start
        return float(self._rows[i, self._following[i]])


@dataclass
class Figures:
    kl: list = field(default_factory=list)    # per position
    top1: list = field(default_factory=list)  # per position: both have the same most probable id
    next_logprob: list = field(default_factory=list)
    oracle_next_logprob: list = field(default_factory=list)

    def add(self, where, oracle, engine):
        """Judges one sequence of the result."""
        for key in ("logprobs", "top"):
            if len(engine[key]) <= oracle.positions[-1]:
                raise BadResult(f"{where}: `{key}` has {len(engine[key])} entries, needs {oracle.positions[-1] + 1}")
        for t in oracle.positions:
            top = engine["top"][t]
            q_ids = np.array([e["id"] for e in top])
            q_log = np.array([e["logprob"] for e in top], dtype=np.float64)
            total = np.exp(q_log).sum()
            if not (np.isfinite(q_log).all() and np.isfinite(engine["logprobs"][t])):
                raise BadResult(f"{where}, position {t}: a log-probability is not finite")
            if (np.diff(q_log) > 0).any() or len(set(q_ids.tolist())) != len(q_ids):
                raise BadResult(f"{where}, position {t}: `top` is not a descending list of distinct ids")
            if total > 1 + 1e-5:
                raise BadResult(f"{where}, position {t}: the probabilities of `top` sum to {total}")
            p_ids, p_log, best = oracle.named(t, q_ids)
            self.kl.append(least_kl(p_ids, p_log, q_ids, q_log))
            self.top1.append(best == q_ids[0])
            self.next_logprob.append(engine["logprobs"][t])
            self.oracle_next_logprob.append(oracle.next_logprob(t))

    def summary(self):
        return {
            "positions": len(self.kl),
            "mean_kl": float(np.mean(self.kl)),
            "max_kl": float(np.max(self.kl)),
            "top1_percent": 100 * float(np.mean(self.top1)),
            "mean_next_logprob": float(np.mean(self.next_logprob)),
            "oracle_mean_next_logprob": float(np.mean(self.oracle_next_logprob)),
        }


def judge(oracle_sequences, result):
    """Figures of an eval result; the oracle's sequences may be a generator."""
    figures = Figures()
    for i, (oracle, engine) in enumerate(zip_longest(oracle_sequences, result["sequences"])):
        if oracle is None or engine is None:
            raise BadResult(f"sequence {i} is missing from the {'oracle' if oracle is None else 'result'}")
        figures.add(f"sequence {i}", oracle, engine)
    return figures


def judge_recorded(model, result):
    return judge((RecordedSequence(s) for s in load_reference(model)["sequences"]), result)


def verdict(summary, llama):
    """The lines that say what is out of bounds; none when the result is as good as it must be."""
    faults = []
    limit = KL_RATIO * llama["mean_kl"]
    if not summary["mean_kl"] <= limit:
        faults.append(f"mean KL {summary['mean_kl']:.6f} is above {KL_RATIO} x llama.cpp's {llama['mean_kl']:.6f}")
    if not summary["top1_percent"] >= llama["top1_percent"] - TOP1_POINTS:
        faults.append(f"top-1 agreement {summary['top1_percent']:.2f} % is more than {TOP1_POINTS} points below "
                      f"llama.cpp's {llama['top1_percent']:.2f} %")
    return faults


# ---- results made from rows, for recording and for controls --------------------------------------


def eval_sequence(following, rows, top):
    """One sequence as `lockstep eval` gives it, from log-probabilities [len(following), n_vocab]."""
    best = np.argpartition(rows, -top, axis=-1)[:, -top:]
    order = np.argsort(-np.take_along_axis(rows, best, axis=-1), axis=-1, kind="stable")
    best = np.take_along_axis(best, order, axis=-1)
    return {
        "logprobs": [float(row[i]) for row, i in zip(rows, following, strict=True)],
        "top": [[{"id": int(i), "logprob": float(row[i])} for i in ids] for row, ids in zip(rows, best)],
    }


def with_noise(result, mean_kl, seed=1):
    """The result with normal noise on every `top` list, worth about 2 `mean_kl` by itself.

    Noise of variance v on log-probabilities makes a KL of about v/2, less what renormalising takes
    back, which is much where one id has nearly all the mass.
    """
    rng = np.random.default_rng(seed)
    disturbed = []
    for sequence in result["sequences"]:
        tops = []
        for top in sequence["top"]:
            logprobs = np.array([e["logprob"] for e in top])
            noisy = logprobs + rng.normal(0, np.sqrt(8 * mean_kl), len(top))
            noisy += np.log(np.exp(logprobs).sum() / np.exp(noisy).sum())
            order = np.argsort(-noisy, kind="stable")
            tops.append([{"id": top[i]["id"], "logprob": float(noisy[i])} for i in order])
        disturbed.append({"logprobs": sequence["logprobs"], "top": tops})
    return {"sequences": disturbed}


def one_late(result):
    """The result with every row where the one before it belongs: what an off-by-one would give."""
    return {"sequences": [{k: s[k][1:] + s[k][-1:] for k in ("logprobs", "top")} for s in result["sequences"]]}
