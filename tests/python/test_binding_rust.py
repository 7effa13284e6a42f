"""The Rust crates in examples/rust: the declarations against the header, and their own tests against an installed copy
of the library that pkg-config finds."""

import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "gates"))
from gate import BUILD, ROOT, check, counts, finish, make, run, skip, succeeds  # noqa: E402

RUST = ROOT / "examples/rust"
SYS = RUST / "qwen36-sys"
STAGE = BUILD / "stage"
PROMPT = "It was a dark night, and"


def without_layout(text):
    """Rust source without what rustfmt decides: white space, and commas at the end of a list."""
    return re.sub(r",(?=[)\]}>])", "", re.sub(r"\s", "", text))


def declarations():
    """bindings.rs and lines.rs are what update.sh makes of the header."""
    committed = (SYS / "src/bindings.rs").read_text()
    version = re.search(r"rust-bindgen ([\d.]+)", committed).group(1)
    if shutil.which("bindgen") is None or version not in run(["bindgen", "--version"]).stdout:
        skip(f"bindgen {version} is not here")
        return
    with tempfile.TemporaryDirectory() as folder:
        made = succeeds([SYS / "update.sh", BUILD / "qwen36.cdef.h", ROOT / "tests/abi/abi.c", folder], "update.sh")
        for name, path in (("bindings.rs", SYS / "src"), ("lines.rs", SYS / "tests/layout")):
            made = open(os.path.join(folder, name)).read()
            same = without_layout(made) == without_layout((path / name).read_text())
            check(same, f"{name} is not what {SYS.name}/update.sh makes of the header")


def cargo(words, **variables):
    environment = dict(os.environ, CARGO_TARGET_DIR=str(BUILD / "rust"), BUILD=str(BUILD), **variables)
    return run(["cargo", *words, "--offline", "--locked"], cwd=RUST, env=environment)


def tests():
    """cargo test, each of whose test programs says how many passed and failed."""
    library = STAGE / "usr/local/lib"
    result = cargo(["test"], PKG_CONFIG_PATH=str(library / "pkgconfig"), PKG_CONFIG_SYSROOT_DIR=str(STAGE),
                   LD_LIBRARY_PATH=str(library))
    found = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed", result.stdout, re.M)
    counts["passed"] += sum(int(passed) for passed, _ in found)
    counts["failed"] += sum(int(failed) for _, failed in found)
    passed = result.returncode == 0 and "warning" not in result.stdout
    check(passed and len(found) >= 5, "cargo test\n" + result.stdout)


def example():
    words = ["examples/demo-model", PROMPT, "20"]
    environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD))
    text = succeeds([BUILD / "rust/debug/examples/continue-text", *words], "example", env=environment)
    expected = run([BUILD / "examples/generate", "-m", words[0], "-p", PROMPT, "-n", "20", "--temp", "0", "--quiet"])
    check(text == expected.stdout, f"continue-text writes {text!r}")


def library_folder():
    """Without pkg-config, from a folder that a variable names."""
    variables = {"QWEN36_LIB_DIR": str(BUILD), "PKG_CONFIG": "false"}
    result = cargo(["build", "--quiet", "--package", "qwen36-sys", "--target-dir", BUILD / "rust-folder"], **variables)
    check(result.returncode == 0, "QWEN36_LIB_DIR\n" + result.stdout)


make("lib", "examples", "cdef")
os.environ.pop("QWEN36_LIB_DIR", None)
declarations()
if shutil.which("cargo") is None:
    skip("cargo is not here")
elif make("install", f"DESTDIR={STAGE}") is not None:
    tests()
    example()
    library_folder()
finish()
