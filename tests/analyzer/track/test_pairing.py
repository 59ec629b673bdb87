"""Flows become connections with evidence."""

from __future__ import annotations

import pytest
from captures import tracked, truth
from traffic import ACK, NAK_SEQUENCE_ERROR, START_NS, WRITE_ONLY, packets, track

from rocescope.analyzer.decode.control import CmMessage
from rocescope.analyzer.track import pairing as connections
from rocescope.analyzer.track import state
from rocescope.analyzer.track.answers import rdma_udp_sport
from rocescope.analyzer.track.pairing import CmPairs, named_flows, service_name
from rocescope.analyzer.track.tracker import FlowTracker


@pytest.mark.parametrize(
    ("qp_a", "qp_b", "port"),
    [(0x11, 0x12, 49458), (211, 212, 61118), (0x1000, 0x1001, 53264), (0xABCDEF, 0x123456, 50120)],
)
def test_source_port_fold(qp_a, qp_b, port):
    """Vectors computed from the kernel's formula."""
    assert rdma_udp_sport(qp_a, qp_b) == rdma_udp_sport(qp_b, qp_a) == port


def pairs(found):
    """{(source, destination, QP), (source, destination, QP)} of every connection."""
    keys = found.keys()
    return {
        frozenset((keys[f], keys[int(flow["peer"])]))
        for f, flow in enumerate(found.tracker.flows)
        if flow["peer"] >= 0
    }


PERFTEST = [
    "c04",
    "c05",
    "c15",
    "c16",
    "c23",
    "i01_write_loss0.5_AtoB.atB",
    "i03",
    "i04",
    "i13",
    "n05",
]


@pytest.mark.parametrize("name", PERFTEST)
def test_pairs_are_those_of_perftest(name):
    """perftest prints both QP numbers of every pair; all are found, and no other."""
    run, _ = truth(name.split("_")[0])
    expected = set()
    for flow in run["flows"]:
        for pair in flow["qp_pairs"]:
            client, server = pair["client"], pair["server"]
            expected.add(
                frozenset(
                    (
                        (client["ip"], server["ip"], server["qpn"]),
                        (server["ip"], client["ip"], client["qpn"]),
                    )
                )
            )
    found = tracked(name)
    assert pairs(found) == expected
    assert (found.tracker.flows["mismatches"] == 0).all()


@pytest.mark.parametrize("name", ["c10", "c13"])
def test_cm_names_the_pairs(name):
    """Every REQ/REP pair in the capture becomes a connection with CM as evidence."""
    found = tracked(name)
    setups = truth(name)[1]["captures"]["atB"]["cm_qp_setup"]
    requests = [s for s in setups if s["mad"] == "CM_REQ"]
    replies = [s for s in setups if s["mad"] == "CM_REP"]
    text = found.endpoints.text
    assert {(text(a), text(b), p[2], qp) for (a, b, qp), p in found.cm.pairs.items()} == {
        (q["src"], q["dst"], q["local_qpn"], r["local_qpn"])
        for q, r in zip(requests, replies, strict=True)
    }
    flows = found.tracker.flows
    with_cm = [f for f in range(len(flows)) if flows[f]["evidence"] & state.EVIDENCE_CM]
    assert len(with_cm) == 2 * len(requests)
    assert all(flows[flows[f]["peer"]]["peer"] == f for f in with_cm)
    for active, passive in found.cm.pairs.items():
        index = found.tracker.find([active, passive])
        assert flows[index[active]]["peer"] == index[passive]


def test_service_names():
    assert service_name(0x0000_0000_0106_1C51) == "rdma_cm tcp 7249"
    assert service_name(0x1122334455667788) == "0x1122334455667788"


def test_no_pair_where_two_flows_fit_equally():
    """Two queue pairs in lock-step with equal PSNs and ports: nothing tells who answers whom."""
    rows = []
    for psn in range(100, 130):
        rows += [{"dest_qp": qp, "psn": psn, "opcode": WRITE_ONLY} for qp in (0x21, 0x22)]
        for qp in (0x31, 0x32):
            rows.append(
                {"answer": True, "psn": psn, "opcode": ACK, "syndrome": 0x1F} | {"dest_qp": qp}
            )
    tracker = FlowTracker()
    track(tracker, packets(rows))
    assert (tracker.flows["peer"] == -1).all()


def test_a_lone_pair_needs_more_than_one_answer():
    def rows(answers):
        return [
            row
            for psn in range(5000, 5000 + answers)
            for row in (
                {"psn": psn, "opcode": WRITE_ONLY},
                {"answer": True, "psn": psn, "opcode": ACK, "syndrome": 0x1F},
            )
        ]

    tracker = FlowTracker()
    track(tracker, packets(rows(2)))
    assert (tracker.flows["peer"] == -1).all()
    tracker = FlowTracker()
    track(tracker, packets(rows(3)))
    assert tracker.flows["peer"].tolist() == [1, 0]
    assert tracker.flows[1]["evidence"] == state.EVIDENCE_ACK_PSN


def test_nak_tells_the_sender_what_is_missing():
    rows = [{"psn": psn, "opcode": WRITE_ONLY} for psn in range(10)]
    rows += [{"answer": True, "psn": p, "opcode": ACK, "syndrome": 0x1F} for p in (1, 3, 5)]
    rows += [
        {"psn": 11},
        {"answer": True, "psn": 10, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR},
    ]
    rows += [{"psn": 10}, {"psn": 11}]
    tracker = FlowTracker()
    track(tracker, packets(rows))
    flow, stream = tracker.flows[0], tracker.stream(0, state.REQUESTS)
    assert flow["nak_codes"].tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    assert (stream["recovered"], stream["retransmitted"]) == (1, 1)
    assert flow["rewinds"] == 1 and flow["retransmitted_by"][state.BY_NAK] == 2
    assert tracker.histograms.quantiles(0, state.GAP_TO_NAK).max == 1000
    assert tracker.histograms.quantiles(0, state.NAK_TO_RESEND).max == 1000


def test_forged_messages_without_end_take_no_memory(monkeypatch):
    monkeypatch.setattr(connections, "PAIRS_AT_MOST", 100)
    cm = CmPairs()
    for n in range(1000):
        cm.note([CmMessage(n, n, 0, n, 1, "REQ", n, n, None, qpn=n + 1, starting_psn=n)])
        assert len(cm.first_psns) <= 100 and len(cm._waiting) <= 100
    assert cm.first_psns[1, 999, 1000] == 999
    cm.note([CmMessage(0, 0, 0, 1, 999, "REP", 1, 1, 999, qpn=77, starting_psn=5)])
    assert cm.pairs == {(999, 1, 77): (1, 999, 1000)}


def test_flows_have_their_addresses_and_partners():
    found = tracked("c10")
    named = named_flows(found.tracker, found.endpoints)
    assert [(one.src, one.dst, one.dest_qp) for one in named] == found.keys()
    paired = [one for one in named if one.peer >= 0]
    assert paired
    for one in paired:
        assert (named[one.peer].dst, named[one.peer].peer) == (one.src, one.number)
    assert all(one.first_ns <= one.last_ns for one in named)


def two_of_one_pace(port):
    """Requests of queue pair 0x21 with a port of their own; answers of 0x12, whose requests no tap
    saw, and of 0x22, which has this port."""
    rows = []
    for n in range(40):
        rows += [{"psn": n, "dest_qp": 0x21, "udp_sport": 50_001}]
        told = {"answer": True, "psn": n, "opcode": ACK, "syndrome": 0x1F}
        rows += [told | {"dest_qp": 0x12, "udp_sport": 50_002}]
        if port is not None:
            rows += [told | {"dest_qp": 0x22, "udp_sport": port}]
    return rows


@pytest.mark.parametrize(("port", "peer"), [(None, 1), (50_003, 1), (50_001, 2)])
def test_answers_of_an_unseen_queue_pair_are_not_those_of_another_with_its_own(port, peer):
    found = FlowTracker()
    track(found, packets(two_of_one_pace(port)))
    connections.settle(found, CmPairs())
    assert found.flows["peer"][0] == peer


@pytest.mark.parametrize("heeds", [True, False])
@pytest.mark.parametrize("ports", [(50_001, 50_002), (50_001, 50_001)])
def test_a_sender_that_ignores_the_naks_of_its_peer_is_another(heeds, ports):
    """Only where the ports differ; its NAKs count as those of an unknown queue pair."""
    rows = [row | {"udp_sport": 50_002} for row in two_of_one_pace(None)]
    nak = {"answer": True, "psn": 35, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    rows.append(nak | {"dest_qp": 0x12})
    if heeds:
        rows += [{"psn": n, "dest_qp": 0x21} for n in range(35, 40)]
    rows += [{"psn": 40, "dest_qp": 0x21, "time_ns": START_NS + 200_000_000}]
    rows = [row | {"udp_sport": ports["answer" in row]} for row in rows]
    found = FlowTracker()
    track(found, packets(rows))
    connections.settle(found, CmPairs())
    pairs_stay = heeds or ports[0] == ports[1]
    assert (found.flows["peer"][0] >= 0) == pairs_stay
    assert found.flows["early_naks"].sum() == (not pairs_stay)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("ports", [(50_001, 50_002), (50_001, 50_001)])
def test_a_sender_that_goes_back_to_other_psns_than_the_naks_of_its_peer_is_another(exact, ports):
    """It loses packets of its own, as the other queue pair does."""
    rows = two_of_one_pace(None)
    for lost in range(40, 80, 8):
        nak = {"answer": True, "psn": lost, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
        again = lost if exact else lost + 2
        rows += [{"psn": n, "dest_qp": 0x21} for n in range(lost, lost + 5)]
        rows.append(nak | {"dest_qp": 0x12})
        rows += [{"psn": n, "dest_qp": 0x21} for n in range(again, lost + 8)]
    rows = [row | {"udp_sport": ports["answer" in row]} for row in rows]
    found = FlowTracker()
    track(found, packets(rows))
    assert found.flows["retransmitted_by"][0][state.BY_NAK] > 0
    connections.settle(found, CmPairs())
    pairs_stay = exact or ports[0] == ports[1]
    assert (found.flows["peer"][0] >= 0) == pairs_stay
    assert found.flows["early_naks"].sum() == 5 * (not pairs_stay)


def test_a_nak_that_just_came_does_not_part_a_pair():
    """A running analysis may see it before the sender retransmits."""
    nak = {"answer": True, "psn": 35, "opcode": ACK, "syndrome": NAK_SEQUENCE_ERROR}
    found = FlowTracker()
    track(found, packets([*two_of_one_pace(None), nak | {"dest_qp": 0x12, "udp_sport": 50_002}]))
    connections.settle(found, CmPairs())
    assert found.flows["peer"][0] == 1
