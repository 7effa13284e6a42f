"""The header stands alone: C11, C17, C++11 and C++17, by gcc and clang, pedantic and without a warning; it includes
<stddef.h> and <stdint.h> only, and declares exactly the names of lib/exports.list."""

import re
import shutil
import tempfile

from gate import CC, CXX, ROOT, check, exports, finish, skip, succeeds, without_comments

WARNINGS = "-Wall -Wextra -Wconversion -Wshadow -Wpedantic -pedantic -Werror -fsyntax-only".split()
header = ROOT / "include/qwen36.h"
text = header.read_text()
code = without_comments(text)

compilers = [(CC, "c", ("c11", "c17")), (CXX, "c++", ("c++11", "c++17")), (["clang"], "c", ("c11", "c17")),
             (["clang"], "c++", ("c++11", "c++17"))]
with tempfile.NamedTemporaryFile("w", suffix=".h") as source:
    # Twice: include guards.
    source.write(f'#include "{header}"\n#include "{header}"\n')
    source.flush()
    for compiler, language, standards in compilers:
        if shutil.which(compiler[0]) is None:
            skip(f"{compiler[0]} is not here")
            continue
        extra = ["-Wold-style-cast"] if language == "c++" and compiler[0] != "clang" else []
        for standard in standards:
            succeeds([*compiler, f"-std={standard}", *WARNINGS, "-x", language, source.name], standard)

included = set(re.findall(r"#\s*include\s*(\S+)", text))
check(included == {"<stddef.h>", "<stdint.h>"}, f"qwen36.h includes {included}")
declared = sorted(re.findall(r"QWEN36_API\s[^;(]*?\b(qwen36_\w+)\s*\(", code))
check(declared == exports(), f"header and lib/exports.list differ: {set(declared) ^ set(exports())}")
body = re.sub(r"^\s*#.*?[^\\]$", "", code, flags=re.M | re.S)
for word in ("bool", "FILE", "long", "inline", "wchar_t"):
    check(not re.search(rf"\b{word}\b", body), f"qwen36.h uses {word}")
check("..." not in body, "qwen36.h declares a function with variable arguments")
check(not re.search(r"^\s*\w[\w ]*\w\s*:\s*\d+\s*;", body, re.M), "qwen36.h declares a bit-field")
finish()
