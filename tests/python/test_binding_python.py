"""The Python package in examples/python: installed by pip from the tree, its own tests against the library of the
build."""

import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "gates"))
from gate import BUILD, ROOT, check, counts, finish, make, run, succeeds  # noqa: E402

PACKAGE = ROOT / "examples/python"
TARGET = BUILD / "python"


def install():
    """From the tree, with what is installed already: no network."""
    shutil.rmtree(TARGET, ignore_errors=True)
    return succeeds([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                     "--no-deps", "--no-build-isolation", "--no-compile", "--target", TARGET, PACKAGE], "pip install")


def count(output):
    """Takes over pytest's last line, such as `1 failed, 90 passed, 2 skipped in 9.01s`."""
    last = output.rstrip().rsplit("\n", 1)[-1]
    for number, word in re.findall(r"(\d+) (passed|failed|error|skipped)", last):
        counts["failed" if word == "error" else word] += int(number)
    return bool(re.search(r"\d+ passed", last))


make("lib", "examples")
if install() is not None:
    names = {path.name for path in (PACKAGE / "qwen36").iterdir() if path.is_file()}
    found = {path.name for path in (TARGET / "qwen36").iterdir() if path.is_file()}
    check(names == found, f"installed {sorted(found)}, the tree has {sorted(names)}")
    environment = dict(os.environ, BUILD=str(BUILD), LD_LIBRARY_PATH=str(BUILD), PYTHONPATH=str(TARGET),
                       PYTHONDONTWRITEBYTECODE="1")
    result = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", PACKAGE / "tests"], env=environment)
    failed = counts["failed"]
    check(count(result.stdout), "pytest ran nothing")
    check(result.returncode == 0 or counts["failed"] > failed, f"pytest ends with {result.returncode}")
    if result.returncode != 0:
        print(result.stdout)
finish()
