"""The chat example at a terminal: chat_terminal.py PROGRAM MODEL ENDLESS-MODEL. Types, waits for what is shown, and
counts what is as it should be. MODEL may say anything; ENDLESS-MODEL never ends an answer by itself."""

import os
import pty
import select
import subprocess
import sys
import time

program, model, endless = sys.argv[1:]
counts = {True: 0, False: 0}
PATIENCE = 30
INTERRUPT, END_OF_INPUT = b"\x03", b"\x04"


def check(condition, name, shown=b""):
    counts[bool(condition)] += 1
    if not condition:
        print(f"failed: {name}: {shown!r}")


class Terminal:
    """A program with a terminal of its own for input and errors; for output too, unless that is a pipe."""

    def __init__(self, *words, pipe=False, **environment):
        self.ours, theirs = pty.openpty()
        clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        self.process = subprocess.Popen([program, *words], stdin=theirs, stderr=theirs,
                                        stdout=subprocess.PIPE if pipe else theirs, env={**clean, **environment},
                                        start_new_session=True, preexec_fn=lambda: take_terminal(theirs))
        os.close(theirs)
        self.source = self.process.stdout.fileno() if pipe else self.ours
        self.shown = b""

    def read(self, until=None):
        """What is shown from now on, through `until`, or to the end."""
        deadline = time.monotonic() + PATIENCE
        while (until is None or until not in self.shown) and time.monotonic() < deadline:
            if select.select([self.source], [], [], 0.1)[0]:
                try:
                    piece = os.read(self.source, 1 << 16)
                except OSError:  # the other end is closed
                    break
                if not piece:
                    break
                self.shown += piece
        found = until is not None and until in self.shown
        if until is not None:
            check(found, f"waited for {until!r}", self.shown)
        at = self.shown.index(until) + len(until) if found else len(self.shown)
        result, self.shown = self.shown[:at], self.shown[at:]
        return result

    def type(self, text):
        os.write(self.ours, text)

    def end(self):
        """What was shown to the end, and the exit status."""
        shown = self.read()
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        os.close(self.ours)
        return shown, status


def take_terminal(descriptor):
    """Makes it the one whose Ctrl-C reaches the process."""
    import fcntl
    import termios
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


PROMPT = b"\x1b[1m>\x1b[0m "


def interrupted():
    chat = Terminal("-m", endless, "-n", "100000", "--greedy", "--think", "on")
    check(b"/help" in chat.read(PROMPT), "it says where help is, and prompts in bold")
    chat.type(b"Hello\n")
    shown = chat.read(b"\x1b[2m")
    check(shown.endswith(b"\x1b[2m"), "a thought is dim", shown)
    chat.type(INTERRUPT)
    shown = chat.read(b"[interrupted]")
    check(b"\x1b[0m" in shown and b"[interrupted]" in shown, "Ctrl-C stops the answer", shown)
    chat.read(PROMPT)
    chat.type(b"/think off\n")
    chat.read(PROMPT)
    chat.type(b"And now?\n")
    shown = chat.read(b"And now?\r\n") + chat.read(b" ")
    check(b"\x1b[2m" not in shown, "the program goes on", shown)
    chat.type(INTERRUPT)
    check(b"[interrupted]" in chat.read(b"[interrupted]"), "Ctrl-C stops the second answer too")
    chat.read(PROMPT)
    chat.type(b"/nonsense\n")
    check(b"unknown command" in chat.read(PROMPT), "a wrong command does not end it")
    chat.type(INTERRUPT)
    shown, status = chat.end()
    check(status == 130, f"Ctrl-C at the prompt ends it, status {status}", shown)
    check(b"reused" in shown, "with the rates", shown)


def full():
    chat = Terminal("-m", endless, "-n", "100000", "--context", "64", "--think", "off")
    chat.read(PROMPT)
    chat.type(b"Hello\n")
    check(b"/reset" in chat.read(b"more room"), "a full context is said, with what to do")
    chat.read(PROMPT)
    chat.type(b"Hello again, for the second time\n")
    check(b"/reset" in chat.read(b"more room"), "and again")
    chat.read(PROMPT)
    chat.type(b"/reset\n")
    chat.read(PROMPT)
    chat.type(b"Hello\n")
    shown = chat.read(b"more room")
    check(b"it holds 64 tokens" in shown, "it goes on after /reset", shown)
    chat.read(PROMPT)
    chat.type(END_OF_INPUT)
    check(chat.end()[1] == 0, "Ctrl-D ends it")


def without_colours():
    for name, chat in (("NO_COLOR", Terminal("-m", model, "-n", "8", "--quiet", NO_COLOR="1")),
                       ("a pipe", Terminal("-m", model, "-n", "8", "--quiet", pipe=True))):
        chat.read(b"> ")
        chat.type(b"Hello\n/quit\n")
        shown, status = chat.end()
        check(b"\x1b" not in shown and status == 0, f"no colours for {name}", shown)


interrupted()
full()
without_colours()
print(f"{counts[True]} passed, {counts[False]} failed")
sys.exit(1 if counts[False] else 0)
