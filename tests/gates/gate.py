"""What the gates share: counted checks, commands, the tree's files. Each gate is a program of its own that ends
with the line `N passed, N failed, N skipped`; python3 without any package is enough unless a gate says so."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BACKEND = os.environ.get("BACKEND", "cpu")
BUILD = ROOT / "build" / BACKEND
CC = shlex.split(os.environ.get("CC", "gcc"))
CXX = shlex.split(os.environ.get("CXX", "g++"))
counts = {"passed": 0, "failed": 0, "skipped": 0}


def check(condition, text):
    """Counts; prints the text of a failed check only."""
    counts["passed" if condition else "failed"] += 1
    if not condition:
        print("FAILED " + text)
    return bool(condition)


def skip(reason):
    """A check that cannot run here; where everything must run it has failed."""
    if os.environ.get("REQUIRE_ASSETS") == "1":
        check(False, "may not be skipped: " + reason)
    else:
        counts["skipped"] += 1
        print("skipped: " + reason)


def run(command, **options):
    """The finished process, its two outputs together as text; status 127 where there is no such program."""
    words = [str(word) for word in command]
    options.setdefault("cwd", ROOT)
    try:
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=True, **options)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(words, 127, str(error))


def succeeds(command, text="", **options):
    """Runs a command as one check; its output on success, None otherwise."""
    result = run(command, **options)
    shown = " ".join(str(word) for word in command)
    passed = check(result.returncode == 0, f"{text}: {shown}\n{result.stdout}")
    return result.stdout if passed else None


def make(*words):
    """A build as a check. Quiet unless it fails."""
    variables = [f"{name}={os.environ[name]}" for name in ("BACKEND", "CC", "CXX", "NVCC", "CUDA_ARCHS", "CFLAGS", "LDFLAGS")
                 if name in os.environ and not any(str(w).startswith(name + "=") for w in words)]
    return succeeds([os.environ.get("MAKE", "make"), *variables, *words], "build")


def files(*patterns):
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())


def exports():
    return (ROOT / "lib/exports.list").read_text().split()


def listed(path):
    """The words of each line of a list beside this file, without comments."""
    lines = (line.split("#")[0].split() for line in (ROOT / "tests/gates" / path).read_text().splitlines())
    return [words for words in lines if words]


def without_comments(text, keep_literals=False):
    """C source with comments and the contents of literals blanked out, line structure kept."""
    def blank(match):
        piece = match.group(0)
        if piece[0] in "\"'":
            return piece if keep_literals else piece[0] + " " * (len(piece) - 2) + piece[0]
        return re.sub(r"[^\n]", " ", piece)
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def finish():
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**counts))
    sys.exit(1 if counts["failed"] or not counts["passed"] + counts["skipped"] else 0)
