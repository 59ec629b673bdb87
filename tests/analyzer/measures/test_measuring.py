"""Parts by host pair, measured apart and merged, give what the whole gives."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traffic import packets

from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.wire.frames import LINKTYPE_ETHERNET
from rocescope.analyzer.wire.packets import PacketTable
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap

WINDOW_NS = 100_000
START_NS = 1_700_000_000_000_000_000


class Part:
    """A part of a capture; all parts number addresses and taps alike."""

    def __init__(self, table: PacketTable) -> None:
        self.registry = Registry()
        self.measuring = Measuring(WINDOW_NS, many_taps=True)
        for address in ADDRESSES:
            self.registry.endpoints.add(address)
        for tap in TAPS:
            self.registry.taps.add(Tap(tap, LINKTYPE_ETHERNET))
        self.measuring.tracker.see_taps(len(TAPS))
        self.measuring.follows = False
        self.measuring.update(table)

    def merge(self, other: Part) -> Part:
        self.measuring.merge(other.measuring)
        return self

    def results(self) -> object:
        """All that is reported, flows by their names; taps and connections likewise."""
        summary = Summary(self.measuring, self.registry, "entropy")
        flows = [msgspec.to_builtins(flow) for flow in summary.flows()]
        key = [(f["src"], f["dst"], f["dest_qp"]) for f in flows]
        for flow in flows:
            del flow["id"], flow["connection"]
            flow["taps"] = dict(sorted(flow["taps"].items()))
            for paths in (flow["paths"], *(s["paths"] for s in flow["spraying"])):
                paths.sort(key=lambda path: path["path"])  # equal ones stand in order of taps
        connections = []
        for connection in summary.connections:
            found = msgspec.to_builtins(connection)
            del found["id"]
            sides = sorted(
                [(key[connection.flows[0]], found.pop("a"), found.pop("a_qp")),
                 (key[connection.flows[1]], found.pop("b"), found.pop("b_qp"))]
            )  # fmt: skip
            connections.append((sides, found | {"flows": None}))
        names = self.registry.tap_names
        series = msgspec.to_builtins(self.measuring.totals.series(names))
        series["tap_wire_bytes"] = dict(sorted(series["tap_wire_bytes"].items()))
        events = sorted((e.time_ns, e.kind, str(e.tap), e.text) for e in summary.events(1000)[0])
        by_key = sorted(zip(key, flows, strict=True), key=lambda item: item[0])
        return by_key, sorted(connections, key=lambda c: c[0]), series, events


ADDRESSES = [f"10.0.0.{i}" for i in range(9)]
TAPS = ["a", "b", "c"]


def nonsense(rng, rows):
    """Packets of any kind at three taps."""
    table = packets([{} for _ in range(rows)])
    table.psn[:] = (rng.choice([0, 2**24 - 1, 5000], rows) + rng.integers(0, 200, rows)) & 0xFFFFFF
    for name, high in (
        ("opcode", 256), ("tap", 3), ("dest_qp", 4), ("ip_id", 2**16), ("aeth", 2**32),
        ("dma_length", 200), ("payload_bytes", 5000), ("hop_limit", 4), ("traffic_class", 256),
        ("udp_sport", 8),
    ):  # fmt: skip
        getattr(table, name)[:] = rng.integers(0, high, rows)
    return table


@pytest.mark.thorough
@examples(30)
@given(st.integers(0, 2**31), st.integers(2, 400), st.booleans())
def test_parts_without_a_common_host_pair_are_exact(seed, rows, split_again):
    """Interleaved in time; what was merged is merged again."""
    rng = np.random.default_rng(seed)
    table = nonsense(rng, rows)
    group = rng.integers(0, 3, rows)
    for name in ("src", "dst"):
        getattr(table, name)[:] = rng.integers(0, 3, rows) + 3 * group
    groups = [[0], [1, 2]]
    parts = [table.take(np.flatnonzero(np.isin(group, of))) for of in groups]
    one, two = (Part(part) for part in parts)
    if split_again:
        two = Part(table.take(np.flatnonzero(group == 1)))
        two.merge(Part(table.take(np.flatnonzero(group == 2))))
    whole = Part(table)
    assert one.merge(two).results() == whole.results()


def test_taps_that_show_only_while_reading():
    """A batch without a mirror session, then one with the first session."""
    measuring = Measuring(WINDOW_NS, many_taps=False)
    table = packets([{"psn": i} for i in range(10)])
    table.tap[7:] = 1
    measuring.update(table.slice(0, 6))
    measuring.update(table.slice(6, 10))
    assert (measuring.many_taps, measuring.packets_before_taps) == (True, 6)
    whole = Measuring(WINDOW_NS, many_taps=True)
    whole.update(table)
    assert whole.packets_before_taps == 0
