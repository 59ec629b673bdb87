"""Numbers and titles that reports of replays share."""

from __future__ import annotations

from rocescope.replay.results.base import Chance
from rocescope.report.terminal.replay_parts import NONE, chance_text, factor, fim


def test_unknown_numbers_are_a_dash() -> None:
    assert fim(None) == factor(None) == chance_text(None) == NONE
    assert (fim(12.34), factor(1.005)) == ("12.3", "1.00")


def test_chance_has_its_range() -> None:
    assert chance_text(Chance(mean=24.23, p05=18.4, p95=31.2, draws=9)) == "24.2 (18 to 31)"
