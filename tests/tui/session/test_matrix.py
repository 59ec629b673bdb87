"""Paths by tap are parallel links, never taps in series."""

from __future__ import annotations

import numpy as np
import pytest
from captures import DATA

from rocescope.tui.session.columns import level_and_tap
from rocescope.tui.session.matrix import at_one_place, known_sets
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import PathColumns

FABRIC = sorted((DATA / "whole_leafspine/r09_packet_spray_h1").glob("*.pcap.xz"))
SPRAYED = "10.1.1.10", "10.2.3.10"
HOST, LEFT, RIGHT, FAR = 0, (1, 2), (3, 4), 5


def columns(*rows):
    """Rows (flow, hop limit, tap, bytes), in the order of flows, hop limits modulo 8 and taps."""
    flow, limit, tap, size = (np.array(part, np.int64) for part in zip(*rows, strict=True))
    flows = int(flow[-1]) + 1
    return PathColumns(
        "tap",
        np.searchsorted(flow, np.arange(flows + 1)),
        level_and_tap(limit % 8, tap),
        size // 100,
        size,
        size * 0,
        size * 0,
        np.zeros(flows),
    )


def loads(found, flow):
    at = found.of(flow)
    return dict(zip(found.key[at].tolist(), found.wire_bytes[at].tolist(), strict=True))


THERE = [(0, 64, HOST, 800), (0, 61, FAR, 800), (0, 62, 4, 800), (0, 63, 2, 800)]
BACK = [(1, 64, FAR, 400), (1, 61, HOST, 400), (1, 62, 1, 400), (1, 63, 3, 400)]


def test_the_parallel_links_nearest_to_the_sender_with_the_idle_ones():
    found = at_one_place(columns(*THERE, *BACK), [LEFT, RIGHT])
    assert loads(found, 0) == {1: 0, 2: 800}
    assert loads(found, 1) == {3: 400, 4: 0}
    assert found.width.tolist() == [1, 1]
    assert found.fair.tolist() == [1, 1, 1, 1]


def test_links_that_a_flow_is_sprayed_over_come_first():
    """A flow that leaves over one link, and that the next device spreads."""
    rows = [(0, 64, HOST, 800), (0, 62, 3, 390), (0, 62, 4, 410), (0, 63, 1, 800)]
    found = at_one_place(columns(*rows), [LEFT, RIGHT])
    assert loads(found, 0) == {3: 390, 4: 410}
    assert found.width == pytest.approx([2], abs=0.01)


def test_a_link_with_few_of_the_packets_is_not_the_place():
    rows = [(0, 64, HOST, 800), (0, 62, 3, 700), (0, 63, 1, 100)]
    assert loads(at_one_place(columns(*rows), [LEFT, RIGHT]), 0) == {3: 700, 4: 0}


def test_a_flow_that_passes_no_parallel_links_has_one_path():
    found = at_one_place(columns((0, 64, HOST, 800)), [LEFT])
    assert loads(found, 0) == {HOST: 800}


def test_while_parallel_links_are_not_known_taps_at_one_level_are_paths():
    rows = [(0, 64, HOST, 800), (0, 63, 1, 300), (0, 63, 2, 500)]
    found = at_one_place(columns(*rows), None)
    assert loads(found, 0) == {1: 300, 2: 500}
    assert found.fair is None


def test_names_of_taps_that_are_not_there_are_left_out():
    assert known_sets(["a", "b", "c"], [("b", "c", "x"), ("a", "y")]) == [[1, 2]]


@pytest.fixture(scope="module")
def fabric():
    """Twelve taps: hosts, both sides of four spines; one host is sprayed."""
    session = Session.open([str(path) for path in FABRIC])
    session.start()
    assert session.wait(300)
    session.diagnose()
    snapshot = session.snapshot()
    yield snapshot
    session.close()


def test_no_link_of_a_host_competes_with_those_of_spines(fabric):
    sets = known_sets(fabric.source.tap_names, fabric.judged.parallel_taps)
    found = at_one_place(fabric.paths["tap"], sets)
    data = np.flatnonzero(fabric.carries_data())
    for flow in data.tolist():
        key = fabric.key(flow)
        leaf = "leaf1" if key.src.startswith("10.1.") else "leaf2"
        names = [found.name(tap) for tap in found.key[found.of(flow)].tolist()]
        assert names == [f"{leaf}-spine{n}.pcap.xz" for n in (1, 2, 3, 4)]
        width = found.width[flow]
        assert width > 3.9 if (key.src, key.dst) == SPRAYED else width == 1
        assert found.packets[found.of(flow)].sum() == fabric.flows.data_packets[flow]
