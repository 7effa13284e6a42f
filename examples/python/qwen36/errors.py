"""Statuses of the library, and the exceptions that its errors become."""

from __future__ import annotations

import enum
from collections.abc import Sequence


class Status(enum.IntEnum):
    """What a call returned: 0 success, positive an outcome that is no error, negative an error."""

    OK = 0
    PENDING = 1
    INTERRUPTED = 2
    ARGUMENT = -1
    STRUCT_SIZE = -2
    OUT_OF_MEMORY = -3
    BUFFER_TOO_SMALL = -4
    BUSY = -5
    FORKED = -6
    CANCELLED = -7
    INTERNAL = -8
    SYSTEM = -9
    FILE_NOT_FOUND = -20
    FILE_READ = -21
    FILE_CHANGED = -22
    JSON = -23
    CONFIG = -24
    ARCHITECTURE = -25
    ROPE_TYPE = -26
    QUANTIZATION = -27
    SAFETENSORS = -28
    MISSING_SHARD = -29
    INDEX_MISMATCH = -30
    MISSING_TENSOR = -31
    TENSOR_SHAPE = -32
    TENSOR_DTYPE = -33
    TIED_HEAD = -34
    TOKENIZER = -35
    NO_TOKENIZER = -36
    CHAT_TEMPLATE = -37
    CHAT_MESSAGES = -38
    FILE_WRITE = -39
    SNAPSHOT = -40
    SNAPSHOT_MISMATCH = -41
    TOKEN_ID = -50
    CONTEXT_FULL = -51
    CACHE_FULL = -52
    SESSIONS_FULL = -53
    NO_LOGITS = -54
    NON_FINITE = -55
    NO_CANDIDATE = -56
    DEVICE = -70
    DEVICE_LOST = -71


class Qwen36Error(Exception):
    """An error of the library.

    status    the status as a number; one that this package does not know is possible
    name      its name, such as "CONTEXT_FULL"
    message   one line of text: what, where, and the values
    statuses  after `step` and `sample`: the status of every session; the sessions without an error went on
    tokens    after `sample`: the token of every session, -1 where it failed
    """

    def __init__(self, status: int, name: str, message: str) -> None:
        super().__init__(message or name)
        self.status = status
        self.name = name
        self.message = message
        self.statuses: Sequence[int] = ()
        self.tokens: Sequence[int] = ()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.status, self.name, self.message), {"statuses": self.statuses, "tokens": self.tokens}


class InvalidArgument(Qwen36Error, ValueError):
    """A value outside its range."""


class OutOfMemory(Qwen36Error, MemoryError):
    """An allocation failed."""


class Busy(Qwen36Error):
    """Called from a callback of a call on the same model."""


class Forked(Qwen36Error):
    """The object was made by a parent process."""


class Cancelled(Qwen36Error):
    """The progress callback asked to stop."""


class FileNotFound(Qwen36Error, FileNotFoundError):
    """A model directory, or a file of it, does not exist."""


class InvalidModel(Qwen36Error):
    """The files of a model directory are damaged, contradict each other, or are of a kind that is not read."""


class NoTokenizer(Qwen36Error, FileNotFoundError):
    """The model directory has no tokenizer.json."""


class UnknownChatTemplate(Qwen36Error):
    """The chat template is none that this version of the library knows."""


class InvalidMessages(Qwen36Error, ValueError):
    """A chat request is malformed, or the template refuses it."""


class FileNotWritten(Qwen36Error, OSError):
    """A file cannot be written; what stood under its name still does."""


class InvalidSnapshot(Qwen36Error, ValueError):
    """A snapshot is damaged, cut short, or of another format."""


class InvalidToken(Qwen36Error, ValueError):
    """A token id outside the vocabulary."""


class ContextFull(Qwen36Error):
    """The session's capacity in tokens is reached."""


class CacheFull(Qwen36Error):
    """No KV block or state slot is free: release some, and repeat the call."""


class SessionsFull(Qwen36Error):
    """As many sessions exist as the model was loaded for."""


class NoLogits(Qwen36Error):
    """No logits stand at the end of the timeline: step first."""


class NoCandidate(Qwen36Error):
    """Bitmask and bias leave no token to choose."""


class DeviceFailed(Qwen36Error):
    """No usable device, or an operation on it failed (DEVICE); or it is lost, and the model with it (DEVICE_LOST)."""


EXCEPTIONS: dict[int, type[Qwen36Error]] = {
    Status.ARGUMENT: InvalidArgument,
    Status.OUT_OF_MEMORY: OutOfMemory,
    Status.BUSY: Busy,
    Status.FORKED: Forked,
    Status.CANCELLED: Cancelled,
    Status.FILE_NOT_FOUND: FileNotFound,
    **{status: InvalidModel for status in range(Status.TOKENIZER, Status.FILE_READ + 1)},
    Status.NO_TOKENIZER: NoTokenizer,
    Status.CHAT_TEMPLATE: UnknownChatTemplate,
    Status.CHAT_MESSAGES: InvalidMessages,
    Status.FILE_WRITE: FileNotWritten,
    Status.SNAPSHOT: InvalidSnapshot,
    Status.SNAPSHOT_MISMATCH: InvalidSnapshot,
    Status.TOKEN_ID: InvalidToken,
    Status.CONTEXT_FULL: ContextFull,
    Status.CACHE_FULL: CacheFull,
    Status.SESSIONS_FULL: SessionsFull,
    Status.NO_LOGITS: NoLogits,
    Status.NO_CANDIDATE: NoCandidate,
    Status.DEVICE: DeviceFailed,
    Status.DEVICE_LOST: DeviceFailed,
}


def known(status: int) -> Status | int:
    """The status as a member of Status, or the plain number when a later library gave one that is not listed."""
    try:
        return Status(status)
    except ValueError:
        return status
