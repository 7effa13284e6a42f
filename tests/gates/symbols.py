"""What the release library takes from and gives to the process that it lives in.

Nothing that ends the process, prints, reads the environment or installs handlers is imported; exactly the names of
lib/exports.list are exported, by the shared library and by the static archive; and no data of ours can be written,
but for what MUTABLE lists with its reason.
"""

import re

from gate import BUILD, check, exports, finish, make, run, succeeds

FORBIDDEN = re.compile(
    r"^(abort|exit|_exit|_Exit|quick_exit|raise|kill|v?f?printf|puts|fputs|putchar|fputc|fwrite|perror|putc|vdprintf|"
    r"dprintf|stdout|stderr|stdin|getenv|secure_getenv|setenv|putenv|__assert\w*|__stack_chk_\w+|\w+_chk|sigaction|"
    r"signal|bsd_signal|atexit|at_quick_exit|__cxa_atexit|setlocale|chdir|umask|system|popen|syslog|longjmp|"
    r"_longjmp|rand|srand|strtok|environ|__environ|pthread_atfork|__register_atfork|__tls_get_addr)$")
# cJSON keeps process-wide state, so that parsing needs one lock for the process.
MUTABLE = {"parser_lock"}


def names(*command):
    """(type letter, name without version) of every line of nm."""
    output = succeeds(["nm", *command], "nm") or ""
    found = (line.split() for line in output.splitlines())
    return [(words[-2], words[-1].split("@")[0]) for words in found if len(words) >= 2]


make("lib")
shared, archive = BUILD / "libqwen36.so", BUILD / "libqwen36.a"
listed = exports()
check(listed == sorted(set(listed)), "lib/exports.list is not sorted, or holds a name twice")

for file, options in ((shared, ["-D", "-u"]), (archive, ["-u"])):
    bad = sorted({name for letter, name in names(*options, file) if letter in "Uw" and FORBIDDEN.match(name)})
    check(not bad, f"{file.name} imports {', '.join(bad)}")

for file, options in ((shared, ["-D", "--defined-only"]), (archive, ["-g", "--defined-only"])):
    given = sorted(name for letter, name in names(*options, file) if letter != "A")
    extra, missing = sorted(set(given) - set(listed)), sorted(set(listed) - set(given))
    check(not extra, f"{file.name} exports what lib/exports.list lacks: {', '.join(extra)}")
    check(not missing, f"{file.name} lacks: {', '.join(missing)}")

# Writable data: symbols that lie in .data or .bss (constant tables of pointers lie in .data.rel.ro).
sections = run(["objdump", "-t", archive]).stdout
data = {line.split()[-1] for line in sections.splitlines() if re.search(r" O \.t?(data|bss)(?!\.rel\.ro)(\.|\s)", line)}
check(not data - MUTABLE, f"mutable global data: {', '.join(sorted(data - MUTABLE))}")
check(" TLS " not in run(["readelf", "-sW", archive]).stdout, "thread-local data")

dynamic = run(["readelf", "-d", shared]).stdout
soname = re.search(r"SONAME.*\[(.*)\]", dynamic)
check(soname and soname.group(1) == "libqwen36.so.0", "the soname is not libqwen36.so.0")
needed = set(re.findall(r"NEEDED.*\[(.*?)\.so", dynamic))
check(needed <= {"libcjson", "libpcre2-8", "libutf8proc", "libmd", "libc"}, f"needs {needed}")
check("TEXTREL" not in dynamic, "text relocations")
check("RWE" not in run(["readelf", "-lW", shared]).stdout, "an executable stack or segment")
finish()
