import subprocess

import pytest
import qwen36
from conftest import BUILD, DEMO_MODEL, PROMPT
from qwen36 import Finish, Logits, Model, Session, Status, sample, step


def test_greedy_text_is_that_of_the_example(session: Session, prompt: list[int]) -> None:
    command = [str(BUILD / "examples/generate"), "-m", str(DEMO_MODEL), "-p", PROMPT, "-n", "40", "--temp", "0", "--quiet"]
    expected = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    session.append(prompt)
    assert PROMPT + "".join(session.generate(40)) + "\n" == expected


def test_iterator_and_callback_agree(model: Model, prompt: list[int]) -> None:
    streams: list[list[int]] = []
    texts: list[str] = []
    for form in ("iterator", "callback"):
        with model.session() as session:
            session.set_sampling(temperature=1, seed=7)
            session.append(prompt)
            pieces: list[str] = []
            if form == "iterator":
                pieces += session.generate(50)
            else:
                result = session.generate_to(lambda token, text: pieces.append(text), 50)
                assert result.finish == session.finish
                assert (result.prompt_tokens, result.output_tokens) == (len(prompt), len(session) - len(prompt))
                assert result.prompt_seconds > 0 and result.output_seconds > 0
            texts.append("".join(pieces))
            streams.append([*session.tokens(), session.computed])
    assert texts[0] == texts[1] and streams[0] == streams[1]


def test_nothing_is_computed_before_it_is_asked_for(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    texts = session.generate(5)
    assert session.computed == 0
    next(texts)
    assert session.computed == len(prompt) and len(session) == len(prompt) + 1
    texts.close()
    assert list(texts) == [] and len(session) == len(prompt) + 1
    assert step([session]) == [Status.OK] and len(sample([session])) == 1


def test_length(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    assert list(session.generate(0)) == [] and session.finish is Finish.LENGTH
    assert session.computed == len(prompt)
    list(session.generate(3))
    assert session.finish is Finish.LENGTH and len(session) == session.computed == len(prompt) + 3


def test_the_value_of_the_generator(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    texts = session.generate(1)
    with pytest.raises(StopIteration) as end:
        while True:
            next(texts)
    assert end.value.value is Finish.LENGTH


def test_end_token(model: Model, session: Session, prompt: list[int]) -> None:
    end = model.end_tokens[0]
    session.set_bias({end: 1000.0})
    session.append(prompt)
    assert list(session.generate(5)) == [] and session.finish == Finish.END_TOKEN
    assert session.tokens()[-1] == end and session.computed == len(prompt)
    assert model.tokenizer is not None
    marker = model.tokenizer.decode([end])
    assert list(session.generate(2, ignore_end_tokens=True, skip_special=False)) == [marker, marker]
    assert session.finish == Finish.LENGTH


@pytest.mark.parametrize("begin, before", [(20, ["nothing of this"]), (33, [])])
def test_stop_strings(session: Session, prompt: list[int], begin: int, before: list[str]) -> None:
    session.append(prompt)
    whole = "".join(session.generate(40))
    stops = [*before, whole[begin:begin + 9]]
    session.sync(prompt)
    text = "".join(session.generate(40, stops=stops))
    assert text == whole[:whole.index(stops[-1])]
    tokens = session.tokens()
    assert session.finish == Finish.STOP and session.stop == len(stops) - 1
    assert all(stop not in text for stop in stops) and len(text) > 0
    pieces: list[str] = []
    session.sync(prompt)
    result = session.generate_to(lambda token, piece: pieces.append(piece), 40, stops=stops)
    assert (result.finish, result.stop, result.end_token) == (Finish.STOP, len(stops) - 1, -1)
    assert "".join(pieces) == text and session.tokens() == tokens


def test_other_end_tokens(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    list(session.generate(8))
    third = session.tokens()[len(prompt) + 2]
    for end_tokens, count in ([third], 3), ([], 8):
        session.sync(prompt)
        list(session.generate(8, end_tokens=end_tokens))
        assert len(session) <= len(prompt) + count
        session.sync(prompt)
        result = session.generate_to(lambda token, text: None, 8, end_tokens=end_tokens)
        assert result.end_token == (third if end_tokens else -1) and result.output_tokens <= count


def test_context_full(model: Model, prompt: list[int]) -> None:
    with model.session(context_length=len(prompt) + 4) as session:
        session.set_sampling(temperature=0)
        session.append(prompt)
        list(session.generate(50, ignore_end_tokens=True))
        assert session.finish is Finish.CONTEXT_FULL and len(session) == session.capacity


def test_logits_that_were_not_asked_for(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    expected = list(session.generate(5))
    for computed in (False, True):
        session.reset()
        session.append(prompt, Logits.NONE)
        if computed:
            step([session])
        assert list(session.generate(5)) == expected
    session.reset()
    session.append(prompt + [9, 9, 9])
    session.rewind(len(prompt))
    assert list(session.generate(5)) == expected


def test_an_empty_timeline(session: Session) -> None:
    with pytest.raises(qwen36.NoLogits):
        list(session.generate(5))
    with pytest.raises(qwen36.NoLogits):
        session.generate_to(lambda token, text: None)


def test_callback_stops(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    seen: list[int] = []

    def three(token: int, text: str) -> bool:
        seen.append(token)
        return len(seen) == 3

    result = session.generate_to(three, 50)
    assert result.finish is Finish.CALLBACK and result.output_tokens == 3
    assert seen == [*session.tokens()[-3:], -1]


def test_an_exception_in_the_callback_comes_out(session: Session, prompt: list[int]) -> None:
    def fail(token: int, text: str) -> None:
        raise LookupError("mine")

    session.append(prompt)
    with pytest.raises(LookupError, match="mine"):
        session.generate_to(fail, 50)
    assert len(session) == len(prompt) + 1
    assert "".join(session.generate(3)) != ""


def test_interrupted_while_idle(session: Session, prompt: list[int]) -> None:
    session.append(prompt)
    session.interrupt()
    assert list(session.generate(5)) == [] and session.finish == Finish.INTERRUPTED
    assert session.computed == 0
    session.interrupt()
    result = session.generate_to(lambda token, text: None, 5)
    assert result.finish is Finish.INTERRUPTED
    assert "".join(session.generate(5)) != "" and session.finish == Finish.LENGTH
