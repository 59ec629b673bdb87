"""A chart and its numbers."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import polars as pl
from html_checks import checked

from rocescope.report.html.chart import Chart
from rocescope.report.html.drawing import Drawing

CHART = Chart("Loads", "Two links.", Drawing(5), ("link", "bytes"), [("<a>", 1_234), ("b", None)])


def test_the_numbers_stand_below_the_picture() -> None:
    words = checked(CHART.figure("c1").encode())
    assert "Loads. Two links." in words
    assert "Numbers: Loadslinkbytes<a>1,234b?" in words
    left_out = Chart("L", "D.", Drawing(5), ("x",), [], "One link is not shown.")
    assert "D. One link is not shown." in checked(left_out.figure("c").encode())


def test_the_numbers_are_a_table_of_any_library() -> None:
    assert pl.DataFrame(CHART).rows() == [("<a>", 1_234), ("b", None)]
    assert CHART.to_arrow().column_names == ["link", "bytes"]


def test_a_notebook_shows_the_picture_with_its_own_style() -> None:
    root = ET.fromstring(CHART._repr_svg_())
    assert [part.tag.split("}")[1] for part in root] == ["style", "title", "desc"]
    assert repr(CHART) == "<Chart: Loads>"
    other = Chart("Other", "", CHART.drawing, (), [])
    ids = {ET.fromstring(chart.picture())[1].get("id") for chart in (CHART, other)}
    assert len(ids) == 2  # a notebook is one page
