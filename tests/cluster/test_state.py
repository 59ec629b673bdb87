"""The state of the measures in a file."""

from __future__ import annotations

import io
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest
from captures import data

from rocescope.analyzer.errors import UnreadableInput
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.pipeline.pipeline import Pipeline
from rocescope.cluster.reduce import read_state, write_state


def stored(value: object) -> bytes:
    file = io.BytesIO()
    write_state(file, value)
    return file.getvalue()


@pytest.fixture(scope="module")
def run() -> Iterator[Pipeline]:
    """A capture with CM messages."""
    with open_captures([str(data("c10"))], AnalyzeOptions()) as run:
        assert run.read()
        yield run


@pytest.fixture(scope="module")
def whole(run: Pipeline) -> bytes:
    """Its measures in a file."""
    return stored(run.measuring)


def test_the_measures_come_back_and_give_the_same_result(run: Pipeline, whole: bytes) -> None:
    expected = msgspec.json.encode(run.conclude(True))
    before = run.measuring
    measuring = read_state(io.BytesIO(whole), "x")
    assert isinstance(measuring, Measuring)
    run.measuring = measuring
    try:
        assert msgspec.json.encode(run.conclude(True)) == expected
    finally:
        run.measuring = before


def test_layouts_of_arrays_stay_so_that_kernels_take_them(run: Pipeline, whole: bytes) -> None:
    measuring = read_state(io.BytesIO(whole), "x")
    for name, array in measuring.tracker.state._asdict().items():
        same = getattr(run.measuring.tracker.state, name)
        assert array.dtype == same.dtype, name
        assert array.dtype.isalignedstruct == same.dtype.isalignedstruct, name
        assert array.flags.writeable, name


def test_plain_values_and_shared_arrays() -> None:
    array = np.arange(3)
    value = {"a": (1, -(1 << 70), 2.5, None, True), (1, 2): {3}, "b": [array, array]}
    file = io.BytesIO()
    write_state(file, value)
    back = read_state(io.BytesIO(file.getvalue()), "x")
    assert back["a"] == value["a"]
    assert back[1, 2] == {3}
    assert back["b"][0] is back["b"][1]
    assert np.array_equal(back["b"][0], array)


def test_other_classes_have_no_place() -> None:
    with pytest.raises(TypeError, match="no place for"):
        write_state(io.BytesIO(), [io.StringIO()])


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.9, 0.999])
def test_a_cut_file_is_damaged(whole: bytes, kept: float) -> None:
    with pytest.raises(UnreadableInput, match="state is damaged"):
        read_state(io.BytesIO(whole[: int(len(whole) * kept)]), "state")


@pytest.mark.parametrize("place", [0.1, 0.5, 0.95])
def test_a_changed_byte_is_damage(whole: bytes, place: float) -> None:
    changed = bytearray(whole)
    changed[int(len(changed) * place)] ^= 0x10
    with pytest.raises(UnreadableInput, match="state is damaged"):
        read_state(io.BytesIO(bytes(changed)), "state")
