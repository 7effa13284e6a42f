"""Writes the header as foreign-function generators read it: make_cdef.py include/qwen36.h >qwen36.cdef.h

The header is preprocessed without its includes, attributes and extern "C". Integer constants that are macros follow
as plain #define lines, and the fixed-width types, which nothing else would declare then, come first: cffi takes
the text as it is in cdef(), and so does bindgen or any C compiler as a header.
"""

import os
import re
import shlex
import subprocess
import sys

TYPES = """typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef unsigned long size_t;
"""


def preprocess(text, *options):
    command = [*shlex.split(os.environ.get("CC", "gcc")), "-E", "-P", "-x", "c", *options, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def constants(text):
    """(name, value) of the macros of the header that are integers."""
    names = re.findall(r"^#define (QWEN36_[A-Z0-9_]+) +\S", text, re.M)
    marked = preprocess(text + "".join(f'\n"{name}" {name}' for name in names), "-DQWEN36_API=")
    for name, value in re.findall(r'^"(\w+)" (.*)$', marked, re.M):
        plain = re.sub(r"\(u?int(?:32|64)_t\)", "", value)
        if re.fullmatch(r"[\d\s()<|+-]+", plain):
            number = eval(plain)
            yield name, number % 2**64 if "uint" in value else number


header = re.sub(r"^#include.*$", "", open(sys.argv[1]).read(), flags=re.M)
header = header.replace("#define QWEN36_ERROR_INIT", "#define QWEN36_UNUSED_INIT")
print("/* Made from qwen36.h by `make cdef`. */")
print(TYPES, end="")
for name, value in constants(header):
    print(f"#define {name} {value}")
print(preprocess(header, "-DQWEN36_API="), end="")
