"""The drawings of every screen that docs/tui.md shows, and states of the source.

`pytest --update-golden` with this file writes them anew: look at what changed.
"""

from __future__ import annotations

import struct

import pytest
from captures import data
from textual.widgets import Input
from tui_driver import Still, drive, svg_of, text_of

from rocescope.commands.replay.generate_mrc import generate_mrc
from rocescope.tui.session.session import Session
from rocescope.tui.session.snapshots.snapshot import SourceState

I03 = [data("i03_write_reorder5_AtoB")]
TAPS = sorted((data("leafspine") / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))
FABRIC = "leaf-spine:leaves=2,spines=4,hosts=2,rate=100G,delay=500ns"
pytestmark = pytest.mark.usefixtures("the_same_everywhere")


def replayed(app):
    app.view.replays.set_fabric(FABRIC)
    app.view.replays.production = 7
    app.view.replays.run(["ecmp", "ecmp-qpn", "subflow", "static"])
    app.view.replays.wait(60)
    app.view.replays.sweep(["linux", "crc32"], 1000)
    app.view.replays.wait(60)
    app.screen.redraw()


def without_blinking(app):
    app.screen.query_one(Input).cursor_blink = False


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
    "palette": (I03, ["colon", without_blinking]),
    "compare": (I03, ["m", "j", "m", "c"]),
    "filter": (I03, ["slash"]),
}


@pytest.mark.parametrize("name", SCREENS)
def test_pictures_of_the_documentation(name, golden):
    paths, keys = SCREENS[name]
    svg = drive(paths, keys, (110, 32), svg_of)
    golden(f"docs/screens/{name}.svg", svg)


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
