"""Style: clang-format, file length, nothing unfinished, no path of one machine. Functions of more than 60 lines
are listed, for someone to look at; they do not fail."""

import re
import shutil

from gate import ROOT, check, files, finish, run, skip, without_comments

LINES = 800
HEADER_LINES = 1200  # the public header is the specification, and one by design
FUNCTION_LINES = 60
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATH = re.compile(r"""["'\s=(](/(?:work|tmp|home|root|mnt|Users)/[^\s"']*)""")
sources = files("include/*.h", "lib/**/*.[ch]", "kernels/**/*.[ch]", "examples/**/*.[ch]",
                "examples/**/*.cpp", "tests/**/*.[ch]", "kernels/**/*.cu", "tests/**/*.cu", "tests/**/*.cpp")
others = files("Makefile", ".ci/*", "lib/exports.list", "pkgconfig/*", "examples/**/*.py", "tests/**/*.py",
               "tests/**/*.sh", "kernels/**/*.py")


def long_functions(text):
    """(name, lines) of each function: a body opens and closes in column 0."""
    lines = without_comments(text).split("\n")
    start = None
    for number, line in enumerate(lines):
        if line.startswith("{"):
            start = number
        elif line.startswith("}") and start is not None:
            if number - start - 1 > FUNCTION_LINES:
                head = next((lines[i] for i in range(start - 1, -1, -1) if "(" in lines[i]), "")
                name = re.search(r"(\w+)\s*\(", head)
                yield (name.group(1) if name else "?"), number - start - 1
            start = None


if shutil.which("clang-format") is None or " 14." not in run(["clang-format", "--version"]).stdout:
    skip("clang-format 14 is not here")
else:
    for path in sources:
        result = run(["clang-format", "--dry-run", "-Werror", path])
        check(result.returncode == 0, f"clang-format -i {path.relative_to(ROOT)}\n{result.stdout[:600]}")

for path in sources + others:
    name = path.relative_to(ROOT)
    if name.as_posix() == "tests/gates/style.py":
        continue
    text = path.read_text(errors="replace")
    count = text.count("\n")
    unfinished = [line.strip() for line in text.split("\n") if UNFINISHED.search(line)]
    paths = [match for line in text.split("\n") if "XXXXXX" not in line for match in MACHINE_PATH.findall(line)]
    most = HEADER_LINES if str(name) == "include/qwen36.h" else LINES
    check(count <= most, f"{name} has {count} lines, more than {most}")
    check(not unfinished, f"{name} is unfinished: {unfinished[:3]}")
    check(not paths, f"{name} names a path of one machine: {paths[:3]}")
    if path.suffix in (".c", ".cpp"):
        for function, length in long_functions(text):
            print(f"note: {name}: {function} has {length} lines")
finish()
