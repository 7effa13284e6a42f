"""`make cdef` writes a header that cffi and a C compiler (so bindgen too) read unchanged, and through which the shared
library can be called: sizes as in C, every exported function, every constant, an error with its text."""

import pathlib
import sys

import cffi

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gates"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "abi"))
from gate import BUILD, check, exports, finish, make, succeeds  # noqa: E402
from update import interface  # noqa: E402

make("shared", "cdef")
text = (BUILD / "qwen36.cdef.h").read_text()
check("__attribute__" not in text and "extern" not in text and "#include" not in text, "not plain declarations")
for compiler in ("gcc", "clang"):
    succeeds([compiler, "-std=c11", "-fsyntax-only", "-x", "c", BUILD / "qwen36.cdef.h"], "as a header")
    succeeds([compiler, "-std=c11", "-fsyntax-only", "-include", "stdint.h", "-include", "stddef.h", "-x", "c",
              BUILD / "qwen36.cdef.h"], "beside the system's types")

ffi = cffi.FFI()
ffi.cdef(text)
library = ffi.dlopen(str(BUILD / "libqwen36.so"))
missing = [name for name in exports() if not hasattr(library, name)]
check(not missing, f"cffi does not find {missing}")
structs, names = interface()
missing = [name for name in names if not hasattr(library, name)]
check(not missing, f"cffi does not know {missing}")
asserted = (BUILD.parents[1] / "tests/abi/abi.c").read_text()
for struct in structs:
    check(f"SIZE({struct}, {ffi.sizeof(struct)});" in asserted, f"{struct} has another size in cffi")

version = "{}.{}.{}".format(library.QWEN36_VERSION_MAJOR, library.QWEN36_VERSION_MINOR, library.QWEN36_VERSION_PATCH)
check(ffi.string(library.qwen36_version_string()).decode() == version, "another version in library and header")
check(library.qwen36_version_number() == library.QWEN36_VERSION_NUMBER, "another version number in the library")

options = ffi.new("qwen36_model_options *")
library.qwen36_model_options_init(options, ffi.sizeof("qwen36_model_options"))
check(options.struct_size == ffi.sizeof("qwen36_model_options"), "model_options_init leaves struct_size")
check(options.max_sessions == 4 and options.threads >= 1, "model_options_init leaves out defaults")
model = ffi.new("qwen36_model **")
error = ffi.new("qwen36_error *")
error.struct_size = ffi.sizeof("qwen36_error")
status = library.qwen36_model_load(b"no/such/directory", options, model, error)
check(status == library.QWEN36_ERROR_FILE_NOT_FOUND and error.status == status, f"loading nothing gives {status}")
check(b"no/such/directory" in ffi.string(error.message), "the error does not name the directory")
check(model[0] == ffi.NULL, "a failed load leaves a model")
finish()
