"""What the release library takes from and gives to the process that it lives in.

Nothing that ends the process, prints, reads the environment or installs handlers is imported; exactly the names of
lib/exports.list are exported, by the shared library and by the static archive; and no data of ours can be written,
but for what MUTABLE lists with its reason. With the CUDA backend the archive shows what our own code imports; beyond
that the shared library imports what the CUDA runtime within it needs, name by name as cuda_imports.txt lists it.
"""

import re

from gate import BACKEND, BUILD, check, exports, finish, listed, make, run, succeeds

FORBIDDEN = re.compile(
    r"^(abort|exit|_exit|_Exit|quick_exit|raise|kill|v?f?printf|puts|fputs|putchar|fputc|fwrite|perror|putc|vdprintf|"
    r"dprintf|stdout|stderr|stdin|getenv|secure_getenv|setenv|putenv|__assert\w*|__stack_chk_\w+|\w+_chk|sigaction|"
    r"signal|bsd_signal|atexit|at_quick_exit|__cxa_atexit|setlocale|chdir|umask|system|popen|syslog|longjmp|"
    r"_longjmp|rand|srand|strtok|environ|__environ|pthread_atfork|__register_atfork|__tls_get_addr|"
    r"_Z\w+|__gxx_\w+|_Unwind_\w+|__cxa_(?!finalize)\w+)$")
# cJSON keeps process-wide state, so that parsing needs one lock for the process. nvcc keeps in each object the handle
# of its kernels, and in each kernel's launch stub (which qw_launch never calls) two pointers.
MUTABLE = re.compile(r"parser_lock|_Z\w*__cudaFatCubinHandle|_Z\w*__(device_stub|nv)_\w+")
# What nvcc writes into every object so that the runtime knows its kernels.
REGISTRATION = {"atexit"} if BACKEND == "cuda" else set()
NEEDED = {"libcjson", "libpcre2-8", "libutf8proc", "libmd", "libc"}


def names(*command):
    """(type letter, name without version) of every line of nm."""
    output = succeeds(["nm", *command], "nm") or ""
    found = (line.split() for line in output.splitlines())
    return [(words[-2], words[-1].split("@")[0]) for words in found if len(words) >= 2]


def imports(file, *options):
    return {name for letter, name in names(*options, "-u", file) if letter in "Uw"}


make("lib")
shared, archive = BUILD / "libqwen36.so", BUILD / "libqwen36.a"
public = exports()
check(public == sorted(set(public)), "lib/exports.list is not sorted, or holds a name twice")

own = imports(archive)
bad = sorted(name for name in own - REGISTRATION if FORBIDDEN.match(name))
check(not bad, f"{archive.name} imports {', '.join(bad)}")
if BACKEND == "cuda":
    allowed = {name for words in listed("cuda_imports.txt") for name in words}
    bad = sorted(imports(shared, "-D") - own - allowed)
    check(not bad, f"{shared.name} imports what neither our code nor tests/gates/cuda_imports.txt names: {', '.join(bad)}")
    NEEDED |= {"ld-linux-x86-64", "ld-linux-aarch64", "libdl", "libpthread", "librt"}
else:
    bad = sorted(name for name in imports(shared, "-D") if FORBIDDEN.match(name))
    check(not bad, f"{shared.name} imports {', '.join(bad)}")

for file, options in ((shared, ["-D", "--defined-only"]), (archive, ["-g", "--defined-only"])):
    given = sorted(name for letter, name in names(*options, file) if letter != "A")
    extra, missing = sorted(set(given) - set(public)), sorted(set(public) - set(given))
    check(not extra, f"{file.name} exports what lib/exports.list lacks: {', '.join(extra)}")
    check(not missing, f"{file.name} lacks: {', '.join(missing)}")

# Writable data: symbols that lie in .data or .bss (constant tables of pointers lie in .data.rel.ro).
sections = run(["objdump", "-t", archive]).stdout
data = {line.split()[-1] for line in sections.splitlines() if re.search(r" O \.t?(data|bss)(?!\.rel\.ro)(\.|\s)", line)}
data = sorted(name for name in data if not MUTABLE.fullmatch(name))
check(not data, f"mutable global data: {', '.join(data)}")
check(" TLS " not in run(["readelf", "-sW", archive]).stdout, "thread-local data")

dynamic = run(["readelf", "-d", shared]).stdout
soname = re.search(r"SONAME.*\[(.*)\]", dynamic)
check(soname and soname.group(1) == "libqwen36.so.0", "the soname is not libqwen36.so.0")
needed = set(re.findall(r"NEEDED.*\[(.*?)\.so", dynamic))
check(needed <= NEEDED, f"needs {', '.join(sorted(needed - NEEDED))}")
check("TEXTREL" not in dynamic, "text relocations")
check("RWE" not in run(["readelf", "-lW", shared]).stdout, "an executable stack or segment")
finish()
