"""New critical findings of a live analysis, one line each, while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...analyzer.results.diagnosis import Diagnosis, Place

EVERY_S = 1.0
PART = 20
"""Packets wait in the rings meanwhile: a diagnosis takes at most one part of the time in so
many."""
MOST_FLOWS = 2_000
"""A diagnosis of more flows takes too long; the report at the end covers all."""
FIXED_S, PER_FLOW_S = 0.1, 0.002
"""What the first diagnosis may take on a slow machine; the ones before tell what the next takes."""
MARGIN = 2
"""A diagnosis may take one part in N of the time that the rings last."""


class Criticals:
    """Which critical findings are new."""

    def __init__(
        self, diagnose: Callable[[], Diagnosis], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """diagnose: all findings so far; clock: seconds."""
        self._diagnose, self._clock = diagnose, clock
        self._next = clock() + EVERY_S
        self._pace = 1.0
        """How long the last diagnosis took, as a share of what was expected at first."""
        self._told: set[tuple[str, Place]] = set()
        self._said: set[str] = set()

    def lines(self, flows: int, room_s: float = inf) -> list[str]:
        """The sentence of each new finding, or why there is none; empty until it is time again.

        room_s: seconds that packets may wait without loss.
        """
        from ...report.words.diagnosis import sentence

        began = self._clock()
        if began < self._next:
            return []
        usual = FIXED_S + PER_FLOW_S * flows
        why = None
        if flows > MOST_FLOWS:
            why = f"more than {MOST_FLOWS:,} flows: the diagnosis comes with the report"
        elif MARGIN * self._pace * usual > room_s:
            why = "the packet rate is too high to diagnose now: the diagnosis comes with the report"
        if why is not None:
            self._next = began + EVERY_S
            new_reason = why not in self._said
            self._said.add(why)
            return [why] if new_reason else []
        critical = [f for f in self._diagnose().findings if f.severity == "critical"]
        now = self._clock()
        self._pace = (now - began) / usual
        self._next = now + max(EVERY_S, PART * (now - began))
        new = [f for f in critical if (f.kind, f.place) not in self._told]
        self._told |= {(f.kind, f.place) for f in new}
        return [f"critical: {sentence(f)}" for f in new]
