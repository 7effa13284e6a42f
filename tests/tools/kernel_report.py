"""What the assembler said of each kernel: tests/tools/kernel_report.py LOG... (the output of nvcc -Xptxas -v)

One line per kernel and architecture: source, architecture, registers of a thread, bytes that it spills (stores and
loads), its stack, shared memory of a block that the kernel declares (a launch may ask for more), and the kernel's name
with its template arguments.
"""

import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")
COLUMNS = "{:18} {:>5} {:>9} {:>6} {:>6} {:>7}  {}"


def number(pattern, text):
    found = pattern.search(text)
    return int(found.group(1)) if found else 0


def kernels(log):
    """(mangled name, architecture, registers, spilled bytes, stack bytes, shared bytes) of each kernel of a log."""
    text = pathlib.Path(log).read_text()
    entries = list(ENTRY.finditer(text))
    for entry, end in zip(entries, [e.start() for e in entries[1:]] + [len(text)]):
        about = text[entry.end():end]
        # Functions that were not inlined have a frame of their own before or after the kernel's.
        frames = [tuple(map(int, frame)) for frame in STACK.findall(about)]
        yield (entry.group(1), entry.group(2), number(REGISTERS, about), sum(f[1] + f[2] for f in frames),
               sum(f[0] for f in frames), number(SHARED, about))


def demangled(names):
    """Names as in the source: without parameters, result type and anonymous namespaces, and without spaces."""
    output = subprocess.run(["c++filt", "-p"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True).stdout
    plain = (re.sub(r"\(anonymous namespace\)::|^void ", "", line) for line in output.splitlines())
    return dict(zip(names, (line.replace(" ", "") for line in plain)))


def main():
    rows = [(pathlib.Path(log).stem, *kernel) for log in sys.argv[1:] for kernel in kernels(log)]
    names = demangled(sorted({row[1] for row in rows}))
    print(COLUMNS.format("source", "arch", "registers", "spills", "stack", "shared", "kernel"))
    for source, mangled, arch, registers, spills, stack, shared in rows:
        print(COLUMNS.format(source, arch, registers, spills, stack, shared, names[mangled]))


if __name__ == "__main__":
    main()
