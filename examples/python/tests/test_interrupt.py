"""Interrupts of calls that run: from another thread, and by Ctrl-C."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import qwen36
from conftest import DEMO_MODEL
from qwen36 import CPU, Model, Numerics, Session, Status, sample, step

LONG = [7 + i % 500 for i in range(4000)]


@pytest.fixture(scope="module")
def slow() -> Iterator[Model]:
    """A model whose steps over LONG take a second or more."""
    with Model.load(DEMO_MODEL, numerics=Numerics.REFERENCE, cpu_tier=CPU.PORTABLE, threads=1,
                    max_batch_tokens=4096) as model:
        yield model


@pytest.fixture
def session(slow: Model) -> Iterator[Session]:
    with slow.session() as session:
        yield session


@pytest.fixture(autouse=True)
def ctrl_c_raises() -> Iterator[None]:
    """Also where the tests were started with SIGINT ignored, as a shell's background jobs are."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def later(action: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(0.1, action)
    timer.start()
    return timer


def ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_run_during_a_call_and_can_interrupt_it(session: Session) -> None:
    session.append(LONG)
    timer = later(session.interrupt)
    assert step([session]) == [Status.INTERRUPTED]
    timer.join()
    assert session.computed == 0 and len(session) == len(LONG)


def test_only_the_interrupted_session_stops(slow: Model, session: Session) -> None:
    with slow.session() as other:
        session.append(LONG[:800])
        other.append(LONG[1:301])  # another beginning: it does not wait for what its neighbour computes
        timer = later(session.interrupt)
        assert step([session, other]) == [Status.INTERRUPTED, Status.OK]
        timer.join()
        assert other.computed == 300


def test_score_is_interrupted(session: Session) -> None:
    timer = later(session.interrupt)
    with pytest.raises(qwen36.Qwen36Error) as caught:
        session.score(LONG)
    timer.join()
    assert caught.value.status == Status.INTERRUPTED and len(session) == session.computed


@pytest.mark.parametrize("call", [
    lambda session: step([session]), lambda session: list(session.generate(5)), lambda session: session.score([5]),
    lambda session: session.generate_to(lambda token, text: None, 5)])
def test_ctrl_c_ends_a_call(session: Session, call: Callable[[Session], object]) -> None:
    session.append(LONG)
    timer = later(ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        call(session)
    timer.join()
    assert session.computed == 0 and session.tokens() == LONG
    session.rewind(5)
    # Nothing of the interrupt is left over.
    session.sync(LONG[:5])
    assert step([session]) == [Status.OK]


def test_ctrl_c_that_comes_too_late_leaves_no_interrupt(session: Session) -> None:
    from qwen36.session import _clear_interrupts

    session.append(LONG[:5])
    session.interrupt()
    _clear_interrupts([session], [Status.OK])
    assert session.computed == 0 and step([session]) == [Status.OK]


def test_ctrl_c_in_a_loop_over_texts(session: Session) -> None:
    session.append(LONG[:5])
    with pytest.raises(KeyboardInterrupt):
        for count, _ in enumerate(session.generate(10**6, ignore_end_tokens=True)):
            if count == 3:
                ctrl_c()
                time.sleep(5)
    assert step([session]) == [Status.OK] and len(sample([session])) == 1


def test_ctrl_c_while_loading() -> None:
    def progress(done: int, total: int) -> None:
        if done:
            ctrl_c()
            time.sleep(0.2)

    with pytest.raises(KeyboardInterrupt):
        Model.load(DEMO_MODEL, threads=1, progress=progress, weights_access=qwen36.Weights.READ)


def test_a_handler_of_the_program_is_left_to_it(session: Session) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        session.append(LONG[:500])
        timer = later(ctrl_c)
        assert step([session]) == [Status.OK]
        timer.join()
        assert seen == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_closing_while_a_call_runs(slow: Model) -> None:
    session = slow.session()
    session.append(LONG[:500])
    timer = later(session.close)
    assert step([session]) == [Status.OK]
    timer.join()
    assert session.closed
    session.interrupt()


def test_two_threads_on_one_model(slow: Model) -> None:
    results: dict[int, object] = {}

    def run(number: int) -> None:
        with slow.session() as session:
            session.set_sampling(temperature=0)
            session.append(LONG[:100])
            list(session.generate(5, ignore_end_tokens=True))
            results[number] = (session.tokens(), np.asarray(session.logits()).tobytes())

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2 and results[0] == results[1]


def test_a_child_process_is_told(slow: Model) -> None:
    with slow.session() as session:
        child = os.fork()
        if child == 0:
            try:
                session.append([1])
            except qwen36.Forked:
                os._exit(36)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 36
        session.append([1])
