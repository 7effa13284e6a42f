"""The package against the header that it is made from."""

import dataclasses
import enum
import inspect
import re
import subprocess
import sys

import pytest
import qwen36
from conftest import ROOT
from qwen36 import _native, errors, model, session, template

HEADER = (ROOT / "include/qwen36.h").read_text()


def enumeration(prefix: str) -> dict[str, int]:
    """The constants of the header with a prefix, without it."""
    lib = qwen36.Library.default().lib
    found = [name for name in dir(lib) if name.startswith(prefix)]
    return {name.removeprefix(prefix): getattr(lib, name) for name in found}


def members(kind: type[enum.IntEnum]) -> dict[str, int]:
    return {member.name: member.value for member in kind}


def fields(struct: str) -> list[str]:
    names = [name for name, _ in _native.ffi.typeof(struct).fields]
    return [name for name in names if name not in ("struct_size", "reserved")]


def test_declarations_are_those_of_the_header() -> None:
    command = [sys.executable, str(ROOT / "tests/gates/make_cdef.py"), str(ROOT / "include/qwen36.h")]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert _native.CDEF.split() == made.split(), "copy build/cpu/qwen36.cdef.h of `make cdef` to qwen36/qwen36.cdef"


def test_version() -> None:
    library = qwen36.Library.default()
    major, minor, patch = re.findall(r"VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", HEADER)
    assert library.version == f"{major}.{minor}.{patch}"
    assert library.version_number == int(major) * 10000 + int(minor) * 100 + int(patch)
    assert f'version = "{library.version}"' in (ROOT / "examples/python/pyproject.toml").read_text()
    assert library.backend in ("cpu", "cuda")
    assert library.features & library.lib.QWEN36_FEATURE_MOE
    assert library.version in repr(library)


def test_a_library_by_its_path(tmp_path: object) -> None:
    with pytest.raises(OSError):
        qwen36.Library(f"{tmp_path}/libqwen36.so.0")


def test_statuses() -> None:
    expected = {name: getattr(qwen36.Library.default().lib, f"QWEN36_{name}") for name in ("OK", "PENDING", "INTERRUPTED")}
    assert members(errors.Status) == {**expected, **enumeration("QWEN36_ERROR_")}
    lib = qwen36.Library.default().lib
    assert all(_native.text(lib.qwen36_status_name(status)) == status.name for status in errors.Status)


@pytest.mark.parametrize("kind, prefix", [
    (model.Numerics, "QWEN36_NUMERICS_"), (model.KV, "QWEN36_KV_"), (model.Weights, "QWEN36_WEIGHTS_"),
    (model.CPU, "QWEN36_CPU_"), (model.LogLevel, "QWEN36_LOG_"), (session.Finish, "QWEN36_FINISH_"),
    (session.Logits, "QWEN36_LOGITS_")])
def test_enumerations(kind: type[enum.IntEnum], prefix: str) -> None:
    assert members(kind) == enumeration(prefix)


@pytest.mark.parametrize("kind, struct", [
    (model.ModelInfo, "qwen36_model_info"), (model.MemoryEstimate, "qwen36_memory_estimate"),
    (model.Stats, "qwen36_stats"), (session.Sampling, "qwen36_sampling"),
    (session.GenerateResult, "qwen36_generate_result")])
def test_results_have_the_fields_of_their_structs(kind: type, struct: str) -> None:
    assert [field.name for field in dataclasses.fields(kind)] == fields(struct)


@pytest.mark.parametrize("kind, struct, hooks", [
    (model.ModelOptions, "qwen36_model_options", {"allocator", "log", "log_user", "progress", "progress_user", "trace",
                                                  "trace_user"}),
    (session.SamplingOptions, "qwen36_sampling", set()), (template.ChatOptions, "qwen36_chat_options", {"tools_length"})])
def test_options_are_the_fields_of_their_structs(kind: type, struct: str, hooks: set[str]) -> None:
    assert set(inspect.get_annotations(kind)) == set(fields(struct)) - hooks


def test_every_function_is_used() -> None:
    package = ROOT / "examples/python/qwen36"
    sources = "".join(path.read_text() for path in package.glob("*.py"))
    declared = set(re.findall(r"\b(qwen36_\w+)\(", _native.CDEF))
    # A session has the model's sampling from the start, and a step without options has the defaults.
    unused = {"qwen36_sampling_init", "qwen36_step_options_init"}
    assert {name for name in declared if name not in sources} == unused
