"""The library as cffi sees it: the header's declarations, the loaded object, pointers with an owner.

Lifetimes rest on one rule. A pointer that the library gave away is a cffi object with the library's destructor, and
the C object lives as long as anything refers to that: a wrapper that is open, a call that is running, a view of
logits. Closing a wrapper only drops its reference, so it is safe at any time, from any thread and from callbacks.
"""

from __future__ import annotations

import importlib.resources
import os
from collections.abc import Iterable
from typing import Any

import cffi
import numpy as np
import numpy.typing as npt

from .errors import EXCEPTIONS, Qwen36Error, Status, known

# Made from the header by `make cdef`; see the README of this package.
CDEF = importlib.resources.files(__package__).joinpath("qwen36.cdef").read_text()
SONAME = "libqwen36.so.0"
DTYPES = {"int32_t": np.int32, "char": np.uint8}

ffi: Any = cffi.FFI()
ffi.cdef(CDEF)

Tokens = Iterable[int] | npt.NDArray[np.integer[Any]]


class Library:
    """The shared library. `path` names a file; without it the loader searches where it always does: LD_LIBRARY_PATH,
    the system's folders."""

    _default: Library | None = None

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = os.fspath(path) if path is not None else SONAME
        self.lib: Any = ffi.dlopen(self.path)
        if self.version_number // 10000 != self.lib.QWEN36_VERSION_MAJOR:
            raise OSError(f"{self.path} is version {self.version}, which this package is not made for")

    @classmethod
    def default(cls) -> Library:
        """The library that is taken where none is given."""
        if cls._default is None:
            cls._default = cls()
        return cls._default

    @property
    def version(self) -> str:
        return text(self.lib.qwen36_version_string())

    @property
    def version_number(self) -> int:
        return int(self.lib.qwen36_version_number())

    @property
    def backend(self) -> str:
        """ "cpu" or "cuda"."""
        return text(self.lib.qwen36_backend_name())

    @property
    def features(self) -> int:
        """The bits of QWEN36_FEATURE_*."""
        return int(self.lib.qwen36_features())

    def __repr__(self) -> str:
        return f"<qwen36.Library {self.path!r}: {self.version}, {self.backend}>"

    def error(self) -> Any:
        """A new qwen36_error for one call."""
        return output("qwen36_error")

    def check(self, status: int, error: Any) -> Status | int:
        """The status when it is no error; else the exception that it stands for."""
        if status < 0:
            raise self.exception(status, error)
        return known(status)

    def exception(self, status: int, error: Any = None) -> Qwen36Error:
        message = text(error.message) if error is not None else ""
        return EXCEPTIONS.get(status, Qwen36Error)(status, text(self.lib.qwen36_status_name(status)), message)

    def call(self, function: str, *arguments: Any) -> Status | int:
        """Calls a function whose last parameter is the error, and raises what it reports."""
        error = self.error()
        return self.check(getattr(self.lib, function)(*arguments, error), error)

    def create(self, function: str, destroy: str, kind: str, *arguments: Any) -> Any:
        """The object that a function gives through its last parameter but the error, with its destructor."""
        place = ffi.new(f"{kind} **")
        self.call(function, *arguments, place)
        return ffi.gc(place[0], getattr(self.lib, destroy))

    def fill(self, function: str, kind: str, *arguments: Any) -> npt.NDArray[Any]:
        """What a function writes into a buffer of the caller: its last parameters are buffer, capacity, the place for
        the count, and the error."""
        count = ffi.new("size_t *")
        array: npt.NDArray[Any] = np.empty(256, DTYPES[kind])
        while True:
            error = self.error()
            status = getattr(self.lib, function)(*arguments, pointer(array, kind), len(array), count, error)
            if status != Status.BUFFER_TOO_SMALL and count[0] <= len(array):
                self.check(status, error)
                return array[: count[0]]
            array = np.empty(count[0], DTYPES[kind])


class Owner:
    """What every wrapper shares: a pointer until it is closed."""

    def __init__(self, library: Library, pointer: Any) -> None:
        self.library = library
        self._held: Any = pointer

    @property
    def _pointer(self) -> Any:
        if self._held is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._held

    @property
    def closed(self) -> bool:
        return self._held is None

    def close(self) -> None:
        """Gives the object back. May be called again, and at any time: a call that is running finishes first."""
        self._held = None


def text(characters: Any) -> str:
    return bytes(ffi.string(characters)).decode(errors="replace")


def struct_size(struct: Any) -> int:
    return int(ffi.sizeof(ffi.typeof(struct).item))


def output(name: str) -> Any:
    """A zeroed struct with its size."""
    struct = ffi.new(f"{name} *")
    struct.struct_size = struct_size(struct)
    return struct


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    return os.fsencode(path)


def int32(values: Tokens) -> npt.NDArray[np.int32]:
    """Token ids as the library reads them. A copy unless they are just that already."""
    if not isinstance(values, np.ndarray):
        values = list(values)
    if len(values) == 0:
        return np.zeros(0, np.int32)
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError("token ids are a sequence of integers")
    if array.min() < -(2**31) or array.max() >= 2**31:
        raise OverflowError("a token id does not fit into 32 bits")
    return np.ascontiguousarray(array, np.int32)


def pointer(array: npt.NDArray[Any], kind: str) -> Any:
    """The elements of an array as a C pointer, which keeps the array alive."""
    return ffi.from_buffer(f"{kind}[]", array)
