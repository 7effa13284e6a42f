"""`make dist` packs a tree that builds by itself, under the version of the header."""

import pathlib
import re
import tarfile
import tempfile

from gate import ROOT, check, finish, make, skip, succeeds

if not (ROOT / ".git").exists():
    skip("not a git checkout")
    finish()
header = (ROOT / "include/qwen36.h").read_text()
version = ".".join(re.findall(r"^#define QWEN36_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header, re.M))
make("dist")
archive = ROOT / f"dist/libqwen36-{version}.tar.gz"
if check(archive.exists(), f"{archive.name} is not there"):
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as tar:
        names = tar.getnames()
        check(all(name.startswith(f"libqwen36-{version}/") for name in names), "files outside of the one folder")
        for needed in ("Makefile", "include/qwen36.h", "LICENSE", "NOTICE", "lib/exports.list"):
            check(f"libqwen36-{version}/{needed}" in names, f"the archive lacks {needed}")
        tar.extractall(folder)
        make("-C", pathlib.Path(folder) / f"libqwen36-{version}", "lib", "CFLAGS=-O1")
finish()
