"""Without aggregation every gradient continues."""

from __future__ import annotations

from aggregating import memory, packet

from rocescope.replay.aggregation.memory import FORWARD
from rocescope.replay.aggregation.schemes.atp import atp
from rocescope.replay.aggregation.schemes.none import at_switch, no_aggregation


def test_gradients_pass_the_switch_unchanged():
    held, sent = memory(), packet(0, 5)
    assert at_switch(held, sent, 0, 0, 0b11, 0) == FORWARD
    assert not held.cells.any() and (sent == packet(0, 5)).all()
    conduct = no_aggregation({}).conduct
    assert conduct.rto_ps == atp({}).conduct.rto_ps  # a loss costs both the same time
    assert not conduct.aggregates and not conduct.multicast
