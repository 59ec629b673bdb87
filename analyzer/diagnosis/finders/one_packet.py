"""Senders that go back to one packet again and again."""

from __future__ import annotations

from ...measures.troubles import LOST_AFTER
from ..case import Case

ROUNDS = 4
"""Rewinds to one PSN in a row: with 1 % random loss a packet is lost four times in a row once in
100,000,000 packets."""
MOSTLY = 0.9
"""Share of the NAKed packets that are this one, from which they are not lost at random."""


def rounds_of(case: Case, f: int) -> int:
    """The most rewinds of a flow to one PSN in a row."""
    return int(case.measuring.troubles.progress(f)["max_rounds"])


def refuses_one(case: Case, f: int) -> bool:
    """Whether the NAKs for packets that the tap saw in order are nearly all for one packet, to
    which the sender goes back again and again."""
    lost = case.measuring.troubles.of(f, LOST_AFTER)
    naked = int(case.measuring.troubles.progress(f)["max_rounds_naked"])
    return lost is not None and rounds_of(case, f) >= ROUNDS and naked >= MOSTLY * lost.packets
