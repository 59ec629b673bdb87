"""Imbalance numbers against reference values, exact sums, brute force and chance itself."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest
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

from rocescope.analyzer.measures import path_table as pathtable
from rocescope.analyzer.measures.spraying import (
    PathUsage,
    best_fim,
    coefficient_of_variation,
    expected_fim,
    fim,
    imbalance_of,
    max_over_mean,
)
from rocescope.analyzer.results.base import PathShare, Quantiles, Spraying
from rocescope.analyzer.statistics.shares import Carried
from rocescope.analyzer.track.batch import OVERTAKEN, REORDERED, TAP_COPY
from rocescope.analyzer.wire.bth import ACKNOWLEDGE, OPCODE_CLASS

# Imbalance numbers against reference values, exact sums, brute force and chance itself.

WEIGHTS = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(np.array)


def exact_expectation(flows, paths):
    """The mean over all outcomes of a binomial number, in fractions."""
    total, p = Fraction(0), Fraction(1, paths)
    fair = flows * p
    for n in range(flows + 1):
        chance = math.comb(flows, n) * p**n * (1 - p) ** (flows - n)
        total += chance * abs(n - fair) / fair
    return float(100 * total)


@pytest.mark.parametrize(
    ("loads", "expected"),
    [([5, 5, 5, 5], 0), ([8, 0], 100), ([4, 0, 0, 0], 150), ([3, 1], 50), ([1, 2, 3], 100 / 3)],
)
def test_fim_by_hand(loads, expected):
    assert fim(np.array(loads)) == pytest.approx(expected)


def test_fim_with_capacities():
    """A link of twice the capacity should carry twice as much."""
    assert fim(np.array([20, 10, 10]), np.array([2, 1, 1])) == 0
    assert fim(np.array([10, 10, 20]), np.array([2, 1, 1])) == pytest.approx(100 * 1.5 / 3)


def test_without_load_there_is_no_imbalance():
    assert fim(np.array([0, 0])) is None
    assert expected_fim(0, 4) is None
    assert best_fim(0, 4) is None


# Reference values for n flows on k links, in percent, to one decimal.
TABLE = """8/4 46.7 16/4 33.8 16/8 50.6 32/4 24.2 32/8 36.5 32/16 52.4 64/8 26.1 64/16 37.8
128/8 18.6 128/16 27.0 256/8 13.2 256/16 19.2 256/32 27.5 512/16 13.6 1024/32 13.8""".split()


@pytest.mark.parametrize(("case", "percent"), list(zip(TABLE[::2], TABLE[1::2], strict=True)))
def test_expected_fim_of_uniform_hashing(case, percent):
    flows, links = map(int, case.split("/"))
    assert expected_fim(flows, links) == pytest.approx(float(percent), abs=0.051)


@given(st.integers(1, 40), st.integers(1, 12))
def test_expected_fim_is_exact(flows, paths):
    expected = exact_expectation(flows, paths)
    assert expected_fim(flows, paths) == pytest.approx(expected, abs=1e-9)


def test_expected_fim_of_very_many_flows():
    """Against the normal limit sqrt(2 (1 - 1/k) / (pi mu))."""
    flows, links = 10_000_000, 64
    limit = 100 * math.sqrt(2 * (1 - 1 / links) / (math.pi * flows / links))
    assert expected_fim(flows, links) == pytest.approx(limit, rel=1e-3)


def test_one_path_is_never_unfair():
    assert (expected_fim(7, 1), best_fim(7, 1), fim(np.array([7]))) == (0, 0, 0)


def test_expected_fim_by_simulation():
    rng = np.random.default_rng(2410)
    counts = rng.multinomial(32, np.full(8, 1 / 8), size=20_000)
    simulated = np.mean([fim(c) for c in counts])
    assert simulated == pytest.approx(expected_fim(32, 8), abs=0.4)


@given(st.integers(1, 9), WEIGHTS)
def test_best_fim_by_brute_force(flows, weights):
    links = len(weights)
    placements = [
        np.array(c) for c in itertools.product(range(flows + 1), repeat=links) if sum(c) == flows
    ]
    assert best_fim(flows, links) == pytest.approx(min(fim(c) for c in placements))
    weighted = min(fim(c, weights) for c in placements)
    assert best_fim(flows, links, weights) == pytest.approx(weighted)


def test_other_numbers_by_hand():
    loads = np.array([1, 2, 3, 6])
    assert max_over_mean(loads) == 2
    assert coefficient_of_variation(loads) == pytest.approx(math.sqrt(14 / 4) / 3)


def test_weights_must_fit():
    with pytest.raises(ValueError, match="weight"):
        fim(np.array([1, 2]), np.array([1, 0]))


def records(*wire_bytes):
    return [Carried(b // 100, b, 0, 0, 5, 9) for b in wire_bytes]


def test_record_of_a_set_of_links():
    paths = records(100, 300, 0, 200)
    i = imbalance_of("uplinks", "tap", False, list("abcd"), paths, 5, np.array([1, 3, 0, 1]))
    assert (i.name, i.path_by, i.inferred, i.paths, i.flows) == ("uplinks", "tap", False, 4, 5)
    assert i.wire_bytes == 600
    assert i.fim_flows_percent == pytest.approx(100 / 4 * (0.25 + 1.75 + 1.25 + 0.25) / 1.25)
    assert i.fim_bytes_percent == pytest.approx(100 / 4 * (50 + 150 + 150 + 50) / 150)
    assert i.fim_flows_chance_percent == expected_fim(5, 4)
    assert i.fim_flows_best_percent == pytest.approx(100 * 2 * 1 * 3 / (4 * 5))
    assert i.max_over_mean == 2
    assert i.coefficient_of_variation == pytest.approx(math.sqrt(12500) / 150)
    assert i.jain == pytest.approx(600**2 / (4 * 140000))
    assert [(s.path, s.wire_bytes) for s in i.shares] == [
        ("b", 300),
        ("d", 200),
        ("a", 100),
        ("c", 0),
    ]
    assert (i.shares[0].first_time_ns, i.shares[0].last_time_ns) == (5, 9)
    assert (i.shares[3].first_time_ns, i.shares[3].last_time_ns) == (None, None)


def test_no_bytes_no_record():
    assert imbalance_of("x", "tap", False, ["a", "b"], records(0, 0), 0) is None


def test_many_paths_are_listed_in_part_and_counted_in_full():
    i = imbalance_of("x", "entropy", True, list(map(str, range(100))), records(*[100] * 100), 1)
    assert (i.paths, len(i.shares), i.shares[-1].path) == (100, 64, "37 more")
    assert sum(s.wire_bytes for s in i.shares) == 10_000
    assert i.fim_flows_percent is i.fim_flows_chance_percent is i.fim_flows_best_percent is None


# Spraying against exact values, a plain twin, and itself cut in parts.

KEYS = ("entropy", "tap", "srv6")
COUNTED = ("packets", "wire_bytes", "late", "marked", "first_ns", "last_ns")


def usage(batch, key="entropy"):
    return updated(PathUsage(key), [batch])


def everything(measure, flows):
    return [measure.spraying(f) for f in range(flows)] + [
        measure.paths_seen(f) for f in range(flows)
    ]


def test_exact_values_of_a_sprayed_flow():
    rows = [
        {"udp_sport": 50000, "wire_bytes": 1000},
        {"udp_sport": 50001, "wire_bytes": 1000, "verdict": REORDERED},
        {"udp_sport": 50001, "wire_bytes": 1000, "traffic_class": 3},
        {"udp_sport": 50000, "wire_bytes": 3000},
    ]
    assert usage(tracked(rows)).spraying(0) == Spraying(
        path_by="entropy",
        inferred=True,
        paths_seen=2,
        width=pytest.approx(math.exp(-(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)))),
        jain=pytest.approx(36 / (2 * (16 + 4))),
        switches=2,
        switches_per_second=pytest.approx(2 / 3e-6),
        path_lifetime_ns=Quantiles(  # type: ignore[call-arg]
            2, 1000, 2000, 2000, *(pytest.approx(1000 + 2000 * q) for q in (0.9, 0.99, 0.999)), 3000
        ),
        paths=[
            PathShare("50000", 2, 4000, pytest.approx(2 / 3), 0, 0, START_NS, START_NS + 3000),
            PathShare(
                "50001", 2, 2000, pytest.approx(1 / 3), 1, 1, START_NS + 1000, START_NS + 2000
            ),
        ],
    )


def test_single_packet_has_width_one_and_no_rate():
    s = usage(tracked([{"udp_sport": 7}])).spraying(0)
    assert (s.width, s.jain, s.switches, s.switches_per_second, s.paths_seen) == (1, 1, 0, None, 1)


def test_cnps_and_acks_make_no_path_beside_data_but_their_bytes_are_listed():
    rows = [
        {"udp_sport": 1, "wire_bytes": 1000},
        {"udp_sport": 9, "wire_bytes": 60, "opcode": CNP},
        {"udp_sport": 1, "wire_bytes": 70, "opcode": ACK},
        {"udp_sport": 8, "wire_bytes": 70, "opcode": ACK},
        {"udp_sport": 2, "wire_bytes": 1000},
    ]
    measure = usage(tracked(rows))
    s = measure.spraying(0)
    assert (s.paths_seen, s.switches, measure.paths_seen(0)) == (2, 1, 2)
    assert s.width == pytest.approx(2)
    assert [(p.path, p.packets, p.wire_bytes) for p in s.paths] == [
        ("1", 2, 1070),
        ("2", 1, 1000),
        ("control packets", 2, 130),
    ]


def test_a_flow_of_acks_only_is_judged_by_them():
    rows = [{"udp_sport": s, "opcode": ACK} for s in (1, 2, 1)] + [{"udp_sport": 3, "opcode": CNP}]
    s = usage(tracked(rows)).spraying(0)
    assert (s.paths_seen, s.switches) == (2, 2)
    assert [p.path for p in s.paths] == ["1", "2", "control packets"]


def test_flow_label_is_part_of_the_entropy_value():
    s = usage(tracked([{"udp_sport": 5}, {"udp_sport": 5, "flow_label": 0x12345}])).spraying(0)
    assert sorted(p.path for p in s.paths) == ["5", "5/0x12345"]


def test_copies_at_further_taps_are_no_traffic_of_an_entropy_value():
    s = usage(tracked([{"udp_sport": 5}, {"udp_sport": 6, "verdict": TAP_COPY}])).spraying(0)
    assert [(p.path, p.packets) for p in s.paths] == [("5", 1)]


def test_taps_in_series_are_no_parallel_paths():
    """Host link (TTL 64), one of two spine links (63), far host link (62)."""
    rows = []
    for spine in (1, 2, 2, 1):
        rows += [
            {"tap": 0, "hop_limit": 64},
            {"tap": spine, "hop_limit": 63, "verdict": TAP_COPY},
            {"tap": 3, "hop_limit": 62, "verdict": TAP_COPY},
        ]
    names = ["H1-leaf1", "leaf1-spine1", "leaf1-spine2", "H4-leaf2"]
    s = usage(tracked(rows), "tap").spraying(0, names.__getitem__)
    assert [(p.path, p.packets) for p in s.paths] == [("leaf1-spine1", 2), ("leaf1-spine2", 2)]
    assert (s.switches, s.inferred, s.path_by) == (2, False, "tap")
    assert s.width == pytest.approx(2)


def test_of_levels_about_as_wide_the_one_with_most_bytes_is_reported():
    """One packet was lost between the two leaves; the first leaf saw all of them."""
    rows = [{"tap": t, "hop_limit": 63} for t in (0, 1, 0, 1, 0)]
    rows += [{"tap": 2 + t, "hop_limit": 62, "verdict": TAP_COPY} for t in (0, 1, 0, 1)]
    measure = usage(tracked(rows), "tap")
    s = measure.spraying(0)
    assert [(p.path, p.packets) for p in s.paths] == [("0", 3), ("1", 2)]
    assert measure.packets_by_key(0) == {0: 3, 1: 2, 2: 2, 3: 2}
    assert measure.paths_seen(0) == 4


def test_srv6_says_nothing_without_evidence_and_keeps_packets_without():
    assert usage(tracked([{}, {}]), "srv6").spraying(0) is None
    s = usage(tracked([{}, {"path_evidence": 3}]), "srv6").spraying(0, "path {}".format)
    assert sorted(p.path for p in s.paths) == ["path 0", "path 3"]


@pytest.mark.parametrize("key", KEYS)
def test_a_flow_without_packets_has_no_spraying(key):
    measure = updated(PathUsage(key), [tracked([], n_flows=3)])
    assert everything(measure, 3) == [None, None, None, 0, 0, 0]


def test_too_many_paths_share_one_record_and_no_byte_is_lost():
    n = pathtable.MAX_PATHS + 100
    batch = tracked([{"udp_sport": i} for i in range(n)] + [{"udp_sport": 0}])
    s = usage(batch).spraying(0)
    assert s.paths_seen == pathtable.MAX_PATHS + 1
    assert s.switches == n
    assert len(s.paths) == 64
    assert s.paths[0].path == "other" and s.paths[0].packets == 100
    assert s.paths[1].path == "0" and s.paths[1].packets == 2
    assert s.paths[-1].path == f"{pathtable.MAX_PATHS + 1 - 63} more"
    assert sum(p.wire_bytes for p in s.paths) == (n + 1) * 1094
    assert sum(p.share for p in s.paths) == pytest.approx(1)


def lane_of(row):
    if row["opcode"] >> 5 == 4:
        return "cnp"
    return "ack" if OPCODE_CLASS[row["opcode"]] & ACKNOWLEDGE else "data"


def twin(batch, key):
    """(packets, bytes, late, marked, first, last) per (flow, lane, level, path), and switches."""
    seen, order = defaultdict(list), defaultdict(list)
    t = batch.table
    for i in range(len(batch)):
        if key != "tap" and batch.verdict[i] == TAP_COPY:
            continue
        path = {
            "entropy": int(t.flow_label[i]) * 65536 + int(t.udp_sport[i]),
            "tap": int(t.tap[i]),
            "srv6": int(t.path_evidence[i]),
        }[key]
        level = int(t.hop_limit[i]) % 8 if key == "tap" else 0
        lane = (int(batch.flow[i]), lane_of({"opcode": int(t.opcode[i])}), level)
        seen[*lane, path].append(i)
        order[lane].append(path)
    paths = {
        k: (
            len(rows),
            int(t.wire_bytes[rows].sum()),
            int(np.isin(batch.verdict[rows], (OVERTAKEN, REORDERED)).sum()),
            int((t.traffic_class[rows] & 3 == 3).sum()),
            int(t.time_ns[rows].min()),
            int(t.time_ns[rows].max()),
        )
        for k, rows in seen.items()
    }
    switches = {k: sum(a != b for a, b in itertools.pairwise(v)) for k, v in order.items()}
    return paths, switches


@given(BATCHES, st.sampled_from(KEYS))
def test_kernel_equals_its_plain_twin(batch, key):
    paths, switches = twin(batch, key)
    measure = usage(batch, key)
    records = measure.records()
    got = {}
    for flow, level, data, r in zip(*records, strict=True):
        got.setdefault((int(flow), bool(data), int(level), int(r["key"])), []).append(
            tuple(
                int(r[f])
                for f in ("packets", "wire_bytes", "late", "marked", "first_ns", "last_ns")
            )
        )
    expected = {}
    for (flow, lane, level, path), values in paths.items():
        expected.setdefault((flow, lane == "data", level, path), []).append(values)
    assert {k: sorted(v) for k, v in got.items()} == {k: sorted(v) for k, v in expected.items()}
    assert Counter(
        s for s in measure._table._lanes.arrays.lanes["switches"].tolist() if s
    ) == Counter(s for s in switches.values() if s)


@given(BATCHES)
def test_paths_add_up_to_the_flow(batch):
    measure = usage(batch)
    for flow in range(batch.n_flows):
        own = (batch.flow == flow) & (batch.verdict != TAP_COPY)
        s = measure.spraying(flow)
        listed = s.paths if s else []
        assert sum(p.wire_bytes for p in listed) == batch.table.wire_bytes[own].sum()
        assert sum(p.packets for p in listed) == own.sum()


@given(BATCHES, CUTS, st.sampled_from(KEYS))
def test_cutting_into_batches_changes_nothing(batch, cuts, key):
    cut = updated(PathUsage(key), parts(batch, cuts))
    assert everything(cut, batch.n_flows) == everything(usage(batch, key), batch.n_flows)


@given(BATCHES, st.sampled_from(KEYS))
def test_merging_parts_by_flow_equals_the_whole(batch, key):
    even, odd, flows = split_by_flow(batch)
    merged = usage(even, key)
    merged.merge(usage(odd, key), flows)
    assert everything(merged, batch.n_flows) == everything(usage(batch, key), batch.n_flows)


def test_many_small_parts_leave_room_in_the_hash_table():
    merged = usage(tracked([{}] * 3))
    for flow in range(1, 60):
        merged.merge(usage(tracked([{}] * 3)), np.array([flow], np.int32))
        arrays = merged._table._lanes.arrays
        taken = np.sort(arrays.slots[arrays.slots >= 0])
        assert taken.tolist() == list(range(flow + 1))
    assert {merged.paths_seen(flow) for flow in range(60)} == {1}


def test_growing_keeps_everything():
    rng = np.random.default_rng(1)
    batch = tracked([{}] * 5000, n_flows=700)
    batch.flow[:] = rng.integers(0, 700, 5000)
    batch.table.udp_sport[:] = rng.integers(0, 9, 5000)
    paths, _ = twin(batch, "entropy")
    flows, _, _, records = usage(batch).records()
    got = {(int(f), int(r["key"])): int(r["packets"]) for f, r in zip(flows, records, strict=True)}
    assert got == {(k[0], k[3]): v[0] for k, v in paths.items()}
