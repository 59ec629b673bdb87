"""Pictures and scales."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.report.html.drawing import Drawing, shorten, ticks


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
