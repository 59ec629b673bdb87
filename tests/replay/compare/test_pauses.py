"""PFC in the results: ports, causes, losses without headroom, deadlocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.pauses import circle_text
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.specs import parse_model
from rocescope.replay.packets.model.model import Model
from rocescope.replay.packets.model.queueing import Pfc
from rocescope.replay.results import StrategyResult

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
    assert Model() == Model(pfc=Pfc()) == parse_model("")[0]
    for buffer in (None, 100_000):
        option = "" if buffer is None else "buffer=100kB"
        assert Model(buffer_bytes=buffer) == parse_model(option)[0]
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
