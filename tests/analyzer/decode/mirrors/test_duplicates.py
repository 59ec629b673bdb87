"""Repeated packets: against a dictionary in plain Python, over batches."""

from __future__ import annotations

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.decode.mirrors.duplicates import Duplicates
from rocescope.analyzer.wire.packets import PacketTable

FIELDS = ("src", "dst", "udp_sport", "ip_id", "opcode", "dest_qp", "psn")
PACKETS = st.lists(
    st.tuples(st.integers(0, 300), *(st.integers(0, 1) for _ in FIELDS)), max_size=60
)


@examples(60)
@given(PACKETS, st.integers(1, 100), st.integers(1, 60))
def test_keeps_what_a_dictionary_keeps(
    packets: list[tuple[int, ...]], within: int, size: int
) -> None:
    """Two packets may have one place in the table, by chance; hardly with three salts."""
    seen: dict[tuple[int, ...], int] = {}
    expected = []
    for i, (time, *fields) in enumerate(packets):
        key = tuple(fields)
        if key not in seen or abs(time - seen[key]) > within:
            seen[key] = time
            expected.append(i)
    kept: list[list[int]] = []
    while expected not in kept and len(kept) < 3:
        duplicates = Duplicates(within)
        kept.append([])
        for start in range(0, len(packets), size):
            part = packets[start : start + size]
            table = PacketTable.zeros(len(part))
            table.frame_number[:] = np.arange(start, start + len(part))
            for row, (time, *fields) in enumerate(part):
                table.time_ns[row] = time
                for name, value in zip(FIELDS, fields, strict=True):
                    getattr(table, name)[row] = value
            kept[-1] += duplicates.without(table).frame_number.tolist()
        assert duplicates.dropped == len(packets) - len(kept[-1])
    assert kept[-1] == expected
