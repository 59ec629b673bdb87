"""Comparisons on the packet engine: same on any number of threads, interrupted, from captures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocescope.analyzer.errors import RocescopeError, UsageError
from rocescope.cli import run as cli
from rocescope.replay.compare.packets import (
    Load,
    _Gathered,
    _incomplete,
    _packets,
    check_bound,
    percentile,
    replay_packets,
)
from rocescope.replay.compare.pauses import circle_text
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.specs import Conditions, parse_model, parse_transport
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.packets.bounds import bounds
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.model.queueing import Pfc
from rocescope.replay.packets.offers import collective, workload_of
from rocescope.replay.packets.open_loop import run_open_loop
from rocescope.replay.packets.runs import run_many
from rocescope.replay.results import StrategyResult
from rocescope.replay.strategies.registry import parse_packet_strategy

# Comparisons on the packet engine: same on any number of threads, interrupted, from captures.

CLOS = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns")
MODEL = Model(pfc=None)


@given(st.lists(st.floats(1, 1e9, allow_nan=False), min_size=1, max_size=50), st.integers(0, 100))
def test_percentiles_are_those_of_numpy(values: list[float], percent: int) -> None:
    assert percentile(np.sort(np.array(values)), percent) == np.percentile(values, percent)


def permutations(run: int) -> Load:
    return Load(collective("permutation", CLOS, MODEL, 1 << 16, run))


def test_same_result_on_any_number_of_threads() -> None:
    strategies = [parse_packet_strategy(name) for name in ("switch-random", "ofan", "jsq", "ecmp")]
    one, two = (
        replay_packets(permutations, CLOS, strategies, MODEL, ["p"], runs=4, threads=threads)
        for threads in (1, 3)
    )
    assert one == two
    assert [s.packets.runs for s in one[0].strategies if s.packets] == [4] * 4


@pytest.mark.parametrize(
    ("options", "names"),
    [("rto=5us", {"rto=5us", "congestion="}), ("rto=2ms", {"congestion="}),
     ("rto=5us,congestion=dcqcn", {"rto=5us"}), ("rto=2ms,congestion=dcqcn", set())],
)  # fmt: skip
def test_a_collapse_names_what_causes_it(options: str, names: set[str]) -> None:
    model = Model(buffer_bytes=100_000, ecn_low_bytes=20_000, ecn_high_bytes=60_000)
    load = Load(collective("incast", CLOS, model, 1 << 18, 1))
    transport = parse_transport(f"recovery=go-back-n,{options}")
    (one,) = replay_packets(
        lambda run: load, CLOS, [parse_packet_strategy("ecmp")], model, ["p"],
        conditions=Conditions(transport=transport),
    )[0].strategies  # fmt: skip
    told = " ".join(one.notes)
    assert {name for name in ("rto=5us", "rto=2ms", "congestion=") if name in told} == names
    assert ("congestion collapse" in told) == ("congestion=" in names)


def test_an_interrupt_leaves_what_is_finished() -> None:
    stopped, begun = [], Event()

    def run(case: int, stop: Event) -> int:
        if case == 1:
            begun.set()
            stopped.append(stop.wait(300))
        else:
            begun.wait(300)
        return case

    results = run_many([0, 1], run, 2)
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]
    assert stopped == [True]

    def told(_what: str, _done: int, _total: int) -> None:
        raise KeyboardInterrupt

    strategies = [parse_packet_strategy("ofan")]
    result, complete = replay_packets(
        permutations, CLOS, strategies, MODEL, ["p"], runs=2, threads=1, progress=told
    )
    assert not complete and "interrupted: 0 of 2" in result.warnings[-1]


def test_loads_by_time_add_up_and_change_nothing() -> None:
    load, spray = permutations(3).workload, parse_packet_strategy("switch-random")
    plain = run_open_loop(load, CLOS, spray, MODEL, 1)
    binned = run_open_loop(load, CLOS, spray, MODEL, 1, load_bin_ps=700_001)
    assert binned.completed_ps.tolist() == plain.completed_ps.tolist()
    assert binned.loads is not None and plain.completion_ps is not None
    assert binned.loads.sum(0).tolist() == plain.link_bytes.tolist()
    assert binned.load_bin_ps == 700_001
    assert (binned.loads.max(0) <= 700_001 // 80 + 1).all()  # 80 ps per byte
    assert plain.completion_ps // 700_001 - 2 <= len(binned.loads)


def test_stretches_of_a_long_run_are_joined() -> None:
    load, spray = permutations(3).workload, parse_packet_strategy("jsq")
    fine = run_open_loop(load, CLOS, spray, MODEL, 1, load_bin_ps=100_000)
    finest = run_open_loop(load, CLOS, spray, MODEL, 1, load_bin_ps=12_500)
    assert fine.loads is not None and finest.loads is not None and finest.load_bin_ps == 100_000
    assert fine.loads.tolist() == finest.loads.tolist()


def test_loads_over_time_by_hand() -> None:
    load = workload_of(np.array([0]), np.array([1]), np.array([2 * 4096]), None, MODEL)  # type: ignore[arg-type]
    spray = parse_packet_strategy("switch-random")
    found = run_open_loop(load, CLOS, spray, MODEL, 1, load_bin_ps=500_000, keep_sent=True)
    # 4160 B take 332.8 ns at 100 Gb/s; two stretches of 500 ns hold 6,250 B and the rest.
    sends = CLOS.attachments.access_link[0, 0]
    assert found.loads is not None and found.loads[:2, sends].tolist() == [6250, 2070]
    assert found.sent_ps is not None and found.sent_ps.tolist() == [0, 332_800]


@pytest.mark.parametrize("name", ["ofan", "reps"])
def test_peaks_are_told_of_both_drivers_and_stay_below_the_rate(name: str) -> None:
    strategies = [parse_packet_strategy(name)]
    result, _ = replay_packets(permutations, CLOS, strategies, MODEL, ["p"])
    peaks = [layer.over_time for layer in result.strategies[0].layers]
    assert peaks and all(one is not None and 0 < one.peak_utilisation <= 1.001 for one in peaks)


SPEC = "leaf-spine:leaves=2,spines=4,hosts=4,rate=100G,delay=500ns"


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "replay",
        "--pattern",
        "permutation:message-size=64KiB",
        "--fabric",
        SPEC,
        "--runs",
        "2",
    ]
    out = tmp_path / "result.json"
    assert cli([*words, "-s", "ofan", "-s", "ecmp", "-o", str(out)]) == 0
    result = json.loads(out.read_text())
    ofan = result["strategies"][0]
    assert ofan["completion_time_ns"] >= ofan["lower_bound_ns"] > 0
    assert ofan["packets"]["completed_runs"] == 2 and ofan["packets"]["dropped"] == 0
    assert ofan["max_queue_packets"] >= 1
    series = [link["wire_bytes_over_time"] for link in ofan["links"]]
    stretch_ns = ofan["packets"]["load_stretch_ns"]
    assert [sum(loads) for loads in series] == [link["wire_bytes"] for link in ofan["links"]]
    assert max(map(max, series)) <= stretch_ns * 12.5 + 1  # 100 Gb/s
    assert len({len(loads) for loads in series}) == 1 and len(series[0]) * stretch_ns > 5_243
    assert cli([*words, "-s", "ofan", "--model", "buffer=10kB,ecn=4kB+8kB,ack-every=4"]) == 0
    text = capsys.readouterr().out
    assert "ofan" in text and "leaf-spine" in text

    pcap, report = tmp_path / "received.pcap", tmp_path / "received.json"
    assert cli([*words, "-s", "switch-random", "--received", str(pcap), "-o", str(out)]) == 0
    assert cli(["analyze", str(pcap), "-o", str(report)]) == 0
    order = json.loads(out.read_text())["strategies"][0]["packets"]["received"]
    flows = json.loads(report.read_text())["flows"]
    assert sum(flow["packets"] for flow in flows) == order["packets"] == 8 * 16
    assert sum(flow["reordered_packets"] for flow in flows) == order["reordered_packets"] > 0
    capsys.readouterr()
    for wrong, told in (
        (["--model", "buffer=1B"], "is smaller than a packet"),
        (["--model", "bufer=1kB"], "It has mtu"),
        (["--offer", "later"], "captured"),
        (["--runs", "0"], "--runs"),
        (["--window", "1ms"], "--window"),
    ):
        assert cli([*words, "-s", "ofan", *wrong]) == 2
        assert told in capsys.readouterr().err


def test_a_lower_bound_that_is_beaten_is_an_error() -> None:
    load = permutations(0).workload
    result = run_open_loop(load, CLOS, parse_packet_strategy("ofan"), MODEL, 1)
    bound = bounds(load, CLOS, MODEL)
    check_bound(load, result, bound, "ofan")
    assert result.completion_ps is not None
    beaten = bound._replace(completion_ps=result.completion_ps + 1)
    with pytest.raises(RocescopeError, match="ofan, seed 1: completed 0.001 ns before its lower"):
        check_bound(load, result, beaten, "ofan, seed 1")
    late = bound._replace(message_ps=bound.message_ps + 10**12)
    with pytest.raises(RocescopeError, match="a defect of rocescope"):
        check_bound(load, result, late, "ofan")
    captured = load._replace(due_ps=np.zeros(int(load.packet_start[-1]), np.int64))
    check_bound(captured, result, late, "ofan")


def replayed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert cli(["replay", *words, "--format", "json"]) == 0
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)["strategies"]
    return found


def test_every_run_of_ecmp_has_hash_seeds_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    where = "leaf-spine:leaves=2,spines=4,hosts=4,rate=100G"
    words = ("--pattern", "permutation:message-size=64KiB", "--fabric", where, "--runs", "4")
    ecmp, fixed = replayed(capsys, *words, "-s", "ecmp", "-s", "ecmp:seed=5", "--packets")
    assert ecmp["parameters"]["seed"] == "0 to 3"  # type: ignore[index]
    assert fixed["parameters"]["seed"] == "5"  # type: ignore[index]
    known = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=4")
    strategy = parse_packet_strategy("ecmp")
    assert strategy.in_run(0, known) is strategy
    own = [HashSettings(seed=9)] * known.switches
    assert strategy.in_run(3, replace(known, hash_settings=tuple(own))) is strategy


def test_strategies_that_learn_from_marks_say_that_there_are_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    where = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G"
    words = ("--pattern", "permutation:message-size=16KiB", "--fabric", where)
    names = ("reps", "plb", "bitmap", "mixed")
    chosen = [word for name in names for word in ("-s", name)]
    for one in replayed(capsys, *words, *chosen):
        assert "no packet is marked" in str(one["notes"])
    for one in replayed(capsys, *words, *chosen, "--model", "ecn=80kB"):
        assert one["notes"] == []


def test_flows_have_their_times_and_queues_their_course(capsys: pytest.CaptureFixture[str]) -> None:
    where = "leaf-spine:leaves=1,spines=1,hosts=4,rate=100G"
    words = ("--pattern", "incast:fan-in=3,message-size=64KiB", "--fabric", where, "-s", "jsq")
    (jsq,) = replayed(capsys, *words)
    packets, links = jsq["packets"], jsq["links"]
    flows = packets["flows"]  # type: ignore[index]
    assert len(flows) == 3 and packets["flows_omitted"] == 0  # type: ignore[index]
    assert {flow["dst"] for flow in flows} == {"host1"}
    done = [flow["completed_ns"] for flow in flows]
    assert done == sorted(done, reverse=True)
    assert round(done[0]) == jsq["completion_time_ns"]
    assert all(flow["started_ns"] < flow["completed_ns"] for flow in flows)
    queues = {link["name"]: link["queue_bytes_over_time"] for link in links}  # type: ignore[attr-defined]
    longest = max(layer["max_bytes"] for layer in packets["layers"])  # type: ignore[index]
    assert max(queues["leaf1>host1"]) == longest
    assert cli(["replay", *words, "--top", "1"]) == 0
    told = capsys.readouterr().out
    assert "latest flows" in told and "longest queue" in told
    assert sum("> host1" in line for line in told.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"no_route": 3}, "some flows have no path"),
        ({"out_of_time": True}, "still in flight at the time limit"),
        ({}, "1 messages wait for packets or ACKs that never arrive"),
        ({"started_ps": np.full(1, -1)}, "1 messages never began"),
    ],
)
def test_why_a_run_did_not_complete(change: dict[str, Any], words: str) -> None:
    """One message that did not complete, for each reason."""
    one = np.array([0]), np.array([4]), np.array([100_000])
    load = workload_of(*one, None, MODEL)  # type: ignore[arg-type]
    found = run_open_loop(load, CLOS, parse_packet_strategy("switch-random"), MODEL, 1)
    stalled = replace(found, completed_ps=np.full(1, -1), **change)
    gathered = _Gathered({0: (stalled, bounds(load, CLOS, MODEL))})
    packets = _packets(gathered, CLOS, MODEL, {"recovery": "sack"}, 1, load)
    (note,) = _incomplete(packets, [stalled], CLOS, load)
    assert note.startswith("1 of 1 runs did not complete: ") and words in note
    complete = _Gathered({0: (found, bounds(load, CLOS, MODEL))})
    whole = _packets(complete, CLOS, MODEL, {"recovery": "sack"}, 1, load)
    assert _incomplete(whole, [found], CLOS, load) == []


# PFC in the results: ports, causes, losses without headroom, deadlocks.

INCAST = "incast:fan-in=7,message-size=500kB"
FABRIC = "leaf-spine:leaves=2,spines=1,hosts=4,rate=100G,delay=500ns,uplink_rate=400G"


def _replayed(lossless: str, pattern: str = INCAST, fabric: str = FABRIC) -> StrategyResult:
    request = ReplayRequest(
        fabric, strategies=("switch-random",), pattern=pattern, lossless=lossless, runs=2
    )
    prepared = PreparedReplay(request)
    prepared.read(messages=True)
    result, complete = prepared.by_packets(request.strategies)
    assert complete
    return result.strategies[0]


def test_switches_pause_unless_told_otherwise() -> None:
    """The command, the terminal UI and Python have the same default: PFC, except where queues
    drop."""
    assert _replayed("") == _replayed("pfc")
    assert Model() == Model(pfc=Pfc()) == parse_model("")
    for buffer in (None, 100_000):
        option = "" if buffer is None else "buffer=100kB"
        assert Model(buffer_bytes=buffer) == parse_model(option)
    assert Model(buffer_bytes=100_000).pfc is None
    assert Model(buffer_bytes=100_000).host_jitter == 0.01 and Model().host_jitter == 0


def test_infinite_queues_pause_nobody() -> None:
    found = _replayed("infinite").packets
    assert found is not None and found.pfc is None
    assert found.model["lossless"] == "infinite"


def test_the_settings_in_force_repeat_the_result() -> None:
    first = _replayed("").packets
    assert first is not None and first.pfc is not None
    told = first.pfc.settings
    # The spine has two ports of 400 Gb/s, a leaf four of 100 and one of 400.
    assert told["buffer"] == str(800 * 3200)
    assert {"alpha": "0.125", "xon": "4160", "reaction": "100ns", "storm": "200us"}.items() <= (
        told.items()
    )
    assert "to" in told["headroom"]  # two speeds
    static = _replayed("pfc:xoff=40kB,headroom=60kB,buffer=3MB,quanta=100,xon=5kB").packets
    assert static is not None and static.pfc is not None
    assert static.pfc.settings == {
        "buffer": "3000000", "xoff": "40000", "xon": "5000", "headroom": "60000",
        "reaction": "100ns", "quanta": "100", "storm": "200us",
    }  # fmt: skip
    lossless = ",".join(f"{key}={value}" for key, value in static.pfc.settings.items())
    assert _replayed(f"pfc:{lossless}").packets == static


def test_pauses_are_reported_by_port() -> None:
    one = _replayed("pfc:xoff=40kB")
    assert one.packets is not None and one.packets.pfc is not None and one.notes == []
    pfc = one.packets.pfc
    assert one.packets.completed_runs == 2 and one.packets.dropped == 0
    assert pfc.causes == ["leaf1>host1"] and pfc.victim_flows == 0 and pfc.deadlock == []
    ports = [port.port for port in pfc.ports]
    assert {"spine1>leaf1", "leaf2>spine1", "host8>leaf2"} <= set(ports)
    assert "host1>leaf1" not in ports  # it sends no data
    times = [port.paused_ns for port in pfc.ports]
    assert times == sorted(times, reverse=True)
    assert sum(times) < pfc.paused_ns  # of two runs
    assert one.packets.model["xoff_bytes"] == "40000"


def test_pauses_spread_from_one_pod_of_rails_to_the_other() -> None:
    """Servers with a port per rail: an incast of one rail is felt by its leaf in the other pod."""
    fabric = "rail:rails=2,servers=4,pods=2,spines=1,rate=100G,delay=500ns,uplink_rate=400G"
    one = _replayed("pfc:xoff=40kB", "incast:fan-in=15,message-size=200kB", fabric)
    assert one.packets is not None and one.packets.pfc is not None and one.notes == []
    assert one.packets.completed_runs == 2 and one.packets.dropped == 0
    # Eleven senders of 100G share the 400G link from the spine, too.
    assert set(one.packets.pfc.causes) == {"pod1.rail1>server1.nic1", "spine1>pod1.rail1"}
    ports = {port.port for port in one.packets.pfc.ports}
    assert "spine1>pod1.rail1" in ports
    assert {"pod2.rail1>spine1", "pod2.rail2>spine1", "pod1.rail2>spine1"} & ports


def test_a_short_headroom_is_named_and_its_losses_are_counted() -> None:
    one = _replayed("pfc:xoff=40kB,headroom=8kB")
    assert one.packets is not None and one.packets.pfc is not None
    assert one.packets.pfc.lost_without_headroom == one.packets.dropped > 0
    assert one.packets.completed_runs == 0
    assert any("headroom=8,000 B is too small for " in note for note in one.notes)
    assert any("packets were lost without recovery" in note for note in one.notes)


@pytest.mark.thorough
def test_a_deadlock_is_why_runs_did_not_complete(tmp_path: Path) -> None:
    (tmp_path / "ring.yaml").write_text("""
nodes: {s1: {tier: 1}, s2: {tier: 1}, s3: {tier: 1},
        h1: {kind: host}, h2: {kind: host}, h3: {kind: host}}
defaults: {rate: 100G, delay: 500ns}
links: [[h1, s1], [h2, s2], [h3, s3], [s1, s2], [s2, s3], [s3, s1]]
routes:
  s1: {h1: [h1], h2: [s3], h3: [s3]}
  s2: {h1: [s1], h2: [h2], h3: [s1]}
  s3: {h1: [s2], h2: [s2], h3: [h3]}
""")
    one = _replayed("pfc:xoff=20kB", "ring-allreduce:message-size=1MB", str(tmp_path / "ring.yaml"))
    assert one.packets is not None and one.packets.pfc is not None
    assert one.packets.pfc.deadlocked_runs == 2 and one.packets.completed_runs == 0
    assert set(one.packets.pfc.deadlock) == {"s1>s3", "s3>s2", "s2>s1"}
    assert any("deadlock: " in note and "s1>s3 waits for s3>s2" in note for note in one.notes)


def test_thresholds_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="xoff .* exceeds the shared buffer"):
        _replayed("pfc:xoff=1GB")


@pytest.mark.parametrize("lossless", ["pfc", "infinite"])
def test_queues_that_drop_are_not_lossless(lossless: str) -> None:
    with pytest.raises(
        UsageError, match=f"--lossless {lossless} cannot be combined with --model buffer"
    ):
        PreparedReplay(ReplayRequest(FABRIC, pattern=INCAST, lossless=lossless, model="buffer=1MB"))
    PreparedReplay(ReplayRequest(FABRIC, pattern=INCAST, model="buffer=1MB"))


def test_a_circle_ends_where_it_begins() -> None:
    assert circle_text(["a>b", "b>a"]) == "a>b waits for b>a waits for a>b"
