"""Screen 3: hops of real captures, and the map of a fabric."""

from __future__ import annotations

from dataclasses import replace

import factories_results as factories
import msgspec
import pytest
from captures import data
from tui_driver import drive, text_of

from rocescope.tui.screens.hops import MEASURES, drawn_fabric, sentence
from rocescope.tui.session.judged import Judged

PAIR = [data(f"i01_write_loss0.5_AtoB.at{side}") for side in "AB"]
FABRIC = [
    factories.hop(id=0),
    factories.hop(
        id=1, from_tap="leaf1-spine1", to_tap="leaf2-spine1", device="spine1",
        lost_packets=0, lost_percent=0.0, ce_marked_packets=7,
    ),
    factories.hop(id=2, from_tap="leaf2-spine1", to_tap=None, device=None),
]  # fmt: skip


@pytest.mark.thorough
def test_losses_between_two_captures():
    """The facts of the run: 180 packets were lost between both."""
    lines = drive(PAIR, ["3"], (120, 40), text_of)
    assert "180 of " in lines[2] and "packet hops over 2 hops lost" in lines[2]


@pytest.mark.thorough
def test_columns_that_do_not_fit_are_counted():
    narrow = drive(PAIR, ["3"], (80, 24), text_of)
    line = next(i for i, text in enumerate(narrow) if "FROM" in text)
    assert "CE" not in narrow[line].split() and "DUP" not in narrow[line].split()
    assert "─+4 columns─" in narrow[line - 1]
    wide = drive(PAIR, ["3"], (140, 40), text_of)
    line = next(i for i, text in enumerate(wide) if "FROM" in text)
    assert {"CE", "LATE", "DUP", "p99"} <= set(wide[line].split())
    assert "column" not in wide[line - 1] and "TRIM" not in wide[line]


def test_trims_have_a_column():
    """Where a packet was trimmed, also at 80 columns."""

    def trimmed(app):
        judged = app.view.snapshot.judged
        hops = [msgspec.structs.replace(hop, trimmed_packets=37) for hop in judged.hops]
        app.view.snapshot = replace(app.view.snapshot, judged=replace(judged, hops=hops))
        app.screen.redraw()

    lines = drive(PAIR, ["3", trimmed], (80, 24), text_of)
    line = next(i for i, text in enumerate(lines) if "FROM" in text)
    assert "TRIM" in lines[line].split() and "37" in lines[line + 1].split()


def test_one_tap_has_no_hop_and_no_all_clear():
    lines = drive(PAIR[:1], ["3"], (80, 24), text_of)
    assert "No packet was seen at two taps." in lines[2]
    assert any("hops need captures of two or more taps" in line for line in lines)


def test_the_map_has_a_column_per_parallel_device():
    text = drawn_fabric(FABRIC, MEASURES[0], 8).plain.splitlines()
    assert text[0].split() == ["lost", "(v)", "spine1", "spine2"]
    assert text[1].split() == ["leaf1", "to", "leaf2", "0", "%", "●", "0.90", "%"]
    assert "●" not in drawn_fabric(FABRIC, MEASURES[3], 8).plain
    assert "● 7" in drawn_fabric(FABRIC, MEASURES[1], 8).plain
    assert "and 1 more" in drawn_fabric(FABRIC, MEASURES[0], 1).plain


def test_a_loss_beside_the_tier_is_on_the_map():
    """Leaf 1 drops what spine 2 sends it: both hosts, one cell. A small screen shows only that."""
    loss = {"device": "leaf1", "from_tap": "leaf1-spine2", "packets": 100}
    beside = [
        factories.hop(id=3, to_tap="H1-leaf1", lost_packets=3, **loss),
        factories.hop(id=4, to_tap="H2-leaf1", lost_packets=2, **loss),
        factories.hop(
            id=5, from_tap="H1-leaf1", to_tap="leaf1-spine1", device="leaf1", lost_packets=0
        ),
    ]
    lines = drawn_fabric([*FABRIC, *beside], MEASURES[0], 8).plain.splitlines()
    assert [line[:18].strip() for line in lines[1:4]] == [
        "leaf1 from spine", "leaf1 to leaf2", "leaf1 to spine",
    ]  # fmt: skip
    assert lines[1].split()[3:] == ["·", "●", "2.5", "%"]
    assert lines[3].split()[3:] == ["0", "%", "·"]
    few = drawn_fabric([*FABRIC, *beside], MEASURES[0], 8, rows=2).plain.splitlines()
    assert few == [*lines[:3], *lines[4:]]


def test_losses_whose_next_tap_nothing_tells_are_on_the_map():
    """A leaf that swallows packets before it chooses a spine: no column has them."""
    after = factories.hop(from_tap="H2-leaf1", to_tap=None, device=None, lost_packets=1_235)
    lines = drawn_fabric([*FABRIC, after], MEASURES[0], 8).plain.splitlines()
    assert lines[-1] == " ● 1,235 lost after H2-leaf1, next tap unknown"
    assert "H2-leaf1" not in drawn_fabric([*FABRIC, after], MEASURES[1], 8).plain
    assert sentence([after]).endswith("most after H2-leaf1, next tap unknown: 1,235.")


def test_names_that_tell_no_fabric_draw_none():
    assert not drawn_fabric([factories.hop(from_tap="a", to_tap="b", device=None)], MEASURES[0], 8)


def test_the_sentence_names_the_worst_hop():
    assert "most on leaf1-spine2 > leaf2-spine2: 71 of 7,904" in sentence(FABRIC[:2])
    assert sentence(FABRIC[1:2]) == "7,904 packet hops over 1 hop, no loss."


def test_taps_in_series_are_no_parallel_paths():
    """Every packet passes both taps: no flow sprays over them."""
    lines = drive(PAIR, [], (120, 40), text_of)
    assert "180 lost between taps (3)" in lines[2] and "spray" not in lines[2].partition(";")[2]
    assert "several taps" not in "".join(lines[2:4])


def test_delays_that_stand_out_are_marked():
    """One spine of four queues; a clean fabric has a largest delay, too."""
    some = factories.hop().queueing_ns

    def drawn(*delays):
        hops = [
            factories.hop(
                id=n, from_tap=f"leaf1-spine{n}", to_tap=f"leaf2-spine{n}", device=f"spine{n}",
                queueing_ns=msgspec.structs.replace(some, p99=delay),
            )
            for n, delay in enumerate(delays)
        ]  # fmt: skip
        return drawn_fabric(hops, MEASURES[4], 8).plain

    assert "● 128 ms" in drawn(9_000, 128_000_000, 7_000, 8_000)
    assert "●" not in drawn(9_000, 60_000, 7_000, 8_000)
    assert "●" not in drawn(500_000, 600_000, 700_000, 3_000_000)


def test_taps_are_not_judged_before_the_session_is():
    """Nothing is said of hops before their measures were read."""

    def before(app):
        judged = app.view.snapshot.judged
        app.view.snapshot = replace(app.view.snapshot, judged=Judged())
        app.screen.redraw()
        assert judged.hops
        return "\n".join(text_of(app))

    text = drive(PAIR, ["3"], (80, 24), before)
    assert "diagnosis is not ready" in text and "No packet was seen at two taps" not in text
