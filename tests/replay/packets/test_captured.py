"""What is offered: patterns, captured traffic, traffic of another shape.

Units of generated queue pairs carry what the engine sends.

Captures on the packet engine: a real run as captured, and what is known of its links.

Captured messages with other sizes, MTUs and queue pairs, against a plain twin.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replay_traffic
from captures import DATA
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.capture.source import open_capture
from rocescope.analyzer.decode.decoder import Decoder
from rocescope.analyzer.errors import UsageError
from rocescope.analyzer.wire.registry import Registry
from rocescope.cli import run as cli
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.flows.loads import link_loads
from rocescope.replay.generate.from_pattern import generate, offered_traffic
from rocescope.replay.generate.patterns import Settings
from rocescope.replay.generate.queue_pairs import Sending
from rocescope.replay.hashing.keys import PacketKeys, packet_keys
from rocescope.replay.jobs.offered import offer_jobs
from rocescope.replay.jobs.spec import parse_jobs
from rocescope.replay.packets.event_driven import run_event_driven
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers import Shape, captured, collective, reshaped, units_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.strategies.registry import parse_packet_strategy, parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.replay.traffic.traffic import Links, PacketTimes, SentMessages, Traffic

SPEC = "leaf-spine:leaves=2,spines=2,hosts=4,rate=100G"
FABRIC = parse_fabric(SPEC)


@pytest.mark.parametrize("every", [1, 4])
def test_units_have_the_packets_and_acks_of_their_messages(every: int) -> None:
    model = Model(payload_bytes=1000, header_bytes=50, ack_bytes=70, ack_every=every)
    load = collective("permutation", FABRIC, model, 4500, 1, messages=3)
    n, acks = len(load.src), 3 * -(-5 // every)
    assert load.traffic.packets.tolist() == [15] * n + [acks] * n
    assert load.traffic.wire_bytes.tolist() == [3 * (4500 + 5 * 50)] * n + [acks * 70] * n
    assert load.traffic.wire_bytes[:n].sum() == load.message_bytes().sum()
    assert (load.traffic.src_host[:n] == load.src).all()
    assert (load.traffic.src_host[n:] == load.dst).all()
    (job,) = parse_jobs(["collective=ring,workers=4,size=40kB"])(FABRIC, 1)
    ring = offer_jobs([job], FABRIC, model, 1).workload
    data = np.bincount(ring.flow, ring.message_bytes())
    assert ring.traffic.wire_bytes[: len(data)].tolist() == data.tolist()


@pytest.mark.parametrize("messages", [1, 3])
def test_units_are_those_of_the_packets_that_generate_writes(messages: int) -> None:
    """Row by row: addresses, ports, queue pairs, hosts and times, data first."""
    settings = Settings(8, 4500, messages, 100, None, 0.5, 10**11)
    pairs = generate("all-to-all", settings, Sending(qps=2, round_trip_ns=5_000), 7)
    n = len(pairs)
    expected = offered_traffic(pairs, FABRIC.addresses).take(
        np.concatenate([2 * np.arange(n), 2 * np.arange(n) + 1])
    )
    flow = np.repeat(np.arange(n), messages)
    units = units_of(pairs, FABRIC.addresses, flow, pairs.message_bytes[flow], Model())
    for name in PacketKeys._fields:
        assert (getattr(units.keys, name) == getattr(expected.keys, name)).all(), name
    for name in ("src_host", "dst_host", "flow", "first_ns", "last_ns", "has_data"):
        found, wanted = getattr(units, name), getattr(expected, name)
        assert (found == wanted).all() and found.dtype == wanted.dtype, name


@pytest.mark.parametrize("pattern", ["incast:fan-in=7,message-size=100kB", ""])
def test_links_of_acks_alone_have_their_fair_share(pattern: str) -> None:
    """Hosts without a choice of links load each of them exactly as an even split would."""
    request = ReplayRequest(
        fabric=SPEC,
        pattern=pattern,
        jobs=() if pattern else ("collective=tree,workers=8,size=100kB",),
        strategies=("switch-rr",),
        packets=True,
    )
    result, _ = PreparedReplay(request).by_packets(["switch-rr"])
    (one,) = result.strategies
    shares = {link.name: link.over_mean for link in one.links if link.over_mean is not None}
    hosts = [share for name, share in shares.items() if "host" in name]
    assert len(hosts) == 16 and hosts == pytest.approx([1.0] * 16)
    assert max(shares.values()) < 1.5


RUN = DATA / "leafspine" / "r01_clean_write"
HOSTS = [str(RUN / f"{name}.pcap.xz") for name in ("H1-leaf1", "H2-leaf1", "H3-leaf2", "H4-leaf2")]
SPEC_CAPTURED = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=1us"
ROUTERS = "ecmp:hash=linux,policy=1,seed=305419896,per-switch=equal"
PS = 1000
CLOS = parse_fabric(SPEC_CAPTURED)


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
    workload, notes = captured(traffic, model, offer="captured")
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
    words = [
        "replay",
        *HOSTS,
        "--fabric",
        SPEC_CAPTURED,
        "--map",
        "order",
        "-s",
        ROUTERS,
        "--packets",
    ]
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
    workload, _ = captured(traffic, model, offer="captured" if as_captured else "asap")
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
    workload, notes = captured(traffic, Model(pfc=None), offer="asap")
    assert "flows with a window of 2 messages: 2" in " ".join(notes)
    assert workload.packets.tolist() == [256] * 8 and workload.units > 64
    assert workload.after.tolist() == [-1, -1, 0, 1, -1, -1, 4, 5]


def test_windows_and_what_is_known_less_well() -> None:
    traffic = replay_traffic.random_traffic(CLOS, 6)
    traffic = replace(traffic, last_ns=traffic.first_ns + 9_000)
    timed, _ = captured(traffic, Model(pfc=None), offer="captured")
    assert timed.message_bytes().tolist() == sorted_wire(traffic)
    inside = traffic.src_host != traffic.dst_host
    first = traffic.first_ns[inside] - traffic.first_ns[inside].min()
    for flow, begun in enumerate(first.tolist()):  # evenly from the first packet to the last
        rows = timed.due_ps[timed.packet_start[flow] : timed.packet_start[flow + 1]]
        n = len(rows)
        even = [begun + 9_000 * i // max(1, n - 1) for i in range(n)]
        assert rows.tolist() == [PS * ns for ns in even]
    asap, _ = captured(traffic, Model(pfc=None), offer="asap")
    assert not len(asap.due_ps) and not asap.release_ps.any()
    coarse, _ = captured(traffic, Model(pfc=None), offer="captured", window_ns=4_000)
    steps = (coarse.due_ps + int(traffic.first_ns.min()) * PS) % (4_000 * PS)
    assert ((steps == 0) | (coarse.due_ps == 0)).all() and (coarse.due_ps <= timed.due_ps).all()
    with pytest.raises(UsageError, match="no data packets"):
        captured(
            replace(traffic, wire_bytes=traffic.packets * 62), Model(pfc=None), offer="captured"
        )


def sorted_wire(traffic: object) -> list[int]:
    inside = traffic.src_host != traffic.dst_host  # type: ignore[attr-defined]
    return traffic.wire_bytes[inside].tolist()  # type: ignore[attr-defined, no-any-return]


HEAD = 62
FABRIC_RESHAPED = "leaf-spine:leaves=1,spines=1,hosts=4,rate=100G,delay=500ns"


def traffic(flows: int, units: int) -> Traffic:
    """Flows of `units` entropy values each; flow i has queue pair 100 + i."""
    n = flows * units
    flow = np.repeat(np.arange(flows), units).astype(np.int32)
    return Traffic(
        packet_keys(["10.0.0.1"] * n, ["10.0.0.2"] * n, 2000 + np.arange(n), dest_qp=100 + flow),
        np.zeros(n, np.int32), np.ones(n, np.int32), flow,
        np.ones(n, np.int64), np.full(n, 1000), np.zeros(n, np.int64), np.ones(n, np.int64),
    )  # fmt: skip


@st.composite
def captures(draw: st.DrawFn) -> tuple[Traffic, SentMessages]:
    """Messages of at most three flows with an MTU of 256 B each, two entropy values per flow."""
    flows = draw(st.integers(1, 3))
    rows = [
        (flow, responses, draw(st.integers(0, 2000)))
        for flow in range(flows)
        for responses in (False, True)
        for _ in range(draw(st.integers(int(not responses), 4)))
    ]
    m = len(rows)
    payload = np.array([row[2] for row in rows], np.int64)
    packets = np.maximum(1, -(-payload // 256))
    flow = np.array([row[0] for row in rows], np.int32)
    of = np.repeat(np.arange(m), packets)
    number = np.arange(len(of)) - np.repeat(np.cumsum(packets) - packets, packets)
    after = np.array([draw(st.integers(-1, i - 1)) for i in range(m)], np.int32)
    link = [i for i in range(1, m) if after[i] < 0 and draw(st.booleans())]
    return traffic(flows, 2), SentMessages(
        flow=flow,
        responses=np.array([row[1] for row in rows], np.bool_),
        packets=packets,
        payload_bytes=payload,
        wire_bytes=payload + HEAD * packets,
        begun_ns=np.arange(m) * 1000,
        ended_ns=np.arange(m) * 1000 + packets,
        after=after,
        on=np.array([draw(st.integers(0, 1)) for _ in rows], np.uint8),
        times=PacketTimes(
            (2 * flow[of] + number % 2).astype(np.int32),
            of * 1000 + number,
            (np.minimum(256, payload[of] - number * 256) + HEAD).astype(np.int32),
        ),
        links=Links(
            np.array(link, np.int32), np.array(link, np.int32) - 1, np.array(link, np.int64) * 7
        ),
    )


def twin(sent: SentMessages, shape: Shape) -> tuple[list[Any], dict[str, set[Any]]]:
    """(flow, responses, packets with unit, time and bytes) of every part in order, named by message
    and part, and the edges between these names."""
    assert sent.times is not None
    k, longest = shape.queue_pairs, int(sent.payload_bytes.max())
    factor = shape.factor
    if shape.longest_bytes is not None and longest:
        factor = shape.longest_bytes / longest
    several = [
        int(flow)
        for flow, n, size in zip(sent.flow, sent.packets, sent.payload_bytes, strict=True)
        if n > 1 and size
    ]
    begin = [0, *np.cumsum(sent.packets).tolist()]
    turns: dict[Any, int] = defaultdict(int)
    found, parts = [], {}
    for m in range(len(sent.flow)):
        flow, responses = int(sent.flow[m]), bool(sent.responses[m])
        turn = turns[flow, responses]
        turns[flow, responses] += 1
        payload = int(sent.payload_bytes[m])
        size = max(1, round(payload * factor)) if payload else 0
        mtu = shape.mtu_bytes or (256 if several else 4096)
        parts[m] = min(k, max(1, -(-size // mtu)))
        at = 0
        for part in range(parts[m]):
            own = size // parts[m] + (part < size % parts[m])
            queue_pair = (turn + part) % k
            packets = []
            for done in range(0, max(1, own), mtu):
                share = (at + done) / max(1, size)
                n = int(sent.packets[m])
                source = begin[m] + min(n - 1, int(share * n))
                packets.append((
                    int(sent.times.unit[source]) * k + queue_pair,
                    int(sent.times.time_ns[source]),
                    min(mtu, own - done) + HEAD,
                ))  # fmt: skip
            at += own
            found.append((flow * k + queue_pair, responses, m, part, packets))
    found.sort(key=lambda row: row[:4])
    edges: dict[str, set[Any]] = {"after": set(), "links": set()}
    for m, other in enumerate(sent.after.tolist()):
        for i, j in product(range(parts[m]), range(parts.get(other, 0))):
            edges["after"].add(((m, i), (other, j), int(sent.on[m])))
    for m, other, gap in zip(*(column.tolist() for column in sent.links), strict=True):
        for i, j in product(range(parts[m]), range(parts[other])):
            edges["links"].add(((m, i), (other, j), gap))
    return found, edges


SHAPES = st.builds(
    Shape,
    st.sampled_from([None, 100, 256, 1024]),
    st.sampled_from([None, None, 700, 5000]),
    st.sampled_from([0.3, 1.0, 3.0]),
    st.integers(1, 5),
)


@examples(60)
@given(captures(), SHAPES, st.booleans())
def test_as_the_twin(capture: tuple[Traffic, SentMessages], shape: Shape, waits: bool) -> None:
    before, sent = capture
    after, found, note = reshaped(before, sent, shape, waits)
    wanted, edges = twin(sent, shape)
    assert "\n" not in note
    assert found.flow.tolist() == [row[0] for row in wanted]
    assert found.responses.tolist() == [row[1] for row in wanted]
    assert found.packets.tolist() == [len(row[4]) for row in wanted]
    packets = [packet for row in wanted for packet in row[4]]
    assert found.times is not None
    assert list(zip(*(c.tolist() for c in found.times), strict=True)) == packets
    sizes = [sum(packet[2] for packet in row[4]) for row in wanted]
    assert found.wire_bytes.tolist() == sizes
    assert (found.payload_bytes + HEAD * found.packets == found.wire_bytes).all()
    name = [row[2:4] for row in wanted]
    own = [(i, int(a), int(found.on[i])) for i, a in enumerate(found.after.tolist()) if a >= 0]
    own += list(zip(*(c.tolist() for c in found.besides), strict=True))
    got = {(name[i], name[a], on) for i, a, on in own}
    assert got == (edges["after"] if waits else set()) and len(got) == len(own)
    if waits:
        links = zip(*(c.tolist() for c in found.links), strict=True)
        assert {(name[i], name[a], gap) for i, a, gap in links} == edges["links"]
    k = shape.queue_pairs
    assert (after.flow == np.repeat(before.flow, k) * k + np.tile(np.arange(k), len(before))).all()
    assert (after.flow[found.times.unit] == np.repeat(found.flow, found.packets)).all()
    pairs = {(int(f), int(q)) for f, q in zip(after.flow, after.keys.dest_qp, strict=True)}
    assert len(pairs) == len({q for _, q in pairs}) == k * before.flows  # one each, none shared
    assert after.keys.sport[::k].tolist() == before.keys.sport.tolist()


def completion(path: Path, model: str = "") -> float:
    request = ReplayRequest(
        FABRIC_RESHAPED, ("ecmp",), (str(path),), map="order", offer="asap", model=model
    )
    result, _ = PreparedReplay(request).by_packets(["ecmp"])
    packets = result.strategies[0].packets
    assert packets is not None and packets.completion_ns is not None
    return packets.completion_ns.mean


def test_a_changed_capture_is_replayed_as_a_capture_with_these_sizes(tmp_path: Path) -> None:
    sizes = {"small": ("64KiB", "1024"), "large": ("256KiB", "1024"), "jumbo": ("64KiB", "4096")}
    for name, (size, mtu) in sizes.items():
        words = f"generate incast --hosts 4 --messages 3 --message-size {size} --mtu {mtu}"
        assert cli([*words.split(), "-o", str(tmp_path / f"{name}.pcap")]) == 0
    small, large, jumbo = (tmp_path / f"{name}.pcap" for name in sizes)
    plain = completion(small)
    longer = completion(small, "message-size=4x")
    assert longer == completion(small, "message-size=256KiB")
    # The RETH of a First packet counts once per message, evenly over its packets.
    assert longer == pytest.approx(completion(large), rel=1e-3)
    wider = completion(small, "mtu=4096")
    assert wider == pytest.approx(completion(jumbo), rel=1e-3)
    assert wider < 0.97 * plain and longer > 3.8 * plain
    for count in (2, 4):
        more = completion(small, f"qps={count}")
        assert more == pytest.approx(plain, rel=0.02)  # the receiver's link is the bottleneck


def test_limits_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = traffic(2, 1)
    size = np.full(4, 1 << 20)
    sent = SentMessages(
        np.array([0, 0, 1, 1], np.int32), np.zeros(4, np.bool_), np.full(4, 1024), size,
        size + 1024 * HEAD, np.arange(4), np.arange(4) + 9, np.array([-1, 0, -1, 2], np.int32),
        np.zeros(4, np.uint8),
    )  # fmt: skip
    with pytest.raises(UsageError, match="409,600,000 packets are too many"):
        reshaped(before, sent, Shape(factor=1e5), True)
    module = "rocescope.replay.packets.offers"
    monkeypatch.setattr(f"{module}.MOST_EDGES", 31)
    with pytest.raises(UsageError, match="qps: more than 31 dependencies"):
        reshaped(before, sent, Shape(queue_pairs=4), True)
    assert reshaped(before, sent, Shape(queue_pairs=4), False)[1].times is None
    monkeypatch.setattr(f"{module}.MOST_UNITS", 7)
    with pytest.raises(UsageError, match="qps=4: more than 7 entropy values"):
        reshaped(before, sent, Shape(queue_pairs=4), False)
    alone = Traffic(*(getattr(before, name) for name in (
        "keys", "src_host", "dst_host", "flow", "packets", "wire_bytes", "first_ns", "last_ns",
    )))  # fmt: skip
    assert parse_fabric(FABRIC_RESHAPED).hosts == 4 and alone.messages is None
    with pytest.raises(UsageError, match="need single messages, and there are more than"):
        captured(alone, Model(), offer="captured", shape=Shape(queue_pairs=2))
