"""The environment in which bcc compiles."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocescope.analyzer.errors import CaptureError
from rocescope.probes.program import compile as compiling
from rocescope.probes.program.compile import (
    HEADERS,
    known_machine_code,
    machine_code,
    machine_code_apart,
    stub_headers,
)

# The environment in which bcc compiles.


@pytest.mark.parametrize("before", [None, "/usr/src/linux"])
def test_the_variable_is_put_back(before, monkeypatch):
    if before is None:
        monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    else:
        monkeypatch.setenv("BCC_KERNEL_SOURCE", before)
    with pytest.raises(ValueError, match="inside"), stub_headers():
        assert os.environ["BCC_KERNEL_SOURCE"] == str(HEADERS)
        raise ValueError("inside")
    assert os.environ.get("BCC_KERNEL_SOURCE") == before


def test_there_are_headers_that_only_their_owner_writes():
    files = list(HEADERS.rglob("*.h"))
    assert files and not any(file.stat().st_mode & 0o002 for file in files)


# Machine code of probes: compiled once, then from the cache, with the maps of this process.

SOURCE = """
unsigned long long pseudo(unsigned long long, unsigned long long) asm("llvm.bpf.pseudo");
static void *(*look_up)(void *map, const void *key) = (void *)1;

int probe(void *context)
{
    unsigned int key = 24; /* looks like the code of an instruction with an index */
    unsigned long long wide = 0x1800000118ull;
    unsigned int *one = look_up((void *)pseudo(1, FIRST), &key);
    unsigned long long *two = look_up((void *)pseudo(1, SECOND), &wide);

    return one && two ? *one + *two : 0;
}
"""
PROBE = ("probe",)


def text(first: int, second: int) -> str:
    return f"#define FIRST {first}\n#define SECOND {second}\n{SOURCE}"


@pytest.fixture
def compiled(live_capture: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The texts that were compiled; nothing is known from before."""
    texts = []

    def counted(text: str, functions: tuple[str, ...]) -> dict[str, bytes]:
        texts.append(text)
        return machine_code(text, functions)

    monkeypatch.setattr(compiling, "machine_code_apart", counted)
    compiling._known.cache_clear()
    yield texts
    compiling._known.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache."""
    monkeypatch.setattr(compiling, "cache_base", lambda: str(tmp_path))
    return tmp_path


def test_maps_are_those_of_the_call(compiled: list[str], folder: Path) -> None:
    for maps in ((1234, 77), (5, 1 << 30)):
        assert known_machine_code(text(0, 1), PROBE, maps) == machine_code(text(*maps), PROBE)
    assert len(compiled) == 1


def test_another_process_compiles_nothing(compiled: list[str], folder: Path) -> None:
    first = known_machine_code(text(0, 1), PROBE, (3, 4))
    compiling._known.cache_clear()
    assert known_machine_code(text(0, 1), PROBE, (3, 4)) == first
    assert len(compiled) == 1
    known_machine_code(text(1, 0), PROBE, (3, 4))
    assert len(compiled) == 2


def test_a_damaged_file_is_compiled_again(compiled: list[str], folder: Path) -> None:
    first = known_machine_code(text(0, 1), PROBE, (3, 4))
    (file,) = folder.glob("*/*")
    file.write_bytes(file.read_bytes()[:-1])
    compiling._known.cache_clear()
    assert known_machine_code(text(0, 1), PROBE, (3, 4)) == first
    assert len(compiled) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("base", [None, "/proc/none"])
def test_a_cache_that_takes_nothing_is_no_error(
    compiled: list[str], monkeypatch: pytest.MonkeyPatch, base: str | None
) -> None:
    monkeypatch.setattr(compiling, "cache_base", lambda: base)
    assert known_machine_code(text(0, 1), PROBE, (3, 4)) == machine_code(text(3, 4), PROBE)


def test_a_mistake_in_the_source_is_one_error(compiled: list[str], folder: Path) -> None:
    with pytest.raises(CaptureError, match="cannot compile"):
        known_machine_code("int probe(", PROBE, ())
    assert not list(folder.iterdir())


@pytest.mark.thorough
def test_no_compiler_stays_in_the_process(live_capture: None) -> None:
    program = f"""
from rocescope.analyzer.errors import CaptureError
from rocescope.probes.program import compile as compiling
compiling.cache_base = lambda: None
assert compiling.known_machine_code({text(0, 1)!r}, {PROBE}, (3, 4))["probe"]
try:
    compiling.known_machine_code("int probe(", {PROBE}, ())
except CaptureError as error:
    print(error)
print("LLVM" in open("/proc/self/maps").read())
"""
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    said, loaded = done.stdout.splitlines()
    assert "cannot compile" in said
    assert loaded == "False"


def test_a_compiler_that_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in ("/bin/false", "/nowhere"):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(CaptureError, match="ended without an answer"):
            machine_code_apart(SOURCE, PROBE)
