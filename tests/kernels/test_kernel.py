"""Kernels that numba compiles, what they call, and their tuples."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
import pytest

from rocescope.kernels.jit import dispatcher
from rocescope.kernels.kernel import Kernel, NamedTuple, kernel, prefetch_item
from rocescope.kernels.libraries import digest_of

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
    compiled = numba.njit(cast(Any, function).__wrapped__)  # code of a cache has no text
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


def test_threads_do_not_mix_up_their_cache_folders() -> None:
    config: Any = numba.config
    before = config.CACHE_DIR

    def made(number: int) -> tuple[str, str]:
        names: dict[str, Any] = {}
        exec(compile("def f(): return 0", __file__, "exec"), names)
        names["f"].__name__ = f"f{number}"
        declared = Kernel(names["f"])
        folder = digest_of(f"{declared.digest} f{number} ".encode())
        return Path(dispatcher(declared).stats.cache_path).parent.name, folder

    with ThreadPoolExecutor(8) as pool:
        for cached, folder in pool.map(made, range(400)):
            assert cached == folder
    assert before == config.CACHE_DIR
