import dataclasses
import os
import pathlib
import pickle

import numpy as np
import pytest
import qwen36
from conftest import DEMO_MODEL
from qwen36 import LogLevel, Model, Numerics, Session, Status, Tokenizer


def test_info(model: Model) -> None:
    assert model.info.is_moe is True and model.info.layers == 8
    assert model.info.numerics is Numerics.FAST
    assert model.info.bitmask_words == -(-model.info.vocab_size // 32)
    assert dataclasses.asdict(model.info)["threads"] == 2
    assert len(model.end_tokens) == 2
    assert not any(token < 0 for token in model.end_tokens)


def test_options_reach_the_library() -> None:
    with Model.load(DEMO_MODEL, numerics=Numerics.REFERENCE, context_length=100, threads=1, cpu_tier=qwen36.CPU.PORTABLE,
                    weights_access=qwen36.Weights.READ) as model:
        assert (model.info.context_length, model.info.numerics) == (100, Numerics.REFERENCE)
        assert (model.info.threads, model.info.cpu_tier) == (1, qwen36.CPU.PORTABLE)
        assert model.info.kv_dtype is qwen36.KV.F32


def test_unknown_and_impossible_options() -> None:
    with pytest.raises(TypeError, match="max_session"):
        Model.load(DEMO_MODEL, max_session=3)  # type: ignore[call-arg]
    with pytest.raises(qwen36.InvalidArgument, match="threads") as caught:
        Model.load(DEMO_MODEL, threads=0)
    assert isinstance(caught.value, ValueError)
    assert (caught.value.status, caught.value.name) == (Status.ARGUMENT, "ARGUMENT")


def test_errors_are_exceptions(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        Model.load(tmp_path / "nothing")
    error = caught.value
    assert isinstance(error, qwen36.FileNotFound)
    assert "nothing" in error.message and str(error) == error.message and "\n" not in error.message
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(qwen36.InvalidModel) as damaged:
        Model.load(tmp_path)
    assert damaged.value.name == "JSON"
    copy = pickle.loads(pickle.dumps(damaged.value))
    assert (type(copy), copy.status, copy.message) == (qwen36.InvalidModel, damaged.value.status, damaged.value.message)


def test_memory_estimate() -> None:
    estimate = qwen36.memory_estimate(DEMO_MODEL, threads=1)
    parts = dataclasses.astuple(estimate)
    assert estimate.weight_bytes > 0 and sum(parts[:-1]) == estimate.total_bytes
    assert qwen36.memory_estimate(DEMO_MODEL, threads=1, max_sessions=8).cache_bytes == 2 * estimate.cache_bytes


def test_log_and_progress() -> None:
    lines: list[tuple[int, str]] = []
    steps: list[tuple[int, int]] = []
    with Model.load(DEMO_MODEL, threads=1, log=lambda *line: lines.append(line),
                    progress=lambda *step: steps.append(step)) as model:
        assert lines and lines[-1][0] == LogLevel.INFO and "loaded" in lines[-1][1]
        assert steps and steps[-1][0] == steps[-1][1] > 0
        assert model.info.layers == 8


def test_progress_cancels() -> None:
    with pytest.raises(qwen36.Cancelled):
        Model.load(DEMO_MODEL, progress=lambda done, total: True)


@pytest.mark.parametrize("hook", ["log", "progress"])
def test_an_exception_in_a_callback_comes_out(hook: str) -> None:
    def fail(*_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        Model.load(DEMO_MODEL, **{hook: fail})  # type: ignore[arg-type]


def test_closing_twice_and_using_a_closed_model() -> None:
    model = Model.load(DEMO_MODEL, threads=1)
    assert not model.closed
    model.close()
    model.close()
    assert model.closed
    with pytest.raises(ValueError, match="closed"):
        model.session()


def test_objects_may_end_in_any_order() -> None:
    model = Model.load(DEMO_MODEL, threads=1)
    tokenizer, session = model.tokenizer, model.session()
    assert tokenizer is not None
    decoder = tokenizer.decoder()
    session.set_sampling(temperature=0)
    model.close()
    session.append(tokenizer.encode("It was"))
    tokenizer.close()
    assert len("".join(session.generate(5))) > 0
    logits = session.logits()
    kept = logits.copy()
    session.close()
    assert decoder.push(100) + decoder.finish() != ""
    del model, tokenizer, session, decoder
    assert np.array_equal(logits, kept)


def test_a_closed_session_gives_its_place_back() -> None:
    with Model.load(DEMO_MODEL, threads=1, max_sessions=2) as model:
        sessions = [model.session(), model.session()]
        with pytest.raises(qwen36.SessionsFull):
            model.session()
        sessions.pop().close()
        sessions.append(model.session())
        sessions.clear()
        sessions = [model.session(), model.session()]


def memory() -> int:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_nothing_leaks() -> None:
    def once(count: int) -> None:
        for _ in range(count):
            with Model.load(DEMO_MODEL, threads=1, context_length=64, max_sessions=1) as model:
                session: Session = model.session(on_logits=lambda position, row: None)
                session.append([1, 2, 3], qwen36.Logits.ALL)
                list(session.generate(2))
                session.logits()
            Tokenizer.load(DEMO_MODEL).decoder().push(5)

    once(5)
    before = memory()
    once(15)
    assert memory() - before < 8 << 20
