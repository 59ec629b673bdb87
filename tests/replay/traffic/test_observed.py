"""Traffic of captures: units, windows, taps counted once, hosts mapped."""

from __future__ import annotations

import json
from ipaddress import IPv4Address

import numpy as np
import pytest

from rocescope.analyzer.errors import RocescopeError, UnreadableInput
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.generate.from_pattern import generate, offered_traffic
from rocescope.replay.generate.patterns import PATTERNS, Settings
from rocescope.replay.generate.pcap_writer import write_pcap
from rocescope.replay.generate.queue_pairs import Sending
from rocescope.replay.traffic.observed import traffic_from_capture

SETTINGS = Settings(
    hosts=16, message_bytes=30_001, messages=5, flows=50, fan_in=None, load=0.5,
    rate_bits_per_second=10**11,
)  # fmt: skip
SPEC = "leaf-spine:leaves=4,hosts=4"


@pytest.fixture
def capture(tmp_path):
    """Write queue pairs to a file."""

    def write(pairs, plan, snap=128):
        path = tmp_path / "g.pcap"
        with path.open("wb") as file:
            write_pcap(file, pairs, plan, snap)
        return str(path)

    return write


def rows(traffic):
    """Everything that is known of every unit, in any order."""
    keys = traffic.keys
    columns = (
        traffic.src_host, traffic.dst_host, traffic.packets, traffic.wire_bytes, traffic.first_ns,
        traffic.last_ns, keys.sport, keys.dport, keys.dest_qp, keys.flow_label, keys.ipv6,
    )  # fmt: skip
    return sorted(
        (*values, bytes(src), bytes(dst))
        for *values, src, dst in zip(
            *(c.tolist() for c in columns), keys.src, keys.dst, strict=True
        )
    )


@pytest.mark.parametrize("name", sorted(PATTERNS))
@pytest.mark.parametrize("ipv6", [False, True])
def test_what_is_offered_is_what_the_capture_holds(name, ipv6, capture):
    """The closed form of the generator and the packets counted one by one are independent."""
    fabric = parse_fabric(SPEC)
    sending = Sending(qps=3, entropy_values=7, path_mtu=1024, ipv6=ipv6, write=not ipv6)
    pairs = generate(name, SETTINGS, sending, seed=3)
    seen = traffic_from_capture([capture(pairs, fabric.addresses)], fabric)
    offered = offered_traffic(pairs, fabric.addresses)
    assert rows(seen) == rows(offered)
    assert seen.flows == offered.flows == 2 * len(pairs)
    assert seen.unmapped == ()


def test_windows_hold_every_byte_at_its_time(capture):
    fabric = parse_fabric(SPEC)
    pairs = generate("permutation", SETTINGS, Sending(path_mtu=1024), seed=3)
    path = capture(pairs, fabric.addresses)
    traffic = traffic_from_capture([path], fabric, window_ns=1000)
    windows = traffic.windows
    sums = np.bincount(windows.unit, weights=windows.wire_bytes, minlength=len(traffic))
    assert sums.tolist() == traffic.wire_bytes.tolist()
    for unit in range(len(traffic)):
        own = windows.window[windows.unit == unit]
        assert (np.diff(own) > 0).all()
        first = windows.start_ns + int(own[0]) * windows.width_ns
        last = windows.start_ns + int(own[-1]) * windows.width_ns
        assert first <= traffic.first_ns[unit] < first + windows.width_ns
        assert last <= traffic.last_ns[unit] < last + windows.width_ns


@pytest.mark.parametrize("name", ["permutation", "ring-allreduce", "trace-like"])
def test_windows_of_offered_traffic_are_those_of_its_capture(name, capture):
    fabric = parse_fabric(SPEC)
    pairs = generate(name, SETTINGS, Sending(qps=2, entropy_values=3, path_mtu=1024), seed=3)
    seen = traffic_from_capture([capture(pairs, fabric.addresses)], fabric, window_ns=5000)
    offered = offered_traffic(pairs, fabric.addresses, window_ns=5000)

    def cells(traffic):
        w, keys = traffic.windows, traffic.keys
        names = [*zip(keys.src.tolist(), keys.dest_qp.tolist(), keys.sport.tolist(), strict=True)]
        rows = zip(w.unit.tolist(), w.window.tolist(), w.wire_bytes.tolist(), strict=True)
        return w.start_ns, w.width_ns, sorted((names[u], window, n) for u, window, n in rows)

    assert cells(seen) == cells(offered)


def test_windows_are_widened_when_there_are_too_many(capture, monkeypatch):
    monkeypatch.setattr("rocescope.replay.traffic.traffic.MAX_CELLS", 64)
    fabric = parse_fabric(SPEC)
    pairs = generate("incast", SETTINGS._replace(fan_in=3), Sending(), seed=3)
    traffic = traffic_from_capture([capture(pairs, fabric.addresses)], fabric, window_ns=10)
    width, cells = traffic.windows.width_ns, len(traffic.windows.unit)
    assert width > 10 and (width // 10) & (width // 10 - 1) == 0
    assert cells <= 64
    assert traffic.windows.wire_bytes.sum() == traffic.wire_bytes.sum()


def test_copies_at_other_taps_count_once(capture, tmp_path):
    fabric = parse_fabric(SPEC)
    pairs = generate("permutation", SETTINGS, Sending(path_mtu=1024), seed=3)
    path = capture(pairs, fabric.addresses)
    copy = tmp_path / "other_tap.pcap"
    copy.write_bytes(open(path, "rb").read())
    assert rows(traffic_from_capture([path, str(copy)], fabric)) == rows(
        traffic_from_capture([path], fabric)
    )


def test_four_parallel_links_of_a_real_fabric(data):
    """Flow by flow what an independent parser counted on each of the four uplinks of a leaf."""
    folder = data / "leafspine" / "r01_clean_write"
    facts = json.loads((folder / "run.facts.json").read_text())["captures"]
    links = [f"leaf1-spine{i}" for i in (1, 2, 3, 4)]
    expected = {}
    for link in links:
        for stream in facts[link]["streams"]:
            key = (stream["src"], stream["dst"], stream["dest_qp"], *stream["udp_sports"])
            expected[key] = expected.get(key, 0) + stream["packets"]
    fabric = parse_fabric("leaf-spine:leaves=4,hosts=1")
    traffic = traffic_from_capture([str(folder / f"{k}.pcap.gz") for k in links], fabric, "subnets")
    keys = traffic.keys
    seen = {
        (str(IPv4Address(bytes(src[12:]))), str(IPv4Address(bytes(dst[12:]))), qp, sport): packets
        for src, dst, qp, sport, packets in zip(
            keys.src, keys.dst, keys.dest_qp.tolist(), keys.sport.tolist(),
            traffic.packets.tolist(), strict=True,
        )
    }  # fmt: skip
    assert seen == expected
    assert sum(seen.values()) == 31_200
    # Ten messages of 64 packets of 1082 bytes, the first with a RETH; ten ACKs.
    assert set(traffic.wire_bytes.tolist()) == {10 * (64 * 1082 + 16), 10 * 62}
    assert traffic.unmapped == () and set(traffic.src_host.tolist()) == {0, 1, 2, 3}


def test_units_can_be_picked(capture):
    fabric = parse_fabric(SPEC)
    pairs = generate("permutation", SETTINGS, Sending(), seed=3)
    path = capture(pairs, fabric.addresses)
    traffic = traffic_from_capture([path], fabric, window_ns=1000)
    some = traffic.take(np.array([5, 2]))
    assert some.flow.tolist() == traffic.flow[[5, 2]].tolist()
    assert some.keys.dest_qp.tolist() == traffic.keys.dest_qp[[5, 2]].tolist()
    sums = np.bincount(some.windows.unit, weights=some.windows.wire_bytes)
    assert sums.tolist() == traffic.wire_bytes[[5, 2]].tolist()
    assert some.windows.unit.tolist() == sorted(some.windows.unit.tolist())


def test_hosts_outside_the_fabric_are_listed(capture):
    fabric = parse_fabric("leaf-spine:leaves=2,hosts=4")
    pairs = generate("permutation", SETTINGS, Sending(), seed=3)
    traffic = traffic_from_capture([capture(pairs, parse_fabric(SPEC).addresses)], fabric)
    assert sorted(traffic.unmapped) == sorted(f"10.0.0.{n}" for n in range(9, 17))
    assert ((traffic.src_host < 0) | (traffic.dst_host < 0)).any()
    assert traffic.src_host.max() == 7


def test_a_damaged_capture_says_so(capture, tmp_path):
    fabric = parse_fabric(SPEC)
    path = capture(generate("permutation", SETTINGS, seed=3), fabric.addresses)
    whole = traffic_from_capture([path], fabric)
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(open(path, "rb").read()[:-50])
    traffic = traffic_from_capture([str(cut)], fabric)
    assert whole.warnings == () and whole.packets.sum() - traffic.packets.sum() == 1
    assert len(traffic.warnings) == 1 and "cut.pcap" in traffic.warnings[0]


def test_a_filter_that_lets_nothing_pass(capture):
    fabric = parse_fabric(SPEC)
    path = capture(generate("permutation", SETTINGS, seed=3), fabric.addresses)
    with pytest.raises(UnreadableInput, match="no packet that passes the filter in"):
        traffic_from_capture([path], fabric, filter="psn == 1 and psn == 2")


@pytest.mark.parametrize(("limit", "said"), [("FLOWS", "flows"), ("UNITS", "entropy values")])
def test_more_flows_than_memory_allows_are_refused(capture, monkeypatch, limit, said):
    fabric = parse_fabric(SPEC)
    path = capture(generate("permutation", SETTINGS, seed=3), fabric.addresses)
    monkeypatch.setattr(f"rocescope.replay.traffic.observed.MOST_{limit}", 1)
    with pytest.raises(RocescopeError, match=f"more than 1 {said}.* --filter"):
        traffic_from_capture([path], fabric)
