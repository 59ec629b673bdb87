"""Repeated packets: against a dictionary in plain Python, over batches."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rocescope.analyzer.decode.duplicates import Duplicates
from rocescope.analyzer.packets import PacketTable

FIELDS = ("src", "dst", "udp_sport", "ip_id", "opcode", "dest_qp", "psn")
PACKETS = st.lists(
    st.tuples(st.integers(0, 300), *(st.integers(0, 1) for _ in FIELDS)), max_size=60
)


@settings(max_examples=60, deadline=None)
@given(PACKETS, st.integers(1, 100), st.integers(1, 60))
def test_keeps_what_a_dictionary_keeps(
    packets: list[tuple[int, ...]], within: int, size: int
) -> None:
    """Addresses of the table hardly ever meet with so few packets."""
    seen: dict[tuple[int, ...], int] = {}
    kept, expected = [], []
    for i, (time, *fields) in enumerate(packets):
        key = tuple(fields)
        if key not in seen or abs(time - seen[key]) > within:
            seen[key] = time
            expected.append(i)
    duplicates = Duplicates(within)
    for start in range(0, len(packets), size):
        part = packets[start : start + size]
        table = PacketTable.zeros(len(part))
        table.frame_number[:] = np.arange(start, start + len(part))
        for row, (time, *fields) in enumerate(part):
            table.time_ns[row] = time
            for name, value in zip(FIELDS, fields, strict=True):
                getattr(table, name)[row] = value
        kept += duplicates.without(table).frame_number.tolist()
    assert kept == expected
    assert duplicates.dropped == len(packets) - len(expected)
