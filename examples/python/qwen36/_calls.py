"""Long calls: Ctrl-C ends them, and an exception in a callback comes out of them."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")


def _ctrl_c_raises() -> bool:
    """Whether Ctrl-C would raise KeyboardInterrupt in this thread."""
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _wait(done: threading.Event) -> None:
    while not done.is_set():
        try:
            done.wait()
        except KeyboardInterrupt:
            pass


def interruptible(call: Callable[[], Result], stop: Callable[[], None], settle: Callable[[Result], None]) -> Result:
    """call(), a call into the library that releases the interpreter. Python runs signal handlers in the main thread
    and only between bytecodes, which is after the call. So where Ctrl-C counts, a thread calls and the main thread
    waits, which a signal does interrupt: then stop() asks the call to end, settle() sees what it returned, and
    KeyboardInterrupt goes on its way. The call is over in any case when this function is left."""
    if not _ctrl_c_raises():
        return call()
    results: list[Result] = []
    done = threading.Event()

    def work() -> None:
        try:
            results.append(call())
        finally:
            done.set()

    try:
        _thread.start_new_thread(work, ())
        done.wait()
    except KeyboardInterrupt:
        stop()
        _wait(done)
        settle(results[0])
        raise
    return results[0]


class Callbacks:
    """Callbacks of one object. The first exception of any of them is kept, later calls of them do nothing, and
    raise_kept() brings it out when the library's call has returned: none crosses the boundary."""

    def __init__(self) -> None:
        self._kept: BaseException | None = None

    def run(self, function: Callable[..., Any], *arguments: Any, failed: Any = None) -> Any:
        if self._kept is not None:
            return failed
        try:
            return function(*arguments)
        except BaseException as exception:
            self._kept = exception
            return failed

    def raise_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            raise kept
