"""Numbers in `--jobs`."""

from __future__ import annotations

from ...analyzer.errors import UsageError


def whole(key: str, text: str, least: int, most: int) -> int:
    """An integer; UsageError names the key and its range."""
    value = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else -1
    if not least <= value <= most:
        raise UsageError(f"--jobs: {key} is {least:,} to {most:,}, not {text!r}")
    return value


def number(key: str, text: str, least: float = 1e-6, most: float = 1e6) -> float:
    """A number, not NaN; UsageError names the key and its range."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= most:
        raise UsageError(f"--jobs: {key} is a number of {least:g} to {most:g}, not {text!r}")
    return value
