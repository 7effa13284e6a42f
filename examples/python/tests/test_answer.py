"""What an answer is made of: reasoning, content, tool calls, however its text is cut."""

import json

import pytest
from qwen36.answer import Call, Part, Splitter, openai_call, parse_call

CALL = "<tool_call>\n<function=clock>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "text": {"type": "string"}, "number": {"type": "integer"}, "maybe": {"type": ["string", "null"]},
    "list": {"type": "array"}, "flag": {"type": ["boolean", "null"]}, "bare": {},
    "any": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}}}]


def split(text: str, reasoning: bool, size: int, tools: bool = True) -> tuple[str, str, list[Call]]:
    """Reasoning, content and calls of a text that comes in pieces of a size."""
    splitter = Splitter(reasoning, tools)
    pieces = [piece for at in range(0, len(text), size) for piece in splitter.push(text[at:at + size])]
    pieces += splitter.finish()
    assert splitter.finish() == [] and all(piece.text for piece in pieces)
    for part, shown in (Part.REASONING, splitter.reasoning), (Part.CONTENT, splitter.content):
        assert "".join(piece.text for piece in pieces if piece.part is part) == shown
    return splitter.reasoning, splitter.content, splitter.calls


@pytest.mark.parametrize("text, reasoning, expected", [
    ("Hello.", False, ("", "Hello.", [])),
    ("", False, ("", "", [])),
    ("\nWell\n\n so. \n</think>\n\n Hello \n there.\n\n", True, ("Well\n\n so. ", " Hello \n there.", [])),
    ("Never ends </thin", True, ("Never ends </thin", "", [])),
    ("\n <think>\nBy itself.\n</think>\n\nYes.", False, ("By itself.", "Yes.", [])),
    ("<thi", False, ("", "<thi", [])),
    ("a <think> b </think> c", False, ("", "a <think> b </think> c", [])),
    ("x</think>a</think>b", True, ("x", "a</think>b", [])),
    ("So.\n</think>\n\nLet me see.\n\n" + CALL, True, ("So.", "Let me see.", [Call("clock", {"city": "Oslo"})])),
    (CALL + "\n" + CALL, False, ("", "", [Call("clock", {"city": "Oslo"})] * 2)),
    (CALL + "\nAnd?", False, ("", "And?", [Call("clock", {"city": "Oslo"})])),
    (" \n ", False, ("", " \n ", [])),
    ("a <tool_call>b</tool_call> c", False, ("", "a <tool_call>b</tool_call> c", [])),
    ("a\n" + CALL[:-3], False, ("", "a\n" + CALL[:-3], [])),
    ("<tool_cal <tool_call", False, ("", "<tool_cal <tool_call", [])),
    ("Grüße\n世界", False, ("", "Grüße\n世界", []))])
def test_split(text: str, reasoning: bool, expected: tuple[str, str, list[Call]]) -> None:
    for size in range(1, len(text) + 2):
        assert split(text, reasoning, size) == expected


def test_without_tools_a_call_is_content() -> None:
    text = "a\n" + CALL + "\n\nb"
    for size in range(1, len(text) + 1):
        assert split(text, False, size, tools=False) == ("", text, [])


def test_what_is_certain_comes_at_once() -> None:
    splitter = Splitter(reasoning=True)
    assert splitter.push("a b ") == [(Part.REASONING, "a b ")]
    assert splitter.push("c\n</th") == [(Part.REASONING, "c")]
    assert splitter.push("ink>\nd <t") == [(Part.CONTENT, "d ")]
    assert splitter.push("e") == [(Part.CONTENT, "<te")]


@pytest.mark.parametrize("text, expected", [
    ("<function=f></function>", Call("f", {})),
    ("\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n\n x\ny\n\n</parameter>\n</function>\n",
     Call("f", {"a": "1", "b": "\n x\ny\n"})),
    ("<function=f><parameter=a>1</parameter></function>", Call("f", {"a": "1"})),
    ("<function=f>\n<parameter=a>\na > b </function>\n</parameter>\n</function>", Call("f", {"a": "a > b </function>"})),
    *[(text, None) for text in (
        "", "{}", "<function=f>", "<function=>\n</function>", "<function=</function>", "<function=f>x</function>",
        "<function=f><parameter=a></function>", "<function=f><parameter=a</function>", "x<function=f></function>")]])
def test_parse_call(text: str, expected: Call | None) -> None:
    assert parse_call(text) == expected


def test_openai_form() -> None:
    values = {"text": "5", "number": "5", "maybe": "null", "list": '["a", {"b": 1.5}]', "flag": "True", "bare": "1",
              "any": "None", "new": "true"}
    made = openai_call(Call("f", values), "call_1", TOOLS)
    assert (made["id"], made["type"], made["function"]["name"]) == ("call_1", "function", "f")
    assert json.loads(made["function"]["arguments"]) == {
        "text": "5", "number": 5, "maybe": "null", "list": ["a", {"b": 1.5}], "flag": True, "bare": "1",
        "any": None, "new": "true"}


@pytest.mark.parametrize("text", ["five", "", "NaN", "1e999", "[" * 100000, '"\\ud800"', "9" * 5000])
def test_values_that_are_no_json_stay_text(text: str) -> None:
    made = openai_call(Call("f", {"number": text}), "call_1", TOOLS)
    assert json.loads(made["function"]["arguments"]) == {"number": text}


def test_a_tool_that_nobody_declared() -> None:
    tools = [{"name": "g"}, {"type": "function", "function": {"name": "f"}}]
    made = openai_call(Call("g", {"number": "5"}), "call_1", tools)
    assert json.loads(made["function"]["arguments"]) == {"number": "5"}
