"""The model: weights, tokenizer, cache, worker threads."""

from __future__ import annotations

import dataclasses
import enum
import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from ._calls import Callbacks, interruptible
from ._native import Library, Owner, ffi, output, path_bytes, struct_size, text
from .tokenizer import Tokenizer

if TYPE_CHECKING:
    from .session import LogitsCallback, Session


class Numerics(enum.IntEnum):
    REFERENCE = 1
    FAST = 2


class KV(enum.IntEnum):
    AUTO = 0
    F32 = 1
    BF16 = 2
    I8 = 3


class Weights(enum.IntEnum):
    MAP = 1
    READ = 2


class CPU(enum.IntEnum):
    AUTO = 0
    PORTABLE = 1
    AVX2 = 2
    AVX512 = 3


class DeviceTier(enum.IntEnum):
    AUTO = 0
    GENERAL = 1


class LogLevel(enum.IntEnum):
    DEBUG = 0
    INFO = 1
    WARNING = 2


LogCallback = Callable[[int, str], None]
ProgressCallback = Callable[[int, int], object]


class ModelOptions(TypedDict, total=False):
    """Options of a model; what is left out has the library's default (qwen36_model_options in the header)."""

    numerics: int
    kv_dtype: int
    weights_access: int
    cpu_tier: int
    threads: int
    max_sessions: int
    context_length: int
    max_batch_tokens: int
    prefix_reuse: int
    cache_bytes: int
    snapshot_bytes: int
    memory_share: float
    prefix_directory: str | os.PathLike[str]
    prefix_directory_bytes: int
    device: int
    device_tier: int
    batch_invariant: int


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """Facts about a loaded model; qwen36_model_info in the header says what each is."""

    is_moe: bool
    vocab_size: int
    token_count: int
    bitmask_words: int
    hidden_size: int
    layers: int
    attention_layers: int
    heads: int
    kv_heads: int
    head_dim: int
    linear_key_heads: int
    linear_value_heads: int
    linear_key_dim: int
    linear_value_dim: int
    intermediate_size: int
    experts: int
    experts_per_token: int
    expert_size: int
    shared_expert_size: int
    tied_head: bool
    max_positions: int
    context_length: int
    max_sessions: int
    max_batch_tokens: int
    threads: int
    numerics: Numerics
    kv_dtype: KV
    cpu_tier: int
    kv_block_tokens: int
    kv_blocks: int
    bos_token: int
    pad_token: int
    snapshots: int
    parameters: int
    weight_bytes: int
    kv_token_bytes: int
    state_bytes: int


@dataclasses.dataclass(frozen=True)
class MemoryEstimate:
    """Bytes that a model would take."""

    weight_bytes: int
    cache_bytes: int
    state_bytes: int
    workspace_bytes: int
    session_bytes: int
    total_bytes: int


@dataclasses.dataclass(frozen=True)
class Stats:
    """What a model or a session did, and what it holds; qwen36_stats in the header says what each is."""

    sessions: int
    steps: int
    computed_tokens: int
    reused_tokens: int
    sampled_tokens: int
    copied_blocks: int
    block_evictions: int
    snapshot_evictions: int
    blocks: int
    held_blocks: int
    cached_blocks: int
    snapshots: int
    snapshot_room: int
    kv_bytes: int
    state_bytes: int
    disk_hits: int
    disk_writes: int
    disk_refusals: int
    schedule_seconds: float
    compute_seconds: float
    commit_seconds: float
    sample_seconds: float


def read_stats(library: Library, function: str, pointer: Any) -> Stats:
    native = output("qwen36_stats")
    library.call(function, pointer, native)
    return Stats(*(getattr(native, field.name) for field in dataclasses.fields(Stats)))


class Hooks(Callbacks):
    """The log and progress callbacks of a model. Lives as long as the model may call them."""

    def __init__(self, log: LogCallback | None, progress: ProgressCallback | None) -> None:
        super().__init__()
        self.log, self.progress = log, progress
        self.cancelled = False
        self.handle = ffi.new_handle(self)

    def cancel(self) -> None:
        self.cancelled = True

    def install(self, options: Any) -> None:
        options.progress, options.progress_user = PROGRESS_FUNCTION, self.handle
        if self.log is not None:
            options.log, options.log_user = LOG_FUNCTION, self.handle

    def on_log(self, level: int, message: str) -> None:
        if self.log is not None:
            self.run(self.log, level, message)

    def on_progress(self, done: int, total: int) -> int:
        """Whether to cancel: Ctrl-C came, a callback raised, or the callback says so."""
        wish = self.run(self.progress, done, total, failed=True) if self.progress is not None else False
        return int(self.cancelled or bool(wish))


def _on_log(user: Any, level: int, message: Any) -> None:
    ffi.from_handle(user).on_log(level, text(message))


def _on_progress(user: Any, done: int, total: int) -> int:
    return int(ffi.from_handle(user).on_progress(done, total))


LOG_FUNCTION = ffi.callback("qwen36_log_fn", _on_log)
PROGRESS_FUNCTION = ffi.callback("qwen36_progress_fn", _on_progress)


def _native_options(library: Library, options: ModelOptions) -> tuple[Any, Any]:
    """The struct, and the text that it may point to: to be kept during the call."""
    kept = None
    native = ffi.new("qwen36_model_options *")
    library.lib.qwen36_model_options_init(native, struct_size(native))
    for name, value in options.items():
        if name not in ModelOptions.__annotations__:
            raise TypeError(f"unknown model option {name!r}")
        if name == "prefix_directory":
            value = kept = ffi.new("char[]", path_bytes(cast(str, value)))
        setattr(native, name, value)
    return native, kept


def memory_estimate(directory: str | os.PathLike[str], *, library: Library | None = None,
                    **options: Unpack[ModelOptions]) -> MemoryEstimate:
    """What a model of a directory would take with these options; reads configuration and headers only."""
    library = library or Library.default()
    estimate = output("qwen36_memory_estimate")
    native, kept = _native_options(library, options)
    library.call("qwen36_memory_estimate_read", path_bytes(directory), native, estimate)
    del kept
    return MemoryEstimate(*(int(getattr(estimate, field.name)) for field in dataclasses.fields(MemoryEstimate)))


class Model(Owner):
    """A loaded checkpoint. May be used from any number of threads. Sessions and the tokenizer keep what they need of
    it: they go on working when the model is closed."""

    def __init__(self, library: Library, pointer: Any, hooks: Hooks, directory: str | os.PathLike[str]) -> None:
        super().__init__(library, pointer)
        self.directory = directory
        self._hooks = hooks
        self.info = self._read_info()
        self.end_tokens: list[int] = library.fill("qwen36_model_end_tokens", "int32_t", pointer).tolist()
        self.tokenizer = Tokenizer._of_model(self)

    @classmethod
    def load(cls, directory: str | os.PathLike[str], *, library: Library | None = None, log: LogCallback | None = None,
             progress: ProgressCallback | None = None, **options: Unpack[ModelOptions]) -> Model:
        """Loads a model directory as published. log(level, message) receives messages; progress(done, total) is
        called now and then and cancels the load when it returns something true."""
        library = library or Library.default()
        hooks = Hooks(log, progress)
        native, kept = _native_options(library, options)
        hooks.install(native)
        place, error, path = ffi.new("qwen36_model **"), library.error(), path_bytes(directory)
        status = interruptible(lambda: library.lib.qwen36_model_load(path, native, place, error), hooks.cancel,
                               lambda _: library.lib.qwen36_model_release(place[0]))
        del kept
        pointer = ffi.gc(place[0], library.lib.qwen36_model_release)
        hooks.raise_kept()
        library.check(status, error)
        return cls(library, pointer, hooks, directory)

    def _read_info(self) -> ModelInfo:
        info = output("qwen36_model_info")
        self.library.call("qwen36_model_get_info", self._pointer, info)
        values: dict[str, Any] = {field.name: getattr(info, field.name) for field in dataclasses.fields(ModelInfo)}
        values.update(is_moe=bool(info.is_moe), tied_head=bool(info.tied_head), numerics=Numerics(info.numerics),
                      kv_dtype=KV(info.kv_dtype))
        return ModelInfo(**values)

    def session(self, *, context_length: int | None = None, on_logits: LogitsCallback | None = None,
                prefix_space: int = 0) -> Session:
        """A new session; see `Session`."""
        from .session import Session

        return Session(self, context_length=context_length, on_logits=on_logits, prefix_space=prefix_space)

    def stats(self) -> Stats:
        """What all sessions did since the model was loaded, how full its memory is, and where the time went."""
        return read_stats(self.library, "qwen36_model_get_stats", self._pointer)

    def restore(self, source: str | os.PathLike[str] | bytes | bytearray | memoryview, *, any_numerics: bool = False,
                context_length: int | None = None, on_logits: LogitsCallback | None = None,
                prefix_space: int = 0) -> Session:
        """A new session that stands where the saved one stood (`Session.save`, `Session.save_bytes`): from a path, or
        from bytes. any_numerics accepts a state that another tier or numerics setting computed."""
        from .session import Session

        return Session._restored(self, source, any_numerics, context_length, on_logits, prefix_space)

    def flush_prefixes(self) -> None:
        """Writes the prefixes that are known now into prefix_directory."""
        self.library.call("qwen36_model_flush_prefixes", self._pointer)

    def clear_cache(self) -> None:
        """Forgets what is kept of timelines that no session stands on any more, and every snapshot."""
        self.library.call("qwen36_model_clear_cache", self._pointer)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()
