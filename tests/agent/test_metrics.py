"""Names, labels and exemplars, and series that are absent instead of 0."""

from __future__ import annotations

import gzip
import math
import struct
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from counted import ack, packet, traffic
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from rocescope.agent.adapters import Adapter, Adapters, AdapterState
from rocescope.agent.findings import Blind, Place
from rocescope.agent.flows import (
    COUNTED,
    IDLE_NS,
    MOST_PEERS,
    ORDERED,
    PACKETS,
    PEER_IDLE_NS,
    WIDTH_BOUNDS,
    WIRE_BYTES,
    CountedFlows,
    Peers,
    grouped,
)
from rocescope.agent.metrics import Seen, State, Worst, families
from rocescope.agent.readings import Readings
from rocescope.probes.counters.counters import CounterOptions, CounterSource
from rocescope.probes.counters.program import COUNTERS, address_text
from rocescope.probes.owners.nldev import QueuePairCounters
from rocescope.probes.owners.queue_pairs import Resource

# Names, labels and exemplars, and series that are absent instead of 0.


def seen(interface="eth2", direction="in", peers=(), **worst):
    sums = np.arange(len(COUNTED), dtype=np.uint64)
    bins = np.zeros(len(WIDTH_BOUNDS) + 1, np.int64)
    bins[0], bins[-1] = 2, 1
    place = Place(interface, direction)
    return Seen(place, 10, 900, sums, 1, 2, 3, 4, 5, 6, bins, 70.0, list(peers), worst)


def state(places=(), **more):
    usual = {
        "time_s": 1.0,
        "places": places,
        "sources": {"eth2": "packets"},
        "blind": [],
        "adapters": AdapterState(),
        "has_adapters": False,
        "findings": [],
        "unlisted_packets": 0,
        "recordings": None,
    }
    return State(**usual | more)


class Collected(CollectorRegistry):
    def __init__(self, state):
        super().__init__()
        self.collect = lambda: families(state)


def lines(state):
    text = exposition.generate_latest(Collected(state)).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_values():
    found = lines(state([seen()]))
    assert 'rocescope_packets_total{device="eth2",direction="in"} 10.0' in found
    assert 'rocescope_missing_packets{device="eth2",direction="in"} 6.0' in found
    late = COUNTED.index("late")
    assert f'rocescope_late_packets_total{{device="eth2",direction="in"}} {late}.0' in found
    bucket = 'rocescope_spraying_width_bucket{device="eth2",direction="in",le="+Inf"} 3.0'
    assert bucket in found
    assert len(found) <= 80 // 2 + 6  # a direction, and what is about the agent


def test_what_is_blind_has_no_series():
    found = lines(state(blind=[Blind(interface="eth2", reason="adapter_bypass", sentence="x")]))
    assert 'rocescope_blind{device="eth2",reason="adapter_bypass"} 1.0' in found
    assert not [line for line in found if "packets" in line.split("{")[0]]
    assert not [line for line in found if line.startswith("rocescope_queue_pairs")]


def test_exemplars_name_the_worst_queue_pair():
    worst = Worst(0x11, "10.0.0.7", 5, 2.0)
    text = openmetrics.generate_latest(Collected(state([seen(late=worst)]))).decode()
    (late,) = [
        sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "rocescope_late_packets_total"
    ]
    assert late.exemplar.labels == {"dest_qp": "0x000011", "peer": "10.0.0.7"}
    assert late.exemplar.value == 5


def test_peers_are_labels_and_queue_pairs_are_none():
    peers = [("10.0.0.7", np.ones(len(COUNTED))), ("other", np.ones(len(COUNTED)))]
    found = lines(state([seen(peers=peers)]))
    assert sum('peer="other"' in line for line in found) == 8
    assert not [line for line in found if "qp=" in line or "port=" in line]


def test_queue_pairs_of_adapters():
    pairs = [Resource("mlx5_0", 1, n, 5, "RC", "RTS", 0, 0, 7, "x") for n in (1, 2)]
    counters = [QueuePairCounters("mlx5_0", 1, (n,), 7, {"out_of_sequence": n}) for n in (1, 2)]
    adapters = AdapterState(pairs, counters)
    found = lines(state(adapters=adapters, has_adapters=True))
    assert 'rocescope_queue_pairs{adapter="mlx5_0",state="RTS",type="RC"} 2.0' in found
    largest = 'rocescope_queue_pair_counter_max{adapter="mlx5_0",counter="out_of_sequence"} 2.0'
    assert largest in found
    unknown = AdapterState(reason="no permission")
    assert not [x for x in lines(state(adapters=unknown, has_adapters=True)) if "queue_pairs" in x]


def test_promtool_accepts_the_names(need_tool):
    promtool = need_tool("promtool")
    text = exposition.generate_latest(Collected(state([seen(peers=[("other", np.ones(99))])])))
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


# Sums of tables of the kernel, against a plain twin, with entries that are reused.

SLOTS = 16
S = 1_000_000_000


def entry(created: int, packets: int, *, qp=1, sport=5, src=1, tap=0, transport=0, last=0, **more):
    one = np.zeros(1, COUNTERS)
    one["key"]["src"] = bytes([10, 0, 0, src]) + bytes(12)
    one["key"]["dst"] = bytes([10, 0, 1, 1]) + bytes(12)
    one["key"]["dest_qp"], one["key"]["sport"], one["key"]["tap"] = qp, sport, tap
    one["key"]["flags"] = 0x80 | transport << 1
    one["created_ns"], one["last_ns"], one["packets"] = created, last, packets
    one["wire_bytes"] = 100 * packets
    for name, value in more.items():
        one[name] = value
    return one


def take(flows: CountedFlows, table: dict[int, np.ndarray], now: int = 0) -> None:
    slots = np.array(sorted(table), np.int64)
    entries = np.concatenate([table[slot] for slot in slots.tolist()] or [np.zeros(0, COUNTERS)])
    flows.take(slots, entries, now)


def counted(taps: int = 1, **options: int) -> CountedFlows:
    return CountedFlows(np.array([tap % 2 == 0 for tap in range(taps)]), SLOTS, **options)


STEPS = st.lists(
    st.lists(
        st.tuples(
            st.integers(0, SLOTS - 1),  # slot
            st.integers(1, 3),  # queue pair
            st.integers(1, 2),  # UDP source port
            st.integers(1, 3),  # source
            st.integers(0, 1),  # tap
            st.integers(1, 90),  # packets
            st.booleans(),  # a new entry even if the key is the same
        ),
        max_size=12,
    ),
    min_size=1,
    max_size=8,
)


@examples(60)
@given(STEPS)
def test_sums_are_those_of_all_packets(steps):
    flows = counted(2)
    table, keys, totals = {}, {}, defaultdict(Counter)
    created, evicted = 0, 0
    for step in steps:
        before = {slot: int(one["packets"][0]) for slot, one in table.items()}
        interval, paths = Counter(), defaultdict(Counter)
        changed = set()
        for slot, qp, sport, src, tap, packets, is_new in step:
            if slot in changed:
                continue
            changed.add(slot)
            key = (qp, sport, src, tap)
            if keys.get(slot) != key or is_new:
                created += 1
                evicted += before.get(slot, 0)
                keys[slot], table[slot] = (
                    key,
                    entry(created, 0, qp=qp, sport=sport, src=src, tap=tap),
                )
            one = table[slot] = table[slot].copy()
            for name, number in (("packets", 1), ("requests", 1), ("wire_bytes", 100)):
                one[name] += packets * number
            totals[tap][qp, src] += packets
            interval[tap] += packets
            paths[tap, qp, src][sport] += packets
        take(flows, table)
        for tap in (0, 1):
            assert flows.sums[tap, PACKETS] == sum(totals[tap].values())
            assert flows.interval[tap, PACKETS] == interval[tap]
            assert flows.sums[tap, ORDERED] == sum(totals[tap].values())
            assert sum(int(p[PACKETS]) for p in flows.peers[tap].sums) == sum(totals[tap].values())
        listed = {
            (
                int(flows.keys[n]["dest_qp"]),
                bytes(flows.keys[n]["src"])[3],
                int(flows.keys[n]["tap"]),
            ): n
            for n in flows.listed().tolist()
        }
        for tap, of_tap in totals.items():
            for (qp, src), packets in of_tap.items():
                assert flows.totals[listed[qp, src, tap], PACKETS] == packets
                assert flows.totals[listed[qp, src, tap], WIRE_BYTES] == 100 * packets
        for (tap, qp, src), ports in paths.items():
            whole = sum(ports.values())
            if whole >= 32:
                entropy = -sum(n / whole * math.log(n / whole) for n in ports.values())
                width = flows.widths[listed[qp, src, tap]]
                assert width == pytest.approx(math.exp(entropy))
    assert int(flows.evicted_known.sum()) == evicted


def test_cnps_and_acks_belong_to_the_flow_of_their_queue_pair():
    flows = counted()
    table = {
        0: entry(1, 40, requests=40, late=3),
        1: entry(2, 5, transport=4, cnps=5, sport=9),
    }
    take(flows, table)
    (number,) = flows.listed().tolist()
    assert dict(zip(COUNTED, flows.totals[number].tolist(), strict=True))["cnps"] == 5
    assert flows.sums[0, COUNTED.index("late")] == 3
    assert flows.widths[number] == 1 and flows.unsprayed.tolist() == [1]
    assert flows.sums[0, ORDERED] == 40


def test_datagrams_have_no_order():
    flows = counted()
    take(flows, {0: entry(1, 40, requests=40, transport=3)})
    assert flows.sums[0, ORDERED] == 0


def test_idle_flows_leave_the_list_and_stay_in_the_sums():
    flows = counted()
    take(flows, {0: entry(1, 3, last=S)}, S)
    take(flows, {0: entry(1, 3, last=S)}, S + IDLE_NS)
    assert flows.active().tolist() == [1]
    take(flows, {0: entry(1, 3, last=S)}, S + IDLE_NS + 1)
    assert flows.active().tolist() == [0] and flows.sums[0, PACKETS] == 3
    take(flows, {0: entry(1, 8, last=2 * IDLE_NS)}, 2 * IDLE_NS)
    (number,) = flows.listed().tolist()
    assert flows.totals[number, PACKETS] == 5
    assert flows.sums[0, PACKETS] == 8


def test_missing_is_a_lower_bound_per_flow():
    flows = counted()
    take(
        flows,
        {
            0: entry(1, 9, qp=1, gap_psns=5, late=2),
            1: entry(2, 9, qp=2, gap_psns=1, late=4),
        },
    )
    assert flows.missing().tolist() == [3]


def test_disordered_flows_of_the_last_interval(monkeypatch):
    monkeypatch.setattr("rocescope.agent.flows.MOST_FLOWS", 1024)
    flows = CountedFlows(np.array([True, True]), 2048)
    listed = {n: entry(n + 1, 1, qp=n + 1) for n in range(1023)}
    first = {**listed, 1023: entry(1024, 9, qp=5000, tap=1, gap_psns=5, late=2)}
    take(flows, first)
    ((number, *counts),) = flows.disordered().tolist()
    assert number >= 0 and counts == [1, 5, 2]
    grown = {**first, 1023: entry(1024, 12, qp=5000, tap=1, gap_psns=6, late=9)}
    take(flows, {**grown, 1024: entry(1025, 3, qp=6000, gap_psns=2)})
    assert flows.disordered().tolist() == [[number, 1, 1, 7], [-1, 0, 2, 0]]
    take(flows, {**grown, 1024: entry(1025, 3, qp=6000, gap_psns=2)})
    assert flows.disordered().tolist() == []


def test_peers_beyond_the_limit_are_others():
    flows = counted(peers=2)
    take(flows, {n: entry(n + 1, 10, src=n + 1) for n in range(4)})
    assert len(flows.peers[0].rows) == 2
    assert flows.peers[0].sums[MOST_PEERS, PACKETS] == 20
    assert {address_text(key[:16], bool(key[16])) for key in flows.peers[0].rows} == {
        "10.0.0.1",
        "10.0.0.2",
    }


def test_a_peer_that_was_idle_for_long_gives_way():
    peers = Peers()
    assert peers.row(b"a", 2, 5) == 0 and peers.row(b"b", 2, 6) == 1
    peers.sums[0] = 7
    assert peers.row(b"c", 2, PEER_IDLE_NS) == MOST_PEERS
    assert peers.row(b"c", 2, PEER_IDLE_NS + 5) == 0
    assert not peers.sums[0].any() and set(peers.rows) == {b"b", b"c"}
    assert peers.row(b"d", 0, 9) == MOST_PEERS


def test_flows_beyond_the_list_are_in_the_sums(monkeypatch):
    monkeypatch.setattr("rocescope.agent.flows.MOST_FLOWS", 1024)
    flows = CountedFlows(np.array([True]), 2048)
    take(flows, {n: entry(n + 1, 1, qp=n + 1) for n in range(1100)})
    assert flows.active().tolist() == [1024]
    assert flows.unlisted_packets == 76 and flows.sums[0, PACKETS] == 1100


@given(st.lists(st.tuples(st.integers(-3, 5), st.integers(0, 9))))
@examples(50)
def test_grouped(rows):
    group = np.array([g for g, _ in rows], np.int64)
    values = np.array([[v] for _, v in rows], np.int64).reshape(-1, 1)
    found = Counter()
    for g, v in rows:
        found[g] += v
    names, sums = grouped(group, values)
    assert dict(zip(names.tolist(), sums[:, 0].tolist(), strict=True)) == {
        g: found[g] for g, _ in rows
    }
    assert names.tolist() == sorted(set(names.tolist()))


# Readings of real counters on a veth pair: sums, owners, findings, what is not seen.


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
