"""Captures on the packet engine: a real run as captured, and what is known of its links."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
import replay_traffic
from captures import DATA

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.registry import Registry
from rocescope.cli import run as cli
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import link_loads
from rocescope.replay.packets.drivers.event_driven import run_event_driven
from rocescope.replay.packets.drivers.runner import run_open_loop
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers.captured import captured
from rocescope.replay.strategies.registry import parse_packet_strategy, parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture

RUN = DATA / "leafspine" / "r01_clean_write"
HOSTS = [str(RUN / f"{name}.pcap.xz") for name in ("H1-leaf1", "H2-leaf1", "H3-leaf2", "H4-leaf2")]
SPEC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=1us"
ROUTERS = "ecmp:hash=linux,policy=1,seed=305419896,per-switch=equal"
PS = 1000
CLOS = parse_fabric(SPEC)


def seen(path: str) -> dict[tuple[str, str, int], np.ndarray]:
    """Time and bytes of data packets in the order of the capture, by source, destination and QP."""
    registry = Registry()
    rows: dict[tuple[str, str, int], list[tuple[int, int]]] = {}
    with open_capture(path, registry.taps) as capture:
        decoder = Decoder(registry)
        for frames in capture.batches():
            table = decoder.decode(frames)
            names = registry.endpoints.texts()
            for i in np.flatnonzero(table.opcode != 0x11):
                key = names[table.src[i]], names[table.dst[i]], int(table.dest_qp[i])
                rows.setdefault(key, []).append((int(table.time_ns[i]), int(table.wire_bytes[i])))
    return {key: np.array(own) for key, own in rows.items()}


@pytest.mark.thorough
def test_a_real_fabric_as_captured() -> None:
    """48 queue pairs through Linux routers, 1.7 s: every packet is sent when it was, and comes to
    its host when the capture of that host's link has it, but for what the routers took."""
    traffic = traffic_from_capture(HOSTS, CLOS, "order", messages=True)
    model = Model(ack_bytes=62, ack_every=64, pfc=None)  # Soft-RoCE: an ACK per 64 packets
    workload, notes = captured(traffic, model, as_captured=True)
    assert notes == [
        "480 ACKs, NAKs, CNPs and probes are omitted: the packet engine generates them"
    ]
    result = run_open_loop(
        workload,
        CLOS,
        parse_packet_strategy(ROUTERS),
        model,
        keep_arrivals=True,
        keep_sent=True,
        load_bin_ps=10**10,
    )
    assert result.arrived_ps is not None and result.sent_ps is not None
    taps = [seen(path) for path in HOSTS]
    start = min(int(own[0, 0]) for tap in taps for own in tap.values())
    keys, late, took = workload.traffic.keys, [], []
    for flow in range(48):
        src, dst = (str(ip_address(bytes(end[flow][12:]))) for end in (keys.src, keys.dst))
        both = [tap[src, dst, int(keys.dest_qp[flow])] for tap in taps if (src, dst) in
                {(a, b) for a, b, _ in tap}]  # fmt: skip
        leaves, comes = sorted(both, key=lambda own: int(own[0, 0]))
        first, end = workload.packet_start[workload.flow_start[[flow, flow + 1]]]
        rows = slice(int(first), int(end))
        assert (workload.due_ps[rows] == (leaves[:, 0] - start) * PS).all()
        assert (workload.wire_bytes[rows] == leaves[:, 1]).all()
        late.append(result.arrived_ps[rows] - (comes[:, 0] - start) * PS)
        took.append((comes[:, 0] - leaves[:, 0]) * PS)
    assert (result.sent_ps - workload.due_ps).max() < 2 * 87_000  # behind another one or an ACK
    # Four links of 1 us and 1,082 B at 100 Gb/s.
    ours, real = 4 * (1_000_000 + 86_560), np.concatenate(took)
    assert 4_000_000 < np.median(real) < 5_000_000
    error = np.concatenate(late) - (ours - real)
    assert abs(error).max() < 3 * 87_000  # behind another packet at some link
    assert (result.link_drops == 0).all() and result.completion_ps is not None

    facts = json.loads((RUN / "run.facts.json").read_text())["captures"]
    for spine in range(1, 5):
        name = f"leaf1-spine{spine}"
        there, back = (int(CLOS.find_links(link)[0]) for link in (
            f"leaf1>spine{spine}", f"spine{spine}>leaf1"))  # fmt: skip
        assert result.link_packets[[there, back]].sum() == facts[name]["roce"]
        assert result.loads is not None
        for link, up in ((there, True), (back, False)):
            data = np.concatenate([
                own for key, own in seen(str(RUN / f"{name}.pcap.gz")).items()
                if key[0].startswith("10.1.") == up])  # fmt: skip
            in_bin = (data[:, 0] - start) * PS // result.load_bin_ps
            carried = np.bincount(in_bin, data[:, 1], len(result.loads))
            # ACKs are 62 B of 64 packets; those at the edge of a stretch may be in the next one.
            assert abs(result.loads[:, link] - carried).max() < 5 * 1082 + 62 * 40


def test_received_packets_of_a_clean_capture_have_kept_their_order(tmp_path: Path) -> None:
    pcap, report, out = (tmp_path / name for name in ("r.pcap", "r.json", "out.json"))
    words = ["replay", *HOSTS, "--fabric", SPEC, "--map", "order", "-s", ROUTERS, "--packets"]
    assert cli([*words, "--received", str(pcap), "-o", str(out)]) == 0
    assert cli(["analyze", str(pcap), "-o", str(report)]) == 0
    flows = json.loads(report.read_text())["flows"]
    assert sum(flow["packets"] for flow in flows) == 30_720
    for name in ("reordered_packets", "missing_packets", "retransmitted_packets"):
        assert sum(flow[name] for flow in flows) == 0, name
    packets = json.loads(out.read_text())["strategies"][0]["packets"]
    assert packets["model"]["offer"] == "captured"
    assert packets["received"]["reordered_packets"] == 0


@pytest.mark.parametrize("as_captured", [True, False])
def test_entropy_values_of_packets_are_kept(tmp_path: Path, as_captured: bool) -> None:
    """A flow is one queue pair whose packets go as each one's entropy value hashes, and come back
    as its ACK's: links carry what the placement of all entropy values says."""
    pcap = tmp_path / "sprayed.pcap"
    words = "generate permutation --hosts 4 --messages 12 --message-size 64KiB --spray 8 --qps 2"
    assert cli([*words.split(), "-o", str(pcap)]) == 0
    traffic = traffic_from_capture([str(pcap)], CLOS, "order", messages=True)
    model = Model(pfc=None)
    workload, _ = captured(traffic, model, as_captured=as_captured)
    assert len(workload.src) == 8 and workload.units == 64
    assert (workload.packets == 8).all() and len(workload.packets) == 8 * 12
    outcome = parse_strategy("ecmp").place(workload.traffic, CLOS)
    expected = link_loads(outcome.placement, workload.traffic, len(CLOS.links.source))
    strategy = parse_packet_strategy("ecmp")
    one = run_open_loop(workload, CLOS, strategy, model, keep_arrivals=True)
    assert one.link_bytes.tolist() == expected.wire_bytes.tolist()
    two = run_event_driven(workload, CLOS, strategy, model, keep_arrivals=True).engine
    assert one.arrived_ps is not None and two.arrived_ps is not None
    assert two.arrived_ps.tolist() == one.arrived_ps.tolist()
    assert two.completed_ps.tolist() == one.completed_ps.tolist()
    if not as_captured:  # windows as for any other queue pair
        assert (workload.after >= 0).any()


def test_queue_pairs_of_mrc_have_windows(tmp_path: Path) -> None:
    """Entropy value per packet, SACKs; the generator has two messages outstanding."""
    pcap = tmp_path / "mrc.pcap"
    assert cli(["generate", "mrc", "-o", str(pcap)]) == 0
    planes = parse_fabric("multi-plane:planes=4,leaves=2,spines=4,hosts=2,rate=100G")
    traffic = traffic_from_capture([str(pcap)], planes, "order", messages=True)
    workload, notes = captured(traffic, Model(pfc=None), as_captured=False)
    assert "flows with a window of 2 messages: 2" in " ".join(notes)
    assert workload.packets.tolist() == [256] * 8 and workload.units > 64
    assert workload.after.tolist() == [-1, -1, 0, 1, -1, -1, 4, 5]


def test_windows_and_what_is_known_less_well() -> None:
    traffic = replay_traffic.random_traffic(CLOS, 6)
    traffic = replace(traffic, last_ns=traffic.first_ns + 9_000)
    timed, _ = captured(traffic, Model(pfc=None), as_captured=True)
    assert timed.message_bytes().tolist() == sorted_wire(traffic)
    inside = traffic.src_host != traffic.dst_host
    first = traffic.first_ns[inside] - traffic.first_ns[inside].min()
    for flow, begun in enumerate(first.tolist()):  # evenly from the first packet to the last
        rows = timed.due_ps[timed.packet_start[flow] : timed.packet_start[flow + 1]]
        n = len(rows)
        even = [begun + 9_000 * i // max(1, n - 1) for i in range(n)]
        assert rows.tolist() == [PS * ns for ns in even]
    asap, _ = captured(traffic, Model(pfc=None), as_captured=False)
    assert not len(asap.due_ps) and not asap.release_ps.any()
    coarse, _ = captured(traffic, Model(pfc=None), as_captured=True, window_ns=4_000)
    steps = (coarse.due_ps + int(traffic.first_ns.min()) * PS) % (4_000 * PS)
    assert ((steps == 0) | (coarse.due_ps == 0)).all() and (coarse.due_ps <= timed.due_ps).all()
    with pytest.raises(UsageError, match="no data packets"):
        captured(
            replace(traffic, wire_bytes=traffic.packets * 62), Model(pfc=None), as_captured=True
        )


def sorted_wire(traffic: object) -> list[int]:
    inside = traffic.src_host != traffic.dst_host  # type: ignore[attr-defined]
    return traffic.wire_bytes[inside].tolist()  # type: ignore[attr-defined, no-any-return]
