"""Screen 2: the flow under the table."""

from __future__ import annotations

import re

import pytest
from captures import data
from tui_driver import drive, text_of


@pytest.mark.parametrize("size", [(80, 24), (110, 40)])
def test_the_chart_of_bytes_has_a_time_axis(size):
    lines = drive([data("i03_write_reorder5_AtoB")], [], size, text_of)
    chart = next(i for i, line in enumerate(lines) if "this flow, bytes" in line)
    axis = next(line for line in lines[chart + 1 :] if "╵" in line)
    ticks = [float(tick) for tick in re.findall(r"╵([\d.]+) ", axis)]
    assert len(ticks) > 1 and ticks == sorted(ticks) and ticks[0] == 0
