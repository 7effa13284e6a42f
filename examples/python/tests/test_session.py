import numpy as np
import numpy.typing as npt
import pytest
import qwen36
from qwen36 import Logits, Model, Session, Status, sample, step


def finish(*sessions: Session) -> None:
    while any(status == Status.PENDING for status in step(sessions)):
        pass


def test_append_step_and_logits(model: Model, session: Session, prompt: list[int]) -> None:
    with pytest.raises(qwen36.NoLogits):
        session.logits()
    session.append(prompt)
    assert (len(session), session.computed) == (len(prompt), 0)
    assert step([session]) == [Status.OK]
    assert session.computed == session.length == len(prompt)
    assert session.capacity == model.info.context_length
    logits = session.logits()
    assert logits.shape == (model.info.vocab_size,) and logits.dtype == np.float32
    assert not logits.flags.writeable and not logits.flags.owndata
    assert np.all(np.isneginf(logits[model.info.token_count:]))
    assert sample([session]) == [int(np.argmax(logits))]
    assert session.length == session.computed + 1


def test_logits_are_a_view_and_a_copy_stays(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    finish(session)
    view, copy = session.logits(), session.logits().copy()
    assert np.array_equal(view, copy)
    sample([session])
    finish(session)
    sample([session])
    finish(session)
    assert not np.array_equal(session.logits(), copy)


def test_arrays_of_any_integer_type(session: Session, prompt: list[int]) -> None:
    for kind in (np.int32, np.int64, np.uint16):
        session.append(np.array(prompt, kind))
    session.append(np.array(prompt, np.int32)[::-1])
    assert session.tokens() == prompt * 3 + prompt[::-1]
    assert session.tokens(2, 5) == prompt[2:5]
    with pytest.raises(TypeError):
        session.append(np.array([1.0]))


def test_sync_reuses(session: Session, prompt: list[int]) -> None:
    assert session.sync(prompt) == 0
    finish(session)
    expected = session.logits().copy()
    assert session.sync(prompt) == len(prompt)
    assert session.sync(prompt + [5, 6, 7]) == len(prompt)
    finish(session)
    session.sync(prompt)
    finish(session)
    assert np.array_equal(session.logits(), expected)
    assert session.tokens() == prompt


def test_rewind_is_exact(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    finish(session)
    expected = session.logits().copy()
    token = sample([session])
    session.rewind(len(prompt))
    assert sample([session]) == token
    finish(session)
    session.rewind(len(prompt))
    finish(session)
    assert np.array_equal(session.logits(), expected)
    session.reset()
    assert len(session) == 0 and session
    with pytest.raises(qwen36.InvalidArgument):
        session.rewind(1)
    with pytest.raises(ValueError):
        session.rewind(-1)


def test_score_agrees_with_logits(session: Session, prompt: list[int]) -> None:
    scores = session.score(prompt)
    assert scores.shape == (len(prompt),) and scores.dtype == np.float32 and scores[0] == 0
    session.reset()
    session.append(prompt[:-1])
    finish(session)
    logits = session.logits().astype(np.float64)
    expected = logits[prompt[-1]] - np.logaddexp.reduce(logits)
    assert scores[-1] == pytest.approx(expected, abs=1e-4)


def test_rows_of_all_logits(model: Model, prompt: list[int]) -> None:
    rows: dict[int, npt.NDArray[np.float32]] = {}
    with model.session(on_logits=rows.__setitem__) as session:
        session.append(prompt, Logits.ALL)
        finish(session)
        assert sorted(rows) == list(range(len(prompt)))
        assert np.array_equal(rows[len(prompt) - 1], session.logits())


def test_an_exception_in_on_logits_comes_out(model: Model, prompt: list[int]) -> None:
    calls: list[int] = []

    def fail(position: int, row: object) -> None:
        calls.append(position)
        raise LookupError("mine")

    with model.session(on_logits=fail) as session:
        session.append(prompt, Logits.ALL)
        with pytest.raises(LookupError, match="mine"):
            step([session])
        assert calls == [0]
        assert session.computed == len(prompt)


def test_a_callback_may_not_call_the_model(model: Model, prompt: list[int]) -> None:
    with model.session(on_logits=lambda position, row: session.append([1])) as session:
        session.append(prompt, Logits.ALL)
        with pytest.raises(qwen36.Busy):
            step([session])
        assert len(session) == len(prompt)


def test_a_batch_gives_the_same_as_each_alone(model: Model, prompt: list[int]) -> None:
    prompts = [prompt, prompt[:3], prompt[::-1] * 9]
    alone = []
    for tokens in prompts:
        with model.session() as session:
            session.set_sampling(temperature=0)
            session.append(tokens)
            list(session.generate(6, ignore_end_tokens=True))
            alone.append(session.tokens())
    sessions = [model.session() for _ in prompts]
    for session, tokens in zip(sessions, prompts):
        session.set_sampling(temperature=0)
        session.append(tokens)
    for _ in range(6):
        while Status.PENDING in step(sessions, max_tokens=16):
            pass
        assert -1 not in sample(sessions)
    assert [session.tokens() for session in sessions] == alone


def test_a_budget_leaves_sessions_pending(model: Model, prompt: list[int]) -> None:
    with model.session() as first, model.session() as second:
        first.append(prompt)
        second.append(prompt)
        assert step([first, second], max_tokens=len(prompt)) == [Status.OK, Status.PENDING]
        assert step([first, second]) == [Status.OK, Status.OK]
    with pytest.raises(ValueError, match="closed"):
        step([first])
    assert step([]) == [] and sample([]) == []


def test_one_full_session_does_not_stop_its_neighbour(model: Model, prompt: list[int]) -> None:
    with model.session(context_length=len(prompt)) as small, model.session() as large:
        for session in (small, large):
            session.append(prompt)
        finish(small, large)
        with pytest.raises(qwen36.ContextFull) as caught:
            sample([small, large])
        assert caught.value.statuses == [Status.CONTEXT_FULL, Status.OK]
        assert caught.value.tokens[0] == -1 and caught.value.tokens[1] == large.tokens()[-1]
        with pytest.raises(qwen36.ContextFull, match="do not fit"):
            small.append([1])


def test_errors_leave_the_session_as_it_was(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    with pytest.raises(qwen36.InvalidToken, match="4160"):
        session.append([5, 4160])
    with pytest.raises(qwen36.InvalidArgument):
        step([session], max_tokens=0)
    with pytest.raises(qwen36.InvalidArgument, match="twice"):
        step([session, session])
    assert session.tokens() == prompt
    assert step([session]) == [Status.OK]


def test_sampling_options(model: Model, session: Session, prompt: list[int]) -> None:
    with model.session() as fresh:
        assert fresh.sampling.temperature == pytest.approx(0.8)
    session.set_sampling(top_k=7, seed=2**63, logprobs=3)
    assert (session.sampling.top_k, session.sampling.seed, session.sampling.temperature) == (7, 2**63, 0)
    with pytest.raises(qwen36.InvalidArgument):
        session.set_sampling(top_p=2)
    with pytest.raises(TypeError, match="topk"):
        session.set_sampling(topk=3)  # type: ignore[call-arg]
    session.append(prompt)
    finish(session)
    logits = session.logits().astype(np.float64)
    token = sample([session])[0]
    found = session.logprobs()
    assert found.tokens == np.argsort(-logits, kind="stable")[:3].tolist() and found.tokens[0] == token
    assert found.chosen == pytest.approx(logits[token] - np.logaddexp.reduce(logits), abs=1e-4)
    assert found.values[0] == pytest.approx(found.chosen) and found.values == sorted(found.values, reverse=True)


def test_draws_depend_on_seed_and_position(session: Session, prompt: list[int]) -> None:
    def draws(seed: int) -> list[int]:
        session.set_sampling(temperature=1, top_k=0, top_p=1, seed=seed)
        session.reset()
        session.append(prompt)
        list(session.generate(8, ignore_end_tokens=True))
        return session.tokens()

    assert draws(1) == draws(1) != draws(2)


def test_bias_and_bitmask(model: Model, session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    finish(session)

    def choice() -> int:
        token = sample([session])[0]
        session.rewind(len(prompt))
        return token

    best = choice()
    session.set_bias({best: float("-inf"), 77: 1000.0})
    assert choice() == 77
    mask = np.zeros(model.info.bitmask_words, np.uint32)
    mask[100 // 32] |= np.uint32(1 << 100 % 32)
    session.set_bitmask(mask)
    assert choice() == 100
    session.set_bias({100: float("-inf")})
    with pytest.raises(qwen36.NoCandidate):
        sample([session])
    session.set_bias(None)
    session.set_bitmask(None)
    assert choice() == best
    with pytest.raises(TypeError):
        session.set_bitmask(np.zeros(model.info.bitmask_words, np.float32))  # type: ignore[arg-type]
    with pytest.raises(qwen36.InvalidArgument):
        session.set_bitmask(mask[:-1])
