"""Parts of a capture measured apart and merged give what the whole gives."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from captures import data
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from traffic import ACK, READ_FIRST, READ_LAST, READ_MIDDLE, READ_REQUEST, WRITE_ONLY, packets

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.measures.measuring import Measuring
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.track.psn.answers import rdma_udp_sport
from rocescope.analyzer.wire.frames import LINKTYPE_ETHERNET
from rocescope.analyzer.wire.packets import ACK_REQUEST, PacketTable
from rocescope.analyzer.wire.registry import Registry
from rocescope.analyzer.wire.taps import Tap

WINDOW_NS = 100_000
START_NS = 1_700_000_000_000_000_000


class Part:
    """A part of a capture with its own numbers for addresses and taps."""

    def __init__(self, table: PacketTable, addresses: list[str], taps: list[str]) -> None:
        self.registry = Registry()
        self.measuring = Measuring(WINDOW_NS, many_taps=len(taps) > 1)
        own = table.take(np.arange(len(table)))
        for column in ("src", "dst"):
            values = getattr(own, column)
            values[:] = [self.registry.endpoints.add(addresses[v]) for v in values.tolist()]
        seen = list(dict.fromkeys(own.tap.tolist()))
        for tap in seen:
            self.registry.taps.add(Tap(taps[tap], LINKTYPE_ETHERNET))
        own.tap[:] = [seen.index(t) for t in own.tap.tolist()]
        self.measuring.update(own)

    def merge(self, other: Part) -> Part:
        self.measuring.merge(other.measuring, self.registry.joined(other.registry))
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


def whole_and_parts(table, cut, taps=("a", "b", "c")):
    whole = Part(table, ADDRESSES, list(taps))
    one = Part(table.slice(0, cut), ADDRESSES, list(taps))
    two = Part(table.slice(cut, len(table)), ADDRESSES, list(taps))
    return whole, one, two


class Connection:
    """Two queue pairs that write to each other's memory, with every answer seen at once."""

    def __init__(self, index, psn, rng):
        self.forth = {"src": 2 * index, "dst": 2 * index + 1, "dest_qp": 0x20 + index}
        self.back = {"src": 2 * index + 1, "dst": 2 * index, "dest_qp": 0x40 + index}
        self.sport = rdma_udp_sport(0x20 + index, 0x40 + index)
        self.psn, self.rng, self.ids = psn, rng, [0, 0]

    def row(self, forth, **columns):
        side = 0 if forth else 1
        self.ids[side] += 1
        way = self.forth if forth else self.back
        return way | {"udp_sport": self.sport, "ip_id": self.ids[side] & 0xFFFF} | columns

    def ack(self):
        psn = (self.psn - 1) & 0xFFFFFF
        return self.row(False, opcode=ACK, psn=psn, syndrome=0x1F, payload_bytes=0)

    def calm(self, count):
        """WRITEs one by one, each with its ACK."""
        rows = []
        for _ in range(count):
            rows.append(self.row(True, opcode=WRITE_ONLY, psn=self.psn, bth_flags=ACK_REQUEST))
            self.psn += 1
            rows.append(self.ack())
        return rows

    def burst(self, late, size=12):
        """WRITEs of one packet of which some come late, then one ACK for all."""
        sent = []
        for _ in range(size):
            sent.append(self.row(True, opcode=WRITE_ONLY, psn=self.psn, bth_flags=ACK_REQUEST))
            self.psn += 1
        for at, by in late:
            sent.insert(min(at + by, size - 1), sent.pop(at))
        return [*sent, self.ack()]

    def resend(self):
        """One lost, retransmitted with the one behind it."""
        rows = self.calm(1)
        lost = self.psn
        self.psn += 2
        rows.append(self.row(True, opcode=WRITE_ONLY, psn=lost + 1))
        rows.append(self.row(False, opcode=ACK, psn=lost, syndrome=0x60, payload_bytes=0))
        rows += [self.row(True, opcode=WRITE_ONLY, psn=p) for p in (lost, lost + 1)]
        return [*rows, self.ack()]

    def lose(self):
        """One that is never seen, and the ACK of it and the next."""
        self.psn += 1
        return self.calm(1)

    def read(self):
        """A READ of four packets; the path MTU is known, WRITEs of more packets came before."""
        first = self.psn
        self.psn += 4
        rows = [self.row(True, opcode=READ_REQUEST, psn=first, dma_length=4096, payload_bytes=0)]
        for i, opcode in enumerate((READ_FIRST, READ_MIDDLE, READ_MIDDLE, READ_LAST)):
            rows.append(self.row(False, opcode=opcode, psn=first + i, payload_bytes=1024))
        return rows


@st.composite
def cut_capture(draw):
    """(rows of a table, where it is cut cleanly)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    count = draw(st.integers(1, 3))
    connections = [Connection(i, draw(st.integers(0, 2**24 - 1)), rng) for i in range(count)]
    first_ends = count > 1 and draw(st.booleans())  # a flow of the earlier part only
    rows, cut = [], 0
    for part in range(2):
        if part:
            cut = len(rows)
        for connection in connections:
            if part and first_ends and connection is connections[0]:
                continue
            rows += connection.calm(12)
            rows += connection.read()
        for _ in range(draw(st.integers(0, 6))):
            connection = connections[rng.integers(part and first_ends, count)]
            kinds = ["burst", "burst", "resend", "read", "calm", *["lose"] * part]
            kind = draw(st.sampled_from(kinds))
            if kind == "burst":
                late = [
                    (int(rng.integers(0, 10)), int(rng.integers(1, 6)))
                    for _ in range(rng.integers(1, 4))
                ]
                rows += connection.burst(late)
            else:
                rows += connection.calm(2) if kind == "calm" else getattr(connection, kind)()
    return rows, cut


@pytest.mark.thorough
@examples(60)
@given(cut_capture())
def test_a_clean_cut_makes_no_difference(capture):
    rows, cut = capture
    table = packets(rows)
    whole, one, two = whole_and_parts(table, cut)
    assert one.merge(two).results() == whole.results()


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
@given(st.integers(0, 2**31), st.integers(2, 400))
def test_parts_without_a_common_host_pair_are_exact(seed, rows):
    """Interleaved in time, each with its own numbering of hosts and taps."""
    rng = np.random.default_rng(seed)
    table = nonsense(rng, rows)
    group = rng.integers(0, 2, rows)
    table.src[:] = rng.integers(0, 3, rows) + 4 * group
    table.dst[:] = rng.integers(0, 3, rows) + 4 * group
    taps = ["a", "b", "c"]
    whole = Part(table, ADDRESSES, taps)
    whole.measuring.many_taps = True
    one, two = (Part(table.take(np.flatnonzero(group == g)), ADDRESSES, taps) for g in (0, 1))
    expected = whole.results()
    assert one.merge(two).results() == expected


@pytest.mark.thorough
@examples(30)
@given(st.integers(0, 2**31), st.integers(0, 400))
def test_every_cut_conserves_packets_and_bytes(seed, cut):
    rng = np.random.default_rng(seed)
    table = nonsense(rng, 400)
    table.src[:], table.dst[:] = rng.integers(0, 3, 400), rng.integers(0, 3, 400)
    whole, one, two = whole_and_parts(table, cut)
    apart = sum(int(p.measuring.tracker.flows["packets"].sum()) for p in (one, two))
    apart_bytes = sum(int(p.measuring.tracker.flows["wire_bytes"].sum()) for p in (one, two))
    tracker = one.merge(two).measuring.tracker
    assert len(tracker) == len(whole.measuring.tracker)
    assert tracker.flows["packets"].sum() == apart == tracker.opcodes(np.arange(len(tracker))).sum()
    assert tracker.flows["wire_bytes"].sum() == apart_bytes
    assert (tracker.flows["packets"] + tracker.flows["tap_copies"]).sum() == 400
    streams = tracker.state.streams[: 2 * len(tracker)]
    for name in ("missing", "missing_evicted", "arrivals", "run", "run_packets"):
        assert (streams[name] >= 0).all(), name
    peers = tracker.flows["peer"]
    for flow in np.flatnonzero(peers >= 0).tolist():
        assert peers[peers[flow]] == flow
    results = one.results()
    assert sum(flow["packets"] for _, flow in results[0]) == apart
    one.measuring.update(nonsense(rng, 300))  # what was merged can continue
    assert (tracker.flows["packets"] + tracker.flows["tap_copies"]).sum() == 700


def test_three_parts_in_two_orders_of_merging():
    """The middle one has nothing late, so that runs continue through it."""
    connection = Connection(0, 100, np.random.default_rng(3))
    pieces = [connection.calm(12) + connection.burst([(2, 3)] * (i != 1)) for i in range(3)]
    table = packets(sum(pieces, []))
    size = len(pieces[0])
    whole = Part(table, ADDRESSES, ["a"])

    def part(i):
        return Part(table.slice(i * size, (i + 1) * size), ADDRESSES, ["a"])

    expected = whole.results()
    assert part(0).merge(part(1)).merge(part(2)).results() == expected
    assert part(0).merge(part(1).merge(part(2))).results() == expected


@pytest.mark.parametrize("cut", [0, 5, 7, 9, 12])
def test_what_was_merged_goes_on(cut):
    """Packets that follow, also in the middle of disorder, find all they need.

    Only messages, requests and RFC 5236's windows that are open are closed by the merge.
    """
    connection = Connection(0, 100, np.random.default_rng(3))
    pieces = [
        connection.calm(12) + connection.burst([(2, 3)]),
        connection.calm(12) + connection.burst([(2, 3), (4, 6), (5, 3)]),
        connection.burst([(1, 3)]),
    ]
    table = packets(sum(pieces, []))
    seam, stop = len(pieces[0]), len(pieces[0]) + 24 + cut
    whole, one, two = (
        Part(table.slice(a, b), ADDRESSES, ["a"])
        for a, b in ((0, len(table)), (0, seam), (seam, stop))
    )
    one.merge(two)
    one.measuring.update(table.slice(stop, len(table)))
    for (_, found), (_, expected) in zip(one.results()[0], whole.results()[0], strict=True):
        for flow in (found, expected):
            del flow["message_statistics"], flow["latency"], flow["notes"]
            if flow["reordering"]:
                del flow["reordering"]["density"], flow["reordering"]["buffer_density"]
        assert found == expected


def test_packets_lost_at_the_seam_count_as_nothing():
    connection = Connection(0, 100, np.random.default_rng(3))
    before = packets(connection.calm(20))
    connection.psn += 5
    after = packets(connection.calm(20))
    after.time_ns[:] += 10**9
    one, two = Part(before, ADDRESSES, ["a"]), Part(after, ADDRESSES, ["a"])
    (_, flow), _ = one.merge(two).results()[0]
    assert (flow["packets"], flow["missing_packets"], flow["reordered_packets"]) == (40, 0, 0)
    assert flow["sequence_restarts"] == 0


@pytest.mark.parametrize("name", ["c40", "i03", "i01_write_loss0.5_AtoB.atB", "c04"])
def test_real_captures_cut_in_two_conserve_everything_countable(name):
    registry = Registry()
    decoder = Decoder(registry)
    with open_capture(str(data(name)), registry.taps) as capture:
        tables = [decoder.decode(frames) for frames in capture.batches()]
    table = PacketTable.concatenate(tables)
    addresses, cut = registry.endpoints.texts(), 5 * len(table) // 9
    whole, one, two = (
        Part(part, addresses, ["x"])
        for part in (table, table.slice(0, cut), table.slice(cut, len(table)))
    )
    merged = one.merge(two).measuring.tracker
    expected = whole.measuring.tracker
    exact = ("packets", "wire_bytes", "payload_bytes", "request_packets", "naks", "first_time")
    for field in (*exact, "last_time", "ecn_marked", "path_mtu", "transport", "ack_packets"):
        assert np.array_equal(merged.flows[field], expected.flows[field]), field
    assert np.array_equal(*(t.opcodes(np.arange(len(t))) for t in (merged, expected)))


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
