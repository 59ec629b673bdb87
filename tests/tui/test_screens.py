"""Pictures of every screen: text at several sizes, and the drawings that docs/tui.md shows.

`pytest tests/tui/test_screens.py --snapshot-update` makes them anew: look at what changed.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from captures import data
from generate import write
from tui_driver import drive, svg_of, text_of

from rocescope.commands.generate_mrc import generate_mrc
from rocescope.tui.dissect import Line
from rocescope.tui.screens import doctor, packets
from rocescope.tui.session import Session
from rocescope.tui.snapshot import Snapshot, SourceState

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
    app.replays.production = 7
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
    "packets-why": (TAPS, ["7", replayed, "1", "5"]),
    "paths-predicted": (TAPS, ["7", replayed, "2", "p", "p"]),
    "events": (I03, ["6"]),
    "replay": (TAPS, ["7", replayed]),
    "fabric": (TAPS, ["7", replayed, "8", "tab", "j"]),
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

    def __init__(self, source, seen=None):
        super().__init__(lambda keep: None, source.name, source.kind)
        self._still = replace(seen or Snapshot(source), source=source)

    def start(self):
        pass

    def snapshot(self):
        return self._still


@pytest.fixture(scope="module")
def seen():
    """What a capture with losses and reordering shows."""
    session = Session.open([str(path) for path in I03])
    session.start()
    session.wait(60)
    yield session.snapshot()
    session.close()


LIVE = SourceState(
    "eth2,eth3",
    "live",
    running=False,
    packets=27_459,
    dropped=1_234,
    packets_per_second=3_211_000.0,
    bits_per_second=311.8e9,
    recording="night.pcapng",
    behind_ns=12_000_000_000,
    tap_names=("eth2 in", "eth2 out"),
)


def test_picture_of_a_live_session_that_dropped_packets(seen, golden):
    def look(app):
        return svg_of(app), text_of(app)

    svg, lines = drive([], [], (110, 32), look, session=Still(LIVE, seen))
    assert "behind live by 12.0 s" in lines[0] and "1,234 dropped" in lines[0]
    golden("docs/screens/live.svg", svg)


def some_queue_pairs(folder, connections):
    path = folder / f"{connections}.pcap"
    with path.open("wb") as file:
        write(file, packets=max(900, 4 * connections), connections=connections)
    return [path]


def a_replay_under_way(app):
    app.replays.set_fabric(FABRIC)
    app.replays._tell(
        running="700 seeds of linux", done=0.7, strategies={}, failed={"assign": "no"}
    )
    app.screen.redraw()


STATES = {
    "one": (1, [], "The one flow keeps to one source port"),
    "ten thousand": (5_000, ["2"], "source ports each"),
    "replaying": (2, ["7", a_replay_under_way], "700 seeds of linux"),
}


def test_states_as_text(tmp_path, golden):
    """One queue pair, ten thousand, and a replay under way, at three sizes."""
    shown = []
    for size in ((80, 24), (120, 40), (200, 60)):
        for connections, keys, says in STATES.values():
            paths = some_queue_pairs(tmp_path, connections)
            lines = [line.rstrip() for line in drive(paths, keys, size, text_of)]
            assert len(lines) == size[1] and any(says in line for line in lines)
            shown += lines
    golden("tests/golden/screens-states.txt", "\n".join(shown))


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


def test_segment_lists_of_mrc(tmp_path, golden, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    path = tmp_path / "mrc.pcap"
    generate_mrc(output=path, hosts=4, trim=0.002, ce=0.01)
    lists = data_segment_lists(path)
    counts = [len(one) for one in lists.values()]
    shown = []
    for size in ((80, 24), (120, 40), (200, 60)):
        lines = [line.rstrip() for line in drive([path], ["p", "2"], size, text_of)]
        assert "paths known" in lines[0]
        assert f"{len(lists)} flows use {min(counts)} to {max(counts)} segment lists" in lines[2]
        assert f"{len(set().union(*lists.values()))} in all" in lines[2]
        shown += lines
    golden("tests/golden/screens-mrc.txt", "\n".join(shown))


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
