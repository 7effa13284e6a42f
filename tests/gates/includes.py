"""The include rule: who may include what.

lib/       include/ and lib/
kernels/   lib/backend.h, lib/model/dims.h, lib/base/base.h, lib/plan/*.h, lib/os/*.h and kernels/
examples/  include/, their own folder, and cJSON
Nothing outside kernels/ includes from kernels/, but for tests and benchmarks, which look inside.
"""

import re

from gate import ROOT, check, files, finish

# Headers of the system and of the libraries that the project stands on are written in <>.
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<((?:lib|kernels|include|tests|examples)/[^>]+)>)', re.M)
ALLOWED = {
    "include": r"$^",
    "lib": r"include/|lib/",
    "kernels": r"lib/backend\.h$|lib/model/dims\.h$|lib/base/base\.h$|lib/plan/[^/]+\.h$|lib/os/[^/]+\.h$|kernels/",
    "examples": r"include/|examples/",
}


def target(path, name):
    """The file that an #include "name" of `path` means, relative to the root."""
    for base in (path.parent, ROOT / "include", ROOT):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(ROOT).as_posix()
    return name


for top, pattern in ALLOWED.items():
    for path in files(f"{top}/**/*.[ch]", f"{top}/**/*.cpp", f"{top}/**/*.cu"):
        names = [quoted or angled for quoted, angled in INCLUDE.findall(path.read_text())]
        bad = [name for name in names if not re.match(pattern, target(path, name))]
        check(not bad, f"{path.relative_to(ROOT)} includes {', '.join(bad)}")
finish()
