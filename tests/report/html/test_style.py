"""The style sheet: contrast of its colours."""

from __future__ import annotations

import re

import pytest

from rocescope.report.html.style import _DARK, LIGHT, STYLE


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
