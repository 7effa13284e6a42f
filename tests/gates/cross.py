"""The library compiles for aarch64, where no file of an x86 instruction set is used; the tests that need no
third-party library then run under qemu, in one process. Baseline x86-64 needs no gate: it is what every build is."""

import re
import shutil

from gate import ROOT, check, files, finish, make, run, skip, succeeds

CC = "aarch64-linux-gnu-gcc"
# Tests of code that calls the C library only; programs are static, for want of the others' arm64 packages.
TESTS = re.compile(r"test_(base|index_pool|kernels?|dims|sample|plan|threads|numbers|dtype|reference)\w*$")
BUILD = ROOT / "build/cpu-aarch64"

if shutil.which(CC) is None:
    skip(f"{CC} is not here")
    finish()
variables = [f"CC={CC}", "VARIANT=-aarch64", "CFLAGS=-O1", "LDFLAGS=-static", "INPROCESS=1"]
make("static", *variables)
names = run([CC.replace("gcc", "nm"), BUILD / "libqwen36.a"]).stdout
check("avx" not in names, "the aarch64 library holds x86 kernels")
succeeds([CC, "-std=c11", "-Iinclude", "-pedantic", "-Werror", "-fsyntax-only", "tests/abi/abi.c"], "abi.c")

tests = [path.stem for path in files("tests/unit/test_*.c") if TESTS.match(path.stem)]
if shutil.which("qemu-aarch64") is None:
    skip("qemu-aarch64 is not here")
else:
    for test in tests:
        program = BUILD / "tests" / test
        if make(program.relative_to(ROOT).as_posix(), "LIBS=-lpthread", *variables) is not None:
            result = run(["qemu-aarch64", program], timeout=600)
            check(result.returncode == 0, f"{test} on aarch64\n{result.stdout}")
finish()
