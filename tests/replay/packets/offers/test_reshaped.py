"""Captured messages with other sizes, MTUs and queue pairs, against a plain twin."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import UsageError
from rocescope.cli import run as cli
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.offers.captured import captured
from rocescope.replay.packets.offers.reshaped import Shape, reshaped
from rocescope.replay.traffic.linked import Links
from rocescope.replay.traffic.traffic import PacketTimes, SentMessages, Traffic

HEAD = 62
FABRIC = "leaf-spine:leaves=1,spines=1,hosts=4,rate=100G,delay=500ns"


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


def completion(path: Path, model: str) -> float:
    request = ReplayRequest(FABRIC, ("ecmp",), (str(path),), map="order", model=model)
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
    plain = completion(small, "offer=asap")
    longer = completion(small, "offer=asap,message-size=4x")
    assert longer == completion(small, "offer=asap,message-size=256KiB")
    # The RETH of a First packet counts once per message, evenly over its packets.
    assert longer == pytest.approx(completion(large, "offer=asap"), rel=1e-3)
    wider = completion(small, "offer=asap,mtu=4096")
    assert wider == pytest.approx(completion(jumbo, "offer=asap"), rel=1e-3)
    assert wider < 0.97 * plain and longer > 3.8 * plain
    for count in (2, 4):
        more = completion(small, f"offer=asap,qps={count}")
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
    module = "rocescope.replay.packets.offers.reshaped"
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
    assert parse_fabric(FABRIC).hosts == 4 and alone.messages is None
    with pytest.raises(UsageError, match="need single messages, and there are more than"):
        captured(alone, Model(), as_captured=True, shape=Shape(queue_pairs=2))
