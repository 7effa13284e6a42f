"""A conversation on the command line: python -m qwen36.chat -m MODEL-DIRECTORY

On a terminal it asks for messages, and Ctrl-C ends an answer. From a file or a pipe it takes each line as a message
and prints `> MESSAGE`, the answer, and an empty line. Rates go to standard error."""

from __future__ import annotations

import argparse
import io
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from . import Answer, Chat, Part, Model, Qwen36Error

# What stands around the parts of an answer; an answer without any is an empty line.
OPEN = {Part.REASONING: "<think>\n", Part.CONTENT: ""}
CLOSE = {Part.REASONING: "\n</think>\n\n", Part.CONTENT: "\n\n"}
EPILOG = "On a terminal, Ctrl-C ends an answer and Ctrl-D the conversation. Otherwise each line of input is a message."


def count(text: str) -> int:
    """An argument that is a whole number, 0 or more."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


def parse(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m qwen36.chat", description="A conversation with a model.",
                                     epilog=EPILOG, allow_abbrev=False)
    add = parser.add_argument
    add("-m", "--model", required=True, metavar="DIR", help="the model directory, as published")
    add("-s", "--system", metavar="TEXT", help="a system message")
    add("-n", "--max-tokens", type=count, default=1024, metavar="N",
        help="tokens of an answer at most, thought included (default %(default)s)")
    add("--think", choices=("on", "off", "hide"),
        help="on: to think; off: not to; hide: to think unseen (default: as the template does, unseen)")
    add("--preserve-thinking", action="store_true",
        help="older answers keep their thoughts, if the template can do that")
    add("--greedy", action="store_true", help="always the most likely token")
    add("--seed", type=count, default=0, metavar="S", help="seed of the draws (default %(default)s)")
    add("--context", type=count, default=4096, metavar="N",
        help="room for the conversation, in tokens (default %(default)s)")
    return parser.parse_args(words)


def report(answer: Answer, seconds: float) -> None:
    rate = answer.output_tokens / seconds if seconds > 0 else 0
    ended = answer.finish.name.lower().replace("_", " ") if answer.finish is not None else "interrupted"
    print(f"[{answer.prompt_tokens} prompt tokens, {answer.reused} of them reused, {answer.output_tokens} tokens "
          f"at {rate:.1f}/s, ended by: {ended}]", file=sys.stderr, flush=True)


def write(answer: Answer, thoughts: bool) -> None:
    """Prints an answer as it comes, and an empty line."""
    begin, last = time.monotonic(), None
    try:
        for part, text in answer.pieces():
            if part is Part.REASONING and not thoughts:
                continue
            if part is not last:
                print("" if last is None else CLOSE[last], OPEN[part], sep="", end="")
                last = part
            print(text, end="", flush=True)
    finally:
        print("\n" if last is None else CLOSE[last], end="", flush=True)
        report(answer, time.monotonic() - begin)


def messages(source: TextIO) -> Iterator[str]:
    """What the user says, one line each."""
    if not source.isatty():
        for line in source:
            if line.strip():
                print("> " + line.rstrip("\r\n"), flush=True)
                yield line.rstrip("\r\n")
        return
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line.strip():
            yield line


def converse(chat: Chat, source: TextIO, thoughts: bool) -> None:
    for message in messages(source):
        try:
            write(chat.ask(message), thoughts)
        except KeyboardInterrupt:
            if not source.isatty():
                raise


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    for stream in (sys.stdin, sys.stdout):  # whatever the locale; only "\n" ends a line
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    try:
        with Model.load(arguments.model, max_sessions=1, context_length=arguments.context) as model, \
                Chat(model, system=arguments.system, max_tokens=arguments.max_tokens) as chat:
            chat.session.set_sampling(seed=arguments.seed)
            if arguments.greedy:
                chat.session.set_sampling(temperature=0)
            if arguments.think is not None:
                chat.thinking = arguments.think != "off"
            if arguments.preserve_thinking:
                chat.preserve_thinking = True
            converse(chat, sys.stdin, arguments.think == "on")
    except Qwen36Error as error:
        print(f"chat: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
