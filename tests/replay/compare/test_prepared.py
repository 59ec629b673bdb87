"""A request that is checked before anything is read, and read once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from captures import DATA, data
from replay_traffic import traffic

from rocescope.analyzer.errors import UsageError
from rocescope.cli import run as cli
from rocescope.replay.compare.captured import as_captured, links_of, with_recovered_seeds
from rocescope.replay.compare.flows import replay
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest
from rocescope.replay.compare.summaries import fabric_summary, mapped, traffic_summary
from rocescope.replay.fabrics.parse import parse_fabric
from rocescope.replay.generate.from_pattern import generate
from rocescope.replay.generate.patterns import Settings
from rocescope.replay.generate.pcap_writer import write_pcap
from rocescope.replay.generate.queue_pairs import Sending
from rocescope.replay.hashing.seeded import SeedRange
from rocescope.replay.hashing.settings import HashSettings
from rocescope.replay.results import AS_CAPTURED
from rocescope.replay.strategies.registry import parse_strategy
from rocescope.replay.traffic.observed import traffic_from_capture
from rocescope.report.files import encode_json
from rocescope.report.files.results import json_schema

# A request that is checked before anything is read, and read once.

FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"
TAPS = tuple(
    str(path) for path in sorted((data("leafspine") / "r01_clean_write").glob("H*.pcap.xz"))
)
PATTERN = ReplayRequest(FABRIC, pattern="permutation:message-size=64KiB")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"pattern": ""}, "give captures, or --pattern"),
        ({"captures": ("a.pcap",)}, "give captures, or --pattern"),
        ({"map": "order"}, "--map, --filter and --concat need captures"),
        ({"filter": "udp"}, "--map, --filter and --concat need captures"),
        ({"fabric": "spline:leaves=2"}, "spline"),
        ({"window": "soon"}, "--window"),
        ({"window": "1ms", "packets": True}, "--window with --packets needs captures"),
        ({"model": "buffers=1"}, "--model has no 'buffers'"),
        ({"offer": "asap"}, "offer needs captures"),
        ({"model": "qps=4"}, "--model: qps needs captures; --pattern has its own"),
        ({"transport": "rto=1h"}, "rto must be"),
        ({"fail": ("leaf9@1us",)}, "--fail leaf9@1us"),
        ({"converge": "0", "packets": True}, "--converge needs --fail"),
        ({"runs": 0}, "--runs must be"),
        ({"seed": -1, "packets": True}, "--seed must be"),
        ({"jobs": ("ring",)}, "--jobs: 'ring' is not key=value"),
        ({"jobs": ("workers=9",)}, "has 9 workers, but"),
        ({"jobs": ("workers=4", "workers=2")}, "job2 ring has 2 workers"),
        ({"jobs": ("workers=4",), "pattern": "ring-allreduce"}, "use --jobs collective=ring"),
        ({"jobs": ("workers=4",), "captures": ("a.pcap",), "pattern": ""}, "give captures, or"),
        ({"priority": ("a", "b")}, "all traffic would be in one class"),
        ({"jobs": ("workers=4",), "priority": ("a", "b"), "pattern": ""}, "would be in one class"),
        ({"jobs": ("workers=4,priority=c",), "priority": ("a", "b")}, "there is no class 'c'"),
    ],
)
def test_mistakes_are_told_before_anything_is_read(
    changes: dict[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("rocescope.replay.traffic.observed.traffic_from_capture")
    with pytest.raises(UsageError, match=words):
        PreparedReplay(replace(PATTERN, **changes))  # type: ignore[arg-type]


@pytest.mark.thorough
def test_captures_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = PreparedReplay(ReplayRequest(FABRIC, captures=TAPS, map="order", offer="asap"))
    whole = prepared.read(messages=True)
    monkeypatch.delattr("rocescope.replay.traffic.observed.traffic_from_capture")
    assert prepared.read() is whole
    placed = prepared.place(prepared.parsed())
    assert [one.name for one in placed.strategies] == ["ecmp", "assign"]
    assert placed.traffic.sources == list(TAPS)
    result, complete = prepared.by_packets(["switch-rr"])
    assert complete and result.strategies[0].completion_time_ns
    assert result.strategies[0].packets is not None
    assert result.strategies[0].packets.model["offer"] == "asap"
    told = result.traffic.linked
    assert told is not None and told.queue_pairs == told.messages_tested == 0
    assert told.fixed_percent is None and told.median_gap_ns is None


def test_links_between_queue_pairs_are_inferred_for_asap_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    monkeypatch.setattr(
        "rocescope.replay.traffic.observed.traffic_from_capture",
        lambda *_, **options: asked.append((options["messages"], options["links"])),
    )
    request = ReplayRequest(FABRIC, captures=TAPS, map="order")
    PreparedReplay(request).read(messages=True)
    PreparedReplay(replace(request, offer="asap")).read()
    PreparedReplay(replace(request, offer="asap")).read(messages=True)
    assert asked == [(True, False), (False, False), (True, True)]


def test_every_run_draws_its_own_pattern() -> None:
    prepared = PreparedReplay(replace(PATTERN, runs=3, strategies=("ecmp", "host-spray")))
    told: list[tuple[str, int, int]] = []
    result, complete = prepared.by_packets(
        prepared.request.strategies, lambda *step: told.append(step)
    )
    assert complete and [one.name for one in result.strategies] == ["ecmp", "host-spray"]
    packets = result.strategies[0].packets
    assert packets is not None and packets.runs == 3 and packets.completion_ns is not None
    assert packets.completion_ns.min < packets.completion_ns.max
    assert told and told[-1][1] <= told[-1][2]


def test_captured_flows_have_the_class_of_their_dscp(tmp_path: Path) -> None:
    """Hosts 1 and 2 send with DSCP 26 and 8; the ACKs, with 48, decide nothing."""
    fabric = "leaf-spine:leaves=1,spines=1,hosts=3,rate=100G,delay=500ns"
    settings = Settings(
        hosts=3, message_bytes=20_000, messages=1, flows=2, fan_in=2, load=0.5,
        rate_bits_per_second=10**11,
    )  # fmt: skip
    pairs = generate("incast", settings, Sending(path_mtu=1024), seed=1)
    path = tmp_path / "two.pcap"
    with path.open("wb") as file:
        write_pcap(file, pairs, parse_fabric(fabric).addresses, 128)
    frames = bytearray(path.read_bytes())
    at, starts = 24, []
    while at < len(frames):
        starts.append(at + 16)
        at += 16 + int.from_bytes(frames[at + 8 : at + 12], "little")
    data = [start for start in starts if frames[start + 42] != 0x11]
    addresses = sorted({bytes(frames[start + 26 : start + 30]) for start in data})
    for start in starts:
        sender = addresses.index(bytes(frames[start + 26 : start + 30])) if start in data else 2
        frames[start + 15] = (26, 8, 48)[sender] << 2 | 2
    path.write_bytes(frames)

    def priorities(*classes: str) -> tuple[list[tuple[str, str]], list[str]]:
        request = ReplayRequest(
            fabric, strategies=("switch-random",), captures=(str(path),), priority=classes
        )
        result, _ = PreparedReplay(request).by_packets(request.strategies)
        packets = result.strategies[0].packets
        assert packets is not None and packets.completed_runs == 1
        return sorted((flow.src, flow.priority) for flow in packets.flows), result.warnings

    names = [f"host{host + 1}" for host in sorted({int(src) for src in pairs.src})]
    found, warnings = priorities("train:dscp=26", "storage:dscp=8,weight=30")
    assert found == [(names[0], "train"), (names[1], "storage")]
    assert not [line for line in warnings if "DSCP" in line]
    found, warnings = priorities("rest:dscp=0", "storage:dscp=8")
    assert found == [(names[0], "rest"), (names[1], "storage")]
    assert "flows with DSCP 26, which no class lists, use class rest" in warnings


def test_the_evidence_of_links_is_in_the_result(tmp_path: Path) -> None:
    """A ring of four: each message leaves when one has arrived from the predecessor."""
    pcap = tmp_path / "ring.pcap"
    fabric = "leaf-spine:leaves=2,spines=2,hosts=2,rate=100G,delay=500ns"
    job = "--jobs=collective=ring,workers=4,size=400kB,iterations=4,place=spread"
    asked = ["replay", job, "--fabric", fabric, "-s", "ecmp", "--lossless", "infinite"]
    assert cli([*asked, "--sent", str(pcap), "-o", str(tmp_path / "job.json")]) == 0
    request = ReplayRequest(
        fabric, ("ecmp",), (str(pcap),), map="order", packets=True, offer="asap"
    )
    result, _ = PreparedReplay(request).by_packets(request.strategies)
    told = result.traffic.linked
    assert told is not None and told.queue_pairs == 4
    assert f"{told.messages_fixed:,} of {told.messages_tested:,} messages" in result.warnings[-1]
    assert told.fixed_percent == 100 * told.messages_fixed / told.messages_tested >= 80
    assert told.median_gap_ns is not None and 0 <= told.median_gap_ns < 1000
    jsonschema.validate(json.loads(encode_json(result)), json_schema("replay"))
    timed, _ = PreparedReplay(replace(request, offer="")).by_packets(request.strategies)
    assert timed.traffic.linked is None  # not looked for


# The loads of captured links, against the seed that the switches really used.

# The loads of captured links, against the seed that the switches really used.

CAPTURED_FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
CLEAN = sorted(str(path) for path in (DATA / "leafspine" / "r01_clean_write").glob("*.pcap.?z"))
SPINES = [path for path in CLEAN if "spine" in path]
TRUE = "ecmp:hash=linux,policy=1,seed=305419896,per-switch=equal"
"""The seed of the routers, see topology.json of the run."""


def test_loads_are_those_of_the_seed_of_the_switches() -> None:
    traffic = traffic_from_capture(CLEAN, CAPTURED_FABRIC, "order")
    found = as_captured(traffic, CAPTURED_FABRIC)
    assert found is not None and found.name == AS_CAPTURED
    model = replay(traffic, CAPTURED_FABRIC, [parse_strategy(TRUE)], []).strategies[0]
    expected = {link.name: (link.wire_bytes, link.flows) for link in model.links}
    seen = {link.name: (link.wire_bytes, link.flows) for link in found.links}
    assert seen == {name: expected[name] for name in seen}
    assert sorted(seen) == [
        *(f"leaf1>spine{n}" for n in range(1, 5)),
        *(f"spine{n}>leaf1" for n in range(1, 5)),
    ]
    assert found.notes == ["16 links were not captured; they are left out"]


def test_without_a_link_of_a_set_nothing_is_compared() -> None:
    assert (
        as_captured(traffic_from_capture(SPINES[:3], CAPTURED_FABRIC, "order"), CAPTURED_FABRIC)
        is None
    )


def test_one_capture_and_unknown_names_have_no_row() -> None:
    assert (
        as_captured(traffic_from_capture(SPINES[:1], CAPTURED_FABRIC, "order"), CAPTURED_FABRIC)
        is None
    )
    assert np.all(links_of(["eth0.pcap", "eth1.pcap"], CAPTURED_FABRIC) == -1)


@pytest.mark.parametrize("name", ["leaf1-spine2", "spine2_to_leaf1", "a/leaf1-spine2.pcap.gz"])
def test_a_tap_is_named_by_both_ends_of_its_link(name: str) -> None:
    (ways,) = links_of([name], CAPTURED_FABRIC)
    assert {CAPTURED_FABRIC.link_name(int(link)) for link in ways} == {
        "leaf1>spine2",
        "spine2>leaf1",
    }


# Seeds of switches from a captured run, against the seed that the switches really used.

RECOVERED_FABRIC = parse_fabric("leaf-spine:leaves=2,spines=4,hosts=2")
RECOVERED_SPINES = tuple(
    sorted(str(p) for p in (DATA / "leafspine" / "r01_clean_write").glob("leaf1-spine*.pcap.gz"))
)
NEAR = SeedRange(0x12345600, 0x12345700)
RECOVERED_TRUE = HashSettings("linux", seed=0x12345678, extra={"policy": 1})
"""The seed of the routers, see topology.json of the run."""


@pytest.mark.thorough
def test_both_leaves_by_the_links_of_one() -> None:
    request = ReplayRequest("", captures=RECOVERED_SPINES, map="order")
    fabric, found = with_recovered_seeds(request, RECOVERED_FABRIC, NEAR)
    assert found == ["leaf1", "leaf2"]
    own = dict(zip(RECOVERED_FABRIC.nodes.names, fabric.hash_settings, strict=False))
    assert own["leaf1"] == own["leaf2"] == RECOVERED_TRUE
    assert own["leaf1"].seed_recovered
    assert {own[f"spine{n}"] for n in range(1, 5)} == {None}


def test_settings_of_the_fabric_stay() -> None:
    mine = HashSettings("crc32", seed=7)
    fabric = replace(RECOVERED_FABRIC, hash_settings=(mine, *RECOVERED_FABRIC.hash_settings[1:]))
    request = ReplayRequest("", captures=RECOVERED_SPINES, map="order")
    after, found = with_recovered_seeds(request, fabric, NEAR)
    assert found == ["leaf2"] and after.hash_settings[0] == mine


def test_nothing_is_recovered_without_all_links_of_a_switch() -> None:
    request = ReplayRequest("", captures=RECOVERED_SPINES[:3], map="order")
    assert with_recovered_seeds(request, RECOVERED_FABRIC, NEAR) == (RECOVERED_FABRIC, [])


# What all comparisons share: flows between hosts of the fabric, and the records of both.

CLOS = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2")
OFFERED = traffic(CLOS, [0, 1, 0], [2, 3, 3])


def test_flows_of_other_hosts_are_left_out_and_named() -> None:
    outside = replace(
        OFFERED,
        dst_host=np.array([2, -1, 3], np.int32),
        unmapped=tuple(f"192.0.2.{i}" for i in range(1, 11)),
        warnings=("first",),
    )
    inside, (first, left_out) = mapped(outside, CLOS)
    assert first == "first" and inside.dst_host.tolist() == [2, 3]
    assert "1 of 3 flows" in left_out and "192.0.2.8, ..." in left_out
    assert mapped(OFFERED, CLOS) == (OFFERED, [])


def test_traffic_without_a_host_of_the_fabric_is_refused() -> None:
    nobody = replace(OFFERED, src_host=np.full(3, -1, np.int32), unmapped=("192.0.2.1",))
    with pytest.raises(UsageError, match=r"no flow runs between hosts .* 192\.0\.2\.1: use --map"):
        mapped(nobody, CLOS)


def test_the_records_count_flows_hosts_and_links() -> None:
    told = traffic_summary(OFFERED, ["a.pcap"])
    assert (told.flows, told.units, told.hosts, told.sources) == (3, 3, 4, ["a.pcap"])
    assert (told.packets, told.wire_bytes) == (OFFERED.packets.sum(), OFFERED.wire_bytes.sum())
    down = parse_fabric("leaf-spine:leaves=2,spines=2,hosts=2,down=leaf1-spine1")
    links = fabric_summary(CLOS).links
    assert (fabric_summary(down).links, fabric_summary(down).links_down) == (links - 2, 2)
    assert (fabric_summary(CLOS).hosts, fabric_summary(CLOS).switches) == (4, 4)
