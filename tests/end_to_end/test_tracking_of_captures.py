"""The tracker on real traffic: nothing on clean captures, the ground truth on impaired ones."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from captures import DATA, Tracked, tracked, truth
from examples import first

from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.track import state
from rocescope.analyzer.track.batch import IN_ORDER, NOT_SEQUENCED, TAP_COPY

ANOMALIES = (
    "reordered",
    "recovered",
    "retransmitted",
    "duplicates",
    "mirror_duplicates",
    "restarts",
)

CLEAN = ["c04", "c05", "c07", "c08", "c10", "c13", "c15", "c16", "c23", "i13"]


@pytest.mark.parametrize("name", CLEAN)
def test_clean_captures_show_no_anomaly(name):
    found = tracked(name)
    assert set(np.unique(found.verdicts)) <= {NOT_SEQUENCED, IN_ORDER}
    assert {field: found.total(field) for field in ANOMALIES} == dict.fromkeys(ANOMALIES, 0)
    assert found.missing() == 0
    assert found.tracker.flows["naks"].sum() == 0


@pytest.mark.parametrize("name", ["c05", "c08", "c10", "c13", "c15", "c16", "c23", "i01", "i04"])
def test_packets_of_each_flow(name):
    """Against the independent parser: packets per (source, destination, destination QP)."""
    names = {"i01": "i01_write_loss0.5_AtoB.atB", "i04": "i04"}
    found = tracked(names.get(name, name))
    _, facts = truth(name)
    flows = facts["captures"]["atB"]["streams"]
    expected = {(f["src"], f["dst"], f["dest_qp"]): f["packets"] for f in flows}
    seen = dict(zip(found.keys(), found.tracker.flows["packets"].tolist(), strict=True))
    assert seen == expected


def test_loss_seen_before_it_happens():
    """Tap A sees every packet sent: the sender's go-back-N and nothing missing."""
    found = tracked("i01_write_loss0.5_AtoB.atA")
    run, facts = truth("i01")
    sent_twice = sum(f["request_psns_repeated"] for f in facts["captures"]["atA"]["streams"])
    assert found.total("retransmitted") == sent_twice == 11210
    assert found.total("recovered") == found.total("reordered") == found.missing() == 0
    # Every NAK the receiver counted made the sender go back.
    naks = run["rxe_hw_counters_delta"]["B"]["rxe0"]["out_of_seq_request"]
    assert found.tracker.flows["naks"].sum() == found.tracker.flows["rewinds"].sum() == naks
    by = found.tracker.flows["retransmitted_by"].sum(axis=0)
    assert by[state.BY_NAK] == sent_twice


def test_loss_seen_after_it_happened():
    """Tap B misses what netem dropped, and sees it come again.

    The 180 drops are not all found as recovered PSNs: some hit packets that
    were retransmitted anyway, of which tap B had seen an earlier transmission.
    What must agree are the PSNs whose first transmission was dropped.
    """
    found = tracked("i01_write_loss0.5_AtoB.atB")
    _, facts = truth("i01")
    lost = facts["between_the_two_captures"]["A_to_B_lost"]
    assert lost["packets"] == 180
    assert found.total("recovered") == _first_transmissions_lost() == 125
    assert found.total("reordered") == found.missing() == 0
    assert found.total("recovered") + found.total("retransmitted") == 11210 - 180 + 125


def _first_transmissions_lost():
    """PSNs whose first packet at tap A never came to tap B, by IPv4 identification (dpkt)."""
    at_a, at_b = (_transmissions(f"i01_write_loss0.5_AtoB.at{tap}.pcap.gz") for tap in "AB")
    # A gap shows only if a higher PSN came before the resend, as go-back-N guarantees here
    # unless the lost packet was the last one sent: then it is new when it comes again.
    return sum(1 for key, ids in at_a.items() if ids[0] not in at_b[key] and at_b[key])


def _transmissions(name):
    import gzip
    import struct

    import dpkt

    found = {}
    with gzip.open(DATA / name) as file:
        for _, frame in dpkt.pcap.Reader(file):
            if len(frame) < 54 or frame[12:14] != b"\x08\x00" or frame[23] != 17:
                continue
            if frame[36:38] != b"\x12\xb7" or frame[42] == 0x11:
                continue
            (qp_word, _, psn_word) = struct.unpack(">I", frame[46:50])[0], 0, frame[50:54]
            key = (frame[26:34], qp_word & 0xFFFFFF, int.from_bytes(psn_word[1:], "big"))
            found.setdefault(key, []).append(int.from_bytes(frame[18:20], "big"))
    return found


def test_reordering_by_the_network():
    """netem held 5 percent of the packets back; the receiver's NAKs made the sender go back."""
    found = tracked("i03_write_reorder5_AtoB.atB")
    run, facts = truth("i03")
    assert found.total("reordered") == 982
    assert found.total("recovered") == found.missing() == 0
    resent = sum(f["request_psns_repeated"] for f in facts["captures"]["atB"]["streams"])
    assert found.total("retransmitted") == resent
    naks = run["rxe_hw_counters_delta"]["B"]["rxe0"]["out_of_seq_request"]
    assert found.tracker.flows["naks"].sum() == naks == 81


def test_duplicates_of_the_network():
    found = tracked("i04")
    run, facts = truth("i04")
    gained = facts["between_the_two_captures"][
        "A_to_B_gained (duplicated or altered in the network)"
    ]
    counted = run["rxe_hw_counters_delta"]["B"]["rxe0"]["duplicate_request"]
    assert found.total("duplicates") == gained["packets"] == counted == 201
    others = [f for f in ANOMALIES if f != "duplicates"]
    assert {f: found.total(f) for f in others} == dict.fromkeys(others, 0)


def test_timeouts():
    """Both sides resend after a silence; each resend is one the hardware counter knows."""
    found = tracked("n05")
    run, _ = truth("n05")
    retries = {
        host: run["rxe_hw_counters_delta"][host]["rxe0"]["completer_retry_err"] for host in "AB"
    }
    by_source = Counter()
    for (src, _, _), flow in zip(found.keys(), found.tracker.flows, strict=True):
        by_source[src] += int(flow["retransmitted_by"][state.BY_TIMEOUT])
    assert by_source == {"10.0.0.1": retries["A"], "10.0.0.2": retries["B"]}
    assert found.total("retransmitted") == sum(retries.values()) == 48


def test_rnr_naks_and_errors():
    found = tracked("c40")
    run, _ = truth("c40")
    counters = run["rxe_hw_counters_delta"]
    flows = found.tracker.flows
    assert flows["rnr_naks"].sum() == counters["A"]["rxe0"]["rcvd_rnr_err"] == 35
    codes = flows["nak_codes"].sum(axis=0)
    assert codes[0] == counters["B"]["rxe0"]["out_of_seq_request"] == 36
    assert codes[2] == 2 and codes[3] == 1  # remote access, remote operational
    assert found.total("recovered") == found.total("reordered") == found.missing() == 0
    assert found.total("restarts") == found.total("duplicates") == 0


def test_two_taps_of_one_path_count_each_packet_once():
    found = tracked("i01_write_loss0.5_AtoB.atA", "i01_write_loss0.5_AtoB.atB")
    one = tracked("i01_write_loss0.5_AtoB.atA")
    # Every transmission passes tap A first, what comes to B is a copy. ACKs the other way round.
    assert np.count_nonzero(found.verdicts == TAP_COPY) == 31972
    assert sorted(found.tracker.flows["packets"]) == sorted(one.tracker.flows["packets"])
    assert found.total("retransmitted") == 11210
    assert found.total("reordered") == found.total("recovered") == found.missing() == 0
    copies = found.tracker.copies
    assert copies[0, 1] == 31972 - 462 and copies[1, 0] == 462


def test_parallel_taps_join_to_the_whole_flow():
    """Four links of one layer: each flow uses one, together they carry all the packets, once."""
    found = Tracked(sorted((DATA / "leafspine/r01_clean_write").glob("*.pcap.gz")))
    run = json.loads((DATA / "leafspine/r01_clean_write/run.facts.json").read_text())
    assert set(np.unique(found.verdicts)) <= {NOT_SEQUENCED, IN_ORDER}
    assert len(found.verdicts) == sum(
        c["roce"] for name, c in run["captures"].items() if name.startswith("leaf1-spine")
    )
    assert found.missing() == 0


def test_a_sprayed_flow_over_four_links_with_one_slow():
    """Packets of H1 take a random spine; in time order over all links they are late, not lost."""
    found = Tracked(sorted((DATA / "leafspine/r09_packet_spray_h1").glob("*.pcap.gz")))
    assert found.total("reordered") > 50
    assert found.missing() == 0
    # A packet crosses one spine: no identification comes twice, even where a resend was faster.
    assert not np.any(found.verdicts == TAP_COPY)


@pytest.mark.thorough
@pytest.mark.parametrize("name", first(2, ["c04", "c15", "c16", "i03", "c40"]))
@pytest.mark.parametrize("batch_frames", [1, 97])
def test_batches_of_any_size_give_the_same(name, batch_frames):
    whole, pieces = tracked(name), tracked(name, batch_frames=batch_frames)
    assert np.array_equal(whole.verdicts, pieces.verdicts)
    for field in whole.tracker.flows.dtype.names:
        assert np.array_equal(whole.tracker.flows[field], pieces.tracker.flows[field]), field


def test_a_nak_that_makes_a_pair_counts_once():
    """As many NAKs as tshark shows for four queue pairs of a sprayed run.

    One of them completes the evidence for its pair: the pair counts it, not the PSN's return too.
    """
    taps = sorted((DATA / "leafspine" / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
    result = analyze([str(path) for path in taps], AnalyzeOptions())
    naks = {f.dest_qp: sum(f.recovery.naks.values()) for f in result.flows}
    assert {qp: naks[qp] for qp in range(0xA9, 0xAD)} == {0xA9: 21, 0xAA: 25, 0xAB: 10, 0xAC: 20}
