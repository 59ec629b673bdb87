"""Texts in pages."""

from __future__ import annotations

from html import unescape

from hypothesis import given
from hypothesis import strategies as st

from rocescope.report.html.escape import LONGEST, escape


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
