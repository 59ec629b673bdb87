"""An analysis that ends idle flows has the sums, and the listed flows, of one that keeps all."""

from __future__ import annotations

import weakref
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from captures import data
from cases import PORT
from hypothesis import given, settings
from hypothesis import strategies as st
from traffic import ACK, WRITE_ONLY, packets

from rocescope.analyzer.decode.control import CmMessage
from rocescope.analyzer.measures.ending import LEAST_LEAVING, Turns, end_idle, make_room
from rocescope.analyzer.measures.measuring import LATEST, Measuring
from rocescope.analyzer.measures.series import LateActivity
from rocescope.analyzer.pipeline.captures import open_captures
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.captures import Ended
from rocescope.analyzer.summary.summarize import Summary
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.taps import Gap

SECOND_NS = 1_000_000_000
ONLY_OF_ENDED = (
    "flows", "queue_pairs", "connections", "flows_in_trouble", "first_time_ns", "last_time_ns",
    "untracked_packets", "untracked_wire_bytes", "marked_between_taps", "sequenced_packets",
    "partial_flows", "unknown_between_taps", "untapped_flows", "missed_by_captures",
    "returned_flows",
)  # fmt: skip
SUMS = [name for name in Ended.__struct_fields__ if name not in ONLY_OF_ENDED]
NAMES = ["tap"]


def generations(paths, rounds, apart_ns=2 * SECOND_NS):
    """The packets of captures several times: each time with other queue pairs, and later.

    Yields (registry, many_taps) first, then tables.
    """
    with open_captures([str(path) for path in paths], AnalyzeOptions()) as run:
        tables = [table.take(np.arange(len(table))) for table, _ in run._tables()]
        yield run.registry, run.measuring.many_taps
    times = np.concatenate([table.time_ns for table in tables])
    span = int(times.max() - times.min()) + apart_ns
    for round_ in range(rounds):
        for table in tables:
            qps = table.dest_qp.copy()
            qps[qps > 1] = (qps[qps > 1] + 1009 * round_) & 0xFFFFFF
            yield replace(table, time_ns=table.time_ns + round_ * span, dest_qp=qps)


def measured(paths, rounds, end):
    """(registry, plain analysis, analysis for which `end` is called before each batch, the records
    of the flows that left it)."""
    feed = generations(paths, rounds, 6 * SECOND_NS)
    registry, many_taps = next(feed)
    both = [Measuring(100_000_000, many_taps) for _ in range(2)]
    for measuring in both:
        measuring.late = LateActivity()
        measuring.tracker.see_taps(len(registry.taps))
    plain, ending = both
    left = []

    def leaving(gone):
        summary = Summary(ending, registry, "entropy")
        left.extend(summary.flow(number) for number in gone.tolist())

    last_ns = 0
    for table in feed:
        between = 0 < last_ns < table.time_ns[0] - 5 * SECOND_NS
        last_ns = table.time_ns[-1]
        end(ending, registry.tap_names, between, leaving)
        for measuring in both:
            measuring.update(table)
    end(ending, registry.tap_names, False, leaving)
    return registry, plain, ending, left


def end_at(measuring, now_ns, *how):
    """End what is idle when the packets' clock stands at `now_ns`."""
    measuring.clock.update(np.full(LATEST, now_ns))
    return end_idle(measuring, *how)


def record(flow):
    """All of a record that does not number other records."""
    fields = msgspec.to_builtins(flow)
    del fields["id"], fields["connection"]
    return fields


def by_name(flows):
    return {(flow.src, flow.dst, flow.dest_qp): record(flow) for flow in flows}


LEAF = "leafspine/r01_clean_write"
SEVERAL_TAPS = (
    f"{LEAF}/H1-leaf1.pcap.xz",
    f"{LEAF}/leaf1-spine1.pcap.gz",
    f"{LEAF}/leaf1-spine2.pcap.gz",
)
CAPTURES = [
    ("i03_write_reorder5_AtoB.atB.pcap.gz",),
    ("i04_write_duplicate1_AtoB.atB.pcap.gz",),
    ("i13_write_ecn_ce2_AtoB.atB.pcap.gz",),
    ("c04_rc_read_q4_64k.atB.pcap.gz",),
    ("c05_rc_atomic_fetchadd.atB.pcap",),
    ("i01_write_loss0.5_AtoB.atA.pcap.gz", "i01_write_loss0.5_AtoB.atB.pcap.gz"),
    SEVERAL_TAPS,
]


def idle(measuring, names, _between, leaving):
    end_idle(measuring, 1_500_000_000, names, 3, 1, leaving=leaving)


def room(measuring, names, between, leaving):
    if between:
        make_room(measuring, 2, names, most_kept=1, leaving=leaving)
        assert measuring.ended.returned_flows == 0


@pytest.mark.parametrize(
    "names", CAPTURES, ids=lambda names: names[0].partition("/")[2] or names[0]
)
@pytest.mark.parametrize("end", [idle, room])
def test_sums_and_listed_flows_are_those_of_an_analysis_without_endings(names, end):
    registry, plain, ending, left = measured([data(name) for name in names], 3, end)
    ended = ending.ended
    assert ended.flows == len(left) > 0
    whole, part = (Summary(m, registry, "entropy") for m in (plain, ending))
    flows, listed = whole.flows(), part.flows()
    assert len(flows) == len(listed) + ended.flows
    assert len(whole.connections) == len(part.connections) + ended.connections
    sequenced, rest = (
        [flow for flow in found if flow.retransmitted_packets is not None]
        for found in (flows, listed)
    )
    for name, count in (
        ("sequenced_packets", lambda flow: flow.request_packets + flow.response_packets),
        ("partial_flows", lambda flow: flow.missing_packets is None),
    ):
        assert sum(map(count, sequenced)) == sum(map(count, rest)) + getattr(ended, name), name
    known = by_name(flows)
    for name, fields in by_name(listed).items():
        assert fields == known[name]
    for name, fields in by_name(left).items():  # bins of activity are as wide as the capture needs
        bins = {"activity_bytes": None, "activity_bin_ns": None}
        assert fields | bins == known[name] | bins
    for name in SUMS:
        together = sum(getattr(flow, name) or 0 for flow in flows)
        left = getattr(ended, name)
        left += ended.marked_between_taps if name == "ecn_marked_packets" else 0
        assert together == sum(getattr(f, name) or 0 for f in listed) + left, name
    stay = by_name(listed)
    assert ended.first_time_ns == min(
        flow["first_time_ns"] for name, flow in known.items() if name not in stay
    )
    series = [m.totals.series(registry.tap_names) for m in (plain, ending)]
    assert series[0] == series[1]
    lost = [sum(hop.lost_packets for hop in summary.hops()[0]) for summary in (whole, part)]
    assert lost[0] == lost[1] + ended.lost_between_taps


def write(qp, psn, time_ns, **more):
    return {"opcode": WRITE_ONLY, "dest_qp": qp, "psn": psn, "time_ns": time_ns, **more}


def test_the_worst_idle_flows_stay_and_a_queue_pair_that_comes_back_is_a_new_flow():
    measuring = Measuring(100_000_000, many_taps=False)
    troubled = [write(100, psn, psn) for psn in (0, 1, 5, 6)]  # 2, 3, 4 are missing
    clean = [write(qp, psn, 10 + psn) for qp in range(200, 210) for psn in range(3)]
    measuring.update(packets(troubled + clean))
    assert end_at(measuring, 5 * SECOND_NS, SECOND_NS, NAMES, 1, 1) == 10
    assert measuring.tracker.flows["dest_qp"].tolist() == [100]
    ended = measuring.ended
    assert (ended.flows, ended.packets, ended.flows_in_trouble) == (10, 30, 0)
    measuring.update(packets([write(205, 90, 5 * SECOND_NS), write(100, 7, 5 * SECOND_NS)]))
    flows = measuring.tracker.flows
    assert dict(zip(flows["dest_qp"].tolist(), flows["packets"].tolist(), strict=True)) == {
        100: 5,
        205: 1,
    }


@pytest.mark.parametrize("wild_ns", [10**18, -(10**18), 4 * SECOND_NS])
@pytest.mark.parametrize("last", [True, False], ids=["last", "alone"])
def test_a_frame_with_a_wild_time_ends_no_flow(wild_ns, last):
    """Whether it is the last of many, or makes a batch of its own; of a flow or of a new one."""
    measuring = Measuring(100_000_000, many_taps=True)
    rows = [write(qp, psn, 1000 * psn + qp) for psn in range(5) for qp in range(100, 110)]
    for qp in (100, 300):
        wild = write(qp, 5, wild_ns)
        for table in [[*rows, wild]] if last else [rows, [wild]]:
            measuring.update(packets(table))
            assert end_idle(measuring, SECOND_NS, NAMES, 1, 1) == 0
        rows = [{**row, "psn": row["psn"] + 10} for row in rows]
    assert {*range(100, 110)} <= set(measuring.tracker.flows["dest_qp"].tolist())
    later = [write(105, psn, 9 * SECOND_NS + psn) for psn in range(40, 60)]
    measuring.update(packets(later))
    assert end_idle(measuring, SECOND_NS, NAMES, 1, 1) >= 7  # the true clock still ends them


def test_flows_leave_only_in_worthwhile_numbers_and_both_of_a_connection():
    measuring = Measuring(100_000_000, many_taps=False)
    rows = []
    for qp in range(100, 120, 2):
        for psn in range(4):
            rows.append(write(qp, psn, 100 * psn, bth_flags=0x800000, src=0, dst=1))
            rows.append(
                {"opcode": ACK, "dest_qp": qp + 1, "psn": psn, "time_ns": 100 * psn + 50,
                 "src": 1, "dst": 0, "aeth": 0, "decode_flags": 0x10}
            )  # fmt: skip
    rows.append(write(118, 4, 4 * SECOND_NS, src=0, dst=1))
    measuring.update(packets(rows))
    assert end_at(measuring, 5 * SECOND_NS, 2 * SECOND_NS, NAMES, 0, 19) == 0
    assert end_at(measuring, 5 * SECOND_NS, 2 * SECOND_NS, NAMES, 0, 1) == 18
    assert sorted(measuring.tracker.flows["dest_qp"].tolist()) == [118, 119]
    assert measuring.ended.connections == 9


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=30),
        min_size=2,
        max_size=6,
    ),
    st.integers(0, 4),
)
def test_any_traffic_any_order(rounds, most_kept):
    """Every round has queue pairs of its own; PSNs come in any order."""
    both = [Measuring(100_000_000, many_taps=False) for _ in range(2)]
    for number, psns in enumerate(rounds):
        start = number * 3 * SECOND_NS
        rows = [
            write(100 * (number + 1) + qp, psn, start + at, ip_id=at)
            for at, (qp, psn) in enumerate(psns)
        ]
        for measuring in both:
            measuring.update(packets(rows))
        end_at(both[1], start + len(rows), SECOND_NS, NAMES, most_kept, 1)
    plain, ending = both
    streams = [m.tracker.state.streams[: 2 * len(m.tracker)] for m in both]
    for name, fields in (
        ("reordered_packets", ["reordered"]),
        ("retransmitted_packets", ["recovered", "retransmitted"]),
        ("duplicate_packets", ["duplicates"]),
        ("sequence_restarts", ["restarts"]),
    ):
        whole, part = (sum(int(s[field].sum()) for field in fields) for s in streams)
        assert whole == part + getattr(ending.ended, name)
    assert len(plain.tracker) == len(ending.tracker) + ending.ended.flows
    packets_of = [int(m.tracker.flows["packets"].sum()) for m in both]
    assert packets_of[0] == packets_of[1] + ending.ended.packets


def held(measuring):
    """Bytes behind the flows that are present: records in use, not spare room."""
    t = measuring.tracker
    pools = (t.histograms, measuring.messages._histograms, measuring.congestion._spacing)
    return (
        len(t)
        + int(t.state.used[:4].sum())
        + sum(int(pool.arrays.used.sum()) for pool in pools)
        + len(measuring.entropy._table.paths)
        + len(measuring.taps._table.paths)
        + len(measuring.hops.edges)
        + len(measuring.hops.visits)
        + len(measuring.hops.ends)
        + int(measuring.messages.arrays.used[1])
    )


def test_churn_holds_the_state_of_the_active_flows_only():
    """Ten rounds of new queue pairs hold no more than the third."""
    measuring = Measuring(100_000_000, many_taps=True)
    seen = []
    for round_ in range(10):
        start = round_ * 3 * SECOND_NS
        rows = [
            write(1000 * (round_ + 1) + qp, psn, start + 1000 * psn + qp, ip_id=psn)
            for psn in range(5)
            for qp in range(300)
        ]
        measuring.update(packets(rows))
        end_at(measuring, start + SECOND_NS, SECOND_NS, NAMES, 20, 100)
        seen.append(held(measuring))
    assert max(seen[2:]) <= seen[2]
    assert measuring.ended.packets + int(measuring.tracker.flows["packets"].sum()) == 15_000
    capacity = [len(measuring.tracker.state.flows), len(measuring.idle.arrays.state)]
    assert max(capacity) < 2048


def test_packets_of_new_flows_beyond_the_limit_are_counted_only():
    measuring = Measuring(100_000_000, many_taps=False)
    measuring.most_flows = 3
    measuring.update(packets([write(qp, 0, qp) for qp in range(100, 103)]))
    measuring.update(packets([write(qp, 1, qp, wire_bytes=80) for qp in range(100, 107)]))
    assert measuring.tracker.flows["packets"].tolist() == [2, 2, 2]
    assert (measuring.ended.untracked_packets, measuring.ended.untracked_wire_bytes) == (4, 320)


def test_packets_of_addresses_beyond_the_limit_are_counted_only():
    measuring = Measuring(100_000_000, many_taps=False)
    measuring.address_beyond = 7
    rows = [write(100, psn, psn) for psn in range(3)]
    rows += [write(101, 0, 5, src=7, wire_bytes=90), write(102, 0, 6, dst=7, wire_bytes=70)]
    message = CmMessage(1, 1, 0, 7, 1, "REQ", 1, 5, None, qpn=9, starting_psn=3)
    measuring.update(packets(rows), [message])
    assert measuring.tracker.flows["packets"].tolist() == [3]
    assert (measuring.ended.untracked_packets, measuring.ended.untracked_wire_bytes) == (2, 160)
    assert not measuring.cm.messages and not measuring.cm.first_psns


def test_marks_between_taps_of_flows_that_left_are_counted():
    measuring = Measuring(100_000_000, many_taps=True)
    rows = [
        write(qp, psn, 1000 * psn + 10 * qp + tap, tap=tap, ip_id=psn, hop_limit=64 - tap,
              traffic_class=3 if tap and psn % 2 else 2)
        for psn in range(10) for qp in range(100, 104) for tap in (0, 1)
    ]  # fmt: skip
    measuring.update(packets(sorted(rows, key=lambda row: row["time_ns"])))
    assert end_at(measuring, 5 * SECOND_NS, SECOND_NS, ["near", "far"], 1, 1) == 3
    assert (measuring.ended.ecn_marked_packets, measuring.ended.marked_between_taps) == (0, 15)
    assert measuring.ended.flows_in_trouble == 3


def test_looks_come_with_time_or_when_flows_have_doubled():
    turns = Turns()
    assert turns.is_due(0, 100.0)
    turns.taken(0, 0.01, 100.01)
    assert not turns.is_due(2 * LEAST_LEAVING, 100.9)
    assert turns.is_due(2 * LEAST_LEAVING + 1, 100.02) and turns.is_due(0, 101.02)
    turns.taken(5000, 1.0, 201.0)
    assert not turns.is_due(10_000, 220.9)
    assert turns.is_due(10_001, 201.0) and turns.is_due(0, 221.0)


def test_what_is_unknown_of_flows_that_leave_is_counted():
    """Every second PSN is missing: nobody knows whether it was lost. Datagrams have no order."""
    measuring = Measuring(100_000_000, many_taps=False)
    partial = [write(qp, psn, psn) for qp in range(100, 110) for psn in (0, 2, 4, 6)]
    datagrams = [write(qp, psn, psn, opcode=0x64) for qp in range(200, 205) for psn in range(3)]
    measuring.update(packets(partial + datagrams))
    assert end_at(measuring, 5 * SECOND_NS, SECOND_NS, NAMES, 0, 1) == 15
    ended = measuring.ended
    assert (ended.partial_flows, ended.missing_packets) == (10, 0)
    assert (ended.packets, ended.request_packets, ended.sequenced_packets) == (55, 55, 40)


@pytest.mark.parametrize(
    ("gaps", "partial"),
    [
        ({}, 0),
        ({"a": [Gap(2_000, 3_000, "cut")]}, 3),
        ({"a": [Gap(None, 500, "gone")]}, 2),
        ({"a": [Gap(9_500, None, "gone")]}, 1),
        ({"a": [Gap(10_500, 10_600, "cut")]}, 0),
    ],
)
@pytest.mark.parametrize("taps", [["a"], ["a", "b"]])
def test_losses_of_flows_that_lived_during_a_gap_are_unknown(gaps, partial, taps):
    """PSN 2 of each flow is missing; only those of tap a can be hidden."""
    measuring = Measuring(100_000_000, many_taps=len(taps) > 1)
    measuring.tracker.see_taps(len(taps))
    psns = [0, 1, *range(3, 10)]
    rows = [
        write(qp, psn, begin + 1_000 * psn, tap=tap, ip_id=psn)
        for tap in range(len(taps))
        for qp, begin in ((100 + tap, 0), (200 + tap, 1_000), (300 + tap, -7_000))
        for psn in psns
    ]
    measuring.update(packets(sorted(rows, key=lambda row: row["time_ns"])))
    measuring.clock.update(np.full(LATEST, 9 * SECOND_NS))
    gone = end_idle(measuring, SECOND_NS, taps, 0, 1, gaps=gaps)
    ended, flows = measuring.ended, 3 * len(taps)
    assert (gone, ended.partial_flows, ended.missing_packets) == (flows, partial, flows - partial)


@pytest.mark.parametrize(
    ("gap", "partial"),
    [((0, 9_000), 1), ((None, 9_500), 2), ((1_000, None), 1), ((1, 8_999), 0), ((None, None), 3)],
)
def test_losses_of_flows_that_lived_only_during_a_gap_of_another_tap_are_unknown(gap, partial):
    """Flows from 0 to 9,000, from 1,000 to 10,000 and from -7,000 to 2,000 miss PSN 2 at tap a."""
    measuring = Measuring(100_000_000, many_taps=True)
    measuring.tracker.see_taps(2)
    rows = [
        write(qp, psn, begin + 1_000 * psn, ip_id=psn)
        for qp, begin in ((100, 0), (200, 1_000), (300, -7_000))
        for psn in (0, 1, *range(3, 10))
    ]
    measuring.update(packets(sorted(rows, key=lambda row: row["time_ns"])))
    measuring.clock.update(np.full(LATEST, 9 * SECOND_NS))
    gaps = {"b": [Gap(gap[0], gap[1], "another tap")]}
    assert end_idle(measuring, SECOND_NS, ["a", "b"], 0, 1, gaps=gaps) == 3
    ended = measuring.ended
    assert (ended.partial_flows, ended.missing_packets) == (partial, 3 - partial)


@pytest.mark.parametrize(
    ("repeated", "untapped_flows", "missed_by_captures"), [([], 1, 0), (range(30, 35), 0, 20)]
)
def test_what_later_taps_did_not_see_of_flows_that_leave_is_counted(
    repeated, untapped_flows, missed_by_captures
):
    """From packet 30 on the second tap sees nothing of a flow that is acknowledged to its end."""
    measuring = Measuring(100_000_000, many_taps=True)
    measuring.tracker.see_taps(2)
    asks = {"udp_sport": PORT, "bth_flags": 0x800000, "src": 0, "dst": 1}
    rows = [
        write(qp, n, start + n * 100_000 + tap * 1000, tap=tap, hop_limit=64 - tap, ip_id=n, **asks)
        for qp, count, start in ((0x12, 50, 0), (200, 100, 50), (300, 3, 4 * SECOND_NS))
        for n in range(count)
        for tap in range(1 if qp == 0x12 and n >= 30 else 2)
    ]
    rows += [write(0x12, n, n * 100_000 + 950_000, ip_id=900 + n, **asks) for n in repeated]
    rows += [
        write(0x11, 49, 5_001_000 - 1000 * tap, opcode=ACK, tap=tap, hop_limit=63 + tap, src=1,
              dst=0, aeth=0, decode_flags=0x10, ip_id=9, udp_sport=PORT)
        for tap in (1, 0)
    ]  # fmt: skip
    measuring.update(packets(sorted(rows, key=lambda row: row["time_ns"])))
    assert end_at(measuring, 5 * SECOND_NS, 2 * SECOND_NS, ["a", "b"], 0, 1) == 3
    ended = measuring.ended
    assert ended.untapped_flows == untapped_flows
    assert ended.missed_by_captures == missed_by_captures


def test_flows_that_come_back_after_making_room_are_counted_and_no_check_passes():
    measuring = Measuring(100_000_000, many_taps=False)
    measuring.update(packets([write(qp, psn, 100 * psn + qp) for psn in (0, 1) for qp in range(9)]))
    assert make_room(measuring, 3, NAMES, most_kept=2) == 4
    left = measuring.tracker.flows["dest_qp"].tolist()
    assert left == [4, 5, 6, 7, 8]  # of the six that are idle for longest the worst two stay
    assert (measuring.ended.returned_flows, measuring.ended.in_part) == (0, False)
    measuring.update(packets([write(qp, 7, 500 + qp) for qp in (0, 3, 4, 99)]))
    assert (measuring.ended.returned_flows, measuring.ended.in_part) == (2, True)
    assert len(measuring.tracker) == 9 - 4 + 3


def test_flows_with_equal_times_leave_too():
    measuring = Measuring(100_000_000, many_taps=False)
    measuring.update(packets([write(qp, 0, 5) for qp in range(50)]))
    assert make_room(measuring, 10, NAMES, most_kept=5) == 35
    assert (len(measuring.tracker), measuring.ended.packets) == (15, 35)


def test_flows_whose_packets_another_tap_may_still_see_stay():
    measuring = Measuring(100_000_000, many_taps=True)
    measuring.tracker.see_taps(2)
    measuring.update(packets([write(qp, 0, 1000 * qp) for qp in range(50)]))
    assert make_room(measuring, 10, ["a", "b"], most_kept=0) == 0
    measuring.update(packets([write(60, 0, 10 * SECOND_NS) for _ in range(20)]))
    assert make_room(measuring, 10, ["a", "b"], most_kept=0) == 41


def test_no_array_stays_in_memory_beside_its_copy(monkeypatch):
    """The tables of the tracker are made anew after all arrays of its state."""
    measuring = Measuring(100_000_000, many_taps=True)
    measuring.update(packets([{"dest_qp": 2 + n, "psn": 5} for n in range(9)]))
    before = [weakref.ref(array) for array in measuring.tracker.state]
    stay = {id(measuring.tracker.state.events), id(measuring.tracker.state.copies)}
    stay |= {id(measuring.tracker.state.began), id(measuring.tracker.state.used)}
    alive = []
    rebuild = FlowTracker._index_all

    def rebuilt(tracker):
        alive.extend(id(array()) for array in before if array() is not None)
        rebuild(tracker)

    monkeypatch.setattr(FlowTracker, "_index_all", rebuilt)
    now_ns = int(measuring.tracker.flows["last_time"].max()) + 9 * SECOND_NS
    assert end_at(measuring, now_ns, SECOND_NS, NAMES, 0, 1) == 9
    assert set(alive) <= stay
