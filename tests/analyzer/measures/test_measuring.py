"""Parts by host pair, measured apart and merged, give what the whole gives."""

from __future__ import annotations

import itertools
import statistics

import msgspec
import numpy as np
import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from traffic import ACK, NAK_SEQUENCE_ERROR, WRITE_ONLY, batches, packets

from rocescope.analyzer.measures.measuring import LATEST, Departed, Measuring, PacketClock
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.track.state import EVENT_NAMES, FOLLOWED_TAPS, UNFOLLOWED_TAPS
from rocescope.analyzer.wire.packets import ACK_REQUEST, LINKTYPE_ETHERNET, PacketTable
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap

# Parts by host pair, measured apart and merged, give what the whole gives.

WINDOW_NS = 100_000


class Part:
    """A part of a capture; all parts number addresses and taps alike."""

    def __init__(self, table: PacketTable, begins: dict[int, int]) -> None:
        """begins: time of the first packet of the whole capture by tap."""
        self.registry = Registry()
        self.measuring = Measuring(WINDOW_NS, many_taps=True)
        for address in ADDRESSES:
            self.registry.endpoints.add(address)
        for tap in TAPS:
            self.registry.taps.add(Tap(tap, LINKTYPE_ETHERNET))
        self.measuring.tracker.see_taps(len(TAPS))
        for tap, first_ns in begins.items():
            self.measuring.tracker.ran(tap, first_ns)
        self.measuring.follows = False
        self.measuring.update(table)

    def merge(self, other: Part) -> Part:
        self.measuring.merge(other.measuring)
        return self

    def results(self) -> object:
        """All that merging promises, flows by their names; taps and connections likewise."""
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
        events = sorted(
            (e.time_ns, e.kind, str(e.tap), e.text)
            for e in summary.events(1000)[0]
            if e.kind not in EVENT_NAMES  # those of the tracker are left to the caller
        )
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


def orderly(rng, rows):
    """WRITEs of nine hosts, some late, lost or again, their answers, and copies at the next tap."""
    sent, ids, passages = [0] * 9, [0] * 18, []
    for place in range(rows):
        host = int(rng.integers(0, 9))
        other = host // 3 * 3 + (host + 1) % 3
        if rng.random() < 0.2:
            row = {"src": other, "dst": host, "dest_qp": 0x12, "opcode": ACK, "payload_bytes": 0}
            row |= {
                "psn": sent[host],
                "syndrome": int(rng.choice([0x1F, 0x1F, NAK_SEQUENCE_ERROR])),
            }
            sender = 9 + host
        else:
            sent[host] += int(rng.choice([1, 1, 1, 1, 2]))
            row = {"src": host, "dst": other, "opcode": WRITE_ONLY, "bth_flags": ACK_REQUEST}
            row |= {"psn": sent[host] - int(rng.choice([0, 0, 0, 0, 0, 1, 3]))}
            sender = host
        ids[sender] += 1
        row |= {"ip_id": ids[sender], "traffic_class": int(rng.choice([0, 0, 0, 3]))}
        passages.append((place + int(rng.choice([0, 0, 0, 4])), row))
        if rng.random() < 0.9:
            passages.append((place + int(rng.integers(2, 6)), row | {"tap": 1, "hop_limit": 63}))
    return packets([row for _, row in sorted(passages, key=lambda passage: passage[0])])


def is_independent(parts):
    """Whether no part took packets of a tap as unfollowed that another part saw followed."""
    used = [part.measuring.tracker.state.used for part in parts]
    return not any(
        mine[UNFOLLOWED_TAPS] & theirs[FOLLOWED_TAPS]
        for mine, theirs in itertools.permutations(used, 2)
    )


def check_parts(table, group, split_again):
    """Interleaved in time; what was merged is merged again."""
    groups = [[0], [1], [2]] if split_again else [[0], [1, 2]]
    begins = {int(tap): int(table.time_ns[table.tap == tap].min()) for tap in np.unique(table.tap)}
    parts = [Part(table.take(np.flatnonzero(np.isin(group, of))), begins) for of in groups]
    assume(is_independent(parts))
    while len(parts) > 1:
        parts[-2].merge(parts.pop())
    assert parts[0].results() == Part(table, begins).results()


@pytest.mark.thorough
@examples(30)
@given(st.integers(0, 2**31), st.integers(2, 400), st.booleans())
def test_parts_without_a_common_host_pair_are_exact(seed, rows, split_again):
    rng = np.random.default_rng(seed)
    table = nonsense(rng, rows)
    group = rng.integers(0, 3, rows)
    for name in ("src", "dst"):
        getattr(table, name)[:] = rng.integers(0, 3, rows) + 3 * group
    check_parts(table, group, split_again)


@examples(30)
@given(st.integers(0, 2**31), st.integers(100, 900), st.booleans())
def test_parts_whose_packets_pass_two_taps_are_exact(seed, rows, split_again):
    table = orderly(np.random.default_rng(seed), rows)
    check_parts(table, table.src // 3, split_again)


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


# Names of flows that left: a set of names is the twin.

FLOW = np.dtype([("src", "i4"), ("dst", "i4"), ("dest_qp", "i4")])
names = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), max_size=20)


@given(st.lists(st.tuples(names, names), max_size=4))
def test_departed_is_a_set_of_names(steps):
    departed, twin = Departed(), set()
    for leaving, coming in steps:
        departed.add(np.array(leaving, FLOW))
        twin |= set(leaving)
        assert len(departed) == len(twin)
        assert departed.returned(np.array(coming, FLOW)) == sum(name in twin for name in coming)


# The packet clock is the median of the latest packets, however the batches are cut.

TIMES = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60)


@given(TIMES, st.lists(st.integers(0, 60)))
def test_the_median_of_the_latest_packets(times, cuts):
    clock = PacketClock()
    assert clock.now_ns is None
    table = packets([{"time_ns": time} for time in times])
    for part in batches(table, cuts):
        clock.update(part.time_ns)
    expected = statistics.median_low(times[-LATEST:]) if times else None
    assert clock.now_ns == expected


@given(st.lists(st.integers(0, 1000), min_size=LATEST), st.data())
def test_seven_wild_times_among_fifteen_packets_stay_within_the_others(times, data):
    times = sorted(times)[-LATEST:]
    clock = PacketClock()
    wild = data.draw(st.sets(st.integers(0, LATEST - 1), max_size=LATEST // 2))
    mixed = [10**18 if at in wild else time for at, time in enumerate(times)]
    clock.update(np.array(mixed, np.int64))
    assert times[0] <= clock.now_ns <= times[-1]
