"""Sums of tables of the kernel, against a plain twin, with entries that are reused."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.agent.flows import (
    COUNTED,
    IDLE_NS,
    MOST_PEERS,
    ORDERED,
    PACKETS,
    PEER_IDLE_NS,
    WIRE_BYTES,
    CountedFlows,
    Peers,
    grouped,
)
from rocescope.probes.counters.program import COUNTERS, address_text

SLOTS = 16
S = 1_000_000_000


def entry(created: int, packets: int, *, qp=1, sport=5, src=1, tap=0, transport=0, last=0, **more):
    one = np.zeros(1, COUNTERS)
    one["key"]["src"] = bytes([10, 0, 0, src]) + bytes(12)
    one["key"]["dst"] = bytes([10, 0, 1, 1]) + bytes(12)
    one["key"]["dest_qp"], one["key"]["sport"], one["key"]["tap"] = qp, sport, tap
    one["key"]["flags"] = 0x80 | transport << 1
    one["created_ns"], one["last_ns"], one["packets"] = created, last, packets
    one["wire_bytes"] = 100 * packets
    for name, value in more.items():
        one[name] = value
    return one


def take(flows: CountedFlows, table: dict[int, np.ndarray], now: int = 0) -> None:
    slots = np.array(sorted(table), np.int64)
    entries = np.concatenate([table[slot] for slot in slots.tolist()] or [np.zeros(0, COUNTERS)])
    flows.take(slots, entries, now)


def counted(taps: int = 1, **options: int) -> CountedFlows:
    return CountedFlows(np.array([tap % 2 == 0 for tap in range(taps)]), SLOTS, **options)


STEPS = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, SLOTS - 1),  # slot
            st.integers(1, 3),  # queue pair
            st.integers(1, 2),  # UDP source port
            st.integers(1, 3),  # source
            st.integers(0, 1),  # tap
            st.integers(1, 90),  # packets
            st.booleans(),  # a new entry even if the key is the same
        ),
        max_size=12,
    ),
    min_size=1,
    max_size=8,
)


@examples(60)
@given(STEPS)
def test_sums_are_those_of_all_packets(steps):
    flows = counted(2)
    table, keys, totals = {}, {}, defaultdict(Counter)
    created, evicted = 0, 0
    for step in steps:
        before = {slot: int(one["packets"][0]) for slot, one in table.items()}
        interval, paths = Counter(), defaultdict(Counter)
        changed = set()
        for slot, qp, sport, src, tap, packets, is_new in step:
            if slot in changed:
                continue
            changed.add(slot)
            key = (qp, sport, src, tap)
            if keys.get(slot) != key or is_new:
                created += 1
                evicted += before.get(slot, 0)
                keys[slot], table[slot] = (
                    key,
                    entry(created, 0, qp=qp, sport=sport, src=src, tap=tap),
                )
            one = table[slot] = table[slot].copy()
            for name, number in (("packets", 1), ("requests", 1), ("wire_bytes", 100)):
                one[name] += packets * number
            totals[tap][qp, src] += packets
            interval[tap] += packets
            paths[tap, qp, src][sport] += packets
        take(flows, table)
        for tap in (0, 1):
            assert flows.sums[tap, PACKETS] == sum(totals[tap].values())
            assert flows.interval[tap, PACKETS] == interval[tap]
            assert flows.sums[tap, ORDERED] == sum(totals[tap].values())
            assert sum(int(p[PACKETS]) for p in flows.peers[tap].sums) == sum(totals[tap].values())
        listed = {
            (
                int(flows.keys[n]["dest_qp"]),
                bytes(flows.keys[n]["src"])[3],
                int(flows.keys[n]["tap"]),
            ): n
            for n in flows.listed().tolist()
        }
        for tap, of_tap in totals.items():
            for (qp, src), packets in of_tap.items():
                assert flows.totals[listed[qp, src, tap], PACKETS] == packets
                assert flows.totals[listed[qp, src, tap], WIRE_BYTES] == 100 * packets
        for (tap, qp, src), ports in paths.items():
            whole = sum(ports.values())
            if whole >= 32:
                entropy = -sum(n / whole * math.log(n / whole) for n in ports.values())
                width = flows.widths[listed[qp, src, tap]]
                assert width == pytest.approx(math.exp(entropy))
    assert int(flows.evicted_known.sum()) == evicted


def test_cnps_and_acks_belong_to_the_flow_of_their_queue_pair():
    flows = counted()
    table = {
        0: entry(1, 40, requests=40, late=3),
        1: entry(2, 5, transport=4, cnps=5, sport=9),
    }
    take(flows, table)
    (number,) = flows.listed().tolist()
    assert dict(zip(COUNTED, flows.totals[number].tolist(), strict=True))["cnps"] == 5
    assert flows.sums[0, COUNTED.index("late")] == 3
    assert flows.widths[number] == 1 and flows.unsprayed.tolist() == [1]
    assert flows.sums[0, ORDERED] == 40


def test_datagrams_have_no_order():
    flows = counted()
    take(flows, {0: entry(1, 40, requests=40, transport=3)})
    assert flows.sums[0, ORDERED] == 0


def test_idle_flows_leave_the_list_and_stay_in_the_sums():
    flows = counted()
    take(flows, {0: entry(1, 3, last=S)}, S)
    take(flows, {0: entry(1, 3, last=S)}, S + IDLE_NS)
    assert flows.active().tolist() == [1]
    take(flows, {0: entry(1, 3, last=S)}, S + IDLE_NS + 1)
    assert flows.active().tolist() == [0] and flows.sums[0, PACKETS] == 3
    take(flows, {0: entry(1, 8, last=2 * IDLE_NS)}, 2 * IDLE_NS)
    (number,) = flows.listed().tolist()
    assert flows.totals[number, PACKETS] == 5
    assert flows.sums[0, PACKETS] == 8


def test_missing_is_a_lower_bound_per_flow():
    flows = counted()
    take(
        flows,
        {
            0: entry(1, 9, qp=1, gap_psns=5, late=2),
            1: entry(2, 9, qp=2, gap_psns=1, late=4),
        },
    )
    assert flows.missing().tolist() == [3]


def test_disordered_flows_of_the_last_interval(monkeypatch):
    monkeypatch.setattr("rocescope.agent.flows.MOST_FLOWS", 1024)
    flows = CountedFlows(np.array([True, True]), 2048)
    listed = {n: entry(n + 1, 1, qp=n + 1) for n in range(1023)}
    first = {**listed, 1023: entry(1024, 9, qp=5000, tap=1, gap_psns=5, late=2)}
    take(flows, first)
    ((number, *counts),) = flows.disordered().tolist()
    assert number >= 0 and counts == [1, 5, 2]
    grown = {**first, 1023: entry(1024, 12, qp=5000, tap=1, gap_psns=6, late=9)}
    take(flows, {**grown, 1024: entry(1025, 3, qp=6000, gap_psns=2)})
    assert flows.disordered().tolist() == [[number, 1, 1, 7], [-1, 0, 2, 0]]
    take(flows, {**grown, 1024: entry(1025, 3, qp=6000, gap_psns=2)})
    assert flows.disordered().tolist() == []


def test_peers_beyond_the_limit_are_others():
    flows = counted(peers=2)
    take(flows, {n: entry(n + 1, 10, src=n + 1) for n in range(4)})
    assert len(flows.peers[0].rows) == 2
    assert flows.peers[0].sums[MOST_PEERS, PACKETS] == 20
    assert {address_text(key[:16], bool(key[16])) for key in flows.peers[0].rows} == {
        "10.0.0.1",
        "10.0.0.2",
    }


def test_a_peer_that_was_idle_for_long_gives_way():
    peers = Peers()
    assert peers.row(b"a", 2, 5) == 0 and peers.row(b"b", 2, 6) == 1
    peers.sums[0] = 7
    assert peers.row(b"c", 2, PEER_IDLE_NS) == MOST_PEERS
    assert peers.row(b"c", 2, PEER_IDLE_NS + 5) == 0
    assert not peers.sums[0].any() and set(peers.rows) == {b"b", b"c"}
    assert peers.row(b"d", 0, 9) == MOST_PEERS


def test_flows_beyond_the_list_are_in_the_sums(monkeypatch):
    monkeypatch.setattr("rocescope.agent.flows.MOST_FLOWS", 1024)
    flows = CountedFlows(np.array([True]), 2048)
    take(flows, {n: entry(n + 1, 1, qp=n + 1) for n in range(1100)})
    assert flows.active().tolist() == [1024]
    assert flows.unlisted_packets == 76 and flows.sums[0, PACKETS] == 1100


@given(st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 9))))
@examples(50)
def test_grouped(rows):
    group = np.array([g for g, _ in rows], np.int64)
    values = np.array([[v] for _, v in rows], np.int64).reshape(-1, 1)
    found = Counter()
    for g, v in rows:
        found[g] += v
    names, sums = grouped(group, values)
    assert dict(zip(names.tolist(), sums[:, 0].tolist(), strict=True)) == {
        g: found[g] for g, _ in rows
    }
    assert names.tolist() == sorted(set(names.tolist()))
