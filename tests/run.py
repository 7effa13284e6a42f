"""Runs the tests: tests/run.py [STEP ...], all steps by default; `make test` and its relatives call it.

A step builds what it needs and runs programs that each count their own tests: unit test programs (Criterion, or
the in-process runner of tests/harness.c under sanitizers), gates, Python tests, shell tests of the examples,
fuzzers. The output of a program is shown only when something in it failed. The last line is
`N passed, N failed, N skipped`; the exit status is 1 when a test failed or none passed.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BACKEND = os.environ.get("BACKEND", "cpu")
JOBS = os.cpu_count() or 1
VENV = ROOT / "build/venv/bin/python"
SIMT_RECORD = ROOT / "build/simt32/instructions.bin"
ASSETS = pathlib.Path(os.environ.get("QWEN36_ASSETS", ROOT.parent / "shared/assets"))
SUMMARY = re.compile(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?")

# Every test also runs under the address and undefined sanitizers. Under the thread sanitizer, ten times slower,
# run those in which threads meet.
THREADED = ["threads", "pool", "session", "step", "schedule", "model", "generate", "laws", "concurrent", "tokenizer"]
SANITIZERS = {
    "asan": ("address,undefined", lambda name: True),
    "ubsan": ("undefined", lambda name: True),
    "tsan": ("thread", lambda name: any(word in name for word in THREADED)),
}
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "allocator_may_return_null=1:detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "second_deadlock_stack=1:allocator_may_return_null=1",
}

# Of the unit tests, those in which a model takes steps, the longest first. The others never meet a backend, or are of
# the CPU's kernels, plans and pools alone; test_model_malloc counts the allocations of the process, and the device's
# memory is none of them.
CUDA_TESTS = ("laws", "schedule", "random_sessions", "demo_model", "interpose", "golden", "demo_chat", "concurrent",
              "fork", "trace", "session", "snapshot", "stats", "stops", "api", "names")
# Not on a GPU: those that interpose on the table of operations and look at outputs, which lie on the device there.
GPU_TESTS = [name for name in CUDA_TESTS if name not in ("interpose", "random_sessions", "trace")]


class Tally:
    """Passed, failed and skipped tests, and the texts of the failures."""

    def __init__(self, passed=0, failed=0, skipped=0, texts=()):
        self.passed, self.failed, self.skipped, self.texts = passed, failed, skipped, list(texts)

    def __add__(self, other):
        return Tally(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped,
                     self.texts + other.texts)


def execute(command, timeout, **environment):
    """(exit status, output) of a command in a process group of its own; status None: it ran out of time."""
    process = subprocess.Popen([str(word) for word in command], cwd=ROOT,
                               env={**os.environ, "LOCPATH": str(ROOT / "build/locale"), **environment},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output = process.communicate(timeout=timeout)[0]
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0].decode(errors="replace")


def judged(name, status, output, counts):
    """The tally of a program from its exit status and the counts that it reported, None if it reported none."""
    passed, failed, skipped = counts or (int(status == 0), 0, 0)
    if status != 0 and failed == 0:
        failed = 1
    verdict = "ran out of time" if status is None else f"exit status {status}"
    return Tally(passed, failed, skipped, [f"---- {name}: {verdict}\n{output.rstrip()}\n"] if failed else [])


def last_summary(output):
    found = SUMMARY.findall(output)
    return tuple(int(number or 0) for number in found[-1]) if found else None


def run_program(command, timeout=900, **environment):
    status, output = execute(command, timeout, **environment)
    return judged(pathlib.Path(command[-1]).name, status, output, last_summary(output))


def run_criterion(program):
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        status, output = execute([program, "-j", JOBS, f"--json={file.name}"], 900)
        try:
            report = json.load(file)
            counts = (report["passed"], report["failed"] + report["errored"], report["skipped"])
        except (ValueError, KeyError):
            counts = None
    return judged(program.name, status, output, counts)


def together(function, items):
    """The sum of function(item), as many at a time as there are processors."""
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(function, items), Tally())


def build(*words):
    """Builds; a tally that holds nothing, or a failure."""
    variables = [f"{name}={os.environ[name]}"
                 for name in ("BACKEND", "CC", "CXX", "NVCC", "CUDA_ARCHS", "CUDA_PTX", "CFLAGS", "LDFLAGS", "V")
                 if name in os.environ and not any(word.startswith(name + "=") for word in words)]
    status, output = execute([os.environ.get("MAKE", "make"), *variables, *words], 1800)
    return Tally() if status == 0 else judged("make " + shlex.join(words), status, output, (0, 1, 0))


def programs(folder, pattern="test_*"):
    """The test programs of a build, one per source file (an old program of a deleted file is none)."""
    sources = sorted((ROOT / "tests/unit").glob(pattern + ".c"))
    return [folder / "tests" / source.stem for source in sources]


def unit():
    built = build("lib", "examples", "unit")
    return built if built.failed else together(run_criterion, programs(ROOT / "build" / BACKEND))


def sanitized(name):
    """The unit tests in one process per file, everything compiled under a sanitizer."""
    flags, chosen = SANITIZERS[name]
    folder = ROOT / f"build/{BACKEND}-{name}"
    tests = [program for program in programs(folder) if chosen(program.name)]
    targets = [program.relative_to(ROOT) for program in tests]
    built = build("lib", "examples") + build(*map(str, targets), f"VARIANT=-{name}", f"SANITIZE={flags}", "INPROCESS=1",
                                             "CFLAGS=-O1 " + os.environ.get("CFLAGS", ""))
    if built.failed:
        return built
    # The thread sanitizer wants the memory map that a process has without address randomisation.
    prefix = ["setarch", "-R"] if name == "tsan" else []
    return together(lambda test: run_program([*prefix, test], 1500, **SANITIZER_OPTIONS), tests)


def seeds(name):
    """The files that tests/fuzz/NAME.seeds lists as patterns, in the tree or (assets:PATTERN) among the assets."""
    listing = ROOT / f"tests/fuzz/{name}.seeds"
    found = []
    for line in listing.read_text().split() if listing.exists() else []:
        base, pattern = (ASSETS, line[7:]) if line.startswith("assets:") else (ROOT, line)
        found += [path for path in sorted(base.glob(pattern)) if path.is_file() and path.stat().st_size < 1 << 16]
    return found


def run_fuzzer(program):
    """One fuzzer for FUZZ_SECONDS, from its seeds and what earlier runs found interesting."""
    corpus = ROOT / "build/corpus" / program.name
    findings = ROOT / "build/findings"
    for folder in (corpus, findings):
        folder.mkdir(parents=True, exist_ok=True)
    for path in seeds(program.name):
        (corpus / f"seed-{path.parent.name}-{path.name}").write_bytes(path.read_bytes())
    seconds = int(os.environ.get("FUZZ_SECONDS", "60"))
    words = ROOT / f"tests/fuzz/{program.name}.dict"
    command = [program, f"-max_total_time={seconds}", "-timeout=25", "-rss_limit_mb=4096", "-print_final_stats=1",
               f"-artifact_prefix={findings}/{program.name}-"]
    command += [f"-dict={words}", corpus] if words.exists() else [corpus]
    status, output = execute(command, seconds * 3 + 120, **SANITIZER_OPTIONS)
    return judged(program.name, status, output, None)


def fuzz():
    folder = ROOT / f"build/{BACKEND}-fuzz"
    built = build("fuzzers", "VARIANT=-fuzz", "SANITIZE=fuzzer-no-link,address,undefined",
                  "SANITIZE_LINK=fuzzer,address,undefined", "CC=" + os.environ.get("FUZZ_CC", "clang"),
                  "CFLAGS=-O1 " + os.environ.get("CFLAGS", ""))
    if built.failed:
        return built
    sources = sorted(ROOT.glob("tests/fuzz/fuzz_*.c"))
    return together(run_fuzzer, [folder / "fuzz" / source.stem for source in sources])


def short_fuzz():
    os.environ["FUZZ_SECONDS"] = os.environ.get("SHORT_FUZZ_SECONDS", "5")
    return fuzz()


def scripts(interpreter, *patterns):
    def step():
        built = build("lib", "examples")
        if built.failed:
            return built
        found = sorted(path for pattern in patterns for path in ROOT.glob(pattern))
        return sum((run_program([interpreter, path], BUILD=f"build/{BACKEND}") for path in found), Tally())
    return step


def simt():
    """The CUDA kernels on the SIMT machine, with warps of 32 and of 64 lanes, and without its checks."""
    built = build("simt", "BACKEND=cpu")
    sources = sorted(ROOT.glob("tests/simt/test_*.c"))
    machines = ("simt32", "simt64", "simt-plain")
    found = [[ROOT / f"build/{machine}" / source.stem] for machine in machines for source in sources]
    return built if built.failed else together(run_program, found) + simt_record()


def instructions(machine, mode):
    """Runs the instructions of a machine, and keeps their results or compares them with those that are kept."""
    command = [ROOT / f"build/{machine}/instructions", mode, SIMT_RECORD]
    status, output = execute(command, 300)
    return judged(f"{machine}/instructions {mode}", status, output, last_summary(output))


def simt_record():
    """What a GPU will be compared with, by the comparison that it will meet: that finds what was spoilt."""
    kept = instructions("simt32", "keep")
    if kept.failed:
        return kept
    return instructions("simt32", "compare") + instructions("simt32", "doubt") + instructions("simt-plain", "compare")


def nvcc():
    """The library with the CUDA backend: nvcc is needed, a GPU is not."""
    built = build("lib", "cuda-objects", "cuda-tests", "BACKEND=cuda")
    if built.failed:
        return built
    gates = [ROOT / f"tests/gates/{name}.py" for name in ("cuda", "symbols", "abi", "install")]
    return sum((run_program([sys.executable, gate], BACKEND="cuda") for gate in gates), Tally())


# ---- on a GPU, by `make test-cuda` ----

def cuda_device():
    """What the following steps run on: a record of them begins with it. They are for nothing where there is none."""
    built = build("lib", "examples", "cuda-tests", *(f"build/cuda/tests/test_{name}" for name in GPU_TESTS), "BACKEND=cuda")
    built += build("build/simt32/instructions", "BACKEND=cpu")
    if built.failed:
        return built
    status, output = execute([ROOT / "build/cuda/gpu/describe"], 120)
    if status == 0:
        print(output, end="", flush=True)
    return judged("the device", status, output, None)


def cuda_instructions():
    kept = instructions("simt32", "keep")
    return kept if kept.failed else instructions("cuda/gpu", "compare")


def cuda_operations(*prefix):
    """One after another: each has the GPU to itself."""
    sources = sorted(ROOT.glob("tests/simt/test_cuda_*.c"))
    return sum((run_program([*prefix, ROOT / "build/cuda/gpu" / source.stem], 3600) for source in sources), Tally())


def cuda_models():
    return sum((run_criterion(ROOT / f"build/cuda/tests/test_{name}") for name in GPU_TESTS), Tally())


def cuda_sanitizer():
    """The tests of operations under compute-sanitizer: accesses to global memory, and races in shared memory, which the
    SIMT machine finds in its one order of threads only."""
    folders = [pathlib.Path(os.environ.get("NVCC") or "nvcc").parent, "/usr/local/cuda/bin"]
    tool = shutil.which("compute-sanitizer") or shutil.which(
        "compute-sanitizer", path=os.pathsep.join(map(str, folders)))
    if tool is None:
        print("compute-sanitizer is not installed")
        return Tally(skipped=1)
    return sum((cuda_operations(tool, "--tool", check, "--error-exitcode", "77", "--report-api-errors", "no")
                for check in ("memcheck", "racecheck")), Tally())


def cuda():
    """Whole models on the CUDA backend; the SIMT machine pretends the device."""
    names = [f"test_{name}" for name in CUDA_TESTS] + [test.stem for test in sorted(ROOT.glob("tests/cuda/test_*.c"))]
    tests = [ROOT / "build/cuda-simt/tests" / name for name in names]
    built = build("lib", "examples", *(str(test.relative_to(ROOT)) for test in tests), "BACKEND=cuda-simt")
    if built.failed:
        return built
    return together(run_criterion, tests) + run_program(["sh", "tests/examples/examples.sh"], BUILD="build/cuda-simt")


GATES = ("abi", "symbols", "header", "includes", "style", "docs", "install", "dist", "cross")
STEPS = {
    "unit": unit,
    "simt": simt,
    "cuda": cuda,
    "nvcc": nvcc,
    "gates": scripts(sys.executable, *(f"tests/gates/{name}.py" for name in GATES)),
    "python": scripts(VENV, "tests/python/test_*.py", "tests/golden/test_*.py"),
    "examples": scripts("sh", "tests/examples/*.sh"),
    "short-fuzz": short_fuzz,
    "asan": lambda: sanitized("asan"),
    "tsan": lambda: sanitized("tsan"),
}
CUDA_STEPS = {
    "cuda-device": cuda_device,
    "cuda-instructions": cuda_instructions,
    "cuda-operations": cuda_operations,
    "cuda-models": cuda_models,
    "cuda-sanitizer": cuda_sanitizer,
}
MORE_STEPS = {
    **CUDA_STEPS,
    "ubsan": lambda: sanitized("ubsan"),
    "fuzz": fuzz,
    "check-abi": scripts(sys.executable, "tests/gates/abi.py"),
    "check-symbols": scripts(sys.executable, "tests/gates/symbols.py"),
    "check-header": scripts(VENV, "tests/gates/header.py", "tests/python/test_cdef.py"),
    "check-style": scripts(sys.executable, *(f"tests/gates/{name}.py" for name in ("style", "includes", "docs"))),
}


def main():
    total = Tally()
    for name in [step for word in sys.argv[1:] or STEPS for step in (CUDA_STEPS if word == "test-cuda" else [word])]:
        begin = time.monotonic()
        tally = {**STEPS, **MORE_STEPS}[name]()
        print("".join(tally.texts), end="")
        failed = f"  {tally.failed} FAILED" if tally.failed else ""
        print(f"{name:14} {tally.passed:5} ok  {tally.skipped:3} skipped {time.monotonic() - begin:6.0f} s{failed}",
              flush=True)
        total += tally
        if name == "cuda-device" and tally.failed:
            break
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
