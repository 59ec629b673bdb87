"""The imbalance of parallel taps and directions, by hand and on the links of a real fabric."""

from __future__ import annotations

import gzip
import ipaddress
from collections import defaultdict
from typing import Any

import dpkt
import numpy as np
import pytest
from tracked_batches import ACK, tracked, updated

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.decode.merge import merge_tables
from rocescope.analyzer.measures.spraying import PathUsage, entropy_imbalances, fim, tap_imbalances
from rocescope.analyzer.track.batch import TAP_COPY
from rocescope.analyzer.track.tracker import FlowTracker
from rocescope.analyzer.wire.registry import Registry

H1, H2, H3, H4 = range(4)


def fabric_rows(spine_of):
    """H1 and H2 behind links 0 and 1, two uplinks 2 and 3: each packet at its two taps."""
    rows = []
    for flow, spines in spine_of.items():
        host = flow % 2
        for spine in spines:
            rows += [
                {"flow": flow, "tap": host, "hop_limit": 64},
                {"flow": flow, "tap": 2 + spine, "hop_limit": 63, "verdict": TAP_COPY},
            ]
    return rows


def test_exact_imbalance_of_two_uplinks():
    rows = fabric_rows({0: [0, 0, 0], 1: [0, 0], 2: [1]})
    down = [{"flow": 3, "tap": 2, "hop_limit": 62, "opcode": ACK, "wire_bytes": 62}] * 3
    usage = updated(PathUsage("tap"), [tracked(rows + down)])
    src, dst = np.array([H1, H2, H1, H3], np.uint32), np.array([H3, H3, H3, H1], np.uint32)
    copies = np.zeros((4, 4), np.int64)
    copies[0, 2], copies[1, 2], copies[0, 3] = 3, 2, 1
    names = ["H1-leaf", "H2-leaf", "up1", "up2"]
    up, back = tap_imbalances(usage, src, dst, copies, names, ["h1", "h2", "h3", "h4"])
    assert (up.name, up.paths, up.flows) == ("up1, up2, from h1, h2", 2, 3)
    assert [(s.path, s.packets, s.wire_bytes) for s in up.shares] == [
        ("up1", 5, 5 * 1094),
        ("up2", 1, 1094),
    ]
    assert up.fim_flows_percent == pytest.approx(100 / 3)
    assert up.fim_bytes_percent == pytest.approx(200 / 3)
    assert (back.name, back.flows, back.wire_bytes) == ("up1, up2, from h3", 1, 186)
    assert back.fim_bytes_percent == 100


@pytest.mark.parametrize(("unplaced", "paths"), [({4}, ["up1", "up2"]), ({3, 4}, [])])
def test_a_tap_that_stands_for_many_links_is_no_path(unplaced, paths):
    rows = fabric_rows({0: [0, 1, 2, 2, 2], 1: [2, 2]})
    usage = updated(PathUsage("tap"), [tracked(rows)])
    src, dst = np.array([H1, H2], np.uint32), np.array([H3, H3], np.uint32)
    copies = np.zeros((5, 5), np.int64)
    copies[0, 2:], copies[1, 4] = (1, 1, 3), 2
    names = ["H1-leaf", "H2-leaf", "up1", "up2", "further interfaces"]
    found = tap_imbalances(usage, src, dst, copies, names, ["h1", "h2", "h3", "h4"], unplaced)
    assert [share.path for one in found for share in one.shares] == paths


def test_entropy_values_of_a_sprayed_flow():
    rows = [{"flow": f, "udp_sport": p} for f, p in ((0, 1), (1, 7), (1, 8), (1, 8), (1, 9))]
    usage = updated(PathUsage("entropy"), [tracked(rows)])
    (only,) = entropy_imbalances(usage, 2, "flow {}".format)
    assert (only.name, only.path_by, only.inferred) == ("entropy values of flow 1", "entropy", True)
    assert (only.paths, only.flows, only.fim_flows_percent) == (3, 1, None)
    assert only.fim_bytes_percent == pytest.approx(100 / 3 * (1 / 4 + 1 / 4 + 1 / 2))
    assert only.shares[0].path == "8"


def read_with_dpkt(path):
    """Packets, wire bytes and data-carrying flows per source address, without our code."""
    found: dict[str, list[Any]] = defaultdict(lambda: [0, 0, set()])
    with gzip.open(path, "rb") as file:
        for _, frame in dpkt.pcap.Reader(file):
            ethernet_type, protocol = frame[12:14], frame[23]
            if ethernet_type != b"\x08\x00" or protocol != 17 or frame[36:38] != b"\x12\xb7":
                continue
            entry = found[str(ipaddress.ip_address(frame[26:30]))]
            entry[0] += 1
            entry[1] += 14 + int.from_bytes(frame[16:18], "big")
            if frame[42] != ACK:
                entry[2].add(frame[26:34] + frame[47:50])
    return found


def test_links_of_a_real_leaf(data):
    """Four links of one leaf; H1 is sprayed over them, the other hosts are hashed."""
    links = [f"leaf2-spine{n}.pcap.gz" for n in range(1, 5)]
    paths = [data / "leafspine" / "r09_packet_spray_h1" / link for link in links]
    registry, tracker = Registry(), FlowTracker()

    def tables(path):
        decoder = Decoder(registry)
        for frames in open_capture(str(path), registry.taps).batches():
            yield decoder.decode(frames)

    usage = PathUsage("tap")
    for table in merge_tables([tables(path) for path in paths]):
        usage.update(tracker.update(table))
    flows = tracker.flows
    found = tap_imbalances(
        usage,
        flows["src"],
        flows["dst"],
        tracker.copies,
        registry.tap_names,
        registry.endpoints.texts(),
    )
    assert len(found) == 2
    per_link = [read_with_dpkt(path) for path in paths]
    for hosts in (("10.1.1.10", "10.1.2.10"), ("10.2.3.10", "10.2.4.10")):
        (one,) = (i for i in found if i.name.endswith(f"from {', '.join(hosts)}"))
        packets, wire_bytes, data_flows = (
            [[link[host][k] for host in hosts] for link in per_link] for k in range(3)
        )
        shares = {s.path: s for s in one.shares}
        assert [shares[link].packets for link in links] == [sum(p) for p in packets]
        assert [shares[link].wire_bytes for link in links] == [sum(b) for b in wire_bytes]
        counts = [len(set.union(*sets)) for sets in data_flows]
        assert one.fim_flows_percent == pytest.approx(fim(np.array(counts)))
        assert one.flows == len(set.union(*(s for sets in data_flows for s in sets)))
