"""Sessions: timelines of tokens, the steps that compute them, and what is sampled from them."""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from ._calls import Callbacks, interruptible
from ._native import Library, Owner, Tokens, ffi, int32, output, path_bytes, pointer, struct_size
from .errors import NoLogits, Status, known
from .model import Hooks, Model, Stats, read_stats
from .tokenizer import Tokenizer, set_stops


class Logits(enum.IntEnum):
    """Which logits an append wants."""

    NONE = 0
    LAST = 1
    ALL = 2


class Finish(enum.IntEnum):
    """Why a generation ended."""

    END_TOKEN = 1
    LENGTH = 2
    CONTEXT_FULL = 3
    CALLBACK = 4
    INTERRUPTED = 5
    ERROR = 6
    STOP = 7


LogitsCallback = Callable[[int, npt.NDArray[np.float32]], None]
TextCallback = Callable[[int, str], object]


class SamplingOptions(TypedDict, total=False):
    """What `Session.set_sampling` takes; docs/sampling.md of the library defines each."""

    top_k: int
    temperature: float
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logprobs: int
    seed: int
    stream: int


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The sampling options in force."""

    top_k: int
    temperature: float
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logprobs: int
    seed: int
    stream: int


@dataclasses.dataclass(frozen=True)
class Logprobs:
    """Log-probabilities of a sampled token: its own, and the most likely tokens in descending order."""

    chosen: float
    tokens: list[int]
    values: list[float]


@dataclasses.dataclass(frozen=True)
class GenerateResult:
    """What a generation did; seconds up to the first sampled token, and from there on. stop: index of the stop string
    that ended it, else -1. end_token: the end token that ended it, else -1."""

    finish: Finish
    prompt_tokens: int
    output_tokens: int
    prompt_seconds: float
    output_seconds: float
    stop: int
    end_token: int


class _Row:
    """A row of logits as numpy's array interface, which keeps alive what the row lies in."""

    def __init__(self, owner: Any, row: Any, length: int) -> None:
        self.owner = owner
        self.__array_interface__ = {"shape": (length,), "typestr": np.dtype(np.float32).str, "version": 3,
                                    "data": (int(ffi.cast("uintptr_t", row)), True)}


def _view(owner: Any, row: Any, length: int) -> npt.NDArray[np.float32]:
    return np.asarray(_Row(owner, row, length))


class _Hooks(Callbacks):
    """The callbacks of a session. Lives as long as the session may call them."""

    def __init__(self, on_logits: LogitsCallback | None) -> None:
        super().__init__()
        self.on_logits = on_logits
        self.on_text: TextCallback | None = None
        self.handle = ffi.new_handle(self)

    def install(self, options: Any) -> None:
        if self.on_logits is not None:
            options.on_logits, options.user = LOGITS_FUNCTION, self.handle

    def logits(self, position: int, row: Any, length: int) -> None:
        if self.on_logits is not None:
            self.run(self.on_logits, position, _view(None, row, length).copy())

    def text(self, token: int, piece: str) -> int:
        assert self.on_text is not None
        return int(bool(self.run(self.on_text, token, piece, failed=True)))


def _on_logits(user: Any, session: Any, position: int, row: Any, length: int) -> None:
    ffi.from_handle(user).logits(position, row, length)


def _on_text(user: Any, token: int, piece: Any, length: int) -> int:
    return int(ffi.from_handle(user).text(token, bytes(ffi.buffer(piece, length)).decode()))


LOGITS_FUNCTION = ffi.callback("qwen36_logits_fn", _on_logits)
TEXT_FUNCTION = ffi.callback("qwen36_text_fn", _on_text)


class Session(Owner):
    """One timeline of tokens. Serves one thread at a time; only `interrupt` may be called from another.

    on_logits(position, row) receives every row of an append with Logits.ALL. What was computed of one timeline serves
    all sessions of the same prefix_space (a tenant) that begin with the same tokens."""

    def __init__(self, model: Model, *, context_length: int | None = None, on_logits: LogitsCallback | None = None,
                 prefix_space: int = 0) -> None:
        hooks, options = _Hooks(on_logits), ffi.new("qwen36_session_options *")
        model.library.lib.qwen36_session_options_init(model._pointer, options, struct_size(options))
        hooks.install(options)
        options.prefix_space = prefix_space
        if context_length is not None:
            options.context_length = context_length
        made = model.library.create("qwen36_session_create", "qwen36_session_destroy", "qwen36_session",
                                    model._pointer, options)
        super().__init__(model.library, made)
        self._begin(hooks, model._hooks, model.end_tokens, Tokenizer._of_model(model))

    @classmethod
    def _restored(cls, model: Model, source: str | os.PathLike[str] | bytes | bytearray | memoryview,
                  any_numerics: bool, context_length: int | None, on_logits: LogitsCallback | None,
                  prefix_space: int) -> Session:
        hooks, options = _Hooks(on_logits), ffi.new("qwen36_session_options *")
        model.library.lib.qwen36_session_options_init(model._pointer, options, struct_size(options))
        hooks.install(options)
        options.prefix_space = prefix_space
        if context_length is not None:
            options.context_length = context_length
        how = ffi.new("qwen36_restore_options *")
        model.library.lib.qwen36_restore_options_init(how, struct_size(how))
        how.any_numerics, how.session = int(any_numerics), options
        if isinstance(source, (bytes, bytearray, memoryview)):
            memory = ffi.from_buffer(source)
            made = model.library.create("qwen36_session_restore_memory", "qwen36_session_destroy", "qwen36_session",
                                        model._pointer, memory, len(memory), how)
        else:
            made = model.library.create("qwen36_session_restore", "qwen36_session_destroy", "qwen36_session",
                                        model._pointer, path_bytes(source), how)
        session = cls.__new__(cls)
        Owner.__init__(session, model.library, made)
        session._begin(hooks, model._hooks, model.end_tokens, Tokenizer._of_model(model))
        return session

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the whole session, for `Model.restore`; the file appears whole under its name or not at all."""
        self.library.call("qwen36_session_save", self._pointer, path_bytes(path))

    def save_bytes(self) -> bytes:
        """The same as bytes."""
        size, error = ffi.new("size_t *"), self.library.error()
        status = self.library.lib.qwen36_session_save_memory(self._pointer, ffi.NULL, 0, size, error)
        if status != Status.BUFFER_TOO_SMALL:
            self.library.check(status, error)
        memory = ffi.new("char[]", size[0])
        self.library.call("qwen36_session_save_memory", self._pointer, memory, size[0], size)
        return bytes(ffi.buffer(memory, size[0]))

    def _begin(self, hooks: _Hooks, model_hooks: Hooks, end_tokens: list[int], tokenizer: Tokenizer | None) -> None:
        self._hooks, self._model_hooks = hooks, model_hooks
        self._wants_logits = False  # whether the last pending token does
        self.end_tokens = end_tokens
        self.tokenizer = tokenizer
        self.finish: Finish | None = None
        """Why the last generation ended."""
        self.stop: int | None = None
        """The index of the stop string that ended it."""

    def fork(self, *, context_length: int | None = None, on_logits: LogitsCallback | None = None) -> Session:
        """A second session at the same point, at once, whatever the length: what is computed is shared until one of the
        two goes on. Sampling options are the same; give the fork another `stream`, or it draws the same tokens.
        Capacity and callback are by default those of this session."""
        hooks, options = _Hooks(on_logits or self._hooks.on_logits), output("qwen36_session_options")
        hooks.install(options)
        options.context_length = self.capacity if context_length is None else context_length
        made = self.library.create("qwen36_session_fork", "qwen36_session_destroy", "qwen36_session", self._pointer,
                                   options)
        fork = Session.__new__(Session)
        Owner.__init__(fork, self.library, made)
        tokenizer = Tokenizer(self.library, self.tokenizer._held) if self.tokenizer is not None else None
        fork._begin(hooks, self._model_hooks, self.end_tokens, tokenizer)
        fork._wants_logits = self._wants_logits
        return fork

    # ---- the timeline

    def append(self, tokens: Tokens, logits: int = Logits.LAST) -> None:
        """Adds tokens as pending; computes nothing."""
        array = int32(tokens)
        self.library.call("qwen36_session_append", self._pointer, pointer(array, "int32_t"), len(array), logits)
        if len(array) > 0:
            self._wants_logits = logits != Logits.NONE

    def sync(self, tokens: Tokens) -> int:
        """Makes the timeline equal to these tokens, with logits wanted after the last one, by the least work that is
        exact. Returns how many leading tokens need not be computed again; the rest is pending."""
        array, reused = int32(tokens), ffi.new("size_t *")
        self.library.call("qwen36_session_sync", self._pointer, pointer(array, "int32_t"), len(array), reused)
        self._wants_logits = True
        return int(reused[0])

    def rewind(self, length: int) -> None:
        """Shortens the timeline to its first `length` tokens."""
        if length < 0:
            raise ValueError("a length is not negative")
        recomputed = length < self.computed
        dropped = length < self.length
        self.library.call("qwen36_session_rewind", self._pointer, length)
        self._wants_logits = recomputed or (self._wants_logits and not dropped)

    def reset(self) -> None:
        """Empties the timeline. Options stay."""
        self.library.call("qwen36_session_reset", self._pointer)

    def tokens(self, begin: int = 0, end: int | None = None) -> list[int]:
        """The tokens from `begin` up to `end`, by default all."""
        end = self.length if end is None else end
        if not 0 <= begin <= end:
            raise ValueError(f"tokens {begin}..{end} are no range")
        array = np.empty(end - begin, np.int32)
        self.library.call("qwen36_session_tokens", self._pointer, begin, len(array), pointer(array, "int32_t"))
        tokens: list[int] = array.tolist()
        return tokens

    @property
    def length(self) -> int:
        """Tokens in the timeline."""
        return int(self.library.lib.qwen36_session_length(self._pointer))

    @property
    def computed(self) -> int:
        """Leading tokens that have passed through the model; the others are pending."""
        return int(self.library.lib.qwen36_session_computed(self._pointer))

    @property
    def capacity(self) -> int:
        """Tokens that fit."""
        return int(self.library.lib.qwen36_session_capacity(self._pointer))

    def __len__(self) -> int:
        return self.length

    def __bool__(self) -> bool:
        return True

    def interrupt(self) -> None:
        """Asks a running step to drop this session's tokens; from any thread. Without a running step the next one
        reports INTERRUPTED at once. On a closed session it does nothing."""
        held = self._held
        if held is not None:
            self.library.lib.qwen36_session_interrupt(held)

    # ---- results

    def logits(self) -> npt.NDArray[np.float32]:
        """The logits after the last computed token, one per id of the vocabulary, padding -inf.

        A read-only view of the library's memory, borrowed until the next step, score, sync, rewind or reset on this
        session: its content changes then. `session.logits().copy()` stays. While a view exists its session does not
        end, even when it is closed."""
        place, length = ffi.new("const float **"), ffi.new("int32_t *")
        self.library.call("qwen36_session_logits", self._pointer, place, length)
        return _view(self._pointer, place[0], length[0])

    def score(self, tokens: Tokens) -> npt.NDArray[np.float32]:
        """Appends tokens, computes them, and returns for each the natural logarithm of its probability."""
        array = int32(tokens)
        values, error = np.zeros(len(array), np.float32), self.library.error()
        status = self._long("qwen36_session_score", pointer(array, "int32_t"), len(array), pointer(values, "float"),
                            error)
        self._hooks.raise_kept()
        if self.library.check(status, error) == Status.INTERRUPTED:
            raise self.library.exception(status)
        return values

    def logprobs(self) -> Logprobs:
        """Those of the last token sampled, if the sampling options asked for them."""
        chosen, count = ffi.new("float *"), ffi.new("size_t *")
        room = self.library.lib.QWEN36_LOGPROBS_MAX
        tokens, values = np.empty(room, np.int32), np.empty(room, np.float32)
        self.library.call("qwen36_session_logprobs", self._pointer, chosen, pointer(tokens, "int32_t"),
                          pointer(values, "float"), room, count)
        return Logprobs(float(chosen[0]), tokens[: count[0]].tolist(), values[: count[0]].tolist())

    def stats(self) -> Stats:
        """What this session did, and what it stands on."""
        return read_stats(self.library, "qwen36_session_get_stats", self._pointer)

    # ---- sampling

    @property
    def sampling(self) -> Sampling:
        native = self._native_sampling()
        return Sampling(*(getattr(native, field.name) for field in dataclasses.fields(Sampling)))

    def set_sampling(self, **options: Unpack[SamplingOptions]) -> None:
        """Changes the options that are named; at first they are the model's defaults. temperature=0 is greedy."""
        native = self._native_sampling()
        for name, value in options.items():
            if name not in SamplingOptions.__annotations__:
                raise TypeError(f"unknown sampling option {name!r}")
            setattr(native, name, value)
        self.library.call("qwen36_session_set_sampling", self._pointer, native)

    def _native_sampling(self) -> Any:
        native = output("qwen36_sampling")
        self.library.call("qwen36_session_get_sampling", self._pointer, native)
        return native

    def set_bias(self, bias: Mapping[int, float] | None) -> None:
        """Adds to the logits of tokens; -inf forbids one. Replaces earlier biases; None removes them."""
        bias = bias or {}
        tokens, values = int32(bias.keys()), np.fromiter(bias.values(), np.float32, len(bias))
        self.library.call("qwen36_session_set_bias", self._pointer, pointer(tokens, "int32_t"),
                          pointer(values, "float"), len(tokens))

    def set_bitmask(self, words: npt.NDArray[np.uint32] | npt.NDArray[np.int32] | None) -> None:
        """Allowed tokens: bit t % 32 of word t // 32, `info.bitmask_words` 32-bit words as constrained decoding
        libraries make them. Copied; holds until replaced; None removes it."""
        if words is None:
            self.library.call("qwen36_session_set_bitmask", self._pointer, ffi.NULL, 0)
            return
        if words.dtype not in (np.uint32, np.int32) or words.ndim != 1:
            raise TypeError("a bitmask is a vector of 32-bit words")
        array = np.ascontiguousarray(words)
        self.library.call("qwen36_session_set_bitmask", self._pointer, pointer(array, "uint32_t"), len(array))

    # ---- generation

    def generate(self, max_tokens: int = 256, *, stops: Sequence[str] = (), end_tokens: Tokens | None = None,
                 ignore_end_tokens: bool = False, skip_special: bool = True) -> Generator[str, None, Finish]:
        """Continues the timeline; an iterator over the text as it becomes complete. Computes what is pending, then
        steps and samples while the caller asks for more. A token whose text is not complete yields nothing, and a
        model without a tokenizer yields only empty texts. Stop strings end the text where one of them begins;
        end_tokens replace the model's. The sampled tokens stay in the timeline. `finish` says afterwards why it
        ended; so does the value of the generator."""
        self.finish = self.stop = None
        if stops and self.tokenizer is None:
            raise self.library.exception(Status.NO_TOKENIZER)
        decoder = self.tokenizer.decoder(skip_special=skip_special, stops=stops) if self.tokenizer is not None else None
        ends: list[int] = [] if ignore_end_tokens else int32(self.end_tokens if end_tokens is None else end_tokens).tolist()
        self._want_logits()
        output_tokens = 0
        while self.finish is None:
            self.finish = self._before_sample(output_tokens, max_tokens)
            if self.finish is not None:
                break
            token = sample([self])[0]
            output_tokens += 1
            piece = decoder.push(token) if decoder is not None else ""
            if decoder is not None and decoder.stopped is not None:
                self.finish, self.stop = Finish.STOP, decoder.stopped
            if token in ends:
                self.finish, self.stop = Finish.END_TOKEN, None
            if piece or decoder is None:
                yield piece
        if decoder is not None and (tail := decoder.finish()):
            yield tail
        return self.finish

    def _before_sample(self, output_tokens: int, max_tokens: int) -> Finish | None:
        """Computes what is pending; the reason to end here, if there is one."""
        status: Status | int = Status.PENDING
        while status == Status.PENDING:
            status = step([self])[0]
        if status == Status.INTERRUPTED:
            return Finish.INTERRUPTED
        if output_tokens >= max_tokens:
            return Finish.LENGTH
        return Finish.CONTEXT_FULL if self.length == self.capacity else None

    def _want_logits(self) -> None:
        """Logits after the last token are needed, whatever the append asked for."""
        wanted = self._wants_logits
        if self.length == self.computed > 0:
            try:
                self.logits()
                wanted = True
            except NoLogits:
                wanted = False
        if not wanted:
            self.sync(self.tokens())

    def generate_to(self, on_text: TextCallback, max_tokens: int = 256, *, stops: Sequence[str] = (),
                    end_tokens: Tokens | None = None, ignore_end_tokens: bool = False,
                    skip_special: bool = True) -> GenerateResult:
        """The same in one call of the library: on_text(token, text) receives every token with the text that became
        complete, at last token -1; something true that it returns stops the generation."""
        options, result = ffi.new("qwen36_generate_options *"), output("qwen36_generate_result")
        error = self.library.error()
        self.library.lib.qwen36_generate_options_init(options, struct_size(options))
        options.max_tokens, options.ignore_end_tokens = max_tokens, int(ignore_end_tokens)
        options.decode_flags = int(skip_special)
        kept = set_stops(options, stops)
        if end_tokens is not None:
            ids = int32(end_tokens).tolist()
            kept.append(ffi.new("int32_t[]", [*ids, 0]))  # also no end tokens have an address
            options.end_tokens, options.end_token_count = kept[-1], len(ids)
        options.on_text, options.user = TEXT_FUNCTION, self._hooks.handle
        self._hooks.on_text = on_text
        status = self._long("qwen36_generate", options, result, error)
        self._wants_logits = True
        self._hooks.raise_kept()
        self.library.check(status, error)
        self.finish, self.stop = Finish(result.finish), result.stop if result.stop >= 0 else None
        return GenerateResult(self.finish, *(getattr(result, field.name)
                                             for field in dataclasses.fields(GenerateResult)[1:]))

    def _long(self, name: str, *arguments: Any) -> int:
        """A call that computes, for this session alone."""
        function, held = getattr(self.library.lib, name), self._pointer
        return interruptible(lambda: int(function(held, *arguments)), self.interrupt,
                             lambda status: _clear_interrupts([self], [status]))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()


# ---- one iteration over sessions of one model -------------------------------------------------------------------


class _Batch:
    """The arrays of a call over sessions. Holds the sessions' pointers while it exists."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.held = [session._pointer for session in sessions]
        self.sessions = ffi.new("qwen36_session *[]", self.held)
        self.statuses = ffi.new("qwen36_status[]", len(self.held))
        self.tokens = ffi.new("int32_t[]", [-1] * len(self.held))

    def result(self) -> tuple[list[Status | int], list[int]]:
        return [known(status) for status in self.statuses], list(self.tokens)


def _clear_interrupts(sessions: Sequence[Session], statuses: Sequence[int]) -> None:
    """Takes back interrupts that came too late to be reported: a step with one set computes nothing and clears it."""
    late = [session for session, status in zip(sessions, statuses) if status != Status.INTERRUPTED]
    if late:
        batch = _Batch(late)
        late[0].library.lib.qwen36_step(batch.sessions, len(late), ffi.NULL, ffi.NULL, ffi.NULL)


def _step(sessions: Sequence[Session], max_tokens: int | None, error: Any) -> tuple[int, list[Status | int]]:
    batch, lib = _Batch(sessions), sessions[0].library.lib
    options: Any = ffi.NULL
    if max_tokens is not None:
        options = ffi.new("qwen36_step_options *", {"max_tokens": max_tokens})
        options.struct_size = struct_size(options)

    def stop() -> None:
        for session in sessions:
            session.interrupt()

    def call() -> int:
        return int(lib.qwen36_step(batch.sessions, len(sessions), options, batch.statuses, error))

    # A step of one token each is over soon enough for Ctrl-C to wait, and too short for a change of threads.
    short = all(session.length - session.computed <= 1 for session in sessions)
    status = call() if short else interruptible(call, stop, lambda _: _clear_interrupts(sessions, batch.statuses))
    return status, batch.result()[0]


def _check(library: Library, status: int, error: Any, statuses: list[Status | int], tokens: list[int]) -> None:
    if status < 0:
        exception = library.exception(status, error)
        exception.statuses, exception.tokens = statuses, tokens
        raise exception


def step(sessions: Sequence[Session], max_tokens: int | None = None) -> list[Status | int]:
    """Computes pending tokens of sessions of one model, at most max_tokens. Returns one status per session: OK when
    nothing is pending any more, PENDING, or INTERRUPTED. When a session fails the exception is its error, the
    others went on, and `exception.statuses` says how every one of them stands."""
    if not sessions:
        return []
    error = sessions[0].library.error()
    status, statuses = _step(sessions, max_tokens, error)
    for session in sessions:
        session._hooks.raise_kept()
    _check(sessions[0].library, status, error, statuses, [])
    return statuses


def sample(sessions: Sequence[Session]) -> list[int]:
    """Chooses the next token of every session and appends it as pending. When a session fails the exception is its
    error; `exception.tokens` has the tokens of the others, -1 where one failed."""
    if not sessions:
        return []
    library = sessions[0].library
    error = library.error()
    batch = _Batch(sessions)
    status = int(library.lib.qwen36_sample(batch.sessions, len(sessions), batch.tokens, batch.statuses, error))
    statuses, tokens = batch.result()
    del batch
    for session, token in zip(sessions, tokens):
        session._wants_logits = session._wants_logits or token >= 0
    _check(library, status, error, statuses, tokens)
    return tokens
