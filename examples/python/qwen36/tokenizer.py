"""The tokenizer, and the decoder that makes text of tokens as they come."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._native import Library, Owner, Tokens, ffi, int32, path_bytes, pointer, struct_size

if TYPE_CHECKING:
    from .model import Model


def utf8(text: str | bytes) -> bytes:
    """Text as bytes; lone surrogates become invalid UTF-8, which the library reads as U+FFFD."""
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)


def set_stops(options: Any, stops: Iterable[str]) -> list[Any]:
    """Sets the stop strings of an options struct. What it returns must live as long as the struct is used."""
    if isinstance(stops, str):
        raise TypeError("stops are a list of strings")
    texts = [ffi.new("char[]", utf8(stop)) for stop in stops]
    places, lengths = ffi.new("const char *[]", texts), ffi.new("size_t[]", [len(text) - 1 for text in texts])
    options.stops, options.stop_lengths, options.stop_count = places, lengths, len(texts)
    return [texts, places, lengths]


class Tokenizer(Owner):
    """Text to token ids and back. `Model.tokenizer` is that of a model; `Tokenizer.load` needs no weights."""

    @classmethod
    def load(cls, directory: str | os.PathLike[str], *, library: Library | None = None) -> Tokenizer:
        library = library or Library.default()
        made = library.create("qwen36_tokenizer_load", "qwen36_tokenizer_destroy", "qwen36_tokenizer",
                              path_bytes(directory), ffi.NULL)
        return cls(library, made)

    @classmethod
    def _of_model(cls, model: Model) -> Tokenizer | None:
        """The tokenizer that a model lends, with a reference of its own on the model."""
        lib = model.library.lib
        lent = lib.qwen36_model_tokenizer(model._pointer)
        if lent == ffi.NULL:
            return None
        reference = ffi.gc(lib.qwen36_model_retain(model._pointer), lib.qwen36_model_release)
        return cls(model.library, ffi.gc(lent, lambda _: ffi.release(reference)))

    def encode(self, text: str | bytes, *, parse_special: bool = False) -> list[int]:
        """Token ids of a text; nothing is added at begin or end. parse_special: the text of an added token, such as
        <|im_end|>, becomes that token."""
        data = utf8(text)
        ids: list[int] = self.library.fill("qwen36_tokenizer_encode", "int32_t", self._pointer, data, len(data),
                                           int(parse_special)).tolist()
        return ids

    def decode_bytes(self, ids: Tokens, *, skip_special: bool = False) -> bytes:
        """The bytes that ids stand for, which need not be whole UTF-8."""
        array = int32(ids)
        return self.library.fill("qwen36_tokenizer_decode", "char", self._pointer, pointer(array, "int32_t"),
                                 len(array), int(skip_special)).tobytes()

    def decode(self, ids: Tokens, *, skip_special: bool = False) -> str:
        """The text that ids stand for; what is not UTF-8 is U+FFFD. For tokens as they come: `Decoder`."""
        return self.decode_bytes(ids, skip_special=skip_special).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token."""
        length = ffi.new("size_t *")
        data = self.library.lib.qwen36_tokenizer_bytes(self._pointer, token, length)
        if data == ffi.NULL:
            raise KeyError(token)
        return bytes(ffi.buffer(data, length[0]))

    def token_id(self, token: str | bytes) -> int | None:
        """The id whose bytes are exactly these."""
        data = utf8(token)
        found = int(self.library.lib.qwen36_tokenizer_id(self._pointer, data, len(data)))
        return found if found >= 0 else None

    def is_special(self, token: int) -> bool:
        return bool(self.library.lib.qwen36_tokenizer_is_special(self._pointer, token))

    def __len__(self) -> int:
        """The highest id + 1."""
        return int(self.library.lib.qwen36_tokenizer_size(self._pointer))

    def decoder(self, *, skip_special: bool = True, stops: Iterable[str] = ()) -> Decoder:
        return Decoder(self, skip_special=skip_special, stops=stops)


class Decoder(Owner):
    """Tokens to text, one by one: what `push` returns is whole characters, and the pieces add up to the text. Stop
    strings end the text where one of them begins."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special: bool = True, stops: Iterable[str] = ()) -> None:
        options = ffi.new("qwen36_decoder_options *")
        tokenizer.library.lib.qwen36_decoder_options_init(options, struct_size(options))
        options.flags = int(skip_special)
        kept = set_stops(options, stops)
        made = tokenizer.library.create("qwen36_decoder_create", "qwen36_decoder_destroy", "qwen36_decoder",
                                        tokenizer._pointer, options)
        del kept
        super().__init__(tokenizer.library, made)
        self._tokenizer = tokenizer._pointer  # must outlive the decoder

    def push(self, token: int) -> str:
        """The text that is complete with this token, possibly empty."""
        return self._text("qwen36_decoder_push", token)

    def finish(self) -> str:
        """Ends the text: what was held back comes out, a character that never came whole as U+FFFD. The decoder is
        then as new."""
        return self._text("qwen36_decoder_finish")

    @property
    def stopped(self) -> int | None:
        """The index of the stop string that ended the text; also after `finish`, until the next `push`."""
        index = int(self.library.lib.qwen36_decoder_stopped(self._pointer))
        return index if index >= 0 else None

    def _text(self, function: str, *arguments: Any) -> str:
        place, length = ffi.new("const char **"), ffi.new("size_t *")
        self.library.call(function, self._pointer, *arguments, place, length)
        return bytes(ffi.buffer(place[0], length[0])).decode()
