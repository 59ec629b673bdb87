"""Texts in pages."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import unescape

import polars as pl
import pytest
from html_checks import checked
from hypothesis import given
from hypothesis import strategies as st

from rocescope.report.html.drawing import (
    _DARK,
    LIGHT,
    LONGEST,
    STYLE,
    Chart,
    Drawing,
    escape,
    shorten,
    ticks,
)

# Texts in pages.


def test_markup_and_steering_characters() -> None:
    assert escape("<a href=\"x\" id='y'>&") == "&lt;a href=&quot;x&quot; id=&#x27;y&#x27;&gt;&amp;"
    assert escape("a\x1b[2J\u202eb\nc") == "a?[2J?b?c"


@given(st.text())
def test_no_text_leaves_its_place(text: str) -> None:
    escaped = escape(text)
    assert not set("<>\"'") & set(escaped)
    assert escaped.isprintable()
    assert unescape(escaped) == "".join(c if c.isprintable() else "?" for c in text)


def test_a_long_text_is_cut() -> None:
    assert escape("x" * (LONGEST + 1)) == "x" * LONGEST + "…"
    assert escape("x" * LONGEST) == "x" * LONGEST


# The style sheet: contrast of its colours.


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb or #rgb (WCAG 2.2)."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, _DARK], ids=["light", "dark"])
def test_texts_are_readable_on_both_backgrounds(colours: str) -> None:
    named = dict(re.findall(r"--(\w+):(#\w+);", colours))
    for name in ("ink", "soft", "bad", "warn", "note", "one", "two", "three"):
        least = 3 if name in ("one", "two") else 4.5
        for ground in ("paper", "panel"):
            assert contrast(named[name], named[ground]) >= least, (name, ground)


def test_the_sheet_is_whole_and_asks_for_nothing() -> None:
    assert STYLE.count("{") == STYLE.count("}")
    assert "url(" not in STYLE and "@import" not in STYLE


# Pictures and scales.


@given(st.floats(min_value=1e-9, max_value=1e18))
def test_ticks_are_even_and_reach_the_largest_value(most: float) -> None:
    scale = ticks(most)
    assert scale[0] == 0 and scale[-1] >= most * (1 - 1e-6)
    assert 2 <= len(scale) <= 9
    assert scale[1] == pytest.approx(scale[-1] - scale[-2])
    assert scale[-2] < most


@pytest.mark.parametrize("most", [0, -1, float("nan"), float("inf")])
def test_ticks_of_nothing(most: float) -> None:
    assert ticks(most) == [0.0, 1.0]


def test_a_picture_has_its_role_its_title_and_its_description() -> None:
    drawing = Drawing(10)
    drawing.rect(0, 1, 2.25, 3, "one", 0.06)
    drawing.text(1, 2, "a<b", "soft", "end")
    root = ET.fromstring(drawing.svg("A & B", "what <it> shows", "c1"))
    assert root.get("role") == "img" and root.get("aria-labelledby") == "c1-t c1-d"
    title, description, rect, text = root
    assert (title.get("id"), title.text) == ("c1-t", "A & B")
    assert (description.get("id"), description.text) == ("c1-d", "what <it> shows")
    assert rect.get("fill-opacity") == "0.06" and rect.get("width") == "2.2"
    assert text.text == "a<b" and text.get("text-anchor") == "end"


@given(st.text(max_size=60), st.integers(min_value=3, max_value=30))
def test_a_label_loses_its_middle(text: str, longest: int) -> None:
    short = shorten(text, longest)
    assert len(short) <= longest
    assert short == text if len(text) <= longest else short[0] == text[0]


# A chart and its numbers.

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
