"""Kernels are cached on disk; from there they run without numba, and do exactly the same."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
import pytest
from examples import first
from numba.core import codegen as numba_codegen

from rocescope.kernels import kernel as kernels
from rocescope.kernels.kernel import Int, kernel, pointer_to, prefetch_item, subkernel
from rocescope.kernels.numba_side import compiled_for, compiler_lock, dispatcher
from rocescope.kernels.records import NamedTuple

# Kernels are cached on disk; from there they run without numba, and do exactly the same.

# Kernels are cached on disk; from there they run without numba, and do exactly the same.

MODULE = """
import numpy as np
from rocescope.kernels.kernel import inlined, kernel, subkernel

@inlined
def element(values, index):
    return values[index]

@subkernel
def pass_on(values, index):
    return element(values, index)

@kernel
def outer(values, index):
    return pass_on(values, index)

print(outer(np.arange(3), 2))
outer(np.arange(3), 3)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["0", pytest.param("1", marks=pytest.mark.thorough)])
def test_bounds_are_checked_when_asked_whatever_is_cached(tmp_path: Path, first: str) -> None:
    module = tmp_path / "kernels.py"
    module.write_text(MODULE)

    def run(checked: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"ROCESCOPE_BOUNDSCHECK": checked}
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")
        command = [sys.executable, str(module)]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    second = "1" if first == "0" else "0"
    for checked in (first, second, first):
        done = run(checked)
        assert done.stdout == "2\n"
        assert ("IndexError" in done.stderr) == (checked == "1")
    assert list((tmp_path / "cache").rglob("*.nbi"))


CALLS = """
import sys
import numpy as np
from typing import NamedTuple
from rocescope.kernels.kernel import callback, function_at, kernel, pointer_to, subkernel

class State(NamedTuple):
    counts: np.ndarray
    last: np.ndarray

@subkernel
def halved(value, by):
    return value // by

@kernel
def note(state, values, by):
    for i in range(len(values)):
        state.counts[halved(values[i], by) & 3] += 1
        state.last[0] = values[i]
    return len(values), state.last[0]

@kernel
def double(values):
    for i in range(len(values)):
        values[i] += values[i]

@kernel
def sums(values):
    return values + values

def of_two():
    from numba import types
    return types.int64(types.int64, types.int64)

at_address = function_at(of_two)

@subkernel
def added(a, b):
    return a + b

@callback(of_two)
def multiplied(a, b):
    return a * b

@kernel
def folded(values, address):
    function = at_address(address)
    total = np.int64(1)
    for value in values:
        total = function(total, value)
    return total

state = State(np.zeros(4, np.int64), np.zeros(1, np.int64))
print(note(state, np.arange(9), 2), state)
for values in (np.arange(3), np.arange(3.0), np.arange(6.0)[::2]):
    double(values)
    print(values)
values = np.arange(2, 6)
assert folded(values, pointer_to(added, of_two)) == 15
assert folded(values, multiplied()) == 120
assert added(2, 3) == 5  # also without its address
print("numba" in sys.modules, file=sys.stderr)
try:
    note(state, np.arange(9), 0)  # numba makes the exception
except ZeroDivisionError as error:
    print(repr(error))
print(sums(np.arange(3)))  # new arrays need numba
"""


@pytest.mark.thorough
def test_a_later_run_does_the_same_without_numba(tmp_path: Path) -> None:
    module = tmp_path / "kernels.py"
    module.write_text(CALLS)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> tuple[str, str]:
        command = [sys.executable, str(module)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return done.stdout, done.stderr.strip()

    compiled = run()
    assert "ZeroDivisionError" in compiled[0]
    assert run() == (compiled[0], "False")

    images = sorted((tmp_path / "cache").rglob("*.code"))
    assert len(images) == 8
    for image, content in zip(images, (b"", b"damaged", images[0].read_bytes()[:-1]), strict=False):
        image.write_bytes(content)
    assert run() == (compiled[0], "True")  # from numba's own cache
    assert run() == (compiled[0], "False")


FAILURES = {
    "a missing version file": "machine_code._numba_folder = lambda: '/nowhere'",
    "a moved extension": "machine_code.EXTENSION_SUFFIXES = []",
    "no LLVM": "machine_code._linker = lambda: 1 / 0",
    "odd names": "machine_code._address = lambda name: None",
    "an unknown processor": "machine_code.host = lambda: 1 / 0",
    "no cache at all": "kernel.cache_base = lambda: None",
}


def run_after(code: str, folder: Path, cache: Path) -> tuple[str, str]:
    """What the module of `CALLS` prints after some code, and whether it imported numba."""
    code = (
        f"import runpy\n{code}\nrunpy.run_path({str(folder / 'kernels.py')!r}, run_name='__main__')"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout, done.stderr.strip()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the module of `CALLS` and its cache, and what the module prints."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "kernels.py").write_text(CALLS)
    printed, _ = run_after("", folder, folder / "cache")
    assert run_after("", folder, folder / "cache") == (printed, "False")
    return folder, printed


@pytest.mark.thorough
@pytest.mark.parametrize("name", first(2, FAILURES))
def test_whatever_fails_while_loading_numba_does_the_same(
    tmp_path: Path, compiled: tuple[Path, str], name: str
) -> None:
    folder, printed = compiled
    shutil.copytree(folder / "cache", tmp_path / "cache")
    imports = "from rocescope.kernels import kernel, image as machine_code"
    assert run_after(f"{imports}\n{FAILURES[name]}", folder, tmp_path / "cache") == (
        printed,
        "True",
    )


@pytest.mark.thorough
def test_a_kernel_without_images_is_compiled_once_and_anew_when_the_cache_is_damaged(
    tmp_path: Path,
) -> None:
    """NUMBA_OPT=3 says what numba does anyway, but then its own cache is all there is."""
    assert together(tmp_path, {"NUMBA_OPT": "3"}) == ["10 0", "10 1"]
    for damaged in ("nbi", "nbc"):
        (path,) = (tmp_path / "cache").rglob(f"*.{damaged}")
        path.write_bytes(path.read_bytes()[:-9])
        assert together(tmp_path, {"NUMBA_OPT": "3"}) == ["10 0", "10 1"]


@pytest.mark.thorough
def test_an_analysis_is_the_same_without_images(checkout: Path) -> None:
    """NUMBA_OPT=3 says what numba does anyway, but it has its say only where numba runs."""
    capture = str(checkout / "tests" / "data" / "c10_rping_ipv4.atB.pcap")
    command = [sys.executable, "-m", "rocescope", "analyze", "--format", "json", capture]
    outputs = [
        subprocess.run(command, capture_output=True, env=os.environ | told, check=True).stdout
        for told in ({}, {"NUMBA_OPT": "3"}, {})
    ]
    assert outputs[0] == outputs[1] == outputs[2]


TOGETHER = """
import sys
import numpy as np
from rocescope.kernels.kernel import kernel

@kernel
def total(values):
    result = 0
    for value in values:
        result += value
    return result

print("ready", flush=True)
sys.stdin.readline()
print(total(np.arange(5)), "numba" in sys.modules and total.compiled.stats.cache_misses.total())
"""


def together(folder: Path, told: dict[str, str]) -> list[str]:
    """What two processes print that call a kernel at the same moment: its compilations, too."""
    module = folder / "kernels.py"
    module.write_text(TOGETHER)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")} | told
    processes = [
        subprocess.Popen(
            [sys.executable, str(module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("now\n")
        process.stdin.flush()
    return sorted(process.communicate()[0].strip() for process in processes)


@pytest.mark.thorough
def test_processes_that_start_together_compile_a_kernel_once(tmp_path: Path) -> None:
    assert together(tmp_path, {}) == ["10 1", "10 False"]  # the other one loads the image
    (folder,) = (tmp_path / "cache" / "rocescope").iterdir()
    shutil.rmtree(folder)
    (folder / "lock").mkdir(parents=True)
    assert together(tmp_path, {}) == ["10 1", "10 1"]  # without a lock each compiles all the same


def test_code_by_address_is_kept_by_the_file_of_its_signature(monkeypatch):
    """A signature in another file may change without the file of the function."""

    def of_one():
        from numba import types

        return types.int64(types.int64)

    def plus_one(value):
        return value + 1

    folders = []
    monkeypatch.setattr(kernels, "_folder_of", lambda _, module: folders.append(module))
    for state in (b"before", b"after"):
        digests = {of_one: state, plus_one: b"same"}
        monkeypatch.setattr(kernels, "module_digest", digests.__getitem__)
        assert pointer_to(subkernel(plus_one), of_one) != 0
    assert len(set(folders)) == 2


# The hint reaches the processor and reads nothing.

FAR = 1 << 50


@kernel
def hinted(flat, records):
    prefetch_item(flat, 1)
    prefetch_item(flat, -FAR)
    prefetch_item(records, FAR)
    prefetch_item(records.count, 1)
    prefetch_item(records.count, -FAR)
    return flat[0] + records[0].count


def assembly_of(function, *arguments):
    compiled = numba.njit(cast(Any, function).__wrapped__)  # machine code of a cache has no text
    compiled(*arguments)
    (assembly,) = compiled.inspect_asm().values()
    return assembly


def test_hints_are_instructions_that_may_name_any_address():
    records = np.array([(3,)], [("count", np.int64)])
    flat = np.ones(4, np.int64)
    assert hinted(flat, records) == 4

    assert assembly_of(hinted, flat, records).count("prefetch") >= 5


def test_an_item_is_where_the_array_has_it():
    """Five records of 24 bytes behind the first."""
    records = np.zeros(4, [("a", np.int64), ("b", np.int64), ("c", np.int64)])

    @kernel
    def fifth(records):
        prefetch_item(records, 5)
        return records[0].a

    lines = assembly_of(fifth, records).splitlines()
    hints = [line for line in lines if "prefetch" in line]
    assert any("120(" in line for line in hints), hints


# NamedTuple without checks, beside that of typing.


class Ours(NamedTuple):
    """A point."""

    x: int
    y: int = 5
    """With a default."""

    @property
    def total(self) -> int:
        return self.x + self.y


class Theirs(typing.NamedTuple):
    """A point."""

    x: int
    y: int = 5

    @property
    def total(self) -> int:
        return self.x + self.y


def test_the_class_is_the_same():
    assert Ours._fields == Theirs._fields
    assert Ours._field_defaults == Theirs._field_defaults
    assert (Ours.__name__, Ours.__module__, Ours.__doc__) == ("Ours", __name__, Theirs.__doc__)
    assert Ours.__annotations__ == {"x": "int", "y": "int"}
    assert issubclass(Ours, tuple)


def test_its_values_are_the_same():
    ours, theirs = Ours(1), Theirs(1)
    assert ours == theirs == (1, 5) and ours.total == theirs.total == 6
    assert ours._replace(y=2) == theirs._replace(y=2)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert pickle.loads(pickle.dumps(ours)) == ours
    kinds: list[typing.Any] = [Ours, Theirs]
    for made in kinds:
        with pytest.raises(TypeError):
            made()
        with pytest.raises(TypeError):
            made(1, z=2)


# Kernels of several threads each get the cache folder of their own.

config: Any = numba.config
codegen: Any = numba_codegen


def same(value: int) -> int:
    return value


@subkernel
def halved(value: Int) -> Int:
    print("halved", value)
    return value // 2


def quartered(value: Int) -> Int:
    return halved(halved(value))


def test_a_helper_becomes_machine_code_within_its_kernel_alone(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    finish = codegen.JITCodeLibrary._finalize_specific

    def noted(library: Any) -> None:
        made.append(library.name)
        finish(library)

    monkeypatch.setattr(codegen.JITCodeLibrary, "_finalize_specific", noted)
    compiled_for(dispatcher(quartered, {}, None), (13,), None)(13)
    assert "quartered" in made and not {"halved", "helper"} & set(made)
    # What numba prints goes through the environment of the helper.
    assert capfd.readouterr().out.split() == ["halved", "13", "halved", "6"]


def test_threads_do_not_mix_up_their_cache_folders(tmp_path: Path) -> None:
    before = config.CACHE_DIR

    def made(number: int) -> Any:
        return dispatcher(same, {"cache": True}, str(tmp_path / str(number)))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made, range(400)))
    folders = [Path(compiled.stats.cache_path).parent.name for compiled in found]
    assert folders == [str(number) for number in range(400)]
    assert before == config.CACHE_DIR


def test_who_compiles_does_not_wait_for_who_waits_for_the_compiler() -> None:
    """A kernel that is being compiled asks for those it calls, whatever other threads do."""
    waiting: Any = kernel(same)
    asked: Any = kernel(same)

    def compiles() -> None:
        with compiler_lock:
            other = threading.Thread(target=lambda: waiting.compiled, daemon=True)
            other.start()
            time.sleep(0.2)  # until it waits for the lock
            assert asked.compiled

    thread = threading.Thread(target=compiles, daemon=True)
    thread.start()
    thread.join(300)
    assert not thread.is_alive()
