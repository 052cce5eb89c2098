#!/usr/bin/env python3
"""What the compiler made of the CUDA kernels: the roundings of each, no local memory, no traps.

A fused multiply-add where the source has none would change bits, and only a device could show it. So the
machine code's FFMA, FMUL, FADD (and their binary64 forms) of every kernel must be those of a committed
table, no kernel may keep registers in local memory, and none may have a trap: the compiler puts one where the
source reads what a device has not, a constant of the host by its address for instance. A change to a kernel changes its row: look at what
came and went, then --write. The table belongs to one version of nvcc; another says so and skips.

    sass_test.py --object kernels.cu.o --nvcc nvcc --table sass_counts.txt [--write]
"""
import argparse
import collections
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROUNDING = ["FFMA", "FMUL", "FADD", "DFMA", "DMUL", "DADD"]
FORBIDDEN = ["LDL", "STL", "BPT"]
VALUE = r"L(?:[a-z]|NS\w*?_\d+[A-Za-z]+E)(\d+)E"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE here


def nvcc_version(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release (\S+), V(\S+)", text)[2]


def plain_name(mangled):
    """_ZN8lockstep…_GLOBAL__N__8aa…17matmul_q32_kernelILi8ELb0EEEv…: matmul_q32_kernel<8,0>.

    Read by the lengths of the names (Itanium C++ ABI 5.1): the anonymous namespace's holds hashes of the
    file's path, whose digits and letters mean nothing. An enumerator is LNS1_6FormatE5E.
    """
    at, name = len("_ZN"), ""
    while length := re.match(r"\d+", mangled[at:]):
        at += len(length[0])
        name = mangled[at:at + int(length[0])]
        at += len(name)
    if not name.endswith("_kernel"):
        raise ValueError(f"{mangled}: not the name of a kernel")
    values = re.match(rf"I((?:{VALUE})+)E", mangled[at:])
    return name + (f"<{','.join(re.findall(VALUE, values[1]))}>" if values else "")


def count(sass):
    """{kernel: Counter of opcodes}, kernels by their plain names."""
    kernels = collections.defaultdict(collections.Counter)
    name = None
    for line in sass.splitlines():
        if found := re.search(r"Function : (\S+)", line):
            name = plain_name(found[1])
            kernels[name].clear()
        elif found := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)", line):
            kernels[name][found[1]] += 1
    return kernels


def row(name, counts):
    return f"{name:<28} " + " ".join(f"{counts[op]:>5}" for op in ROUNDING)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--object", required=True, nargs="+")
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--cuobjdump", default=shutil.which("cuobjdump") or "")
    parser.add_argument("--table", required=True, type=Path)
    parser.add_argument("--write", action="store_true", help="make the table anew")
    options = parser.parse_args()
    if not options.cuobjdump or not Path(options.cuobjdump).exists():
        print("skipped: no cuobjdump here (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)")
        return SKIPPED
    version = nvcc_version(options.nvcc)
    # It looks for nvdisasm on the PATH.
    folder = str(Path(options.cuobjdump).resolve().parent)
    kernels = {}
    for path in options.object:
        done = subprocess.run([options.cuobjdump, "-sass", "-arch", "sm_90", path], capture_output=True, text=True,
                              env={"PATH": f"{folder}:/usr/local/cuda/bin:/usr/bin:/bin"})
        found = count(done.stdout)
        if done.returncode != 0 or not found:
            print(f"cuobjdump found no kernels in {path}: {done.stderr.strip()}")
            return 1
        kernels.update(found)
    bad = [f"{name}: {counts[op]} {op}" for name, counts in sorted(kernels.items()) for op in FORBIDDEN if counts[op]]
    lines = [f"# nvcc {version}, sm_90", f"# {'kernel':<26} " + " ".join(f"{op:>5}" for op in ROUNDING)]
    lines += [row(name, counts) for name, counts in sorted(kernels.items())]
    if options.write:
        options.table.write_text("\n".join(lines) + "\n")
        print(f"wrote {options.table}")
    known = options.table.read_text().splitlines() if options.table.exists() else ["# no table"]
    if known[0] != lines[0]:
        print(f"skipped: the table is of '{known[0][2:]}', this is '{lines[0][2:]}'")
        return 1 if bad else SKIPPED
    bad += [f"now:   {line}" for line in lines[2:] if line not in known]
    bad += [f"table: {line}" for line in known[2:] if line not in lines]
    # The comparison must see one multiply-add more in any kernel.
    for name, counts in kernels.items():
        if row(name, counts + collections.Counter(FFMA=1)) in known:
            bad.append(f"control: an FFMA more in {name} is not seen")
    print("\n".join(bad) if bad else f"{len(kernels)} kernels: roundings as in the table, no local memory, no traps")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
