"""ECN, CNPs and DSCPs against exact values, a plain twin, and themselves cut in parts."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from tracked_batches import (
    BATCHES,
    CNP,
    CUTS,
    START_NS,
    parts,
    split_by_flow,
    tracked,
    updated,
)

from rocescope.analyzer.measures.congestion import CongestionMeasure, DscpFinding, dscp_outliers
from rocescope.analyzer.results.base import Quantiles
from rocescope.analyzer.results.flow import Congestion
from rocescope.analyzer.track.batch import TAP_COPY


def measured(batch):
    return updated(CongestionMeasure(), [batch])


def everything(measure, flows):
    return [(measure.congestion(f), measure.usual_dscp(f), measure.tags(f)) for f in range(flows)]


def test_exact_values():
    rows = [
        {"traffic_class": 26 << 2 | 2},
        {"traffic_class": 26 << 2 | 3},
        {"traffic_class": 0},
        {"traffic_class": 48 << 2 | 1, "opcode": CNP, "time_ns": START_NS},
        {"traffic_class": 48 << 2, "opcode": CNP, "time_ns": START_NS + 20},
        {"traffic_class": 48 << 2, "opcode": CNP, "time_ns": START_NS + 30},
        {"traffic_class": 3, "verdict": TAP_COPY},
    ]
    measure = measured(tracked(rows))
    got = measure.congestion(0)
    assert (got.ecn_capable_packets, got.ecn_marked_packets, got.cnps) == (3, 1, 3)
    assert got.dscp == {26: 2, 0: 1}
    spacing = got.cnp_spacing_ns
    assert (spacing.count, spacing.min, spacing.mean, spacing.max) == (2, 10, 15, 20)
    assert measure.usual_dscp(0) == 26


def test_nothing_is_null_where_nothing_is_known():
    measure = updated(CongestionMeasure(), [tracked([], n_flows=1)])
    assert measure.congestion(0) == Congestion(0, 0, 0, None, {})
    assert measure.congestion(9) == Congestion(0, 0, 0, None, {})
    assert measure.usual_dscp(0) is None


def test_one_cnp_has_no_spacing():
    assert measured(tracked([{"opcode": CNP}])).congestion(0).cnp_spacing_ns is None


def twin(batch, flow):
    capable = marked = cnps = 0
    dscp, times = {}, []
    for i in np.flatnonzero((batch.flow == flow) & (batch.verdict != TAP_COPY)):
        ecn = int(batch.table.traffic_class[i]) % 4
        capable += ecn != 0
        marked += ecn == 3
        if batch.table.opcode[i] == CNP:
            cnps += 1
            times.append(int(batch.table.time_ns[i]))
        else:
            d = int(batch.table.traffic_class[i]) // 4
            dscp[d] = dscp.get(d, 0) + 1
    gaps = [max(b - a, 0) for a, b in itertools.pairwise(times)]
    return capable, marked, cnps, dscp, gaps


@given(BATCHES)
def test_kernel_equals_its_plain_twin(batch):
    measure = measured(batch)
    for flow in range(batch.n_flows):
        got = measure.congestion(flow)
        capable, marked, cnps, dscp, gaps = twin(batch, flow)
        assert (got.ecn_capable_packets, got.ecn_marked_packets) == (capable, marked)
        assert (got.cnps, got.dscp) == (cnps, dscp)
        vlans = batch.table.vlan[batch.flow == flow].tolist()
        tagged = {vlan >> 13 for vlan in vlans if vlan}
        assert measure.tags(flow) == (tagged, 0 in vlans)
        assert (got.cnp_spacing_ns is None) == (not gaps)
        if gaps:
            q: Quantiles = got.cnp_spacing_ns
            assert (q.count, q.min, q.max) == (len(gaps), min(gaps), max(gaps))


@given(BATCHES, CUTS)
def test_cutting_into_batches_changes_nothing(batch, cuts):
    cut = updated(CongestionMeasure(), parts(batch, cuts))
    assert everything(cut, 5) == everything(measured(batch), 5)


@given(BATCHES)
def test_merging_parts_by_flow_equals_the_whole(batch):
    even, odd, flows = split_by_flow(batch)
    merged = measured(even)
    merged.merge(measured(odd), flows)
    assert everything(merged, 5) == everything(measured(batch), 5)


def test_a_pair_whose_queue_pairs_disagree_is_named():
    """The report of nccl #2383: some QPs on DSCP 0, the rest on 59."""
    src, dst = np.array([4, 4, 4, 7, 1], np.uint32), np.array([7, 7, 7, 4, 2], np.uint32)
    found = dscp_outliers({0: 59, 1: 0, 2: 59, 3: 59, 4: 59}, src, dst)
    assert found == [DscpFinding((4, 7), 59, {0: [1]}, 4)]
    assert found[0].text("10.0.0.1", "10.0.0.2") == (
        "1 flow on DSCP 0, while 59 is usual between 10.0.0.1 and 10.0.0.2 (4 flows): another class"
    )


def test_of_two_flows_the_one_in_the_default_class_is_odd():
    ends = np.array([0, 0], np.uint32), np.array([1, 1], np.uint32)
    assert dscp_outliers({0: 0, 1: 26}, *ends) == [DscpFinding((0, 1), 26, {0: [0]}, 2)]


def test_a_host_whose_flows_all_differ_from_the_rest_is_named_once():
    src, dst = np.arange(8, dtype=np.uint32), np.arange(8, 16, dtype=np.uint32)
    found = dscp_outliers({f: 0 if f in (2, 5) else 26 for f in range(8)}, src, dst)
    assert found == [DscpFinding(None, 26, {0: [2, 5]}, 8)]
    assert "2 flows on DSCP 0, while 26 is usual in this capture (8 flows)" in found[0].text()


def test_two_jobs_with_a_class_each_are_no_finding():
    src, dst = np.arange(8, dtype=np.uint32), np.arange(8, 16, dtype=np.uint32)
    assert dscp_outliers({f: 26 if f < 4 else 34 for f in range(8)}, src, dst) == []
    assert dscp_outliers(dict.fromkeys(range(8), 26), src, dst) == []
    assert dscp_outliers({}, src, dst) == []
