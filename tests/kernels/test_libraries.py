"""Libraries of kernels: what they do is what numba does, and what is no good library is said."""

from __future__ import annotations

import builtins
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocescope.kernels import LibraryError, calls, libraries
from rocescope.kernels.kernel import RECORD, Kernel

# A house of its own: the kernels of this package and one room with a module.

LIMITS = "LIMIT = 100\n"

LOOPS = """
from typing import NamedTuple
import numpy as np
from ..kernels.kernel import allocating, callback, function_at, inlined, kernel, pointer_to
from ..kernels.kernel import subkernel
from .limits import LIMIT

RECORD = np.dtype([("count", "<i4"), ("seen", "?"), ("share", "<f8")])

class Inner(NamedTuple):
    first: int
    flag: bool

class State(NamedTuple):
    counts: np.ndarray
    records: np.ndarray
    inner: Inner
    share: float
    nothing: None

@inlined
def halved(value, by):
    return value // by

@kernel
def note(state, values, by, large, truth, nothing):
    for i in range(len(values)):
        state.counts[halved(values[i], by) & 3] += 1
        state.records[i & 1].count += values[i]
        state.records[i & 1].share += state.share
    return len(values), large + np.uint64(1), truth and state.inner.flag, state.share * 2

@kernel
def total(grid):
    found = 0.0
    for i in range(grid.shape[0]):
        for j in range(grid.shape[1]):
            found += grid[i, j] * (i + 10 * j)
    return found

@kernel
def double(values):
    for i in range(len(values)):
        values[i] += values[i]

@kernel
def capped(value):
    return min(value, LIMIT)

@allocating
def distinct(values, times):
    found = 0
    for _ in range(times):
        known = np.zeros(256, np.uint8)
        for value in values:
            known[value] = 1
        found = known.sum()
    return found

@kernel
def refuse(value):
    if value > 3:
        raise ValueError("too large")
    return value > 1

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
    result = np.int64(1)
    for value in values:
        result = function(result, value)
    return result

@kernel
def spin(values, times):
    for _ in range(times):
        for i in range(len(values)):
            values[i] = values[i] * 3 + 1
    return values[0]
"""

USE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from rocescope.analyzer import loops as l

records = np.zeros(2, l.RECORD)
state = l.State(np.zeros(4, np.int64), records, l.Inner(1, True), 0.25, None)
for values in (np.arange(9, dtype=np.int32), np.arange(9, dtype=np.int32)):
    print(l.note(state, values, 2, np.uint64(2**63), np.bool(True), None), state.counts, records)
grid = np.arange(12.0).reshape(3, 4)
fixed = grid.copy()
fixed.flags.writeable = False
print([l.total(g) for g in (grid, grid[:, ::2], grid.T, fixed)], [l.capped(x) for x in (7, 700)])
for values in (np.arange(3), np.arange(3.0), np.arange(6.0)[::2]):
    print(l.double(values), values)
print(l.distinct(np.array([3, 4, 3, 200], np.uint8), 1000), l.refuse(2), l.refuse(np.int16(1)))
print(l.folded(np.arange(2, 6), l.pointer_to(l.added, l.of_two)), l.added(2, 3))
print(l.folded(np.arange(2, 6), l.multiplied()))
for call in (lambda: l.note(state, np.arange(9, dtype=np.int32), 0, np.uint64(1), True, None),
             lambda: l.refuse(4)):
    try:
        call()
    except Exception as error:
        print(repr(error))
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(lambda n: l.spin(np.full(100, n), 2000), range(8))))
print("numba" in sys.modules, file=sys.stderr)
"""


class House:
    """A package with one room."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.package = folder, folder / "rocescope"

    def make(self) -> None:
        ours = Path(libraries.PACKAGE)
        (self.package / "analyzer").mkdir(parents=True)
        (self.package / "kernels").mkdir()
        for path in (ours / "kernels").glob("*.py"):
            shutil.copy(path, self.package / "kernels")
        shutil.copy(ours / "version.py", self.package)
        for name in ("__init__.py", "analyzer/__init__.py"):
            (self.package / name).write_text("")
        (self.package / "analyzer" / "limits.py").write_text(LIMITS)
        (self.package / "analyzer" / "loops.py").write_text(LOOPS)

    def copy(self, folder: Path) -> House:
        shutil.copytree(self.package, folder / "rocescope")
        return House(folder)

    def run(self, code: str = USE, **variables: str) -> tuple[str, str]:
        """Standard output and error."""
        told = {"PYTHONPATH": str(self.folder), "NUMBA_CACHE_DIR": str(self.folder / "cache")}
        command = [sys.executable, "-c", code]
        own = {RECORD: "", "ROCESCOPE_KERNEL_OBJECTS": ""}
        environment = os.environ | own | told | variables
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    @property
    def built(self) -> Path:
        return self.package / "build" / "kernels" / f"analyzer-{libraries.level()}.so"

    def as_wheel(self) -> Path:
        """As a wheel holds it; the library."""
        folder = self.package / "kernels" / "compiled"
        folder.mkdir()
        path = Path(shutil.move(self.built, folder))
        shutil.rmtree(self.package / "build")
        for name in ("jit", "build", "compile"):  # it must not need them
            (self.package / "kernels" / f"{name}.py").unlink()
        return path


BUILT = "rocescope: compiling the kernels of analyzer (once)\n"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tuple[House, str]:
    """A house whose calls are recorded and compiled, and what the kernels print with numba."""
    made = House(tmp_path_factory.mktemp("house"))
    made.make()
    notes = tmp_path_factory.mktemp("notes")
    printed, said = made.run(**{RECORD: str(notes)})
    assert said.endswith("True\n") and "ZeroDivisionError" in printed
    merge = (
        "import sys; from rocescope.kernels.calls import merge, noted; merge(noted(sys.argv[1]))"
    )
    made.run(merge.replace("sys.argv[1]", repr(str(notes))))
    assert made.run() == (printed, f"{BUILT}False\n")
    return made, printed


def test_a_library_does_what_numba_does_without_numba(house: tuple[House, str]) -> None:
    made, printed = house
    assert made.run() == (printed, "False\n")


def test_a_kernel_that_only_reads_takes_read_only_arrays(
    house: tuple[House, str], tmp_path: Path
) -> None:
    """One code serves both: the file has one call for each layout."""
    listed = json.loads((house[0].package / "analyzer" / "kernels.json").read_text())
    assert listed["calls"]["loops.total"] == [["float64 2A"], ["float64 2C ro"], ["float64 2F"]]
    assert listed["addresses"] == {
        "loops.added": ["analyzer.loops:of_two"],
        "loops.multiplied": ["analyzer.loops:of_two"],
    }
    assert listed["tuples"]["analyzer.loops:State"][1:3] == [
        "analyzer.loops:RECORD 1C",
        "analyzer.loops:Inner",
    ]
    code = """
import numpy as np
from rocescope.analyzer.loops import double
values = np.arange(3)
values.flags.writeable = False
try:
    double(values)
except ValueError as error:
    print(error)
"""
    made = house[0].copy(tmp_path)
    made.as_wheel()
    assert made.run(code)[0] == "double may write to a read-only array\n"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("limits.py", "100", "50"), ("loops.py", "min(value, LIMIT)", "min(value, LIMIT - 50)")],
)
def test_what_changes_a_kernel_builds_its_room(
    house: tuple[House, str], tmp_path: Path, file: str, old: str, new: str
) -> None:
    changed = house[0].copy(tmp_path)
    path = changed.package / "analyzer" / file
    path.write_text(path.read_text().replace(old, new))
    code = "import sys; from rocescope.analyzer.loops import capped; print(capped(700))\n"
    code += "print('numba' in sys.modules)"
    assert changed.run(code) == ("50\nFalse\n", BUILT)
    assert changed.run(code) == ("50\nFalse\n", "")


def test_processes_that_start_together_build_once(house: tuple[House, str], tmp_path: Path) -> None:
    made = house[0].copy(tmp_path)
    shutil.rmtree(made.package / "build")
    code = "from rocescope.analyzer.loops import capped; print(capped(700))"
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        RECORD: "",
        "ROCESCOPE_KERNEL_OBJECTS": "",
    }
    command = [sys.executable, "-c", code]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    assert [process.communicate()[0] for process in processes] == ["100\n", "100\n"]
    objects = list((made.package / "build" / "kernels" / "objects").glob("*.o"))
    assert len(objects) == sum(
        len(words)
        for kind in ("calls", "addresses")
        for words in json.loads((made.package / "analyzer" / "kernels.json").read_text())[
            kind
        ].values()
    )


def no_linker(made: House) -> dict[str, str]:
    return {"PATH": "/nowhere"}


def no_folder(made: House) -> dict[str, str]:
    (made.package / "build").write_text("")
    return {}


@pytest.mark.parametrize(
    ("spoil", "reason"), [(no_linker, "there is no linker"), (no_folder, "cannot be written")]
)
def test_without_a_linker_or_a_folder_numba_does_the_same(
    house: tuple[House, str],
    tmp_path: Path,
    spoil: Callable[[House], dict[str, str]],
    reason: str,
) -> None:
    made = house[0].copy(tmp_path)
    shutil.rmtree(made.package / "build")
    told = spoil(made)
    printed, said = made.run(**told)
    assert printed == house[1]
    first, second = said.splitlines()
    assert reason in first and first.endswith("numba compiles each kernel, slower")
    assert second == "True"
    assert list((tmp_path / "cache").rglob("*.nbc"))


def test_bounds_are_checked_when_asked(house: tuple[House, str]) -> None:
    code = """
import numpy as np
from rocescope.analyzer.loops import total, folded, distinct
try:
    print(distinct(np.array([300]), 1))
except IndexError as error:
    print(repr(error))
"""
    assert "IndexError" in house[0].run(code, ROCESCOPE_BOUNDSCHECK="1")[0]


def test_a_call_that_is_out_of_date_is_left_out(house: tuple[House, str], tmp_path: Path) -> None:
    """A tuple has one field more: numba compiles its kernel until the call is recorded again."""
    made = house[0].copy(tmp_path)
    path = made.package / "analyzer" / "loops.py"
    path.write_text(
        path.read_text().replace("nothing: None\n", "nothing: None\n    more: int = 1\n")
    )
    notes = tmp_path / "notes"
    notes.mkdir()
    printed, said = made.run(**{RECORD: str(notes)})
    assert printed == house[1] and said == f"{BUILT}True\n"
    merge = f"from rocescope.kernels.calls import merge, noted; merge(noted({str(notes)!r}))"
    made.run(merge)
    listed = json.loads((made.package / "analyzer" / "kernels.json").read_text())
    assert len(listed["tuples"]["analyzer.loops:State"]) == 6
    assert len(listed["calls"]["loops.note"]) == 1
    assert made.run() == (printed, f"{BUILT}False\n")


# As a wheel has them.

TRIED = """
import sys
sys.modules["numba"] = sys.modules["llvmlite"] = None
from rocescope.kernels import LibraryError
from rocescope.analyzer.loops import capped
try:
    print(capped(700), capped(1.5) if {other} else "")
except LibraryError as error:
    print(error)
"""


def test_a_wheel_needs_no_numba_and_no_builder(house: tuple[House, str], tmp_path: Path) -> None:
    made = house[0].copy(tmp_path)
    made.as_wheel()
    blocked = 'import sys; sys.modules["numba"] = None\n'
    use = USE.replace('print("numba" in sys.modules, file=sys.stderr)', "")
    assert made.run(blocked + use) == (house[1], "")
    said = made.run(TRIED.format(other=True))[0]
    assert said == "no library holds capped for such arguments: report this\n"


def damaged(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-100])
    return f"{path}: incomplete; install rocescope again"


def empty(path: Path) -> str:
    path.write_bytes(b"")
    return f"{path}: no library of 64 bits; install rocescope again"


def gone(path: Path) -> str:
    path.unlink()
    return f"{path}: No such file or directory; install rocescope again"


def of_others(path: Path) -> str:
    """Any library of the system."""
    shutil.copy(_libc(), path)
    return f"{path}: "


def _libc() -> str:
    with open("/proc/self/maps") as maps:
        return next(line.split()[-1] for line in maps if "/libc" in line and ".so" in line)


def of_another_version(path: Path) -> str:
    version = path.parent.parent.parent / "version.py"
    version.write_text('VERSION = "99.0"\n')
    return f"{path} is of rocescope {libraries.VERSION} analyzer "


@pytest.mark.parametrize("spoil", [damaged, empty, gone, of_others, of_another_version])
def test_what_is_no_good_library_is_said_in_one_line(
    house: tuple[House, str], tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    made = house[0].copy(tmp_path)
    expected = spoil(made.as_wheel())
    printed, said = made.run(TRIED.format(other=False))
    assert printed.startswith(expected) and printed.count("\n") == 1
    assert said == ""


def test_arrays_of_another_layout_are_noticed() -> None:
    def describe(array: Any, out: Any) -> None:
        out[0] = 1

    with pytest.raises(OSError, match="another layout"):
        libraries.check_layout(describe)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse4_2 avx avx2 bmi1 bmi2 fma f16c movbe abm avx512f", "x86-64-v3"),
        ("fpu sse4_2 popcnt ssse3", "x86-64-v2"),
        ("fpu sse4_2 avx avx2 bmi1 bmi2 fma f16c movbe", "x86-64-v2"),
    ],
)
def test_the_level_is_that_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, flags: str, expected: str
) -> None:
    text = f"processor\t: 0\nvendor_id\t: x\nflags\t\t: {flags}\nbugs\t\t: none\n".encode()
    monkeypatch.setattr(builtins, "open", lambda *_, **__: io.BytesIO(text))
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("", "", "", "", "x86_64")))
    assert libraries.level.__wrapped__() == expected


# The files of the real rooms.


@pytest.mark.parametrize("room", libraries.ROOMS)
def test_every_listed_call_is_one_of_a_kernel(room: str) -> None:
    known = calls.read(room)
    assert known["calls"]
    for name in (*known["calls"], *known["addresses"]):
        assert isinstance(calls.function(room, name), Kernel)
    for name in known["calls"]:
        assert None not in calls.samples(room, name)


def test_an_old_folder_beside_a_module_is_not_its_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an earlier version leaves: git keeps a folder with files that it does not know."""
    (tmp_path / "mrc.py").touch()
    (tmp_path / "mrc" / "__pycache__").mkdir(parents=True)
    monkeypatch.setattr(calls, "PACKAGE", str(tmp_path))
    assert calls.path_of("mrc") == str(tmp_path / "mrc.json")


def test_files_of_calls_are_as_they_are_written() -> None:
    before = {room: Path(calls.path_of(room)).read_text() for room in libraries.ROOMS}
    calls.merge(set())
    assert before == {room: Path(calls.path_of(room)).read_text() for room in libraries.ROOMS}


def test_a_room_is_the_one_of_the_longest_name() -> None:
    found = [
        libraries.room_of(f"rocescope.{name}")
        for name in ("replay.aggregation.run", "replay.flows.loads", "analyzer.wire.bth", "tui.app")
    ]
    assert found == ["replay.aggregation", "replay", "analyzer", None]
    assert libraries.room_of("notebook") is None


def test_errors_of_libraries_are_one_line_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: Path
) -> None:
    from rocescope import cli

    def fail(self: Kernel) -> None:
        raise LibraryError("/x.so: incomplete")

    monkeypatch.setattr(Kernel, "_library", fail)
    monkeypatch.setattr(Kernel, "__call__", lambda self, *_: self._library())
    assert cli.run(["analyze", str(data / "c10_rping_ipv4.atB.pcap")]) == 1
    assert capsys.readouterr().err == "rocescope: /x.so: incomplete\n"


def test_a_scalar_has_one_type(capsys: pytest.CaptureFixture[str]) -> None:
    """A narrow signed number is passed as int64; an unsigned one keeps its width."""
    from rocescope.kernels.libraries import scalar_of

    assert {scalar_of(kind) for kind in (int, np.int8, np.int32, np.int64)} == {"int64"}
    assert scalar_of(np.uint32) == "uint32" and scalar_of(np.float32) == "float64"
    with pytest.raises(TypeError, match="not str"):
        scalar_of(str)
