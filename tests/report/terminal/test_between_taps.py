"""The table of hops."""

from __future__ import annotations

import io

import factories_results as factories
import pytest
from rich.console import Console
from rich.table import Table

from rocescope.report.terminal.between_taps import hop_table
from rocescope.report.words.human import UNICODE


@pytest.mark.parametrize("trimmed", [0, 37])
def test_trimmed_packets_have_a_column_where_there_are_any(trimmed):
    table = Table()
    hop_table(table, [factories.hop(trimmed_packets=trimmed)], UNICODE)
    stream = io.StringIO()
    Console(file=stream, width=120).print(table)
    assert ("trim" in stream.getvalue(), "37" in stream.getvalue()) == (bool(trimmed),) * 2
