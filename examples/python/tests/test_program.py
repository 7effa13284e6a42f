"""python -m qwen36.chat"""

import io
import os
import re
import subprocess
import sys

import pytest
from conftest import DEMO_MODEL
from qwen36 import Chat, chat

SCRIPT = "Hello!\n\nGrüße, 世界?\n"


def run(*words: str, script: str = SCRIPT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "qwen36.chat", *words]
    return subprocess.run(command, input=script, capture_output=True, encoding="utf-8",
                          env={**os.environ, "PYTHONWARNINGS": "error", "LC_ALL": "C"})


def test_script() -> None:
    words = ("-m", str(DEMO_MODEL), "--greedy", "--think", "off", "--max-tokens", "8")
    result = run(*words)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"> Hello!\n.+\n\n> Grüße, 世界\?\n.+\n\n", result.stdout, re.S)
    lines = result.stderr.splitlines()
    assert len(lines) == 2 and re.fullmatch(
        r"\[\d+ prompt tokens, \d+ of them reused, \d tokens at [\d.]+/s, ended by: \w+( \w+)?\]", lines[1])
    assert run(*words).stdout == result.stdout


def test_options_reach_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Chat] = []
    monkeypatch.setattr(chat, "converse", lambda made, source, thoughts: seen.append(made))
    words = ["-m", str(DEMO_MODEL), "--greedy", "--seed", "5", "-n", "7", "-s", "Be brief.", "--context", "99"]
    assert chat.main([*words, "--preserve-thinking", "--think", "off"]) == 0 and chat.main(["-m", str(DEMO_MODEL)]) == 0
    first, second = seen
    assert (first.max_tokens, first.system, first.thinking, first.preserve_thinking) == (7, "Be brief.", False, True)
    assert (second.max_tokens, second.system, second.thinking, second.preserve_thinking) == (1024, None, None, None)


def test_sampling(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, int, int]] = []
    monkeypatch.setattr(chat, "converse", lambda made, source, thoughts: seen.append(
        (made.session.sampling.temperature, made.session.sampling.seed, made.session.capacity)))
    chat.main(["-m", str(DEMO_MODEL), "--greedy", "--seed", "5", "--context", "99"])
    assert seen == [(0, 5, 99)]


def test_thoughts() -> None:
    words = ("-m", str(DEMO_MODEL), "--greedy", "-n", "8", "-s", "Be brief.", "--think")
    shown, unseen = run(*words, "on").stdout, run(*words, "hide").stdout
    assert unseen == run(*words[:-1]).stdout and "<think>" not in unseen and shown.count("> ") >= 2
    said = re.sub(r"<think>\n.*?\n</think>\n\n", "", shown, flags=re.S)
    assert re.sub("\n+", "\n", said) == re.sub("\n+", "\n", unseen)


@pytest.mark.parametrize("words, status, text", [
    ((), 2, "--model"), (("-m", "x", "--max-tokens", "-1"), 2, "-1"), (("--help",), 0, ""),
    (("-m", "no/such/directory"), 1, "no/such/directory"),
    (("-m", str(DEMO_MODEL), "--context", "10"), 1, "10")])
def test_wrong_use(words: tuple[str, ...], status: int, text: str) -> None:
    result = run(*words)
    assert result.returncode == status and text in result.stderr and "Traceback" not in result.stderr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["Hello!", " ", KeyboardInterrupt()])

    def ask(prompt: str) -> str:
        line = next(lines)
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", ask)
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert chat.main(["-m", str(DEMO_MODEL), "--greedy", "--think", "off", "--max-tokens", "8"]) == 0
    shown = capsys.readouterr()
    assert "> Hello!" not in shown.out and len(shown.out) > 5 and shown.err.count("ended by") == 1
