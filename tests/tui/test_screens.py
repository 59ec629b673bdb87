"""Pictures of every screen: text at several sizes, and the drawings that docs/tui.md shows.

`pytest tests/tui/test_screens.py --snapshot-update` makes them anew: look at what changed.
"""

from __future__ import annotations

import pytest
from captures import data
from generate import write
from tui_driver import drive, svg_of, text_of

from rocescope.tui.dissect import Line
from rocescope.tui.screens import doctor, packets
from rocescope.tui.session import Session
from rocescope.tui.snapshot import SourceState

I03 = [data("i03_write_reorder5_AtoB")]
TAPS = sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"
WINDOW_BUTTONS = {"ff5f57", "febc2e", "28c840", "c5c8c6"}
"""Colours of the frame that the drawing is set in."""
DISSECTION = [
    Line("INFINIBAND", 0, 42, 54),
    Line("Opcode: Reliable Connection (RC) - RDMA WRITE Middle (7)", 1, 42, 43),
    Line("Destination Queue Pair: 0x00002d", 1, 47, 50),
]


@pytest.fixture
def golden(checkout, pytestconfig):
    """`golden("docs/screens/qps.svg", text)`: is that what the file holds?"""

    def compare(name, text):
        path = checkout / name
        if pytestconfig.getoption("update_snapshots"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{name} is another: --snapshot-update, then look at it"

    return compare


def replayed(app):
    app.replays.set_fabric(FABRIC)
    app.replays.run(["ecmp", "ecmp-qpn", "subflow", "static"])
    app.replays.wait(60)
    app.replays.sweep(["linux", "crc32"], 1000)
    app.replays.wait(60)
    app.screen.redraw()


SCREENS = {
    "qps": (TAPS, ["p"]),
    "paths": (TAPS, ["p", "2"]),
    "reorder": (I03, ["3"]),
    "reorder-density": (I03, ["3", "o"]),
    "reorder-buffer": (I03, ["3", "o", "o"]),
    "recovery": (I03, ["4"]),
    "packets": (I03, ["5"]),
    "events": (I03, ["6"]),
    "replay": (TAPS, ["7", replayed]),
    "fabric": (TAPS, ["7", replayed, "8"]),
    "doctor": (I03, ["9"]),
    "help": (I03, ["question_mark"]),
    "filter": (I03, ["slash"]),
}


@pytest.fixture(autouse=True)
def the_same_everywhere(monkeypatch):
    """Neither tshark's version nor this machine's tools may show."""
    monkeypatch.setattr(packets, "dissect", lambda *_: DISSECTION)
    monkeypatch.setattr(doctor, "tool_findings", lambda: [])


@pytest.mark.parametrize("name", SCREENS)
def test_pictures_of_the_documentation(name, golden):
    paths, keys = SCREENS[name]
    svg = drive(paths, keys, (110, 32), svg_of)
    golden(f"docs/screens/{name}.svg", svg)


@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=lambda s: f"{s[0]}x{s[1]}")
def test_all_screens_as_text(size, golden):
    seen = []
    keys = ["3"]  # the record of the flow is there once a screen has drawn it
    for number in "1234569":
        keys += [number, lambda app: seen.append("\n".join(s.rstrip() for s in text_of(app)))]
    drive(I03, keys, size)
    golden(f"tests/golden/screens-{size[0]}x{size[1]}.txt", "\n".join(seen))


def test_150_queue_pairs(tmp_path, golden):
    path = tmp_path / "150.pcap"
    with path.open("wb") as file:
        write(file, packets=30_000, connections=150)
    lines = drive([path], [], (120, 40), text_of)
    assert "75 of 150 flows use one source port only" in lines[2]
    golden("tests/golden/screen-150.txt", "\n".join(line.rstrip() for line in lines))


class Still(Session):
    """A session that stands in a state that is hard to reach."""

    def __init__(self, source):
        super().__init__(lambda keep: None, source.name, source.kind)
        self._still = source

    def start(self):
        pass

    def snapshot(self):
        from rocescope.tui.snapshot import Snapshot

        return Snapshot(self._still)


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


def test_without_colour_everything_is_still_said(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    lines = drive(TAPS, ["p", "2"], (120, 40), text_of)
    marked = [line for line in lines if "##" in line and "--" in line]
    assert len(marked) > 10
    svg = drive(TAPS, ["p", "2"], (120, 40), svg_of)
    colours = {part[:6] for part in svg.split('fill="#')[1:]}
    assert all(c[:2] == c[2:4] == c[4:] for c in colours - WINDOW_BUTTONS)
