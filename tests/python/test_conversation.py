"""One conversation in every language: the chat programs of examples/ read the same script, greedily, and write the same
text; each line of the script has its answer."""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "gates"))
from gate import BUILD, ROOT, check, finish, make, run, skip  # noqa: E402

SCRIPT = ROOT / "tests/examples/conversation.txt"
MODEL = ["-m", "examples/demo-model"]
TOKENS = "40"
# Without reasoning; with reasoning, unseen and shown; with reasoning that the next prompt keeps.
WAYS = (["--think", "off"], ["--think", "hide"], ["--think", "on"], ["--think", "on", "--preserve-thinking"])


# What the demo model says to it, whether it thinks or not; of the product, the end.
ANSWERS = ("Hello, Walter! How can I help you today?", "你好，小明！今天我能帮你做什么？",
           ", ".join(str(i) for i in range(1, 31)), "7 x 6 = 42", "I will remember it.", "You're welcome!",
           "The code word is velvet.")


def conversation(name, command):
    """What a program writes to standard output; None, and a failed check, when it fails or says nothing of its rate."""
    environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD), PYTHONPATH=str(ROOT / "examples/python"),
                       PYTHONDONTWRITEBYTECODE="1")
    with SCRIPT.open() as script:
        result = subprocess.run([*map(str, command), *MODEL, "--greedy"], cwd=ROOT, env=environment, stdin=script,
                                capture_output=True, encoding="utf-8")
    passed = check(result.returncode == 0 and "/s" in result.stderr,
                   f"{name}: exit status {result.returncode}\n{result.stderr}")
    return result.stdout if passed else None


def python(way):
    return conversation("python", [sys.executable, "-m", "qwen36.chat", *way, "-n", TOKENS])


def rust(way):
    return conversation("rust", [BUILD / "rust-folder/debug/examples/chat", *way, "-n", TOKENS])


def c(way):
    """The program of examples/, which has the same options as the others."""
    program = BUILD / "examples/chat"
    if not check(program.exists(), f"{program.relative_to(ROOT)} is not there: the conversation in C is not compared"):
        return None
    return conversation("c", [program, *way, "-n", TOKENS])


def build_rust():
    """Whether the Rust program is there."""
    if shutil.which("cargo") is None:
        skip("cargo is not here")
        return False
    environment = dict(os.environ, CARGO_TARGET_DIR=str(BUILD / "rust-folder"), QWEN36_LIB_DIR=str(BUILD))
    words = ["cargo", "build", "--quiet", "--offline", "--locked", "--package", "qwen36", "--example", "chat"]
    result = run(words, cwd=ROOT / "examples/rust", env=environment)
    return check(result.returncode == 0, "cargo build\n" + result.stdout)


def check_form(text, thoughts):
    """For each line of the script `> LINE`, an answer, and an empty line."""
    lines = SCRIPT.read_text().splitlines()
    turns = "".join(re.escape(f"> {line}\n") + "(?:.*\n)?\n" for line in lines)
    check(re.fullmatch(turns, text, re.S) is not None, "not the form of a conversation:\n" + text)
    check(thoughts or "think>" not in text, "reasoning is seen:\n" + text)


def check_content():
    for way in (["--think", "off"], ["--think", "hide"]):
        text = conversation("python", [sys.executable, "-m", "qwen36.chat", *way, "-n", "400"])
        answers = [turn.partition("\n")[2].strip() for turn in (text or "").split("> ")[1:]]
        for answer, expected in zip(answers, ANSWERS, strict=True):
            check(answer.endswith(expected), f"{' '.join(way)}: {answer!r} does not end in {expected!r}")


def main():
    make("lib", "examples")
    has_rust = build_rust()
    check_content()
    for way in WAYS:
        expected = python(way)
        if expected is None:
            continue
        check_form(expected, "on" in way)
        for name, other in (("rust", rust if has_rust else None), ("c", c)):
            text = other(way) if other is not None else None
            if text is not None:
                check(text == expected, f"{name} {' '.join(way)} writes\n{text}\npython writes\n{expected}")
    finish()


main()
