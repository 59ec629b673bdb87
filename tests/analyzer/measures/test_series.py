"""Series and activity against exact values, plain twins, and themselves cut in parts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from captures import data
from hypothesis import given
from hypothesis import strategies as st
from tracked_batches import (
    ACK,
    BATCHES,
    CNP,
    CUTS,
    START_NS,
    parts,
    split_by_flow,
    tracked,
    updated,
)

from rocescope.analyzer.measures.series import (
    ACTIVITY_BINS,
    DEFAULT_WINDOW_NS,
    MAX_WINDOWS,
    Activity,
    Idle,
    Totals,
)
from rocescope.analyzer.results.base import Series
from rocescope.analyzer.results.flow import IdleGaps
from rocescope.analyzer.track.batch import (
    DUPLICATE,
    MIRROR_DUPLICATE,
    OVERTAKEN,
    RECOVERED,
    REORDERED,
    RETRANSMITTED,
    TAP_COPY,
)
from rocescope.analyzer.wire.packets import HAS_AETH
from rocescope.tui.session.session import Session

# Series and activity against exact values, plain twins, and themselves cut in parts.

TAPS = ["a", "b", "c", "d"]
YEAR_NS = 365 * 86400 * 10**9


def totals(batch, window_ns=DEFAULT_WINDOW_NS):
    return updated(Totals(window_ns), [batch])


def test_exact_windows():
    late = START_NS + 2 * DEFAULT_WINDOW_NS
    rows = [
        {"verdict": REORDERED, "time_ns": START_NS + 99_999_999},
        {"verdict": RETRANSMITTED, "time_ns": START_NS},
        {"verdict": RECOVERED, "time_ns": late, "traffic_class": 0x83},
        {"verdict": DUPLICATE, "time_ns": late},
        {"verdict": MIRROR_DUPLICATE, "time_ns": late, "tap": 1},
        {"verdict": TAP_COPY, "time_ns": late, "tap": 1, "wire_bytes": 5},
        {"opcode": CNP, "time_ns": late, "wire_bytes": 60, "payload_bytes": 0},
    ]
    for syndrome, flags in ((0x60, HAS_AETH), (0x20, HAS_AETH), (0x1F, HAS_AETH), (0x60, 0)):
        rows.append(
            {
                "opcode": ACK,
                "aeth": syndrome << 24 | 0xFFFFFF,
                "decode_flags": flags,
                "time_ns": late,
                "wire_bytes": 60,
                "payload_bytes": 0,
            }
        )
    assert totals(tracked(rows)).series(["x", "y", "idle"]) == Series(
        window_ns=DEFAULT_WINDOW_NS,
        start_ns=START_NS,
        packets=[2, 0, 8],
        wire_bytes=[2188, 0, 3 * 1094 + 5 * 60],
        payload_bytes=[2048, 0, 3 * 1024],
        reordered_packets=[1, 0, 0],
        retransmitted_packets=[1, 0, 1],
        duplicate_packets=[0, 0, 1],
        ecn_marked_packets=[0, 0, 1],
        cnps=[0, 0, 1],
        naks=[0, 0, 1],
        tap_wire_bytes={"x": [2188, 0, 2 * 1094 + 300], "y": [0, 0, 1099], "idle": [0, 0, 0]},
    )


def test_one_tap_has_no_series_of_its_own():
    assert totals(tracked([{}])).series(["only"]).tap_wire_bytes == {}


def test_earlier_rows_extend_to_the_left():
    rows = [{"time_ns": START_NS + t} for t in (50, 10, 31)]
    series = totals(tracked(rows), 10).series(["a"])
    assert (series.start_ns, series.packets) == (START_NS + 10, [1, 0, 1, 0, 1])


def test_nothing_seen():
    assert totals(tracked([])).series(["a"]).packets == []
    assert updated(Activity(), [tracked([], n_flows=2)]).column(1) == []


def test_a_jump_of_years_widens_the_windows_instead_of_filling_memory():
    rows = [{"time_ns": START_NS}, {"time_ns": START_NS + 30 * YEAR_NS}, {"time_ns": START_NS}]
    counted = totals(tracked(rows), 1000)
    assert MAX_WINDOWS / 2 < len(counted.values()) <= MAX_WINDOWS
    series = counted.series(["a"])
    assert 40_000 < len(series.packets) < 100_000  # three packets are worth no million windows
    assert series.window_ns % counted.width_ns == 0
    assert series.start_ns <= START_NS < series.start_ns + series.window_ns
    assert (sum(series.packets), series.packets[0], series.packets[-1]) == (3, 2, 1)


def twin(batch, window_ns):
    t = batch.table
    k = (t.time_ns // window_ns).astype(object)
    if not len(k):
        return {}
    own = batch.verdict != TAP_COPY

    def per_window(mask, weights):
        out = [0] * (max(k) - min(k) + 1)
        for i in np.flatnonzero(mask):
            out[k[i] - min(k)] += int(weights[i])
        return out

    ones = np.ones(len(batch), int)
    return {
        "packets": per_window(own, ones),
        "wire_bytes": per_window(own, t.wire_bytes),
        "payload_bytes": per_window(own, t.payload_bytes),
        "reordered_packets": per_window(np.isin(batch.verdict, (REORDERED, OVERTAKEN)), ones),
        "retransmitted_packets": per_window(
            np.isin(batch.verdict, (RETRANSMITTED, RECOVERED)), ones
        ),
        "duplicate_packets": per_window(batch.verdict == DUPLICATE, ones),
        "ecn_marked_packets": per_window(own & (t.traffic_class % 4 == 3), ones),
        "cnps": per_window(own & (t.opcode == CNP), ones),
        "tap_wire_bytes": {
            name: per_window(t.tap == i, t.wire_bytes) for i, name in enumerate(TAPS)
        },
    }


@given(BATCHES, st.sampled_from([10**7, 10**8, 3 * 10**8]))
def test_totals_equal_their_plain_twin(batch, window_ns):
    series = totals(batch, window_ns).series(TAPS)
    for name, values in twin(batch, window_ns).items():
        assert getattr(series, name) == values, name


@given(BATCHES, CUTS, st.sampled_from([10**6, 10**8]))
def test_cutting_into_batches_changes_nothing(batch, cuts, window_ns):
    cut = parts(batch, cuts)
    assert updated(Totals(window_ns), cut).series(TAPS) == totals(batch, window_ns).series(TAPS)
    assert activities(updated(Activity(), cut), 5) == activities(updated(Activity(), [batch]), 5)


@given(BATCHES)
def test_merging_parts_by_flow_equals_the_whole(batch):
    even, odd, flows = split_by_flow(batch)
    merged = totals(even)
    merged.merge(totals(odd))
    assert merged.series(TAPS) == totals(batch).series(TAPS)
    activity = updated(Activity(), [even])
    activity.merge(updated(Activity(), [odd]), flows)
    assert activities(activity, 5) == activities(updated(Activity(), [batch]), 5)


def activities(activity, flows):
    return activity.width_ns, activity.start_ns, [activity.column(f) for f in range(flows)]


@given(BATCHES)
def test_activity_conserves_the_bytes_of_every_flow(batch):
    activity = updated(Activity(), [batch])
    for flow in range(batch.n_flows):
        own = (batch.flow == flow) & (batch.verdict != TAP_COPY)
        bins = activity.column(flow)
        assert sum(bins) == batch.table.wire_bytes[own].sum()
        assert len(bins) <= ACTIVITY_BINS
        for i, value in enumerate(bins):
            begin = activity.start_ns + i * activity.width_ns
            inside = (batch.table.time_ns >= begin) & (
                batch.table.time_ns < begin + activity.width_ns
            )
            assert value == batch.table.wire_bytes[own & inside].sum()


def test_flows_that_begin_one_by_one_keep_their_bytes():
    """Arrays grow with room to spare: flows in that room count as well."""
    counts = [40, 83, 96]
    batches = [
        tracked([{"flow": number - 1, "wire_bytes": number}], n_flows=number) for number in counts
    ]
    activity = updated(Activity(), batches)
    assert [activity.column(number - 1) for number in counts] == [[number] for number in counts]


@pytest.mark.parametrize("span_ns", [10**6, 10**9, 3600 * 10**9])
def test_activity_fills_at_least_half_of_its_bins(span_ns):
    rows = [{"time_ns": START_NS + span_ns * i // 999, "flow": i % 2} for i in range(1000)]
    activity = updated(Activity(), [tracked(rows)])
    bins = [activity.column(f) for f in (0, 1)]
    assert ACTIVITY_BINS / 2 <= len(bins[0]) <= ACTIVITY_BINS
    assert len(bins[0]) == len(bins[1])
    assert sum(map(sum, bins)) == 1000 * 1094


# Idle gaps against a plain count.


def test_known_gaps():
    times = np.cumsum([0, 1, 10_000, 10_001, 50_001, 100_000, 100_001, 700_000, -5_000_000, 3])
    got = updated(Idle(), [tracked([{"time_ns": START_NS + int(t)} for t in times])])
    assert got.gaps(0) == IdleGaps(
        over_10us=5, over_50us=4, over_100us=2, over_500us=1, max_ns=700_000
    )
    assert got.gaps(77) == IdleGaps(0, 0, 0, 0, 0)


steps = st.sampled_from([0, 1, 9_999, 10_000, 10_001, 60_000, 100_001, 10**6, -20_000])
rows = st.lists(st.tuples(st.integers(0, 3), steps), max_size=50).map(
    lambda items: [
        {"flow": flow, "time_ns": START_NS + int(t)}
        for (flow, _), t in zip(items, np.cumsum([s for _, s in items]), strict=True)
    ]
)


def twin_idle(rows, flow):
    times = [r["time_ns"] for r in rows if r["flow"] == flow]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    over = [sum(g > limit * 1000 for g in gaps) for limit in (10, 50, 100, 500)]
    return IdleGaps(*over, max([0, *gaps]))  # type: ignore[call-arg]


@given(rows, CUTS)
def test_equals_the_twin_however_the_capture_is_split_or_merged(rows, cuts):
    batch = tracked(rows, 4)
    got = updated(Idle(), parts(batch, cuts))
    even, odd, flows = split_by_flow(batch)
    merged = updated(Idle(), [even])
    merged.merge(updated(Idle(), [odd]), flows)
    for flow in range(4):
        assert got.gaps(flow) == merged.gaps(flow) == twin_idle(rows, flow)


def test_late_packets_lie_where_their_times_are():
    session = Session.open([str(data("i03_write_reorder5_AtoB"))])
    session.start()
    assert session.wait(300)
    snapshot = session.snapshot()
    session.close()
    flows, late = snapshot.flows, snapshot.late
    judged = flows.late >= 0
    assert late.values.sum(axis=0)[judged].tolist() == flows.late[judged].tolist()
    line = snapshot.timeline  # counted by another measure, in windows of 10 ms
    when = line.start_ns + np.flatnonzero(line["reordered_packets"]) * line.window_ns
    assert late.start_ns >= when[0] - late.bin_ns
    assert late.start_ns + len(late.values) * late.bin_ns <= when[-1] + line.window_ns + late.bin_ns
    assert late.of(len(flows)) == []


def test_without_late_packets_nothing_is_kept():
    session = Session.open([str(data("c40_rc_oddities_ipv4"))])
    session.start()
    assert session.wait(300)
    late = session.snapshot().late
    session.close()
    assert late.values.size == 0 or not late.values.any()
