"""Objects that are compiled once per instruction set must not share code through the linker.

--plain: objects for plain x86-64: no VEX or EVEX instruction, no weak definition.
--vex:   objects for a newer instruction set: no weak definition. They hold VEX instructions, which
         shows that the search for them finds some.
--weak:  objects with weak definitions (ordinary C++), which shows the same for those.
"""

import argparse
import re
import subprocess
import sys


def weak_definitions(path):
    lines = subprocess.run(["nm", "-C", path], check=True, capture_output=True, text=True).stdout
    return [line for line in lines.splitlines() if re.match(r"[0-9a-f]+ [WVu] ", line)]


def vex_instructions(path):
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], check=True, capture_output=True, text=True
    ).stdout
    # Every VEX or EVEX mnemonic begins with v, but for the BMI group and mask moves.
    pattern = r"^\s+[0-9a-f]+:\s+(?:\{?evex\}?\s+)?(v(?!er[rw])\w+|andn|bextr|blsi|blsr|blsmsk|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|k(?:mov|and|or|xnor)\w*)\b"
    return re.findall(pattern, text, re.MULTILINE)


def main():
    parser = argparse.ArgumentParser()
    for name in ("plain", "vex", "weak"):
        parser.add_argument("--" + name, nargs="+", required=True)
    args = parser.parse_args()
    problems = []
    for path in args.plain + args.vex:
        problems += [f"{path}: weak definition {line}" for line in weak_definitions(path)]
    for path in args.plain:
        problems += [f"{path}: {mnemonic}" for mnemonic in sorted(set(vex_instructions(path)))]
    vex = sum(len(vex_instructions(path)) for path in args.vex)
    weak = sum(len(weak_definitions(path)) for path in args.weak)
    if vex == 0:
        problems.append("control: no VEX instruction found where there must be some")
    if weak == 0:
        problems.append("control: no weak definition found where there must be some")
    print(f"{len(args.plain)} plain and {len(args.vex)} VEX objects; controls saw {vex} VEX instructions and {weak} weak definitions")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
