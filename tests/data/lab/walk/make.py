#!/usr/bin/python3
"""Writes the runs of docs/lab.md: no measurements, but draws around planted truths.

aa.csv: ten blocks of one thing measured twice. ab.csv: twelve blocks of a candidate whose step takes
2 % less time. A block's SD is 0.5 %; tokens a step are the same in both arms, as in an exact lane."""
import math
import random
from pathlib import Path

PROMPTS = [("incident-review", "operations", 92, 66), ("code-review", "code", 118, 52),
           ("customer-mail", "prose", 81, 75)]


def write(name, seed, blocks, arms):
    numbers = random.Random(seed)
    lines = ["block,arm,start,prompt,class,order,metric,prompt_tokens,cached_tokens,generated_tokens,"
             "decode_ms,tok_s,steps,drafted,accepted,token_sha256"]
    for block in range(1, blocks + 1):
        order = [*arms, *reversed(arms)] if numbers.random() < 0.5 else [*reversed(arms), *arms]
        for place, (arm, gain) in enumerate(order, 1):
            level = math.exp(numbers.gauss(0, 0.005))
            for i, (prompt, kind, rate, steps) in enumerate(PROMPTS):
                rate = rate * level * (1 + gain) * math.exp(numbers.gauss(0, 0.001))
                ms = round(511 / rate * 1000, 2)
                lines.append(f"{block},{arm},{block}-{place},{prompt},{kind},{i},after-first,40,0,512,{ms},"
                             f"{511000 / ms:.4f},{steps},{7 * steps},{511 - steps},{i + 1:064x}")
    (Path(__file__).parent / name).write_text("\n".join(lines) + "\n")


write("aa.csv", 5, 10, [("control", 0), ("control again", 0)])
write("ab.csv", 7, 12, [("control", 0), ("candidate", 0.02)])
