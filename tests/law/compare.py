"""law_ops as a process, and the comparison of two answers by bits."""
import json
import os
import pathlib
import subprocess

import numpy as np

from law import protocol

HERE = pathlib.Path(__file__).resolve().parent
# Outputs that the law defines even where the row faults.
DEFINED_IN_FAULT = {"kv_write": ("row",), "quantize_activations": ("q", "d", "sums")}


def law_ops_path():
    given = os.environ.get("LOCKSTEP_LAW_OPS")
    if given:
        return pathlib.Path(given)
    build = os.environ.get("LOCKSTEP_BUILD") or HERE.parent.parent / "build" / "release"
    return pathlib.Path(build) / "tests" / "kernels" / "law_ops"


def isas():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return ["scalar"]
    flags = next((l for l in text.splitlines() if l.startswith("flags")), "").split()
    wanted = {"scalar": set(), "scalar-v3": {"avx2", "fma", "bmi2", "f16c"},
              "avx2": {"avx2", "fma", "bmi2", "f16c"},
              "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"}}
    return [isa for isa, needs in wanted.items() if needs <= set(flags)]


class LawOps:
    def __init__(self, isa):
        self.isa = isa
        self.process = subprocess.Popen([str(law_ops_path()), "--isa", isa], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def ask_line(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, request):
        raw = self.ask_line(line_of(request))
        if not raw.get("ok"):
            return raw
        return protocol.decode(request, {k: v for k, v in raw.items() if k != "ok"}, True)

    def close(self):
        self.process.stdin.close()
        code = self.process.wait()
        self.process.stdout.close()
        return code


def line_of(request):
    return (json.dumps(protocol.encode(request, request, False)) + "\n").encode()


def shape_of(request):
    return {k: (v if not isinstance(v, np.ndarray) else "array of %d" % v.size)
            for k, v in request.items()}


def bits(v):
    return v.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[v.dtype.itemsize])


def difference(request, want, got):
    """None, or one line that says where the two answers first differ."""
    where = "%s %s" % (request["op"], shape_of(request))
    if "error" in got:
        return "%s: refused: %s" % (where, got["error"])
    if set(want) != set(got):
        return "%s: outputs %s, expected %s" % (where, sorted(got), sorted(want))
    fault = want.get("fault")
    for name in sorted(want, key=lambda n: n != "fault"):
        a, b = want[name], got[name]
        if not isinstance(a, np.ndarray):
            if a != b:
                return "%s: %s is %s, expected %s" % (where, name, b, a)
            continue
        a, b = a.reshape(-1), b.reshape(-1)
        if a.size != b.size:
            return "%s: %s has %d elements, expected %d" % (where, name, b.size, a.size)
        differs = bits(a) != bits(b)
        if a.dtype.kind == "f":
            differs &= ~(np.isnan(a) & np.isnan(b))
        if (fault is not None and name != "fault" and fault.any()
                and name not in DEFINED_IN_FAULT.get(request["op"], ())):
            differs &= ~np.repeat(fault.astype(bool), a.size // fault.size)
        if differs.any():
            i = int(np.flatnonzero(differs)[0])
            return "%s: %s[%d]: bits 0x%0*x, expected 0x%0*x (%d of %d differ)" % (
                where, name, i, 2 * a.dtype.itemsize, int(bits(b)[i]), 2 * a.dtype.itemsize,
                int(bits(a)[i]), int(differs.sum()), a.size)
    return None
