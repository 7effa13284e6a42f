"""Chat messages to the text, or the tokens, that the model was trained on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from ._native import Library, Owner, ffi, path_bytes, struct_size, text
from .tokenizer import Tokenizer, utf8

Messages = Sequence[Mapping[str, Any]]


class ChatOptions(TypedDict, total=False):
    """Options of a conversation; what is left out is as the template does by itself (qwen36_chat_options in the
    header). tools: a list in OpenAI's form."""

    tools: Sequence[Mapping[str, Any]] | None
    add_generation_prompt: bool
    enable_thinking: bool
    preserve_thinking: bool
    add_vision_id: bool
    allow_nearest: bool
    parse_special_in_content: bool
    reasoning_effort: str


def _json(value: object) -> bytes:
    return utf8(json.dumps(value, ensure_ascii=False))


def _native_options(library: Library, options: ChatOptions) -> tuple[Any, list[Any]]:
    """The options, and what must stay in memory with them."""
    native = ffi.new("qwen36_chat_options *")
    library.lib.qwen36_chat_options_init(native, struct_size(native))
    kept: list[Any] = []
    for name, value in options.items():
        if name not in ChatOptions.__annotations__:
            raise TypeError(f"unknown chat option {name!r}")
        if name == "tools":
            if value is None:
                continue
            data = _json(value)
            native.tools_length = len(data)
            value = data
        if isinstance(value, (str, bytes)):
            kept.append(ffi.new("char[]", utf8(value)))
            setattr(native, name, kept[-1])
        elif value is not None:
            setattr(native, name, int(bool(value)))
    return native, kept


class ChatTemplate(Owner):
    """The chat template of a checkpoint. Messages are a list of {"role", "content", ...} in OpenAI's form."""

    @classmethod
    def load(cls, directory: str | os.PathLike[str], *, library: Library | None = None) -> ChatTemplate:
        """The template of a model directory."""
        library = library or Library.default()
        return cls._create(library, "qwen36_chat_template_load", path_bytes(directory))

    @classmethod
    def parse(cls, template: str | bytes, *, library: Library | None = None) -> ChatTemplate:
        """The same from the text of a template."""
        data = utf8(template)
        return cls._create(library or Library.default(), "qwen36_chat_template_parse", data, len(data))

    @classmethod
    def _create(cls, library: Library, function: str, *arguments: Any) -> ChatTemplate:
        return cls(library, library.create(function, "qwen36_chat_template_destroy", "qwen36_chat_template",
                                           *arguments, ffi.NULL))

    @property
    def name(self) -> str:
        """ "qwen3.6" and the like; "unknown" for a template that the library does not know."""
        return text(self.library.lib.qwen36_chat_template_name(self._pointer))

    def render(self, messages: Messages, **options: Unpack[ChatOptions]) -> str:
        """The text of a conversation."""
        data = _json(messages)
        native, kept = _native_options(self.library, options)
        return self.library.fill("qwen36_chat_render", "char", self._pointer, data, len(data), native).tobytes().decode()

    def encode(self, tokenizer: Tokenizer, messages: Messages, **options: Unpack[ChatOptions]) -> list[int]:
        """The tokens of a conversation. The text of a token inside a message is ordinary text, so what a user types
        cannot end a turn."""
        data = _json(messages)
        native, kept = _native_options(self.library, options)
        ids: list[int] = self.library.fill("qwen36_chat_encode", "int32_t", self._pointer, tokenizer._pointer, data,
                                           len(data), native).tolist()
        return ids
