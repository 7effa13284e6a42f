"""The library builds for aarch64, where no file of an x86 instruction set is used, and tests of its arithmetic run
there under qemu, in one process each. Baseline x86-64 needs no gate: it is what every build is."""

import re
import shutil

from gate import ROOT, check, files, finish, make, run, skip, succeeds

CC = "aarch64-linux-gnu-gcc"
TESTS = re.compile(r"test_(base|dtype|random|sampler|sample_op|cpu_math|reference|utf8|index_pool|hash|archive)$")
BUILD = ROOT / "build/cpu-aarch64"
LIBRARIES = ROOT / "build/arm64/usr/lib/aarch64-linux-gnu"

if shutil.which(CC) is None or not LIBRARIES.exists():
    skip(f"{CC} or build/arm64 is not here")
    finish()
tests = [path.stem for path in files("tests/unit/test_*.c") if TESTS.match(path.stem)]
make("lib", *(f"build/cpu-aarch64/tests/{test}" for test in tests), f"CC={CC}", "VARIANT=-aarch64", "CFLAGS=",
     f"LDFLAGS=-L{LIBRARIES}", "INPROCESS=1")
check("avx" not in run([CC.replace("gcc", "nm"), BUILD / "libqwen36.a"]).stdout, "x86 kernels in the aarch64 library")
succeeds([CC, "-std=c11", "-Iinclude", "-pedantic", "-Werror", "-fsyntax-only", "tests/abi/abi.c"], "abi.c")
if shutil.which("qemu-aarch64") is None:
    skip("qemu-aarch64 is not here")
    finish()
for test in tests:
    result = run(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", "-E", f"LD_LIBRARY_PATH={LIBRARIES}",
                  BUILD / "tests" / test], timeout=900)
    check(result.returncode == 0, f"{test} on aarch64\n{result.stdout}")
finish()
