"""A request that is checked before anything is read, and read once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from captures import data

from rocescope.analyzer.errors import UsageError
from rocescope.replay.compare.prepared import PreparedReplay
from rocescope.replay.compare.request import ReplayRequest

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
        ({"model": "offer=asap"}, "offer needs captures"),
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
