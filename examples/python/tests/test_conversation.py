"""The chat object with the demo model, which speaks by itself or by what a test lets it say."""

import json
import math
from collections.abc import Callable, Iterator

import pytest
import qwen36
from conftest import DEMO_MODEL
from qwen36 import Chat, ChatTemplate, Finish, Part, Model, step

CALL = "<tool_call>\n<function=clock>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}}}}}]
Say = Callable[..., None]


def endless(model: Model) -> dict[int, float]:
    """A bias by which no answer ends by itself."""
    return dict.fromkeys(model.end_tokens, -math.inf)


@pytest.fixture
def chat(model: Model) -> Iterator[Chat]:
    with Chat(model, system="Be brief.", max_tokens=12) as chat:
        chat.session.set_sampling(temperature=0)
        chat.session.set_bias(endless(model))
        yield chat


@pytest.fixture
def say(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> Say:
    """say(TEXT): the model's next answer is this one, with its tokens and an end token."""
    session, tokenizer = chat.session, chat.tokenizer

    def generate(text: str, fails: Exception | None) -> Iterator[str]:
        decoder = tokenizer.decoder()
        for token in tokenizer.encode(text + "<|im_end|>", parse_special=True):
            step([session])
            session.append([token])
            if piece := decoder.push(token):
                yield piece
        if fails is not None:
            raise fails
        session.finish = Finish.END_TOKEN

    def speak(text: str, fails: Exception | None = None) -> None:
        monkeypatch.setattr(session, "generate", lambda max_tokens, stops: generate(text, fails))

    return speak


def test_turns_by_the_model_itself(chat: Chat) -> None:
    chat.thinking = False
    first = chat.ask("Hello!")
    pieces = list(first)
    assert "".join(pieces) == first.content and len(pieces) > 1 and first.reasoning == ""
    assert (first.finish, first.output_tokens, first.reused) == (Finish.LENGTH, 12, 0)
    assert [message["role"] for message in chat.messages] == ["system", "user", "assistant"]
    assert chat.messages[2] == {"role": "assistant", "content": first.content, "reasoning_content": ""}
    second = chat.ask("And then?", max_tokens=3)
    assert second.read() == second.content and second.output_tokens == 3
    assert second.prompt_tokens > first.prompt_tokens and chat.last is second and list(second) == []


def test_the_answers_are_those_of_the_session(chat: Chat, model: Model) -> None:
    chat.thinking = False
    prompt = ChatTemplate.load(DEMO_MODEL).encode(
        chat.tokenizer, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}],
        enable_thinking=False)
    with model.session() as session:
        session.set_sampling(temperature=0)
        session.set_bias(endless(model))
        session.append(prompt)
        expected = "".join(session.generate(12)).strip("\n")
    assert chat.ask("Hello!").read() == expected


def test_reasoning(chat: Chat, say: Say) -> None:
    chat.preserve_thinking = True
    say("Let me see.\n</think>\n\nYes.")
    answer = chat.ask("Well?")
    parts = [part for part, text in answer.pieces()]
    assert set(parts) == set(Part) and parts == sorted(parts, key=list(Part).index)
    assert (answer.reasoning, answer.content, answer.finish) == ("Let me see.", "Yes.", Finish.END_TOKEN)
    assert chat.messages[-1] == {"role": "assistant", "content": "Yes.", "reasoning_content": "Let me see."}
    computed = chat.session.computed
    assert chat.ask("And?").reused == computed
    chat.preserve_thinking = None
    assert chat.ask("And?").reused < computed


def test_iterating_leaves_the_reasoning_out(chat: Chat, say: Say) -> None:
    say("Let me see.\n</think>\n\nYes, it is.")
    assert "".join(chat.ask("Well?")) == "Yes, it is."


def test_tool_calls(chat: Chat, say: Say) -> None:
    chat.tools, chat.thinking, chat.preserve_thinking = TOOLS, False, True
    say("I look.\n\n" + CALL + "\n" + CALL.replace("Oslo", "東京"))
    answer = chat.ask("What time is it in Oslo?")
    assert "".join(answer) == "I look."
    assert [call["id"] for call in answer.tool_calls] == ["call_1", "call_2"]
    arguments = [json.loads(call["function"]["arguments"]) for call in answer.tool_calls]
    assert arguments == [{"city": "Oslo"}, {"city": "東京"}]
    assert chat.messages[-1]["tool_calls"] == answer.tool_calls
    computed = chat.session.computed
    chat.add_tool_result("12:00", answer.tool_calls[0]["id"])
    chat.add_tool_result({"time": "Mitternacht, vorüber"})
    assert chat.messages[-2:] == [{"role": "tool", "content": "12:00", "tool_call_id": "call_1"},
                                  {"role": "tool", "content": '{"time": "Mitternacht, vorüber"}'}]
    say("It is noon.")
    answer = chat.answer()
    assert answer.reused == computed and answer.read() == "It is noon."
    assert chat.tokenizer.decode(chat.session.tokens()).count("<tool_response>") == 2
    assert chat.messages[-1] == {"role": "assistant", "content": "It is noon.", "reasoning_content": ""}


def test_an_answer_that_is_ended_early_is_kept(chat: Chat) -> None:
    chat.thinking = False
    answer = chat.ask("Hello!")
    shown = next(answer)
    chat.ask("And?").close()
    assert [message["content"] for message in chat.messages] == ["Be brief.", "Hello!", shown]
    assert answer.finish is None and answer.output_tokens > 0 and list(answer) == []


def test_a_question_without_an_answer_is_not_kept(chat: Chat) -> None:
    before = list(chat.messages)
    chat.ask("Hello!")
    chat.session.interrupt()
    answer = chat.ask("Hello again!")
    assert answer.read() == "" and answer.finish is Finish.INTERRUPTED and chat.messages == before
    chat.ask("Hello!", max_tokens=2).read()
    assert len(chat.messages) == len(before) + 2


def test_an_error_on_the_way(chat: Chat, say: Say) -> None:
    say("</think>Half of it", fails=LookupError("mine"))
    answer = chat.ask("Hello!")
    with pytest.raises(LookupError, match="mine"):
        answer.read()
    assert chat.messages[-1]["content"] == answer.content == "Half of it"


def test_errors_of_a_question_leave_the_messages(model: Model) -> None:
    with Chat(model, context_length=40) as chat:
        with pytest.raises(qwen36.ContextFull):
            chat.ask("word " * 100)
        with pytest.raises(qwen36.InvalidArgument):
            chat.ask("Hello!", stops=[""]).read()
        with pytest.raises(qwen36.InvalidMessages):
            chat.ask([{"type": "unknown"}])
        assert chat.messages == []
        with pytest.raises(qwen36.InvalidMessages):
            chat.answer()
        assert chat.ask("Hello!", max_tokens=100).read() is not None
        assert chat.last is not None and chat.last.finish in (Finish.CONTEXT_FULL, Finish.END_TOKEN)


def test_stop_strings(chat: Chat) -> None:
    chat.thinking = False
    whole = chat.ask("Hello!").read()
    chat.clear()
    assert [message["role"] for message in chat.messages] == ["system"] and chat.last is None
    stop = whole[5:9]
    answer = chat.ask("Hello!", stops=[stop])
    assert answer.read() == whole[:whole.index(stop)].rstrip("\n") and answer.finish is Finish.STOP


def test_messages_may_be_changed(chat: Chat) -> None:
    chat.thinking = False
    expected = chat.ask("Hello!").read()
    chat.ask("Something else?").read()
    del chat.messages[1:]
    chat.messages.append({"role": "user", "content": "Hello!"})
    assert chat.answer().read() == expected


def test_a_closed_chat(model: Model) -> None:
    chat = Chat(model)
    chat.session.set_bias(endless(model))
    answer = chat.ask("Hello!", max_tokens=50)
    next(answer.pieces())
    chat.close()
    assert chat.session.closed and chat.messages[-1]["role"] == "assistant" and list(answer) == []
    with pytest.raises(ValueError, match="closed"):
        chat.ask("Hello?")
    assert len(chat.messages) == 2


def test_options_reach_the_template(model: Model) -> None:
    with Chat(model, thinking=True, reasoning_effort="low", template=ChatTemplate.parse("reasoning_effort"),
              allow_nearest=True, tools=TOOLS) as chat:
        chat.messages.append({"role": "user", "content": "Hello!"})
        text = chat.tokenizer.decode(chat.prompt())
        assert "low" in text and '"clock"' in text and text.endswith("<think>\n")
        chat.allow_nearest = False
        with pytest.raises(qwen36.UnknownChatTemplate):
            chat.prompt()


def test_a_model_without_a_tokenizer(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "tokenizer", None)
    with pytest.raises(qwen36.NoTokenizer):
        Chat(model)
