"""Where and when on screens 1 and 0: the fabric as captured, and the axis of time."""

from __future__ import annotations

from itertools import pairwise

import pytest
from captures import DATA, data
from hypothesis import given
from hypothesis import strategies as st
from tui_driver import drive, each, text_of

from rocescope.report.overview import (
    MEASURES,
    WORST_FIRST,
    Device,
    Direction,
    Fabric,
    Link,
    State,
)
from rocescope.tui.fabric_map import FabricMap, legend, link_lines
from rocescope.tui.settings import Settings
from rocescope.tui.strips import area_lines

SPRAYED = sorted((DATA / "whole_leafspine" / "r09_packet_spray_h1").iterdir())
"""spine2 drops 609 packets from leaf1 to leaf2; the other links are clean."""
SIZES = ((80, 24), (100, 30), (120, 40), (160, 45), (200, 60), (240, 70))


def under_cursor(app):
    return app.screen.query_one(FabricMap).link.name


def test_the_map_begins_on_the_sick_link_and_its_keys_move_over_links():
    names = each(
        SPRAYED, ["tab"], ["right"], ["down"], ["down"], ["l"], ["k", "k", "left", "left"],
        look=under_cursor, start="diagnosis", size=(160, 45),
    )  # fmt: skip
    assert names == [
        "leaf1-spine2", "leaf1-spine3", "H2-leaf1", "leaf2-spine3", "leaf2-spine4", "leaf1-spine2",
    ]  # fmt: skip


def test_cells_show_one_measure_after_the_other():
    seen = each(
        SPRAYED, [], *[["v"]] * len(MEASURES), look=text_of, start="diagnosis", size=(160, 45)
    )
    rows = [next(line for line in lines if "leaf1    " in line) for lines in seen]
    assert "✗· 14.4 %" in rows[0] and rows[0].count("·· 0 %") == 3
    assert "✗· ? " in rows[1] and "✗· 26.6 us" in rows[2] and "✗· 1.45" in rows[5]
    assert rows[6] == rows[0]
    for measure, lines in zip(MEASURES, seen, strict=False):
        assert any(f"{measure.title}, {measure.unit}" in line for line in lines)


def test_enter_leads_from_the_link_to_its_hops():
    def look(app):
        grid = app.screen.query_one("#hops")
        return app.current_mode, list(grid._cells(grid.cursor)[:2])

    mode, (near, far) = drive(SPRAYED, ["tab", "enter"], (160, 45), look, start="diagnosis")
    assert mode == "hops" and "leaf1-spine2" in (near, far)


def test_numbers_of_the_link_and_findings_as_bars_with_their_numbers():
    lines = drive(SPRAYED, [], (160, 45), text_of, start="diagnosis")
    text = "\n".join(lines)
    assert "leaf1 → spine2 lossy: 4,227 packets, 4.50 MB, 609 lost after (14.4 %)" in text
    assert "finding 1" in text
    (first,) = [line for line in lines if "1 rate-limit" in line]
    (second,) = [line for line in lines if "2 spraying" in line]
    axis = next(line for line in lines if "╵0.5 s" in line)
    # From 0.599 s to 1.783 s, under the numbers of the axis; spraying from the beginning on.
    assert axis.index("╵0.5 s") < first.index("├") < axis.index("╵1.0 s")
    assert axis.index("╵1.5 s") < first.index("┤") < axis.index("╵2.0 s")
    assert second.index("├") < axis.index("╵0.5 s")
    assert any("▌1✗" in line for line in lines) and any(" 2·" in line for line in lines)


def test_at_80_columns_the_fabric_and_the_time_have_a_line_each():
    lines = drive(SPRAYED, [], (80, 24), text_of, start="diagnosis")
    assert lines[-3].split() == ("fabric spine2 ✗ lossy; 2 links lossy, 1 late, 9 fine".split())
    time = lines[-2]
    assert time.lstrip().startswith("bytes 2") and time.index("1") > time.index("2")


def test_links_have_a_line_each_on_tall_screens_the_worst_first():
    lines = drive(SPRAYED, [], (200, 60), text_of, start="diagnosis")
    at = next(n for n, line in enumerate(lines) if "bytes by link" in line)
    assert [line.split()[:2] for line in lines[at + 1 : at + 4]] == [
        ["✗", "leaf1-spine2"], ["✗", "leaf2-spine2"], ["↔", "H3-leaf2"],
    ]  # fmt: skip
    empty = sum(not line.strip(" │▏▌─") for line in lines)
    assert empty < 60 / 3


def test_screen_0_lists_the_links_without_a_replay():
    first, hops = each(SPRAYED, ["0"], ["enter"], look=text_of, start="diagnosis", size=(160, 45))
    assert first[2].startswith(" As captured: spine2 ✗ lossy; 2 links lossy, 1 late, 9 fine.")
    rows = [line for line in first if "→" in line and ("lossy " in line or "fine " in line)]
    assert len([line for line in rows if "✗ lossy " in line and "14.4 %" in line]) >= 2
    assert any("leaf1-spine2" in line for line in hops)


def test_screen_0_says_why_there_is_no_fabric():
    lines = drive([data("i03_write_reorder5_AtoB")], ["0"], (120, 30), text_of)
    assert any("one tap shows no fabric" in line for line in lines)
    assert any("9 r" in line for line in lines)


@pytest.mark.thorough
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("keys", [[], ["0"]])
def test_every_size_holds_the_answer_in_dark_in_light_and_without_colour(size, keys, monkeypatch):
    """The same text in all of them: no state needs a colour."""
    texts = []
    for theme, no_color in (("rocescope", ""), ("rocescope-light", ""), ("rocescope", "1")):
        monkeypatch.setenv("NO_COLOR", no_color) if no_color else monkeypatch.delenv(
            "NO_COLOR", raising=False
        )
        settings = Settings(theme=theme)
        texts.append(drive(SPRAYED, keys, size, text_of, start="diagnosis", settings=settings))
    assert texts[0] == texts[1] == texts[2]
    lines, (width, height) = texts[0], size
    assert len(lines) == height and all(len(line) <= width for line in lines)
    assert "? help" in lines[-1] and any("spine2 ✗ lossy" in x or "✗ spine2" in x for x in lines)
    empty = sum(not line.strip(" │▏▌─") for line in lines)
    assert empty < height / 2 if keys else empty < height / 3


def test_a_mirror_names_routers_by_the_ends_of_their_addresses():
    mirror = [DATA / "mirror" / "running_job.pcap.xz"]
    lines = drive(mirror, [], (160, 45), text_of, start="diagnosis")
    assert any("✗ f5:b1:f1" in line for line in lines)
    assert any("10.2.3.10" in line and "↔" in line for line in lines)


# Maps of any size.


def made_up(leaves, spines, states):
    """A fabric whose links have the states in turn."""
    devices = [Device(f"leaf{n}", f"leaf{n}", 1, State.FINE, ()) for n in range(leaves)]
    devices += [Device(f"spine{n}", f"spine{n}", 2, State.FINE, ()) for n in range(spines)]
    links = []
    for number, (a, b) in enumerate((a, b) for a in range(leaves) for b in range(spines)):
        state = states[number % len(states)]
        ends = f"leaf{a}", f"spine{b}"
        up, down = (
            Direction(*way, 9, 99, 0, 0, 9, 1.0, None, 0, None, 1.0, state, ())
            for way in (ends, ends[::-1])
        )
        links.append(Link(*ends, ("tap",), up, down, state, (), 99, 0))
    return Fabric(tuple(devices), tuple(links), True)


@pytest.mark.parametrize("width", [40, 120, 200])
def test_a_large_fabric_scrolls_under_the_cursor(width):
    def look(app):
        shown = app.screen.query_one(FabricMap)
        states = [*[State.FINE] * 40, State.LOSSY, *[State.FINE] * 64 * 64]
        shown.show_fabric(made_up(64, 64, states), MEASURES[0])
        seen = []
        for _ in range(70):
            if seen:
                shown.action_move_across(1)
            line = shown.render_line(1 + shown.cursor - int(shown.scroll_offset.y))
            seen.append(any(s.style == shown._cell_style("here", True) for s in line))
        shown.action_move(63)
        return seen, shown.link.name

    drawn, name = drive(SPRAYED, [], (max(width, 100), 40), look, start="diagnosis")
    assert all(drawn) and name == "leaf63-spine63"


def test_every_state_on_the_map_is_explained():
    fabric = made_up(2, 5, WORST_FIRST)
    text = legend(fabric, MEASURES[0]).plain
    assert all(f" {state}" in text for state in WORST_FIRST)
    assert "leaf0 → spine0 lossy" in link_lines(fabric, fabric.links[0]).plain


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=50), st.integers(1, 12))
def test_a_chart_of_several_lines_is_filled_from_below(values, height):
    lines = area_lines("bytes", values, height, "total", "≤ most", "cyan")
    assert len(lines) == height
    drawn = [line.plain[17 : 17 + len(values)] for line in lines]
    for above, below in pairwise(drawn):
        assert all(a == " " or b == "█" for a, b in zip(above, below, strict=True))
    for column, value in enumerate(values):
        assert (value > 0) == any(row[column] != " " for row in drawn)
