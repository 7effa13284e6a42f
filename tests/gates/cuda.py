"""The library with the CUDA backend, on a machine without a GPU: it compiles for every architecture without a warning,
also in the general forms alone; no kernel spills more than cuda_spills.txt allows; it is of bearable size; and where there
is no device, loading a model is an error with one line of text, which leaves nothing behind.

What it imports, exports and needs is held by symbols.py, its interface by abi.py, its packages by install.py.
"""

import ctypes
import fnmatch
import os
import pathlib
import shutil
import tempfile

from gate import ROOT, check, finish, listed, make, run, succeeds

BUILD = ROOT / "build/cuda"
MODEL = ROOT / "examples/demo-model"
JUDGED = ("80", "90a", "120")
MOST_BYTES = 60 << 20
DEVICE = -70
TIMES = 50


class Error(ctypes.Structure):
    """qwen36_error"""
    _fields_ = [("struct_size", ctypes.c_uint32), ("status", ctypes.c_int32), ("message", ctypes.c_char * 504)]


def spills():
    """Every kernel of the judged architectures against the first line of the list that names it."""
    rows = [line.split() for line in (BUILD / "kernels.txt").read_text().splitlines()[1:]]
    allowed = listed("cuda_spills.txt")
    for source, arch, _, spilled, stack, _, name in rows:
        if arch not in JUDGED or source == "shim_kernels":
            continue
        lines = [words for words in allowed if fnmatch.fnmatchcase(arch, words[0]) and fnmatch.fnmatchcase(name, words[1])]
        most = [int(word) for word in lines[0][2:]] if lines else [0, 0]
        check(int(spilled) <= most[0] and int(stack) <= most[1],
              f"{name} for {arch} spills {spilled} bytes, has {stack} of stack; tests/gates/cuda_spills.txt allows {most}")
    stale = [words[1] for words in allowed if not any(fnmatch.fnmatchcase(row[6], words[1]) for row in rows)]
    check(not stale, f"tests/gates/cuda_spills.txt names kernels that are not there: {stale}")


def size():
    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder) / "stripped.so"
        shutil.copy(BUILD / "libqwen36.so", stripped)
        succeeds(["strip", stripped], "strip")
        sizes = [path.stat().st_size for path in (BUILD / "libqwen36.so", stripped)]
    print("note: libqwen36.so has {:.1f} MB, stripped {:.1f}".format(*(size / 1e6 for size in sizes)))
    check(max(sizes) <= MOST_BYTES, f"libqwen36.so has {max(sizes)} bytes, more than {MOST_BYTES}")


def held():
    """Threads and file descriptors of this process."""
    return [len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")]


def load(library):
    model, error = ctypes.c_void_p(), Error(ctypes.sizeof(Error))
    status = library.qwen36_model_load(str(MODEL).encode(), None, ctypes.byref(model), ctypes.byref(error))
    return status, model.value, error.message.decode()


def without_device():
    """In this process: a library that ended it would end the gate without its last line."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    library = ctypes.CDLL(str(BUILD / "libqwen36.so"))
    library.qwen36_backend_name.restype = ctypes.c_char_p
    check(library.qwen36_backend_name() == b"cuda", f"the backend is {library.qwen36_backend_name()}")
    status, model, text = load(library)
    check(status == DEVICE and model is None, f"loading without a device: status {status}, model {model}")
    check(len(text) > 20 and text.isprintable(), f"the text of the error: {text!r}")
    print(f"note: {text}")
    before = held()
    again = {load(library) for _ in range(TIMES)}
    check(again == {(status, model, text)}, f"loading again says otherwise: {again}")
    check(held() == before, f"threads and descriptors: {before}, after {TIMES} failures {held()}")


if make("lib", "cuda-objects", "BACKEND=cuda") is not None:
    spills()
    size()
    without_device()
make("cuda-objects", "BACKEND=cuda", "VARIANT=-general", "CUDA_FLAGS=-DQW_GENERAL_ONLY", "CUDA_ARCHS=80", "CUDA_PTX=")
finish()
