"""Encoding speed beside Hugging Face's `tokenizers`, one thread each, on the same text:

    tests/bench/tokenizer_ratio.py DIRECTORY

DIRECTORY holds tokenizer.json. bench_tokenizer measures this library and writes its mixture of 10 MB; `tokenizers`
gets the same text in passages of about 4 KB, by encode_batch_fast, its quickest way (one piece of 10 MB would be
slower). Both are measured in CPU time of the process, alternating, and the best of each counts.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers  # noqa: E402  (it reads the environment)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = os.environ.get("BENCH", str(ROOT / "build" / os.environ.get("BACKEND", "cpu") / "bench/bench_tokenizer"))


def ours(directory, file):
    """MB/s over the mixture, as bench_tokenizer says."""
    output = subprocess.run([BENCH, directory, file], check=True, capture_output=True, text=True).stdout
    return float(re.search(r"mixture +([\d.]+) MB/s", output).group(1))


def passages(text):
    """The lines of the text, joined to about 4 KB."""
    parts, part, size = [], [], 0
    for line in text.splitlines(keepends=True):
        part.append(line)
        size += len(line)
        if size > 2500:
            parts.append("".join(part))
            part, size = [], 0
    return parts + ["".join(part)]


def theirs(tokenizer, parts, size):
    start = time.process_time()
    tokenizer.encode_batch_fast(parts, add_special_tokens=False)
    return size / 1e6 / (time.process_time() - start)


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/assets/tokenizer")
    tokenizer = tokenizers.Tokenizer.from_file(directory + "/tokenizer.json")
    a, b = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = folder + "/mixture.txt"
        for _ in range(3):
            a.append(ours(directory, file))
            data = pathlib.Path(file).read_bytes()
            b.append(theirs(tokenizer, passages(data.decode()), len(data)))
    print(f"libqwen36 {max(a):.1f} MB/s, tokenizers {tokenizers.__version__} {max(b):.2f} MB/s, "
          f"ratio {max(a) / max(b):.1f}")


main()
