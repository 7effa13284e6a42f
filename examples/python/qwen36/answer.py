"""The text of an answer, as it comes, into reasoning, content and tool calls."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

OPEN_THINK, CLOSE_THINK, OPEN_CALL, CLOSE_CALL = "<think>", "</think>", "<tool_call>", "</tool_call>"


class Part(enum.Enum):
    """What a piece of an answer is part of."""

    REASONING = "reasoning"
    CONTENT = "content"


class Piece(NamedTuple):
    """Some text of an answer."""

    part: Part
    text: str


class Call(NamedTuple):
    """A tool call as the model wrote it: the values are text."""

    name: str
    arguments: dict[str, str]


class _State(enum.Enum):
    """Where the text stands; the value is the mark that ends it."""

    BEGIN = ""  # of the content: only white space has come
    REASONING = CLOSE_THINK
    CONTENT = OPEN_CALL
    CALL = CLOSE_CALL


class Splitter:
    """Takes text cut anywhere; gives pieces whose concatenation does not depend on the cut. What may become a mark is
    held back, and so are line breaks at the end of reasoning and content, which are no part of them. A tool call comes
    out whole, in `calls`; one that is malformed or unfinished is content, so that nothing is lost.

    reasoning: whether the text begins within <think>. tools: whether there are tools to call; a call is content
    otherwise."""

    def __init__(self, reasoning: bool, tools: bool = True) -> None:
        self.calls: list[Call] = []
        self._tools = tools
        self._state = _State.REASONING if reasoning else _State.BEGIN
        self._text = ""  # not yet looked at
        self._shown = dict.fromkeys(Part, "")
        self._breaks = dict.fromkeys(Part, "")  # line breaks that may follow it

    @property
    def reasoning(self) -> str:
        return self._shown[Part.REASONING]

    @property
    def content(self) -> str:
        return self._shown[Part.CONTENT]

    def push(self, text: str) -> list[Piece]:
        """The pieces that are certain with this text."""
        self._text += text
        pieces: list[Piece] = []
        while self._advance(pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        """The end of the text: the pieces that were held back."""
        pieces: list[Piece] = []
        if self._state is _State.CALL:
            self._text, self._state = OPEN_CALL + self._text, _State.CONTENT
        self._show(pieces, self._text)
        self._text = ""
        return pieces

    def _advance(self, pieces: list[Piece]) -> bool:
        """Goes up to the next mark; whether there was one."""
        if self._state is _State.BEGIN:
            return self._begin()
        if self._state is _State.CONTENT and not self._tools:
            text, self._text = self._text, ""
            self._show(pieces, text)
            return False
        before, mark, after = self._text.partition(self._state.value)
        if not mark:
            certain = 0 if self._state is _State.CALL else len(before) - _beginning(before, self._state.value)
            self._text = before[certain:]
            self._show(pieces, before[:certain])
            return False
        self._text = after
        if self._state is _State.CALL:
            self._take_call(pieces, before)
        else:
            self._show(pieces, before)
        self._state = _State.CALL if self._state is _State.CONTENT else _State.CONTENT
        return True

    def _begin(self) -> bool:
        """A model that was not asked to think may do so by itself."""
        text = self._text.lstrip()
        if text.startswith(OPEN_THINK):
            self._text, self._state = text.removeprefix(OPEN_THINK), _State.REASONING
        elif not OPEN_THINK.startswith(text):
            self._state = _State.CONTENT
        return self._state is not _State.BEGIN

    def _take_call(self, pieces: list[Piece], text: str) -> None:
        call = parse_call(text)
        if call is not None:
            self.calls.append(call)
        else:
            self._show(pieces, OPEN_CALL + text + CLOSE_CALL)

    def _show(self, pieces: list[Piece], text: str) -> None:
        part = Part.REASONING if self._state is _State.REASONING else Part.CONTENT
        text = self._breaks[part] + text if self._shown[part] else text.lstrip("\n")
        shown = text.rstrip("\n")
        self._breaks[part] = text[len(shown):]
        self._shown[part] += shown
        if shown:
            pieces.append(Piece(part, shown))


def _beginning(text: str, mark: str) -> int:
    """How many characters at the end of a text are how the mark begins."""
    return next(size for size in range(len(mark) - 1, -1, -1) if text.endswith(mark[:size]))


def parse_call(text: str) -> Call | None:
    """What stands within <tool_call>: <function=NAME>, for each argument <parameter=KEY> VALUE </parameter>, and
    </function>, each on a line of its own. None where the text is something else."""
    text = text.strip()
    if not (text.startswith("<function=") and text.endswith("</function>")):
        return None
    name, opened, rest = text.removeprefix("<function=").removesuffix("</function>").partition(">")
    rest = rest.lstrip()
    arguments: dict[str, str] = {}
    while opened and rest:
        if not rest.startswith("<parameter="):
            return None
        key, opened, rest = rest.removeprefix("<parameter=").partition(">")
        value, closed, rest = rest.partition("</parameter>")
        if not closed:
            return None
        arguments[key] = value.removeprefix("\n").removesuffix("\n")
        rest = rest.lstrip()
    return Call(name, arguments) if opened and name else None


def openai_call(call: Call, identity: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A tool call in OpenAI's form. A value that its tool declares as something else than a string is read as JSON;
    where it is none, it stays the text that it is."""
    types = _types(call.name, tools)
    arguments = {key: _value(text, types.get(key, "string")) for key, text in call.arguments.items()}
    function = {"name": call.name, "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": identity, "type": "function", "function": function}


def _types(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The declared types of each parameter of a tool, where there are any."""
    for tool in tools:
        function = tool.get("function", tool)
        if function.get("name") == name:
            schemas = function.get("parameters", {}).get("properties", {}).items()
            return {key: schema.get("type") or [choice.get("type") for choice in schema.get("anyOf", ())] or "string"
                    for key, schema in schemas}
    return {}


def _value(text: str, types: str | Sequence[str]) -> object:
    if "string" in types:
        return text
    words = {"True": "true", "False": "false", "None": "null"}  # how some templates write them
    try:
        value = json.loads(words.get(text, text))
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # what JSON cannot say stays text
    except (ValueError, RecursionError):
        return text
    return value
