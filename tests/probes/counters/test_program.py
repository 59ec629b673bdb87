"""Records of counters and their sums."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocescope.probes.counters import program as layout
from rocescope.probes.counters.program import COUNTERS, KEY, TALLY, address_text, by_key, together


def members(name):
    source = (Path(layout.__file__).parent / "counters.bpf.c").read_text()
    body = re.search(rf"struct {name} \{{(.*?)\n\}}", source, re.DOTALL)[1]
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", body, flags=re.DOTALL)
    return re.findall(r"(\w+)(?:\[\w+\])?\s*[,;]", code)


def test_records_are_those_of_the_c_source():
    assert tuple(members("tally")) == TALLY.names
    assert tuple(members("counter_key")) == KEY.names
    assert tuple(members("counters")) == COUNTERS.names


def test_addresses():
    assert address_text(bytes([10, 0, 0, 7]) + bytes(12), False) == "10.0.0.7"
    assert address_text(bytes(10) + b"\xff\xff\x0a\x00\x00\x07", True) == "10.0.0.7"
    assert address_text(b"\xfd" + bytes(14) + b"\x01", True) == "fd00::1"


ENTRIES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 99), st.integers(1, 99)),
    min_size=1,
    max_size=12,
)


def made(rows):
    entries = np.zeros(len(rows), COUNTERS)
    for entry, (qp, packets, created, last) in zip(entries, rows, strict=True):
        entry["key"]["dest_qp"] = qp
        entry["packets"], entry["created_ns"], entry["last_ns"] = packets, created, last
        entry["idle"] = packets
    return entries


@given(ENTRIES)
def test_sums_by_key(rows):
    groups = defaultdict(list)
    for row in rows:
        groups[row[0]].append(row)
    found = {int(one["key"]["dest_qp"]): one for one in by_key(made(rows))}
    assert found.keys() == groups.keys()
    for qp, own in groups.items():
        one = found[qp]
        assert one["packets"] == sum(row[1] for row in own)
        assert one["idle"].tolist() == [sum(row[1] for row in own)] * 4
        assert (one["created_ns"], one["last_ns"]) == (
            min(r[2] for r in own),
            max(r[3] for r in own),
        )


def test_an_empty_group_has_no_begin():
    sums = together(made([(1, 2, 3, 4)]), np.array([1]), 2)
    assert sums["packets"].tolist() == [0, 2] and sums["created_ns"][1] == 3
