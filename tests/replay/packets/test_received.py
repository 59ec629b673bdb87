"""Packets as received: reordering, pcap."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import replay_traffic
from captures import DATA
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from received_table import received_flows
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.utils import PcapReader

from rocescope.cli import run as cli
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.keys import packet_keys
from rocescope.replay.packets.hosts.transport import Transport
from rocescope.replay.packets.model.model import AGAIN, MARKED, PS, TRIMMED, Model
from rocescope.replay.packets.offers import captured, collective, workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.received import Order, reordering, write_received
from rocescope.replay.packets.runs import MOST_CELLS, loads_over_time, run_packets, stretch_ps
from rocescope.replay.strategies.registry import parse_packet_strategy

# Packets as received: reordering, pcap.

CLOS = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")


def of_flows(*times: list[int], trimmed: tuple[int, ...] = ()) -> Order:
    """Arrival times of the packets of each flow by number, -1 for none."""
    flat = [time for flow in times for time in flow]
    flags = np.zeros(len(flat), np.uint8)
    flags[list(trimmed)] = TRIMMED >> 56
    workload: Any = SimpleNamespace(
        packet_start=np.cumsum([0, *map(len, times)]), flow_start=np.arange(len(times) + 1)
    )
    result: Any = SimpleNamespace(arrived_ps=np.array(flat, np.int64), arrived_flags=flags)
    return reordering(workload, result)


def twin(*times: list[int]) -> Order:
    """RFC 4737, 3 and 4.2.2, over the arrivals in order; packets that arrive together are in
    order of their numbers."""
    packets = late = extent = 0
    for flow in times:
        arrivals = [n for n in sorted(range(len(flow)), key=lambda n: (flow[n], n)) if flow[n] >= 0]
        packets += len(arrivals)
        for i, number in enumerate(arrivals):
            above = [j for j in range(i) if arrivals[j] > number]
            late += bool(above)
            extent = max(extent, i - above[0] if above else 0)
    return Order(packets, late, extent)


def test_the_example_of_the_metrics_page() -> None:
    # arrivals 1 2 3 5 6 7 8 4 9 10: only 4 is reordered, with an extent of 4
    assert of_flows([1, 2, 3, 8, 4, 5, 6, 7, 9, 10]) == Order(10, 1, 4)
    assert of_flows([5, 6], [1, 2]) == Order(4, 0, 0)  # of flows of their own


def test_packets_that_do_not_arrive_whole_do_not_count() -> None:
    assert of_flows([3, -1, 2]) == Order(2, 1, 1)
    assert of_flows([3, 1, 2], trimmed=(1,)) == Order(2, 1, 1)
    assert of_flows([3, 1], trimmed=(0, 1)) == Order(0, 0, 0)


@examples(100)
@given(st.lists(st.lists(st.integers(-1, 12), max_size=14), min_size=1, max_size=4))
def test_equals_the_twin(times: list[list[int]]) -> None:
    assert of_flows(*times) == twin(*times)


@pytest.mark.parametrize("name", ["switch-random", "host-spray", "jsq", "ecmp"])
def test_equals_the_analyzer(name: str) -> None:
    model = Model(pfc=None)
    load = collective("permutation", CLOS, model, 1 << 18, 1)
    result = run_packets(load, CLOS, parse_packet_strategy(name), model, 1, keep_arrivals=True)
    flows = received_flows(load, result, CLOS)
    extents = [flow.reordering.max_extent or 0 for flow in flows if flow.reordering is not None]
    assert reordering(load, result) == Order(
        sum(flow.packets for flow in flows),
        sum(flow.reordered_packets or 0 for flow in flows),
        max(extents, default=0),
    )


CLOS_RECEIVED_PCAP = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")
BEGIN_NS = 1_600_000_000_000_000_007


def test_packets_are_those_of_the_units_as_they_came() -> None:
    """Units 0 and 1 are entropy values of one queue pair; all three meet at host 5."""
    four = packet_keys(
        ["10.0.0.1"] * 2, ["10.0.0.6"] * 2, [50_000, 60_000], dest_qp=[0x123456, 0x123456]
    )
    six = packet_keys(["fd00::2"], ["fd00::6"], [55_555], dest_qp=[0x17], flow_label=[0xABCDE])
    keys = type(four)(*(np.concatenate(both) for both in zip(four, six, strict=True)))
    traffic = replace(
        replay_traffic.traffic(CLOS_RECEIVED_PCAP, [0, 0, 1], [5, 5, 5], 60 * 1082),
        keys=keys,
        packets=np.full(3, 60),
        first_ns=np.full(3, BEGIN_NS),
    )
    model = Model(payload_bytes=1024, buffer_bytes=8_000, ecn_low_bytes=2_000, ecn_high_bytes=2_000)
    load, _ = captured(traffic, model, offer="asap")
    spray = parse_packet_strategy("switch-random")
    sack = Transport(recovery="sack")
    result = run_packets(
        load,
        CLOS_RECEIVED_PCAP,
        spray,
        model,
        1,
        transport=sack,
        keep_arrivals=True,
        keep_sent=True,
    )
    arrived, flags, sent = result.arrived_ps, result.arrived_flags, result.sent_ps
    assert arrived is not None and flags is not None and sent is not None
    assert (flags & (AGAIN >> 56)).any() and (flags & (MARKED >> 56)).any()

    file = io.BytesIO()
    assert write_received(file, load, result) == 180
    file.seek(0)
    frames = list(PcapReader(file))
    order = np.argsort(arrived, kind="stable")
    assert len(frames) == 180
    by_sending = [
        sorted(np.flatnonzero(np.isin(np.arange(180) // 60, units)), key=lambda row: sent[row])
        for units in ([0, 1], [2])
    ]
    for row, frame in zip(order.tolist(), frames, strict=True):
        unit = row // 60
        layer = frame[IPv6] if unit == 2 else frame[IP]
        assert round((frame.time - BEGIN_NS // 10**9) * 10**9) == 7 + arrived[row] // 1000
        assert (layer.src, layer.dst) == (
            ("fd00::2", "fd00::6") if unit == 2 else ("10.0.0.1", "10.0.0.6")
        )
        assert frame[UDP].sport == (50_000, 60_000, 55_555)[unit] and frame[UDP].dport == 4791
        assert frame.wirelen == (1082 if unit < 2 else 78 + (1082 - 78) // 4 * 4)
        assert frame[UDP].len == frame.wirelen - (34 if unit < 2 else 54)
        marked = bool(flags[row] & (MARKED >> 56))
        traffic_class = layer.tc if unit == 2 else layer.tos
        assert traffic_class & 3 == (3 if marked else 2)
        if unit == 2:
            assert layer.fl == 0xABCDE and layer.plen == frame.wirelen - 54
        else:
            assert layer.len == frame.wirelen - 14
            again = IP(bytes(layer)[:20])
            del again.chksum
            assert IP(bytes(again)).chksum == layer.chksum
        bth = bytes(frame[UDP].payload)
        assert int.from_bytes(bth[5:8], "big") == (0x17 if unit == 2 else 0x123456)
        psn = int.from_bytes(bth[9:12], "big")
        assert by_sending[unit // 2][psn] == row
        number = row % 60
        opcode = 4 if unit < 2 else 0 if number == 0 else 2 if number == 59 else 1
        assert bth[0] == opcode


def test_command_on_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = DATA / "leafspine/r09_packet_spray_h1"
    taps = [str(path) for path in sorted(capture.glob("*.pcap.gz"))]
    pcap, out, report = (tmp_path / name for name in ("r.pcap", "o.json", "r.json"))
    where = ["--fabric", "leaf-spine:leaves=2,spines=4,hosts=2,rate=10G", "--map", "order"]
    words = [
        "replay",
        *taps,
        *where,
        "-s",
        "switch-random",
        "--offer",
        "asap",
        "--model",
        "ecn=3kB",
    ]
    assert cli([*words, "--received", str(pcap), "-o", str(out)]) == 0
    assert cli(["analyze", str(pcap), "-o", str(report)]) == 0
    capsys.readouterr()
    received = json.loads(out.read_text())["strategies"][-1]["packets"]["received"]
    flows = json.loads(report.read_text())["flows"]
    assert sum(flow["packets"] for flow in flows) == received["packets"] > 0
    assert sum(flow["missing_packets"] for flow in flows) == 0
    assert sum(flow["ecn_marked_packets"] for flow in flows) > 0


# Loads over time of links and layers.

FABRIC = parse_fabric("leaf-spine:leaves=2,spines=1,hosts=2,rate=100G,delay=500ns")
MODEL = Model(pfc=None)


def test_loads_are_joined_until_they_have_few_numbers() -> None:
    load = workload_of(np.array([0]), np.array([2]), np.array([1 << 20]), None, MODEL)
    strategy = parse_packet_strategy("jsq")
    found = run_open_loop(load, FABRIC, strategy, MODEL, load_bin_ps=PS)
    assert found.loads is not None and found.loads.size <= MOST_CELLS
    loads, queues, length = loads_over_time(found)
    assert loads.sum(0).tolist() == found.link_bytes.tolist() and queues.shape == loads.shape
    assert length == found.load_bin_ps // PS
    assert stretch_ps(load, 0, FABRIC) == 8 * 332_800 // PS * PS  # eight packets of 4160 B


def test_a_layer_that_carries_nothing_has_no_loads_over_time() -> None:
    words = {"pattern": "permutation:message-size=4096", "transport": "recovery=none"}
    case = PreparedReplay(ReplayRequest(FABRIC.name, ("jsq",), fail=("spine1",), **words))
    result, _ = case.by_packets(("jsq",), None)
    layers = {layer.layer: layer for layer in result.strategies[0].layers}
    assert layers["host-leaf"].over_time is not None
    assert layers["leaf-spine"].over_time is None and not layers["leaf-spine"].wire_bytes
