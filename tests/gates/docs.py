"""What the documentation names exists: functions and types (qw_*, qwen36_*, QWEN36_*, name()) in the sources, files
in the tree, make targets in the Makefile."""

import re

from gate import ROOT, check, files, finish, without_comments

PAGES = files("README.md", "lib/README.md", "kernels/README.md", "CONTRIBUTING.md", "docs/*.md", "examples/**/README.md")
SOURCES = files("include/*.h", *(f"{top}/**/*.{kind}" for top in ("lib", "kernels", "examples", "tests")
                                  for kind in ("c", "h", "cu", "cpp", "py", "rs", "toml", "sh")))
# Names that belong to others: system calls, third-party functions, wire formats.
FOREIGN = set("fork malloc calloc realloc free mmap abort exit printf getenv atexit assert signal dlopen main".split())

identifiers = set()
for source in SOURCES:
    identifiers |= set(re.findall(r"\w+", without_comments(source.read_text(), keep_literals=True)))
makefile = (ROOT / "Makefile").read_text()

for page in PAGES:
    text = page.read_text()
    name = page.relative_to(ROOT)
    own = set(re.findall(r"\b(?:qw|qwen36|QWEN36|QW)_\w*\w\b(?!\*)", text))
    own = {word for word in own if not word.endswith("_")}
    called = {word for word in re.findall(r"`(\w+)\(\)`", text) if word not in FOREIGN}
    missing = sorted(word for word in own | called if word not in identifiers and word not in makefile)
    check(not missing, f"{name} names what does not exist: {', '.join(missing)}")
    paths = set(re.findall(r"`((?:include|lib|kernels|tests|examples|docs|pkgconfig)/[\w./-]+)`", text))
    missing = sorted(path for path in paths if not (ROOT / path).exists())
    check(not missing, f"{name} names files that do not exist: {', '.join(missing)}")
    targets = set(re.findall(r"`make ([a-z][a-z-]*)", text))
    missing = sorted(word for word in targets if not re.search(rf"^[^#:=\n]*\b{word}\b[^=\n]*:", makefile, re.M))
    check(not missing, f"{name} names make targets that do not exist: {', '.join(missing)}")
finish()
