"""The table of hops."""

from __future__ import annotations

import io

import factories_results as factories
import pytest
from rich.console import Console
from rich.table import Table

from rocescope.report.terminal.between_taps import hop_table
from rocescope.report.terminal.page import new_table
from rocescope.report.words.human import UNICODE


@pytest.mark.parametrize("trimmed", [0, 37])
def test_trimmed_packets_have_a_column_where_there_are_any(trimmed):
    table = Table()
    hop_table(table, [factories.hop(trimmed_packets=trimmed)], UNICODE, 120)
    stream = io.StringIO()
    Console(file=stream, width=120).print(table)
    assert ("trim" in stream.getvalue(), "37" in stream.getvalue()) == (bool(trimmed),) * 2


def test_long_names_stay_different_at_80_columns():
    """Also those that differ in their middle only."""
    leaves, ports = range(1, 3), range(1, 9)
    taps = [f"leaf{n}-ethernet{p}-spine{p}-ethernet{n}-monitor" for n in leaves for p in ports]
    hops = [
        factories.hop(id=i, from_tap=near, to_tap=far, packets=1_234_567, lost_packets=i)
        for i, (near, far) in enumerate(zip(taps, reversed(taps), strict=True))
    ]
    table = new_table(1)
    hop_table(table, hops, UNICODE, 80)
    stream = io.StringIO()
    Console(file=stream, width=80).print(table)
    rows = [line.split()[:2] for line in stream.getvalue().splitlines()[1:]]
    assert len({name for row in rows for name in row}) == len(taps) == len(rows)
