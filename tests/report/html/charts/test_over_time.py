"""Traffic over time."""

from __future__ import annotations

import factories_results as factories
import msgspec

from rocescope.analyzer.results.series import Series
from rocescope.report.html.charts.over_time import POINTS, over_time, summed, taps_over_time


def series(windows: int, **changes: list[int]) -> Series:
    names = [n for n in Series.__struct_fields__ if n not in ("window_ns", "start_ns")]
    empty = {name: [0] * windows for name in names} | {"tap_wire_bytes": {}}
    given = {"packets": [1] * windows, "wire_bytes": [125] * windows}
    return Series(window_ns=1_000_000, start_ns=factories.START_NS, **(empty | given | changes))  # type: ignore[arg-type]


def test_rates_and_only_the_troubles_that_there_are() -> None:
    made = factories.analysis(series=series(4, naks=[0, 2, 0, 1]))
    chart = over_time(made)
    assert chart is not None
    assert chart.columns == ("from, s", "wire rate, b/s", "NAKs")
    assert chart.rows == [(0, 1e6, 0), (0.001, 1e6, 2), (0.002, 1e6, 0), (0.003, 1e6, 1)]
    assert chart.svg().count('class="two"') == 2


def test_times_count_from_the_first_packet() -> None:
    """As in the sentences of findings: the first window may begin before it."""
    early = msgspec.structs.replace(series(4), start_ns=factories.START_NS - 400_000)
    chart = over_time(factories.analysis(series=early))
    assert chart is not None
    assert [row[0] for row in chart.rows] == [0, 0.0006, 0.0016, 0.0026]


def test_findings_are_marked_and_counted() -> None:
    found = factories.diagnosis().findings[0]
    many = msgspec.structs.replace(factories.diagnosis(), findings=[found] * 23)
    chart = over_time(factories.analysis(diagnosis=many))
    assert chart is not None
    assert chart.svg().count('class="mark ') == 20 and ">finding 20<" in chart.svg()
    assert chart.left_out == "3 further findings not marked."


def test_long_series_are_summed_without_a_loss() -> None:
    values = list(range(1_000))
    chart = over_time(factories.analysis(series=series(1_000, cnps=values)))
    assert chart is not None and len(chart.rows) <= POINTS
    assert sum(row[2] for row in chart.rows) == sum(values)
    assert summed([1, 2, 3], 2) == [3, 3]


def test_no_packet_is_no_chart() -> None:
    assert over_time(factories.analysis(series=series(3, packets=[0] * 3))) is None


def test_taps_over_time() -> None:
    loads = {f"tap{i}": [i, 0, i] for i in range(40)}
    chart = taps_over_time(
        factories.analysis(series=msgspec.structs.replace(series(3), tap_wire_bytes=loads))
    )
    assert chart is not None
    assert [row[0] for row in chart.rows] == [f"tap{i}" for i in range(8, 40)]
    assert chart.rows[-1][1:] == (39 * 8e3, 0, 39 * 8e3)
    assert chart.left_out == "8 taps with less traffic not shown."
    assert taps_over_time(factories.analysis(series=series(3))) is None


def test_taps_that_saw_no_packet_are_no_chart() -> None:
    quiet = msgspec.structs.replace(series(0), tap_wire_bytes={"lo": [], "eth0": []})
    assert taps_over_time(factories.analysis(series=quiet)) is None
