#!/usr/bin/env python3
"""Records what llama.cpp's built-in chat templates write: tests/text/data/named_templates.json.

    record.py --llama TREE          (a llama.cpp b11434 tree with static libraries in TREE/build)
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parents[2] / "tests" / "text" / "data" / "named_templates.json"
LIBRARIES = ["src/libllama.a", "ggml/src/libggml.a", "ggml/src/libggml-cpu.a", "ggml/src/libggml-base.a"]
NAMES = ["chatml", "gemma", "llama2", "llama2-sys", "llama3", "mistral-v1", "mistral-v3", "mistral-v3-tekken", "mistral-v7",
         "mistral-v7-tekken", "phi3", "phi4", "falcon3", "zephyr", "vicuna"]
CONVERSATIONS = [
    [("user", "Hello")],
    [("system", "You are terse."), ("user", "  Hi there \n"), ("assistant", " Hello.  "), ("user", "Why?")],
    [("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d")],
    [("system", " S1 "), ("system", "S2"), ("user", "{{ x }} {% y %} <|im_end|> é🙂\n\n")],
    [("assistant", "first"), ("system", "late"), ("user", "")],
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llama", required=True)
    tree = parser.parse_args().llama
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        program = f"{scratch}/llama_templates"
        subprocess.run(["g++", "-O1", "-std=c++17", "-fopenmp", f"-I{tree}/include", f"-I{tree}/ggml/include", str(HERE / "llama_templates.cc"),
                        *(f"{tree}/build/{library}" for library in LIBRARIES), "-lpthread", "-ldl", "-o", program], check=True)
        for name in NAMES:
            for conversation in CONVERSATIONS:
                for add in (False, True):
                    words = [word for message in conversation for word in message]
                    text = subprocess.run([program, name, str(int(add)), *words], check=True, stdout=subprocess.PIPE).stdout.decode()
                    messages = [{"role": role, "content": content} for role, content in conversation]
                    cases.append({"template": name, "messages": messages, "add_generation_prompt": add, "text": text})
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    OUT.write_text(f'{{"recorded_from": "llama.cpp b11434", "cases": [\n{lines}\n]}}\n')
    print(len(cases), "cases")


if __name__ == "__main__":
    main()
