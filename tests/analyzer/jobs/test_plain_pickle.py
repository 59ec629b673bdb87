"""Pickles as plain data: what Python and PyTorch write is read, everything else is refused."""

import os
import pickle
import pickletools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_jobs import torch_pickle

from rocescope.analyzer.jobs.flight_recorder import MOST_OPENED, RefusedPickle, plain

_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=60,
)


@given(_TREES, st.integers(2, pickle.HIGHEST_PROTOCOL), st.booleans())
def test_plain_data_of_python_is_read(tree, protocol, optimized):
    data = pickle.dumps(tree, protocol)
    assert plain(pickletools.optimize(data) if optimized else data) == tree


@given(_TREES)
def test_plain_data_of_pytorch_is_read_as_pickle_reads_it(tree):
    data = torch_pickle(tree)
    assert plain(data) == pickle.loads(data) == tree


def test_many_texts_need_long_places_of_memory():
    names = [f"name {number}" for number in range(1_000)]
    assert plain(torch_pickle(names + names)) == names + names


class _Runs:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_nothing_is_executed(tmp_path, protocol):
    mark = tmp_path / "executed"
    data = pickle.dumps({"entries": [_Runs(mark)]}, protocol)
    with pytest.raises(RefusedPickle, match=r"GLOBAL at byte|does not begin"):
        plain(data)
    assert not mark.exists()
    pickle.loads(data)
    assert mark.exists()  # so the data does what the test fears


@pytest.mark.parametrize(
    "code",
    [b"cos\nsystem\n", b"\x93", b"R", b"i os\nsystem\n", b"o", b"\x81", b"\x92", b"b", b"\x82\x01",
     b"\x83\x01\x00", b"\x84\x01\x00\x00\x00", b"Pid\n", b"Q", b"\x97", b"\x96\x00", b"0", b"2",
     b"1", b"I1\n", b"L1L\n", b"\x8b", b"S'x'\n", b"T", b"U", b"B", b"C", b"\x8f", b"\x90",
     b"\x91", b"\xff"],
)  # fmt: skip
def test_every_other_instruction_is_refused(code):
    with pytest.raises(RefusedPickle, match="at byte 3: not plain data"):
        plain(b"\x80\x02N" + code + b".")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin"),
        (b"{}", "does not begin"),
        (b"\x80", "ends within"),
        (b"\x80\x02", "ends within"),
        (b"\x80\x02X\xff\xff\xff\xffabc.", "ends within"),
        (b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.", "ends within"),
        (b"\x80\x02\x8a\xff" + bytes(255) + b".", "integer of 255 bytes"),
        (b"\x80\x02.", "ends with 0 values"),
        (b"\x80\x02NN.", "ends with 2 values"),
        (b"\x80\x02(N.", "ends with 1 values"),
        (b"\x80\x02e.", "did not begin"),
        (b"\x80\x02Ne.", "did not begin"),
        (b"\x80\x02N(Ne.", "no list"),
        (b"\x80\x02N(NNu.", "no dictionary"),
        (b"\x80\x02}(Nu.", "no dictionary"),
        (b"\x80\x02}(NNu.", "key is no text"),
        (b"\x80\x02}(]Nu.", "key is no text"),
        (b"\x80\x02h\x00.", "never written"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "skips places"),
        (b"\x80\x02q\x00.", "value is missing"),
        (b"\x80\x02\x85.", "value is missing"),
        (b"\x80\x02(\x94.", "value is missing"),
        (b"\x80\x02]a.", "value is missing"),
        (b"\x80\x02" + b"(" * (MOST_OPENED + 1), "containers are open"),
    ],
)
def test_damaged_pickles_are_refused(data, why):
    with pytest.raises(RefusedPickle, match=why):
        plain(data)


def test_a_value_within_itself_and_deep_values_end():
    itself = plain(b"\x80\x02]q\x00(h\x00h\x00e.")
    assert itself[0] is itself
    deep = plain(b"\x80\x02N" + b"\x85" * 2_000_000 + b".")
    assert isinstance(deep, tuple)
    del deep  # without a deep recursion
    doubled = b"\x80\x02]q\x00" + b"".join(
        b"]"
        + struct.pack("<cI", b"r", n + 1)
        + b"("
        + struct.pack("<cIcI", b"j", n, b"j", n)
        + b"e"
        for n in range(64)
    )
    with pytest.raises(RefusedPickle, match="65 values"):
        plain(doubled + b".")  # 2 ** 64 members, if anybody walked through them


@given(st.binary(max_size=200))
def test_any_bytes_are_data_or_refused(data):
    try:
        plain(b"\x80\x02" + data)
    except RefusedPickle as error:
        assert "\n" not in str(error)


@given(_TREES, st.data())
def test_every_cut_of_a_pickle_is_refused(tree, data):
    whole = pickle.dumps(tree, 4)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(RefusedPickle):
        plain(whole[:cut])
