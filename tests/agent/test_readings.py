"""Readings of real counters on a veth pair: sums, owners, findings, what is not seen."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest
from counted import ack, packet, traffic

from rocescope.agent.adapters import Adapter, Adapters, AdapterState
from rocescope.agent.readings import Readings
from rocescope.probes.counters.counters import CounterOptions, CounterSource
from rocescope.probes.owners.queue_pairs import Resource


class Known(Adapters):
    """Adapters that were looked at."""

    def __init__(self, state=None, found=()):
        self.state, self._found = state or AdapterState(), found if found is None else list(found)

    def look(self):
        return True

    def of_interface(self, interface, namespace=None):
        return self._found


@pytest.fixture
def source(network):
    net = network()
    with CounterSource([net.interface("left")], CounterOptions(max_flows=64)) as source:
        vars(source)["net"] = net
        yield source


def place(readings, direction):
    (found,) = [one for one in readings.state.places if one.place.direction == direction]
    return found


def test_everything_is_counted_once(source):
    readings = Readings([source.net.interface("left")], source, Known())
    frames = traffic()
    source.net.send(frames[:500])
    readings.read()
    source.net.send(frames[500:])
    readings.read()
    out = place(readings, "out")
    assert out.packets == int(out.sums[0]) == len(frames)
    assert out.wire_bytes == sum(map(len, frames)) and out.dropped == 0
    assert place(readings, "in").packets == 0
    flows = readings.top_flows(100)
    assert sum(flow.packets for flow in flows.flows) == len(frames)
    assert flows.listed == len(flows.flows) == 6
    assert len(readings.top_flows(2).flows) == 2
    worst = flows.flows[0]
    assert worst.late_packets or worst.ecn_marked_packets or worst.naks
    assert out.worst["late"].peer == "10.0.0.2"
    assert {peer for peer, _ in out.peers} == {"10.0.0.2"}


@pytest.mark.thorough
def test_small_tables_say_what_they_lost(network):
    net = network()
    with CounterSource([net.interface("left")], CounterOptions(max_flows=4)) as source:
        readings = Readings([net.interface("left")], source, Known())
        for turn in range(3):
            net.send([packet(turn, qp=qp) for qp in range(1, 65)])
            readings.read()
        out = place(readings, "out")
        assert out.packets == 192 and int(out.sums[0]) + out.dropped == 192 and out.dropped > 0
        diagnosis = readings.diagnosis()
        assert any("table of the kernel was too small" in line for line in diagnosis.limits)
        assert diagnosis.healthy == []
        assert diagnosis.summary.startswith("No finding in the packets whose details are known")


def test_nothing_was_checked_only_without_packets(source):
    readings = Readings([source.net.interface("left")], source, Known())
    assert readings.diagnosis().summary.startswith("Nothing was checked: no packet was counted")
    source.net.send([packet(1)], "right")
    readings.read()
    assert readings.diagnosis().summary == "No finding in the packets that were counted."


def test_owners_of_received_flows(source):
    pair = Resource("rxe0", 1, 0x11, 5, "RC", "RTS", 0, 0, 4711, "tr\x1bain")
    state = AdapterState([pair])
    readings = Readings(["left"], source, Known(state, [Adapter("rxe0", is_software=True)]))
    readings._of = {source.net.interface("left"): [Adapter("rxe0", is_software=True)]}
    source.net.send([packet(1)], "right")
    readings.read()
    (flow,) = readings.top_flows(5).flows
    assert (flow.direction, flow.owner, flow.pid) == ("in", "tr?ain", 4711)
    (row,) = readings.queue_pairs(5).queue_pairs
    assert (row.qp, row.command, row.counted_with) == (0x11, "tr?ain", 0)


def test_new_critical_findings_are_returned_once(source):
    readings = Readings([source.net.interface("left")], source, Known())
    source.net.send([ack(1, 0x60) for _ in range(30)], "right")
    (finding,) = readings.read()
    assert (finding.kind, finding.direction) == ("naks", "in")
    assert readings.read() == []
    assert readings.diagnosis().summary == finding.sentence


def frames_of(path, most):
    """Frames of a classic pcap, by hand."""
    with gzip.open(path) as file:
        file.read(24)
        for _ in range(most):
            size = struct.unpack("<8xI4x", file.read(16))[0]
            yield file.read(size)


def test_go_back_n_is_loss_and_never_healthy(source):
    """A capture with one packet in 200 lost before its tap, and all retransmitted."""
    readings = Readings([source.net.interface("left")], source, Known())
    path = Path(__file__).parents[1] / "data" / "i01_write_loss0.5_AtoB.atB.pcap.gz"
    source.net.send(frames_of(path, 8000), "right")
    found = readings.read()
    here = place(readings, "in")
    assert here.missing == 0 and {"loss", "naks"} == {one.kind for one in found}
    (loss,) = [one for one in found if one.kind == "loss"]
    assert loss.packets >= 10 and "retransmitted" in loss.sentence
    assert not [line for line in readings.diagnosis().healthy if " loss " in line]


def test_hardware_adapters_make_blind_until_packets_come(source):
    label = source.net.interface("left")
    hardware = Known(found=[Adapter("mlx5_0", is_software=False)])
    readings = Readings([label], source, hardware)
    readings.read()
    (blind,) = readings.state.blind
    assert (blind.interface, blind.reason) == (label, "adapter_bypass")
    assert readings.state.places == [] and readings.state.sources == {label: "queue_pairs"}
    assert readings.diagnosis().blind and readings.diagnosis().healthy == []
    source.net.send([packet(1)])
    readings.read()
    assert readings.state.blind == [] and readings.state.sources == {label: "packets"}


def test_unknown_adapters_make_no_false_zero(source):
    label = source.net.interface("left")
    readings = Readings([label], source, Known(found=None))
    assert [one.reason for one in readings.state.blind] == ["adapter_unknown"]
    assert readings.state.places == [] and readings.state.sources == {label: "none"}
    source.net.send([packet(1)])
    readings.read()
    assert readings.state.blind == [] and place(readings, "out").packets == 1
    assert any(
        "part of the packets past the kernel" in line for line in readings.diagnosis().limits
    )


def test_only_directions_with_probes_are_compared(network):
    net = network()
    label = net.interface("left")
    options = CounterOptions(max_flows=64, hook="xdp")
    known = Known(found=[Adapter("mlx5_0", is_software=False)])
    with CounterSource([label], options) as source:
        for moved, blind in ((("in", 3), []), (("out", 99), []), (("in", 99), [label])):
            known.state = AdapterState(packets={("mlx5_0", "in"): 0, ("mlx5_0", "out"): 0})
            readings = Readings([label], source, known)
            readings.read()
            net.send([packet(n) for n in range(3)], "right")
            known.state = AdapterState(packets={("mlx5_0", moved[0]): moved[1]})
            readings.read()
            assert [one.interface for one in readings.state.blind] == blind, moved


def test_without_probes():
    readings = Readings(["eth2"], None, Known())
    assert [one.reason for one in readings.state.blind] == ["not_attached"]
    assert readings.state.sources == {"eth2": "none"} and not readings.all_gone
    assert readings.top_flows(5).flows == []
    assert readings.queue_pairs(5).unknown_because == "this host has no RDMA adapter"


def test_interfaces_that_go(source):
    label = source.net.interface("left")
    readings = Readings([label], source, Known())
    source.net.ip("link", "del", "left")
    readings.read()
    assert readings.all_gone and readings.state.blind[0].reason == "interface_gone"
    assert readings.state.places == []
