"""`make install DESTDIR=...`: the files that it leaves, and a program outside the tree that pkg-config alone links, in
C and in C++, with the shared library (--libs) and with the archive (--static --libs); then `make uninstall`."""

import os
import pathlib
import shutil
import tempfile

from gate import CC, CXX, ROOT, check, exports, finish, make, run, skip, succeeds

MODEL = ROOT / "examples/demo-model"


def installed(stage):
    return sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if not path.is_dir())


def pkg_config(stage, libdir, *options):
    """Flags as a program that builds against the stage gets them."""
    environment = dict(os.environ, PKG_CONFIG_PATH=str(stage / libdir / "pkgconfig"), PKG_CONFIG_SYSROOT_DIR=str(stage))
    output = succeeds(["pkg-config", *options, "qwen36"], "pkg-config", env=environment)
    return (output or "").split()


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
        environment = dict(os.environ) if static else dict(os.environ, LD_LIBRARY_PATH=str(stage / libdir))
        succeeds([program], "run", cwd=outside, env=environment)
        if (MODEL / "model.safetensors").exists():
            output = succeeds([program, MODEL, "Once upon a time"], "run", cwd=outside, env=environment)
            check(output and len(output.splitlines()) >= 2, f"{program.name} continued nothing: {output!r}")
        else:
            skip("examples/demo-model has no weights")


def one_layout(variables, libdir, includedir, docdir):
    with tempfile.TemporaryDirectory() as name:
        stage, outside = pathlib.Path(name) / "stage", pathlib.Path(name) / "outside"
        outside.mkdir()
        make("install", f"DESTDIR={stage}", *variables)
        expected = [f"{includedir}/qwen36.h", f"{libdir}/libqwen36.a", f"{libdir}/libqwen36.so",
                    f"{libdir}/libqwen36.so.0", f"{libdir}/pkgconfig/qwen36.pc", f"{docdir}/LICENSE", f"{docdir}/NOTICE"]
        found = installed(stage)
        version = succeeds(["pkg-config", "--modversion", stage / libdir / "pkgconfig/qwen36.pc"], "version") or ""
        expected.append(f"{libdir}/libqwen36.so.{version.strip()}")
        check(found == sorted(expected), f"installed {found}, expected {sorted(expected)}")
        globals_ = run(["nm", "-g", "--defined-only", stage / libdir / "libqwen36.a"]).stdout
        given = sorted(line.split()[-1] for line in globals_.splitlines() if len(line.split()) == 3)
        check(given == exports(), "the installed archive has other global names")
        build_and_run(stage, libdir, outside, static=False)
        # A linker prefers the shared library where both lie side by side.
        for path in (stage / libdir).glob("libqwen36.so*"):
            path.rename(outside / path.name)
        build_and_run(stage, libdir, outside, static=True)
        for path in outside.glob("libqwen36.so*"):
            path.rename(stage / libdir / path.name)
        make("uninstall", f"DESTDIR={stage}", *variables)
        check(installed(stage) == [], f"uninstall leaves {installed(stage)}")


one_layout([], "usr/local/lib", "usr/local/include", "usr/local/share/doc/libqwen36")
one_layout(["prefix=/usr", "libdir=/usr/lib/some-triplet", "includedir=/usr/include/qwen36-0", "docdir=/usr/share/doc/q"],
           "usr/lib/some-triplet", "usr/include/qwen36-0", "usr/share/doc/q")
finish()
