"""Writes the baseline of the binary interface, tests/abi/abi.c and tests/abi/libqwen36.abi, from the header and
the shared library of the present build. To be run after an addition to the interface, and its diff to be read:
what stood there before may not change while the soname stays (docs/abi.md)."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "gates"))
from gate import BUILD, CC, ROOT, make, succeeds  # noqa: E402

HEAD = """/* The baseline of the binary interface: sizes, offsets and constants of qwen36.h, asserted when this file is
 * compiled. Written by tests/abi/update.py; lines are added by a new version, never changed (docs/abi.md). */
#include "qwen36.h"

#define SIZE(type, size) _Static_assert(sizeof(type) == (size), #type)
#define FIELD(type, member, offset, size)                                                                    \\
    _Static_assert(offsetof(type, member) == (offset) && sizeof(((type *)0)->member) == (size), #member)
#define CONSTANT(name, value) _Static_assert((name) == (value), #name)
"""


def interface():
    """({struct: [members]}, [constants]) of the header, in its order."""
    text = (BUILD / "qwen36.cdef.h").read_text()
    structs = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", text, re.S):
        structs[name] = re.findall(r"(\w+)\s*(?:\[\w+\])?;", body)
    names = re.findall(r"^#define (\w+)", text, re.M)
    for body in re.findall(r"^enum \{(.*?)\};", text, re.M | re.S):
        names += re.findall(r"(\w+) =", body)
    return structs, names


def measured(structs, names):
    """The lines of abi.c, measured by a program."""
    lines = ['#include "qwen36.h"', "#include <stdio.h>", "int main(void) {"]
    for struct, members in structs.items():
        lines.append(f'printf("\\nSIZE({struct}, %zu);\\n", sizeof({struct}));')
        for member in members:
            lines.append(f'printf("FIELD({struct}, {member}, %zu, %zu);\\n", offsetof({struct}, {member}),'
                         f" sizeof((({struct} *)0)->{member}));")
    lines.append('printf("\\n");')
    lines += [f'printf({name} > 0 && (long long){name} < 0 ? "CONSTANT({name}, 0x%llx);\\n" :'
              f' "CONSTANT({name}, %lld);\\n", (long long){name});' for name in names]
    lines.append("return 0; }")
    program = BUILD / "measure-abi"
    subprocess.run([*CC, "-I", ROOT / "include", "-x", "c", "-", "-o", program], input="\n".join(lines), text=True,
                   check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def abidw(library, output):
    return succeeds(["abidw", "--headers-dir", ROOT / "include", "--drop-private-types", "--exported-interfaces-only",
                     "--no-show-locs", "--no-corpus-path", "--no-comp-dir-path", "--no-elf-needed",
                     "--type-id-style", "hash", "--out-file", output, library], "abidw")


if __name__ == "__main__":
    make("lib", "cdef")
    (HERE / "abi.c").write_text(HEAD + measured(*interface()))
    abidw(BUILD / "libqwen36.so", HERE / "libqwen36.abi")
