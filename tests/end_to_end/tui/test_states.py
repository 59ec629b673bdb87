"""Every screen in every state at three sizes, as text: `tests/golden/screens`, one file a state.

`pytest --update-golden` with this file writes them anew: look at what changed.
Runs of empty lines and of one character are counted, so that a change is a short difference.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import factories_results
import pytest
import training_jobs
from captures import data
from examples import thorough
from factories import pcap_bytes, some_frames
from generate import write
from tui_driver import Still, press, settled, text_of

from rocescope.tui.actions import SCREENS
from rocescope.tui.app import RocescopeApp
from rocescope.tui.screens import packets
from rocescope.tui.session.dissect import dissect
from rocescope.tui.session.judged import Judged
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshot import Snapshot, SourceState

pytestmark = pytest.mark.usefixtures("the_same_everywhere")

SIZES = ((80, 24), (120, 40), (200, 60))
NAMES = [name for _, name, _ in SCREENS]
EVERY = "".join(key for key, _, _ in SCREENS)
I03 = [data("i03_write_reorder5_AtoB")]
TAPS = sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"


def compact(lines):
    """Lines without what says nothing: ends, repeated characters, empty lines."""
    short = [re.sub(r"([─═])\1{9,}", lambda run: f"{run[1]}*{len(run[0])}", x) for x in lines]
    short = [re.sub(r" {12,}", lambda run: f" _{len(run[0])}_ ", x.rstrip()) for x in short]
    return re.sub(
        r"(?:(?<=\n)\n){2,}", lambda run: f"({len(run[0])} empty lines)\n", "\n".join(short)
    )


def colours(app):
    """Every colour on the screen that is no grey."""
    strips = app.screen._compositor.render_strips()
    styles = [segment.style for strip in strips for segment in strip if segment.style]
    found = [colour for style in styles for colour in (style.color, style.bgcolor) if colour]
    shown = {colour.get_truecolor() for colour in found if not colour.is_default}
    return {colour for colour in shown if len(set(colour)) > 1}


def visit(session, keys, before=(), sizes=SIZES, look=None):
    """(screen, size, lines) after each of the keys, at every size; one app for all."""
    seen = []

    async def run():
        app = RocescopeApp(session)
        async with app.run_test(size=sizes[0]) as pilot:
            await settled(app, pilot)
            # The record of the flow is there once a screen has drawn it.
            await press(app, pilot, ["5", "2", *before])
            for size in sizes:
                await pilot.resize_terminal(*size)
                for key in keys:
                    await press(app, pilot, [key])
                    seen.append((app.current_mode, size, text_of(app)))
                    if look is not None:
                        look(app)

    asyncio.run(run())
    for name, (width, height), lines in seen:
        assert len(lines) == height and all(len(line) <= width for line in lines), name
        assert "? help" in lines[-1] and "q quit" in lines[-1], (name, lines[-1])
    return seen


def shown(seen):
    return "\n".join(f"== {name} {x}x{y}\n{compact(lines)}" for name, (x, y), lines in seen) + "\n"


def some_queue_pairs(folder, connections):
    path = folder / f"{connections}.pcap"
    with path.open("wb") as file:
        write(file, packets=900 if connections < 100 else 30_000, connections=connections)
    return Session.open([str(path)])


def without_roce(folder):
    path = folder / "empty.pcap"
    path.write_bytes(pcap_bytes(some_frames(3)))
    return Session.open([str(path)])


def with_jobs(of):
    """Rank 50 of 64 is late in one job; another one hangs."""
    jobs = [training_jobs.job(ranks=64, late={3: 50}), training_jobs.hanging()]
    judged = Judged(diagnosis=factories_results.diagnosis(), jobs=jobs)
    seen = replace(of.snapshot(), judged=judged, start_ns=factories_results.START_NS)
    return Still(SourceState("job.pcap", "capture", frames=9, packets=9), seen, of)


def a_replay_under_way(app):
    app.view.replays.set_fabric(FABRIC)
    app.view.replays._tell(
        running="700 seeds of linux", done=0.7, strategies={}, failed={"assign": "no"}
    )
    app.screen.redraw()


def a_replay_that_ended(app):
    app.view.replays.set_fabric(FABRIC)
    app.view.replays.production = 7
    app.view.replays.run(["ecmp", "ecmp-qpn", "subflow", "static"])
    app.view.replays.wait(300)
    app.view.replays.sweep(["linux"], 1000)
    app.view.replays.wait(300)
    app.screen.redraw()


@pytest.fixture(scope="module")
def capture():
    """What a real capture with losses and reordering shows."""
    session = Session.open([str(path) for path in I03])
    session.start()
    session.wait(300)
    yield session
    session.close()


LIVE = SourceState(
    "eth2,eth3",
    "live",
    frames=27_500,
    packets=27_459,
    dropped=1_234,
    packets_per_second=3_211_000.0,
    bits_per_second=311.8e9,
    tap_names=("eth2 in", "eth2 out"),
)


STATES = {
    "capture": (lambda folder, of: Session.open([str(p) for p in I03]), EVERY, ()),
    "taps": (lambda folder, of: Session.open([str(p) for p in TAPS]), "24", ()),
    "empty": (lambda folder, of: without_roce(folder), EVERY, ()),
    "one-queue-pair": (lambda folder, of: some_queue_pairs(folder, 1), "124567D", ()),
    "150-queue-pairs": (lambda folder, of: some_queue_pairs(folder, 150), "128", ()),
    "10000-queue-pairs": (lambda folder, of: some_queue_pairs(folder, 5_000), "124", ()),
    "live-with-drops": (lambda folder, of: Still(LIVE, of.snapshot(), of), EVERY, ()),
    "live-that-died": (
        lambda folder, of: Still(
            replace(LIVE, running=False, error="eth2 has disappeared"), of.snapshot(), of
        ),
        "2D",
        (),
    ),
    "no-such-file": (lambda folder, of: Session.open(["/nowhere/x.pcap"]), EVERY, ()),
    "compiling": (
        lambda folder, of: Still(SourceState("a.pcap", "capture", compiling=True)),
        "2",
        (),
    ),
    "training-jobs": (lambda folder, of: with_jobs(of), "J", ()),
    "replaying": (
        lambda folder, of: some_queue_pairs(folder, 2),
        "90",
        ("9", a_replay_under_way, "2"),
    ),
    "replayed": (
        lambda folder, of: Session.open([str(p) for p in TAPS]),
        "907",
        ("9", a_replay_that_ended, "2"),
    ),
}
SAYS = {
    "empty": "No RoCE packet in 3 frames",
    "one-queue-pair": "The only flow uses one source port",
    "150-queue-pairs": "75 of 150 flows use only one source port",
    "live-with-drops": "● 1,234 dropped",
    "live-that-died": "● eth2 has disappeared",
    "no-such-file": "no such file",
    "compiling": "once per machine",
    "replaying": "700 seeds of linux",
}
"""What must be read on the first screen of a state at every size."""


FEW = ("one-queue-pair", "150-queue-pairs")
"""States between those of no flow and of thousands."""


@pytest.mark.thorough
@pytest.mark.parametrize("state", [*(s for s in STATES if s not in FEW), *thorough(FEW)])
def test_state(state, tmp_path, golden, capture):
    make, keys, before = STATES[state]
    seen = visit(make(tmp_path, capture), keys, before)
    where = {"qps"} & {name for name, _, _ in seen} or {seen[0][0]}
    for name, size, lines in seen:
        if name in where:
            assert SAYS.get(state, "") in " ".join(line.strip() for line in lines), size
    golden(f"tests/golden/screens/{state}.txt", shown(seen))


@pytest.mark.thorough
def test_without_colour_everything_is_still_said(monkeypatch, golden, capture):
    """The same text, every state of trust and every glyph; no colour but greys."""
    monkeypatch.setenv("NO_COLOR", "1")
    found = set()
    seen = visit(
        Session.open([str(p) for p in I03]), EVERY, look=lambda app: found.update(colours(app))
    )
    assert not found
    golden("tests/golden/screens/capture.txt", shown(seen))
    seen = visit(
        Session.open([str(p) for p in TAPS]),
        "24",
        (),
        look=lambda app: found.update(colours(app)),
    )
    assert not found
    golden("tests/golden/screens/taps.txt", shown(seen))
    assert any("■" in line and "·" in line for *_, lines in seen for line in lines)


@pytest.mark.thorough
def test_colours_are_seen_where_they_may_be():
    """Else the test above proves nothing."""
    found = set()
    visit(
        Session.open([str(p) for p in TAPS]),
        "4",
        (),
        SIZES[:1],
        lambda app: found.update(colours(app)),
    )
    assert len(found) > 3


@pytest.mark.thorough
def test_a_missing_tshark_is_said_where_its_dissection_would_be(monkeypatch):
    monkeypatch.setattr(packets, "dissect", dissect)
    monkeypatch.setenv("PATH", "/nowhere")
    seen = visit(Session.open([str(p) for p in I03]), "7")
    for *_, lines in seen:
        assert any("tshark is not installed" in line for line in lines)


@pytest.mark.thorough
def test_nothing_is_lost_where_there_is_hardly_a_screen(capture):
    """Sizes that nobody works at; every screen stands, and comes back."""

    async def run():
        app = RocescopeApp(Still(capture.snapshot().source, capture.snapshot(), capture))
        async with app.run_test(size=(40, 10)) as pilot:
            await settled(app, pilot)
            for size in ((40, 10), (20, 5), (1, 1), (300, 100)):
                await pilot.resize_terminal(*size)
                await press(app, pilot, EVERY)
            return text_of(app)

    lines = asyncio.run(run())
    assert len(lines) == 100 and "rocescope" in lines[0]


@pytest.mark.thorough
def test_a_snapshot_that_says_nothing_at_all():
    seen = visit(Still(SourceState("", "capture"), Snapshot(SourceState("", ""))), EVERY)
    assert {name for name, *_ in seen} == set(NAMES)
