"""The texts on which tokenizers are compared: 10,400 different byte strings, the same for ever.

Made from a seed by a generator of its own (splitmix64), so that neither the Python version nor its
Unicode tables change them. tools/record/tokenizer_ids records what llama.cpp makes of them,
tests/text/test_tokenizer_ids.py what Lockstep makes of them.
"""

MASK = (1 << 64) - 1


class Random:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return (z ^ z >> 31) % n

    def between(self, low, high):
        return low + self.below(high - low + 1)

    def pick(self, items):
        return items[self.below(len(items))]

    def pieces(self, low, high, make):
        return b"".join(make() for _ in range(self.between(low, high)))


def utf8(text):
    return text.encode("utf-8", "surrogatepass")


SENTENCES = [utf8(s) for s in (
    "The quick brown fox jumps over the lazy dog.", "Don't you think it's what we'd've said?",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich", "Où est la bibliothèque, s'il te plaît ?",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia", "Příliš žluťoučký kůň úpěl ďábelské ódy",
    "Zażółć gęślą jaźń", "Pijamalı hasta yağız şoföre çabucak güvendi", "Съешь же ещё этих мягких французских булок",
    "Жебракують філософи при ґанку церкви в Гадячі", "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία", "דג סקרן שט בים מאוכזב",
    "نص حكيم له سر قاطع وذو شأن عظيم", "بر اثر چنین تلقین و شستشوی مغزی", "ऋषियों को सताने वाले दुष्ट राक्षसों",
    "আমি বাংলায় গান গাই", "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல்", "తెలుగు భాష చాలా మధురమైనది", "ನನ್ನ ಭಾಷೆ ಕನ್ನಡ",
    "മലയാളം ഒരു ദ്രാവിഡ ഭാഷയാണ്", "ਪੰਜਾਬੀ ਭਾਸ਼ਾ", "ગુજરાતી ભાષા", "ଓଡ଼ିଆ ଭାଷା", "සිංහල භාෂාව", "ภาษาไทยไม่มีการเว้นวรรคระหว่างคำ",
    "ພາສາລາວ", "မြန်မာဘာသာစကား", "ភាសាខ្មែរ", "ქართული ენა ძალიან ლამაზია", "Հայոց լեզուն", "አማርኛ ቋንቋ", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ",
    "ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ", "བོད་སྐད་", "いろはにほへと ちりぬるを", "色は匂へど散りぬるを、我が世誰ぞ常ならむ。", "カタカナとﾊﾝｶｸｶﾅ",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。", "我能吞下玻璃而不伤身体", "다람쥐 헌 쳇바퀴에 타고파", "한국어 조선말",
    "Tiếng Việt có dấu: nguyễn, đường, ễ", "Ég get etið gler án þess að meiða mig", "ꦧꦱꦗꦮ", "𐌰𐍄𐍄𐌰 𐌿𐌽𐍃𐌰𐍂", "𓀀𓂀𓃠", "𝒽𝑒𝓁𝓁ℴ 𝔴𝔬𝔯𝔩𝔡 𝟙𝟚𝟛",
    "ʇxǝʇ uʍop ǝpᴉsdn", "Ｆｕｌｌｗｉｄｔｈ　ｔｅｘｔ１２３", "z̸̢̛a̷l̶g̵o̴ t̸̨e̷x̸t̵", "ﷺ ﷽", "ﬁ ﬂ ﬃ ǆ ß ẞ ı İ ſ K Å", "ǅungla Ǆ ᾳ ᾼ",
)]
WORDS = [utf8(s) for s in (
    "a", "I", "the", "of", "and", "in", "to", "was", "Hello", "world", "HELLO", "iPhone", "don't", "can’t", "we'll",
    "THEY'RE", "o'clock", "rock'n'roll", "ain't'd've", "naïve", "café", "co-operate", "e.g.", "U.S.A.", "snake_case",
    "camelCase", "kebab-case", "SCREAMING_CASE", "unbelievably", "antidisestablishmentarianism", "x", "qqqq", "straße",
    "Москва", "東京", "서울", "🙂", "π", "∞", "½", "№", "™", "…", "—", "«", "»", "„", "”", "’", "·", "▁", "▁▁", "Ġ", "Ċ", "Āā",
)]
CODE = [utf8(s) for s in (
    "def f(x):\n    return x**2  # comment\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "#include <stdio.h>\r\nint main(void) { return 0; }\r\n", "SELECT * FROM t WHERE a='it''s' AND b<>3;\n",
    "let x = () => ({...y, [z]: `t${1+1}`});\n", "<div class=\"a b\">&nbsp;<br/></div>\n", "{\"k\": [1, 2.5e-3, null, \"\\u00e9\"]}\n",
    "if [ -z \"$X\" ]; then echo '$HOME'; fi\n", "\\frac{\\partial f}{\\partial x} = \\sum_{i=1}^{n} x_i^2\n",
    "    \t  mixed indent\n", "std::vector<std::pair<int, std::string>>", "x = y if z else w;;;", "https://example.org/a?b=c&d=%20#frag",
    "user@example.com", "C:\\Users\\name\\file.txt", "/usr/lib/x86_64-linux-gnu", "0x7fffdeadbeef", "!@#$%^&*()_+-=[]{}|;':\",./<>?`~",
    "////////", "-----", "====", "....", "***", "<<<<>>>>", "```python\n```\n", "--flag=value", "&&||!!", "::", "->", "=>", "/* */", "// ",
)]
SPECIALS = [utf8(s) for s in (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>", "<issue_start>",
    "<jupyter_code>", "<empty_output>", "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "[multimodal]", "<start_of_turn>",
    "<end_of_turn>", "<unused0>", "<unused12>", "<unused99>", "<start_of_image>", "<image_soft_token>", "<table>", "<h1>", "</h1>", "<b>",
    "<td>", "</td>", "<s>", "</s>", "<0x0A>", "<0x41>", "<0xFF>", "<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>",
    "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_0|>", "<|reserved_special_token_250|>", "<|python_tag|>",
    "<|object_ref_start|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_call>",
    "</tool_call>", "<think>", "<|assistant|>", "<|user|>", "<|end|>", "<|system|>", "<|turn>", "<turn|>", "<|tool>", "<|think|>",
    "<|\"|>", "<|channel>", "<|tool_response>", "<|image|>", "[INST]", "[/INST]", "<<SYS>>", "[EMPTY_1]",
)]
EMOJI = ["😀", "😂", "👍", "❤️", "🔥", "👨‍👩‍👧‍👦", "👩🏽‍🚀", "🏳️‍🌈", "🏴‍☠️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "1️⃣", "#️⃣", "©️", "☺", "☺️", "🤷🏿‍♀️", "🧑‍💻",
         "👁️‍🗨️", "🫠", "🪿", "🇩🇪", "🇯🇵", "🇺🇸", "🇦", "‍", "️", "🏻", "🏿"]
SPACES = [" ", " ", " ", "  ", "   ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\r\n\r\n", "\x0b", "\x0c", "\x85", "\xa0", "\u1680",
          "\u2000", "\u2003", "\u2009", "\u200a", "\u200b", "\u200d", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000",
          "\ufeff", "\x1c", "\x1f", "\x00", "\x7f", "\u180e"]
RUNS = [utf8(s) for s in ("a", "A", "e", "z", "0", "1", " ", "\n", "\t", "\r", "\r\n", ".", "-", "=", "_", "#", "<", "'", "\"", "/", "\\", "ab",
                          "a ", " a", "1 ", "10", "\n ", " \n", "é", "я", "中", "あ", "한", "🙂", "👍🏽", "\u0301", "\u200d", "\u3000", "Ġ", "▁",
                          "\x00", "'s", "ha", "!?", "<s>", "<|", "|>", "</", "th", "ing", "٣", "½", "￿")]
NUMBERS = ["0", "7", "42", "007", "123", "1234", "12345", "1234567890", "3.14159", "-1", "+1", "1e10", "1,000,000", "1.000,50", "1 000", "0x1F",
           "0b1010", "１２３４", "٠١٢٣٤٥", "१२३४", "๑๒๓", "²³¹", "½¼¾", "Ⅳⅻ", "㊀㊁", "𝟎𝟏𝟐", "৪৫৬", "一二三", "10:30", "2024-01-31", "$9.99", "50%",
           "1st", "2nd", "v1.2.3", "192.168.0.1", "#123", "(555) 123-4567", "1/2", "x2y3", "A1B2", "9" * 17, "1_000", "1२३4٥6"]
BROKEN = [bytes.fromhex(h) for h in (
    "80", "bf", "8080", "c0", "c080", "c1bf", "c2", "c3", "c328", "e2", "e282", "e28228", "e080af", "e09f80", "eda080", "edbfbf", "eda0bdedb880",
    "ef", "efbf", "efbfbe", "f0", "f09f", "f09f98", "f09f9828", "f0808080", "f08fbfbf", "f48fbfbf", "fe", "ff", "feff", "fffe", "f8", "f888808080",
    "fc", "e2e282ac", "f0f09f9880", "c3c3a9", "e29681e296", "e296", "81", "9f9880", "c4a0", "c4", "a0")]
# Numbers above U+10FFFF: llama.cpp's BPE throws at these.
TOO_BIG = [bytes.fromhex(h) for h in ("f4908080", "f5808080", "f7bfbfbf")]

ALPHABET = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
ASCII = bytes(range(0x20, 0x7F))


def every_code_point():
    """Planes 0 and 1 whole, the edges of what is assigned of planes 2, 3 and 14. A character's class
    shows in the ids: before "'s" (a sign takes the apostrophe away from the s), and among digits."""
    blocks = [range(0, 0x20400), range(0x2A600, 0x2A800), range(0x2B700, 0x2B900), range(0x2CE80, 0x2CF00), range(0x2EB80, 0x2EE80),
              range(0x2FA00, 0x2FA80), range(0x31300, 0x32400), range(0xE0000, 0xE0200), range(0xF0000, 0xF0040), range(0x10FFC0, 0x110000)]
    for block in blocks:
        for start in range(block.start, block.stop, 128):
            yield b"".join(b"x" + utf8(chr(c)) + b"'s 1" + utf8(chr(c)) + b"234 " for c in range(start, min(start + 128, block.stop)))


def generate(seed=20240131, count=10400):
    """The list of texts (bytes)."""
    r = Random(seed)

    def word():
        kind = r.below(6)
        if kind < 3:
            return r.pick(WORDS)
        if kind == 3:
            return bytes(r.pick(ALPHABET) for _ in range(r.between(1, 12)))
        if kind == 4:
            return r.pick(r.pick(SENTENCES).split(b" "))
        return utf8(r.pick(NUMBERS))

    def space():
        return utf8(r.pick(SPACES)) if r.below(4) == 0 else b" "

    def prose():
        return r.pieces(1, 14, lambda: word() + r.pick([b"", b"", b"", b",", b".", b"!", b"?", b";", b":", b"'s", b"'", b")", b"..."]) + space())

    def sentence():
        return r.pick(SENTENCES)

    def sentence_slice():
        s = r.pick(SENTENCES).decode("utf-8")
        at = r.below(len(s))
        return utf8(s[at:at + r.between(1, 20)])

    def code():
        return r.pieces(1, 4, lambda: utf8(r.pick(["", "", "  ", "    ", "\t", "        ", "\n"])) + r.pick(CODE))

    def special():
        token = r.pick(SPECIALS)
        kind = r.below(6)
        if kind == 0:
            return token[:r.between(1, len(token))]
        if kind == 1:
            return token[r.below(len(token)):]
        if kind == 2:
            return token + r.pick([b" ", b"\n", b"  ", b"\t", b"x"])
        return token

    def specials():
        return r.pieces(1, 6, lambda: special() + r.pick([b"", b"", word(), b" ", b"\n"]))

    def emoji():
        return r.pieces(1, 8, lambda: utf8(r.pick(EMOJI)) + r.pick([b"", b"", b" ", b"a", word()]))

    def flags():
        return r.pieces(1, 9, lambda: utf8(chr(0x1F1E6 + r.below(26))))

    def odd_spaces():
        return r.pieces(1, 12, lambda: utf8(r.pick(SPACES)) + r.pick([b"", b"", word()]))

    def lines():
        return r.pieces(1, 8, lambda: r.pick([b"", word(), prose()]) + r.pick([b"\n", b"\r\n", b"\r", b"\n\n", b" \n", b"\n ", b"\n\t", b" \r\n \r\n"]))

    def numbers():
        return r.pieces(1, 8, lambda: utf8(r.pick(NUMBERS)) + r.pick([b"", b"", b" ", b"  ", b",", b"\n", b"a"]))

    def digits():
        return r.pieces(1, 5, lambda: bytes(48 + r.below(10) for _ in range(r.between(1, 25))) + r.pick([b"", b" ", b".", b","]))

    def broken():
        return r.pieces(1, 6, lambda: r.pick(BROKEN) + r.pick([b"", b"", b" ", b"a", word()]))

    def random_bytes():
        return bytes(r.below(256) for _ in range(r.between(1, 40)))

    def random_ascii():
        return bytes(r.pick(ASCII) for _ in range(r.between(1, 60)))

    def code_points():
        def one():
            c = r.pick([r.below(0x300), r.below(0x3000), r.below(0x10000), 0x10000 + r.below(0x20000), r.below(0x110000)])
            return utf8(chr(c))
        return r.pieces(1, 24, lambda: one() + r.pick([b"", b"", b"", b" ", b"a", b"1"]))

    def cut():
        whole = mixed()
        return whole[r.below(len(whole)):][:r.between(1, 30)] if whole else b""

    def apostrophes():
        return r.pieces(1, 6, lambda: r.pick([word(), b"", b" "]) + r.pick([b"'", b"''", b"\xe2\x80\x99", b" '"]) +
                        r.pick([b"s", b"S", b"t", b"re", b"RE", b"Re", b"ve", b"vE", b"m", b"M", b"ll", b"lL", b"d", b"D", b"l", b"r", b"\xc5\xbf", b""]))

    def run():
        return r.pick(RUNS) * r.pick([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 30, 31, 32, 33, 47, 63, 64, 65, 100, 129, 255, 500])

    def runs():
        return r.pieces(1, 3, lambda: run() + r.pick([b"", b"", word()]))

    simple = [prose, sentence, sentence_slice, code, specials, emoji, flags, odd_spaces, lines, numbers, digits, broken, random_ascii,
              code_points, apostrophes, runs]

    def mixed():
        return r.pieces(2, 5, lambda: r.pick(simple)())

    texts = [b""] + [bytes([b]) for b in range(256)] + list(every_code_point())
    texts += [b" " + w for w in WORDS] + list(SENTENCES) + list(CODE) + list(SPECIALS) + [utf8(s) for s in EMOJI + SPACES + NUMBERS] + BROKEN
    texts += [a + b + c for a in TOO_BIG for b in (b"", b"x", b" ") for c in (b"", b"y ")]
    texts += [run * n for run in RUNS for n in (2, 31, 32, 2000)]
    texts += [b"".join(prose() for _ in range(200)), b"".join(code() for _ in range(100)), b"".join(mixed() for _ in range(100))]
    texts = list(dict.fromkeys(texts))
    seen = set(texts)
    makers = simple + [random_bytes, cut, mixed, mixed]
    while len(texts) < count:
        text = makers[r.below(len(makers))]()
        if text not in seen:
            seen.add(text)
            texts.append(text)
    return texts


if __name__ == "__main__":
    import hashlib
    all_texts = generate()
    digest = hashlib.sha256()
    for text in all_texts:
        digest.update(len(text).to_bytes(4, "little") + text)
    print(len(all_texts), "texts,", sum(map(len, all_texts)), "bytes, sha256", digest.hexdigest())
