"""The fabric and the axis of time, against captures whose faults are known."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import factories_results as factories
import msgspec
import pytest

from rocescope.analyzer.measures.hops.vantage import FabricLinks
from rocescope.analyzer.pipeline.captures import analyze
from rocescope.analyzer.pipeline.options import AnalyzeOptions
from rocescope.analyzer.results.analysis import Analysis
from rocescope.analyzer.results.captures import Pause, PauseSpan
from rocescope.report.overview import (
    FAULTS,
    GLYPHS,
    MEASURES,
    Fabric,
    Link,
    State,
    overview,
    time_axis,
    worst,
)

DATA = Path(__file__).parents[1] / "data"
SPRAYED = DATA / "whole_leafspine" / "r09_packet_spray_h1"
WENT_DOWN = DATA / "whole_leafspine" / "r03_link_down_reroute"
CLEAN = DATA / "leafspine" / "r01_clean_write"
MIRROR = DATA / "mirror" / "running_job.pcap.xz"


@cache
def analysis(*paths: Path) -> Analysis:
    return analyze([str(path) for path in paths], AnalyzeOptions())


def files(folder: Path, pattern: str = "*.pcap*") -> tuple[Path, ...]:
    return tuple(sorted(folder.glob(pattern)))


def fabric(*paths: Path, links: FabricLinks | None = None) -> Fabric:
    drawn = overview(analysis(*paths), links).fabric
    assert drawn is not None
    return drawn


def states(drawn: Fabric) -> dict[str, State]:
    return {link.name: link.state for link in drawn.links}


def link(drawn: Fabric, lower: str, upper: str) -> Link:
    return drawn.cells()[lower, upper]


def test_a_file_per_link_shows_tiers_and_the_switch_that_drops():
    drawn = fabric(*files(SPRAYED))
    assert [[d.name for d in drawn.level(n)] for n in range(3)] == [
        ["H1", "H2", "H3", "H4"],
        ["leaf1", "leaf2"],
        ["spine1", "spine2", "spine3", "spine4"],
    ]
    assert drawn.tiers == 2 and not drawn.from_file
    lossy = {name for name, state in states(drawn).items() if state is State.LOSSY}
    assert lossy == {"leaf1-spine2", "leaf2-spine2"}
    devices = {device.name: device for device in drawn.devices}
    assert devices["spine2"].state is State.LOSSY and devices["spine2"].findings == (1,)
    assert devices["spine1"].state is devices["spine3"].state is State.FINE
    addresses = {d.name: d.addresses for d in drawn.level(0)}
    assert addresses == {
        "H1": ("10.1.1.10",), "H2": ("10.1.2.10",), "H3": ("10.2.3.10",), "H4": ("10.2.4.10",),
    }  # fmt: skip
    assert [host.name for host, _ in drawn.hosts_of("leaf2")] == ["H3", "H4"]
    assert drawn.sentence().startswith("spine2 ✗ lossy; 2 links lossy, ")


def test_numbers_of_a_direction():
    drawn = fabric(*files(SPRAYED))
    up, down = link(drawn, "leaf1", "spine2").directions
    # Ground truth of the run: the queue of spine2 towards leaf2 dropped 609 packets.
    assert (up.source, up.target, up.lost_after_packets) == ("leaf1", "spine2", 609)
    assert up.loss_percent == pytest.approx(100 * 609 / up.packets)
    assert up.state is State.LOSSY and down.state is State.FINE
    assert link(drawn, "leaf2", "spine2").down.lost_before_packets == 609
    assert (up.wire_bytes or 0) + (down.wire_bytes or 0) == link(
        drawn, "leaf1", "spine2"
    ).wire_bytes
    ratios = [link(drawn, "leaf1", f"spine{n}").up.fair_ratio for n in range(1, 5)]
    assert sum(ratio or 0 for ratio in ratios) == pytest.approx(4)
    # No packet is ECN-capable, no file states a link rate, no tap stands before the link of a host.
    assert up.ce_packets is None and up.utilisation_percent is None
    host = link(drawn, "H1", "leaf1").up
    assert host.lost_before_packets is host.queueing_p99_ns is host.late_packets is None
    assert host.lost_after_packets == 0


def test_flows_moved_away_from_a_link_that_went_down():
    drawn = fabric(*files(WENT_DOWN))
    moved = {name for name, state in states(drawn).items() if state is State.MOVED}
    assert moved == {"leaf1-spine2", "leaf2-spine2"}
    assert not {state for name, state in states(drawn).items() if name not in moved} & set(FAULTS)


def test_clean_links_are_fine_and_those_without_a_tap_not_captured():
    drawn = fabric(*files(CLEAN))
    assert set(states(drawn).values()) == {State.FINE}
    assert {device.name for device in drawn.level(2)} == {f"spine{n}" for n in range(1, 5)}
    some = [path for path in files(SPRAYED, "leaf?-spine*") if "leaf2-spine4" not in path.name]
    partly = fabric(*some)
    missing = link(partly, "leaf2", "spine4")
    assert missing.state is State.UNCAPTURED and missing.is_supposed
    assert missing.up.packets is missing.wire_bytes is missing.pause_frames is None
    # The packets of leaf1-spine4 are compared with none: they are not fine.
    assert link(partly, "leaf1", "spine4").state is State.UNCHECKED


def test_links_that_nothing_compares_are_not_checked():
    drawn = fabric(*files(SPRAYED, "leaf1-spine*"))
    assert [device.name for device in drawn.level(1)] == ["leaf1"]
    assert State.FINE not in states(drawn).values()
    assert all(way.packets is None for each in drawn.links for way in each.directions)


def test_a_mirror_of_all_ports_shows_the_same_fabric():
    drawn = fabric(MIRROR)
    assert [len(drawn.level(n)) for n in range(3)] == [4, 2, 4]
    sick = [device for device in drawn.level(2) if device.state is State.LOSSY]
    assert [(d.name, d.label) for d in sick] == [("4a:21:2b:f5:b1:f1", "f5:b1:f1")]
    hosts = {host.name for leaf in drawn.level(1) for host, _ in drawn.hosts_of(leaf.name)}
    assert hosts == {"10.1.1.10", "10.1.2.10", "10.2.3.10", "10.2.4.10"}


def test_an_overloaded_port_is_lossy_and_not_the_links_towards_it():
    drawn = fabric(*files(DATA / "lab_incast", "*.xz"))
    assert link(drawn, "H4", "leaf2").down.state is State.LOSSY
    towards = [link(drawn, "leaf2", f"spine{n}").down for n in range(1, 5)]
    assert {way.state for way in towards} == {State.UNCHECKED}
    assert all(way.lost_after_packets for way in towards)


def test_a_fabric_file_adds_the_links_without_a_tap():
    pairs = [(f"leaf{a}", f"spine{b}") for a in (1, 2, 3) for b in (1, 2, 3, 4)]
    pairs += [("H1", "leaf1"), ("H9", "leaf3")]
    links = FabricLinks(
        [way for a, b in pairs for way in ((a, b), (b, a))], frozenset({"H1", "H9"}), {}
    )
    drawn = fabric(*files(SPRAYED, "leaf?-spine*"), links=links)
    assert drawn.from_file and len(drawn.links) == len(pairs)
    assert link(drawn, "leaf3", "spine1").state is State.UNCAPTURED
    assert not link(drawn, "leaf3", "spine1").is_supposed
    assert [device.name for device in drawn.level(0)] == ["H1", "H9"]
    assert link(drawn, "leaf1", "spine2").state is State.LOSSY


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        (files(DATA, "i01_write_loss*.atA.pcap.gz"), "one tap shows no fabric"),
        (files(DATA, "i01_write_loss*.pcap.gz"), "do not show which devices"),
    ],
)
def test_no_fabric_without_evidence(paths, reason):
    drawn = overview(analysis(*paths))
    assert drawn.fabric is None and reason in drawn.why
    assert drawn.time is not None


def test_the_axis_has_slices_findings_pauses_and_its_sums():
    result = analysis(*files(SPRAYED))
    axis = time_axis(result)
    assert axis is not None
    assert axis.start_ns == min(c.first_time_ns or 0 for c in result.captures)
    assert sum(axis.columns["wire_bytes"]) == sum(flow.wire_bytes for flow in result.flows)
    findings = result.diagnosis.findings
    assert [(s.number, s.kind, s.from_ns, s.until_ns) for s in axis.findings] == [
        (n, f.kind, f.from_ns, f.until_ns) for n, f in enumerate(findings, 1)
    ]
    assert axis.pauses == ()
    capture = result.captures[0]
    exact = Pause(3, 4, 1, 9, 50, 10, 90, spans=[PauseSpan(10, 40), PauseSpan(80, 99)])
    rough = Pause(4, 2, 0, 9, None, 20, 70)
    tap = msgspec.structs.replace(capture.taps[0], pauses=[exact, rough])
    paused = msgspec.structs.replace(
        result, captures=[msgspec.structs.replace(capture, taps=[tap]), *result.captures[1:]]
    )
    spans = time_axis(paused).pauses
    assert [(s.priority, s.from_ns, s.until_ns, s.is_exact) for s in spans] == [
        (3, 10, 40, True), (3, 80, 99, True), (4, 20, 70, False),
    ]  # fmt: skip
    assert link(overview(paused).fabric, "H1", "leaf1").state is State.PAUSED


def test_every_state_has_a_sign_of_its_own():
    assert len(set(GLYPHS.values())) == len(State) == len(GLYPHS)
    assert worst([State.FINE, State.UNCHECKED, State.IDLE]) is State.UNCHECKED
    assert len({measure.key for measure in MEASURES}) == 6


def test_a_made_up_analysis_has_an_axis():
    assert overview(factories.analysis()).time is not None
