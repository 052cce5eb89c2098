"""Shared by the recorder and the test of token ids: vocabularies, questions, answers, records.

A record is two files in tests/text/data/: NAME.ids holds 4 bytes for each text of
tokenizer_texts.generate(): the start of SHA-256 over the answers (uint32 count, int32 ids) under the
four combinations of add_special (bit 0) and parse_special (bit 1), or zeros where llama.cpp threw.
NAME.json holds facts about the vocabulary and some answers in full.
"""
import hashlib
import json
import pathlib
import struct
import subprocess
import threading

DATA = pathlib.Path(__file__).resolve().parent / "data"
FLAGS = range(4)
THREW = 0xFFFFFFFF

# name: (where, file, value that tokenizer.ggml.pre is changed to)
VOCABULARIES = {
    "smollm2": ("models", "SmolLM2-135M-Instruct.Q4_1.gguf", None),
    "gemma-3": ("models", "gemma-3-270m-q4_k_m.gguf", None),
    "gpt-2": ("vocabs", "ggml-vocab-gpt-2.gguf", None),
    "default": ("vocabs", "ggml-vocab-gpt-2.gguf", "default"),
    "llama-bpe": ("vocabs", "ggml-vocab-llama-bpe.gguf", None),
    "qwen2": ("vocabs", "ggml-vocab-qwen2.gguf", None),
    "qwen35": ("vocabs", "ggml-vocab-qwen35.gguf", None),
    "llama-spm": ("vocabs", "ggml-vocab-llama-spm.gguf", None),
    "phi-3": ("vocabs", "ggml-vocab-phi-3.gguf", None),
    "gemma-4": ("vocabs", "ggml-vocab-gemma-4.gguf", None),
}


def with_pre_tokenizer(path, pre, out):
    """Copies a GGUF file without tensors, with another value of tokenizer.ggml.pre."""
    data = path.read_bytes()
    key = struct.pack("<Q", 18) + b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    at = data.index(key) + len(key)
    (length,) = struct.unpack_from("<Q", data, at)
    value = pre.encode()
    out.write_bytes(data[:at] + struct.pack("<Q", len(value)) + value + data[at + 8 + length:])
    return out


def find_vocabulary(name, models, vocabs, scratch):
    """Path of a vocabulary, or None when it is not there."""
    where, file, pre = VOCABULARIES[name]
    folder = models if where == "models" else vocabs
    path = pathlib.Path(folder, file) if folder else None
    if not path or not path.is_file():
        return None
    return with_pre_tokenizer(path, pre, pathlib.Path(scratch, name + ".gguf")) if pre else path


def ask(command, requests):
    """Yields an answer (bytes, or None where the program threw) for each (flags, text)."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def feed():
        try:
            for flags, text in requests:
                process.stdin.write(struct.pack("<BI", flags, len(text)) + text)
            process.stdin.close()
        except BrokenPipeError:
            pass   # the reader below notices

    feeder = threading.Thread(target=feed)
    feeder.start()
    for number in range(len(requests)):
        head = process.stdout.read(4)
        if len(head) != 4:
            process.wait()
            raise SystemExit(f"{command[0]} ended with {process.returncode} at request {number}: "
                             f"{requests[number]!r:.300}")
        (count,) = struct.unpack("<I", head)
        yield None if count == THREW else process.stdout.read(4 * count)
    feeder.join()
    if process.wait() != 0:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")


def answers(command, texts):
    """Yields for each text the list of its four answers."""
    replies = ask(command, [(flags, text) for text in texts for flags in FLAGS])
    for _ in texts:
        yield [next(replies) for _ in FLAGS]


def short_hash(four):
    if any(answer is None for answer in four):
        return bytes(4)
    packed = b"".join(struct.pack("<I", len(answer) // 4) + answer for answer in four)
    return hashlib.sha256(packed).digest()[:4]


def ids_of(answer):
    return list(struct.unpack(f"<{len(answer) // 4}i", answer))


def facts(command):
    return json.loads(subprocess.run([*command, "--facts"], check=True, stdout=subprocess.PIPE).stdout)


def texts_hash(texts):
    digest = hashlib.sha256()
    for text in texts:
        digest.update(struct.pack("<I", len(text)) + text)
    return digest.hexdigest()
