"""Figures with a band: a script ends with exit code 1 when one of its figures leaves its band."""

from __future__ import annotations

import sys


class Bands:
    """Bands of one script, for its default options; `end` is its last call."""

    def __init__(self) -> None:
        self._outside: list[str] = []

    def within(self, what: str, value: float, least: float, most: float) -> None:
        """A figure that belongs between `least` and `most`; NaN never does."""
        if not least <= value <= most:
            self._outside.append(f"{what}: {value:.4g}, not {least:.4g} to {most:.4g}")

    def holds(self, claim: str, true: bool) -> None:
        """A statement that is true of the published result."""
        if not true:
            self._outside.append(f"{claim}: not so")

    def end(self) -> None:
        """Print the figures outside their bands; exit code 1 if there are any."""
        for line in self._outside:
            print(f"OUTSIDE ITS BAND: {line}")
        sys.exit(bool(self._outside))
