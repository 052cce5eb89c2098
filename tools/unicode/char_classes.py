#!/usr/bin/env python3
"""Writes src/text/char_classes.inc: the code-point classes that the pre-tokenizers look at.

Source: the Unicode Character Database 15.1.0, as packed in the Python package unicodedata2 15.1.0
(PyPI). The version is not a matter of taste: llama.cpp b11434 splits words by its own tables, which
are those of 15.1.0, and one newly assigned letter would change ids.

    python3 -m venv /tmp/ucd && /tmp/ucd/bin/pip install unicodedata2==15.1.0
    /tmp/ucd/bin/python tools/unicode/char_classes.py > src/text/char_classes.inc
"""
import sys

import unicodedata2

VERSION = "15.1.0"
# Property White_Space of PropList.txt, unchanged since Unicode 6.3.
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
               0x202F, 0x205F, 0x3000}
# The values of enum class CharClass, by the first letter of the general category.
CLASSES = {"L": 1, "N": 2, "M": 3, "P": 4, "S": 5}
SPACE = 6


def char_class(code_point):
    if code_point in WHITE_SPACE:
        return SPACE
    return CLASSES.get(unicodedata2.category(chr(code_point))[0], 0)


def main():
    if unicodedata2.unidata_version != VERSION:
        sys.exit(f"unicodedata2 has Unicode {unicodedata2.unidata_version}, wanted {VERSION}")
    starts, previous = [], None
    for code_point in range(0x110000):
        value = char_class(code_point)
        if value != previous:
            starts.append(code_point << 3 | value)
            previous = value
    print(f"// Unicode {VERSION}; written by tools/unicode/char_classes.py, {len(starts)} ranges.")
    print("// Each entry: first code point of a range << 3 | its class.")
    for i in range(0, len(starts), 10):
        print(" ".join(f"0x{start:06X}," for start in starts[i:i + 10]))


if __name__ == "__main__":
    main()
