"""Lines over time."""

from __future__ import annotations

from rocescope.report.html.charts.lines import MOST, lines


def test_every_line_has_a_colour_and_a_name() -> None:
    named = [(f"<{number}>", [(0.0, 0.0), (1000.0, number)]) for number in range(MOST)]
    svg = lines(named, 3, lambda value: f"{value:g} B", "time").svg("t", "d", "x")
    for kind in ("wire", "wire two", "wire three", "wire four"):
        assert svg.count(f'<polyline class="{kind}"') == 2  # the line, and its place in the legend
    assert "&lt;3&gt;" in svg and "<3>" not in svg
    assert '<polyline class="wire four" points="92,202 710,12"/>' in svg  # from 0 to the most
    assert ">3 B<" in svg and ">1.00 us<" in svg


def test_nothing_took_any_time() -> None:
    assert "polyline" in lines([("x", [(0.0, 0.0)])], 0, str, "time").svg("t", "d", "x")
