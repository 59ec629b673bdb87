"""Flows with their addresses as texts."""

from __future__ import annotations

from captures import tracked

from rocescope.analyzer.track.named_flows import named_flows


def test_flows_have_their_addresses_and_partners():
    found = tracked("c10")
    named = named_flows(found.tracker, found.endpoints)
    assert [(one.src, one.dst, one.dest_qp) for one in named] == found.keys()
    paired = [one for one in named if one.peer >= 0]
    assert paired
    for one in paired:
        assert (named[one.peer].dst, named[one.peer].peer) == (one.src, one.number)
    assert all(one.first_ns <= one.last_ns for one in named)
