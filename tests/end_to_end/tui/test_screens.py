"""The drawings of every screen that docs/tui.md shows, and states of the source.

`pytest --update-golden` with this file writes them anew: look at what changed.
"""

from __future__ import annotations

import itertools
import struct
from dataclasses import replace as with_changes
from pathlib import Path

import factories_results as factories
import numpy as np
import pytest
import training_jobs
from captures import data
from examples import first
from msgspec.structs import replace
from rings import measured, ring
from textual.widgets import Input
from tui_driver import Still, drive, svg_of, text_of

from rocescope.analyzer.results.diagnosis import Affected, Evidence
from rocescope.commands.generate import generate_mrc
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import SourceState

I03 = [data("i03_write_reorder5_AtoB")]
TAPS = sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
LINKS = sorted((data("whole_leafspine") / "r09_packet_spray_h1").iterdir())
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"
pytestmark = pytest.mark.usefixtures("the_same_everywhere")


def replayed(app):
    app.view.replays.set_fabric(FABRIC)
    app.view.replays.production = 7
    app.view.replays.run(["ecmp", "ecmp-qpn", "subflow", "static"])
    app.view.replays.wait(300)
    app.view.replays.sweep(["linux", "crc32"], 1000)
    app.view.replays.wait(300)
    app.screen.redraw()


def aggregated(app):
    fabric = "leaf-spine:leaves=1,spines=1,hosts=40,rate=100G,delay=1us"
    jobs = "--jobs count=4,workers=8,fragments=1000,window=200"
    app.view.aggregations.set_words(f"{fabric} order {jobs} --memory 512 --memory 4096")
    app.view.aggregations.run()
    app.view.aggregations.wait()
    app.screen.redraw()


def without_blinking(app):
    app.screen.query_one(Input).cursor_blink = False


SCREENS = {
    "qps": (TAPS, []),
    "paths": (TAPS, ["4"]),
    "reorder": (I03, ["5"]),
    "reorder-density": (I03, ["5", "o"]),
    "reorder-buffer": (I03, ["5", "o", "o"]),
    "recovery": (I03, ["6"]),
    "packets": (I03, ["7"]),
    "packets-why": (TAPS, ["9", replayed, "2", "7"]),
    "paths-predicted": (TAPS, ["9", replayed, "4", "p"]),
    "events": (I03, ["8"]),
    "replay": (TAPS, ["9", replayed]),
    "aggregation": (TAPS, ["A", aggregated, "j", "j"]),
    "fabric": (TAPS, ["9", replayed, "0", "tab", "j"]),
    "doctor": (I03, ["D"]),
    "help": (I03, ["question_mark"]),
    "palette": (I03, ["colon", without_blinking]),
    "compare": (I03, ["m", "j", "m", "c"]),
    "filter": (I03, ["slash"]),
    "overview": (LINKS, ["1"]),
    "fabric-observed": (LINKS, ["0"]),
}
LARGE = {"overview": (150, 44), "fabric-observed": (130, 40)}


@pytest.mark.parametrize("name", first(6, SCREENS))
def test_pictures_of_the_documentation(name, golden):
    paths, keys = SCREENS[name]
    svg = drive(paths, keys, LARGE.get(name, (110, 32)), svg_of)
    golden(f"docs/screens/{name}.svg", svg)


@pytest.fixture(scope="module")
def seen():
    """What a capture with losses and reordering shows."""
    session = Session.open([str(path) for path in I03])
    session.start()
    session.wait(300)
    yield session.snapshot()
    session.close()


LIVE = SourceState(
    "eth2,eth3",
    "live",
    packets=27_459,
    dropped=1_234,
    packets_per_second=3_211_000.0,
    bits_per_second=311.8e9,
    recording="night.pcapng",
    behind_ns=12_000_000_000,
    tap_names=("eth2 in", "eth2 out"),
)


def judged_of(seen):
    """A spine that loses packets of three flows from a third of the capture on, and its hops."""
    start, length = seen.start_ns, seen.end_ns - seen.start_ns
    at = start + length // 3
    loss, spraying = factories.diagnosis().findings
    flows = np.flatnonzero(seen.carries_data())[:3].tolist()
    names = [seen.key(flow) for flow in flows]
    affected = [
        Affected(flow, key.src, key.dst, key.qp, None, None, 30 - 7 * i, 40_000_000 * (3 - i))
        for i, (flow, key) in enumerate(zip(flows, names, strict=True))
    ]
    evidence = [Evidence("leaf1-spine2", 97 + i, at + i * 1_000_000) for i in range(3)]
    found = [
        replace(loss, from_ns=at, flows=flows, affected=affected, evidence=evidence),
        replace(spraying, from_ns=start),
    ]
    clean = {"lost_packets": 0, "lost_percent": 0.0, "lost_by_flow": [], "first_lost_ns": None}
    hops = [
        factories.hop(
            id=number,
            from_tap=f"leaf{one}-spine{spine}",
            to_tap=f"leaf{3 - one}-spine{spine}",
            device=f"spine{spine}",
            last_lost_ns=seen.end_ns,
            **({"first_lost_ns": at} if (one, spine) == (1, 2) else clean),
        )
        for number, (one, spine) in enumerate(itertools.product((1, 2), (1, 2, 3, 4)))
    ]
    diagnosis = replace(factories.diagnosis(), findings=found)
    return Judged.of(factories.analysis(diagnosis=diagnosis, hops=hops), True)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["diagnosis", "evidence", "hops"])
def test_pictures_of_a_diagnosis(seen, golden, name):
    """Made by hand: pictures do not change with thresholds."""
    keys = {"diagnosis": [], "evidence": ["enter"], "hops": ["3"]}[name]
    source = SourceState("8 captures", "capture", False, packets=27_459, frames=27_459)
    session = Still(source, with_changes(seen, judged=judged_of(seen)))
    svg = drive([], keys, (110, 32), svg_of, session=session, start="diagnosis")
    golden(f"docs/screens/{name}.svg", svg)


def test_picture_of_ranks(seen, golden):
    """A ring of eight ranks, of which rank 2 arrives late and rank 5 loses packets."""
    ranks = measured(ring(8, 4, lambda rank, _: 4_000_000 * (rank == 2) + 10_000 * rank))
    pairs = [
        replace(
            pair,
            retransmitted_packets=125 * (pair.sender == 5),
            recovered_packets=130 * (pair.sender == 5),
            completion_p50_ns=480_000 + 1000 * pair.sender + 900_000 * (pair.sender == 5),
            completion_max_ns=730_000 + 1000 * pair.sender + 61_000_000 * (pair.sender == 5),
            wire_bytes=pair.wire_bytes << 12,
        )
        for pair in ranks.pairs
    ]
    pairs.sort(key=lambda pair: -pair.retransmitted_packets)
    judged = Judged(diagnosis=factories.diagnosis(), job_ranks=replace(ranks, pairs=pairs))
    source = SourceState("8 captures", "capture", False, packets=27_459, frames=27_459)
    still = Still(source, with_changes(seen, judged=judged))
    golden("docs/screens/ranks.svg", drive([], ["K"], (110, 32), svg_of, session=still))


def test_picture_of_jobs(seen, golden):
    """Hand-made: three steps wait for rank 2."""
    judged = Judged(diagnosis=factories.diagnosis(), jobs=[training_jobs.straggling()])
    source = SourceState("8 captures", "capture", False, packets=27_459, frames=27_459)
    still = Still(source, with_changes(seen, judged=judged, start_ns=factories.START_NS))
    golden("docs/screens/jobs.svg", drive([], ["J"], (110, 32), svg_of, session=still))


def test_picture_of_a_live_session_that_dropped_packets(seen, golden):
    def look(app):
        return svg_of(app), text_of(app)

    svg, lines = drive([], [], (110, 32), look, session=Still(LIVE, seen))
    assert "behind live by 12.0 s" in lines[0] and "1,234 dropped" in lines[0]
    golden("docs/screens/live.svg", svg)


def data_segment_lists(path):
    """Outer destinations of the long packets of a pcap, by the source inside: IPv6 in IPv6."""
    content, at, found = path.read_bytes(), 24, {}
    while at < len(content):
        captured, wire = struct.unpack_from("<II", content, at + 8)
        frame = content[at + 16 :]
        at += 16 + captured
        if wire > 1000:
            found.setdefault(frame[62:78], set()).add(frame[38:54])
    return found


@pytest.mark.thorough
def test_segment_lists_of_mrc(tmp_path, golden, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    path = tmp_path / "mrc.pcap"
    generate_mrc(output=path, hosts=4, trim=0.002, ce=0.01)
    lists = data_segment_lists(path)
    counts = [len(one) for one in lists.values()]
    shown = []
    for size in ((80, 24), (120, 40), (200, 60)):
        lines = [line.rstrip() for line in drive([path], ["p", "4"], size, text_of)]
        assert "paths known" in lines[0]
        assert f"{len(lists)} flows use {min(counts)} to {max(counts)} segment lists" in lines[2]
        assert f"{len(set().union(*lists.values()))} in all" in lines[2]
        shown += lines
    golden("tests/golden/screens-mrc.txt", "\n".join(shown))


def test_a_verdict_of_more_than_two_lines_shows_that_words_are_left_out():
    path = Path(__file__).parents[2] / "data/mirror/running_job.pcap.xz"
    for size, ends in (((80, 24), "…"), ((120, 40), ".")):
        lines = drive([path], ["1"], size, text_of)
        assert lines[2].startswith(" 1 critical, 1 note: ")
        assert lines[3].rstrip().endswith(ends)
        assert set(lines[4][:60]) == {"─"}


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (SourceState("eth2", "live", False, dropped=1234), "● 1,234 dropped"),
        (SourceState("a.pcap", "capture", False, compiling=True), "compiled"),
        (SourceState("a.pcap", "capture", False, error="a.pcap: gone"), "● a.pcap: gone"),
        (SourceState("a.pcap", "capture", False, undecodable=7), "▲ 7 undecodable"),
    ],
    ids=["drops", "compiling", "error", "undecodable"],
)
def test_states_of_the_source(source, says):
    lines = drive([], [], (80, 24), text_of, session=Still(source))
    assert says in lines[0] + lines[2]
