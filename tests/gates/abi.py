"""The binary interface equals its baseline: tests/abi/abi.c compiles (sizes, offsets, constants), every struct and
constant of the header stands in it, and abidiff finds no difference from tests/abi/libqwen36.abi. The version of
the library is no part of the interface."""

import shutil
import sys

from gate import BUILD, CC, ROOT, check, finish, make, run, skip, succeeds

sys.path.insert(0, str(ROOT / "tests/abi"))
from update import interface  # noqa: E402

make("lib", "cdef")
baseline = ROOT / "tests/abi/abi.c"
succeeds([*CC, "-std=c11", "-Iinclude", "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", baseline], "abi.c")

structs, names = interface()
text = baseline.read_text()
for struct, members in structs.items():
    check(f"SIZE({struct}," in text, f"abi.c lacks {struct}: run tests/abi/update.py")
    missing = [member for member in members if f"FIELD({struct}, {member}," not in text]
    check(not missing, f"abi.c lacks of {struct}: {missing}")
missing = [name for name in names if f"CONSTANT({name}," not in text]
check(not missing, f"abi.c lacks {missing}")

if shutil.which("abidiff") is None:
    skip("abidiff is not here")
else:
    result = run(["abidiff", "--headers-dir2", "include", "--drop-private-types", "--exported-interfaces-only",
                  "--no-show-locs",
                  "tests/abi/libqwen36.abi", BUILD / "libqwen36.so"])
    check(result.returncode == 0, f"abidiff: the interface differs from its baseline\n{result.stdout}")
finish()
