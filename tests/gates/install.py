"""`make install DESTDIR=...`: the files that it leaves, and a program outside the tree that pkg-config alone links, in
C and in C++, with the shared library (--libs) and with the archive (--static --libs); then `make uninstall`. Another
backend than the CPU is installed beside it: it shares the header, and taking it away leaves the other as it was."""

import os
import pathlib
import shutil
import tempfile

from gate import BACKEND, CC, CXX, ROOT, check, exports, finish, make, run, skip, succeeds

MODEL = ROOT / "examples/demo-model"
VARIETY = "" if BACKEND == "cpu" else f"-{BACKEND}"
PACKAGE = "qwen36" + VARIETY


def installed(stage):
    return sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if not path.is_dir())


def pkg_config(stage, libdir, *options):
    """Flags as a program that builds against the stage gets them."""
    environment = dict(os.environ, PKG_CONFIG_PATH=str(stage / libdir / "pkgconfig"))
    prefix = (succeeds(["pkg-config", "--variable=prefix", PACKAGE], "pkg-config", env=environment) or "").strip()
    # No sysroot: what the archive needs from elsewhere lies outside of the stage.
    moved = f"--define-variable=prefix={stage}{prefix}"
    output = succeeds(["pkg-config", moved, *options, PACKAGE], "pkg-config", env=environment)
    return (output or "").split()


def continues(program, outside, environment):
    """The program continues a text; where the backend's device is missing, it says so and ends by itself."""
    result = run([program, MODEL, "Once upon a time"], cwd=outside, env=environment)
    lines = result.stdout.splitlines()
    if BACKEND != "cpu" and result.returncode == 1:
        check(any(line.startswith("load: DEVICE: ") for line in lines), f"{program.name}: {result.stdout!r}")
    else:
        check(result.returncode == 0 and len(lines) >= 2, f"{program.name} continued nothing: {result.stdout!r}")


def build_and_run(stage, libdir, outside, static):
    """Compiles tests/install/program.c in a folder outside of the tree and runs it with the demo model."""
    flags = pkg_config(stage, libdir, "--cflags", "--libs", *(["--static"] if static else []))
    for compiler, language in ((CC, "c"), (CXX, "c++")):
        program = outside / f"program-{language}{'-static' if static else ''}"
        source = outside / "program.c"
        shutil.copy(ROOT / "tests/install/program.c", source)
        if succeeds([*compiler, "-x", language, source, "-x", "none", "-o", program, *flags], "outside", cwd=outside) is None:
            continue
        uses = "libqwen36.so.0" in run(["readelf", "-d", program]).stdout
        check(uses != static, f"{program.name} {'needs' if uses else 'does not need'} the shared library")
        place = stage / libdir / PACKAGE if VARIETY else stage / libdir
        environment = dict(os.environ) if static else dict(os.environ, LD_LIBRARY_PATH=str(place))
        succeeds([program], "run", cwd=outside, env=environment)
        if (MODEL / "model.safetensors").exists():
            continues(program, outside, environment)
        else:
            skip("examples/demo-model has no weights")


def expected(libdir, includedir, docdir, package, version):
    """The files of one package."""
    place = libdir if package == "qwen36" else f"{libdir}/{package}"
    return [f"{includedir}/qwen36.h", f"{docdir}/LICENSE", f"{docdir}/NOTICE", f"{libdir}/pkgconfig/{package}.pc",
            f"{place}/libqwen36.a", *(f"{place}/libqwen36.so{end}" for end in ("", ".0", f".{version}"))]


def use(stage, libdir, outside):
    """Programs with the shared library, then with the archive: a linker prefers the former where both lie together."""
    place = stage / libdir / PACKAGE if VARIETY else stage / libdir
    globals_ = run(["nm", "-g", "--defined-only", place / "libqwen36.a"]).stdout
    given = sorted(line.split()[-1] for line in globals_.splitlines() if len(line.split()) == 3)
    check(given == exports(), "the installed archive has other global names")
    build_and_run(stage, libdir, outside, static=False)
    for path in place.glob("libqwen36.so*"):
        path.rename(outside / path.name)
    build_and_run(stage, libdir, outside, static=True)
    for path in outside.glob("libqwen36.so*"):
        path.rename(place / path.name)


def one_layout(variables, *layout):
    """Installs, uses and removes the package under a layout: the directories of libraries, header and licences."""
    libdir = layout[0]
    with tempfile.TemporaryDirectory() as name:
        stage, outside = pathlib.Path(name) / "stage", pathlib.Path(name) / "outside"
        outside.mkdir()
        if VARIETY:
            make("install", f"DESTDIR={stage}", *variables, "BACKEND=cpu")
        before = installed(stage)
        if make("install", f"DESTDIR={stage}", *variables) is None:
            return
        version = succeeds(["pkg-config", "--modversion", stage / libdir / f"pkgconfig/{PACKAGE}.pc"], "version") or ""
        wanted = sorted({*before, *expected(*layout, PACKAGE, version.strip())})
        check(installed(stage) == wanted, f"installed {installed(stage)}, expected {wanted}")
        backend = pkg_config(stage, libdir, "--variable=backend")
        check(backend == [BACKEND], f"{PACKAGE}.pc says backend={backend}")
        use(stage, libdir, outside)
        make("uninstall", f"DESTDIR={stage}", *variables)
        check(installed(stage) == before, f"uninstall leaves {installed(stage)}, expected {before}")
        if VARIETY:
            make("uninstall", f"DESTDIR={stage}", *variables, "BACKEND=cpu")
            check(installed(stage) == [], f"uninstall of both leaves {installed(stage)}")


one_layout([], "usr/local/lib", "usr/local/include", "usr/local/share/doc/libqwen36")
one_layout(["prefix=/usr", "libdir=/usr/lib/some-triplet", "includedir=/usr/include/qwen36-0", "docdir=/usr/share/doc/q"],
           "usr/lib/some-triplet", "usr/include/qwen36-0", "usr/share/doc/q")
finish()
