"""Screen 4: what is no fault is not red."""

from __future__ import annotations

from captures import data
from tui_driver import drive, text_of

from rocescope.tui.screens import paths

LEAFSPINE = data("leafspine")
ECMP = sorted((LEAFSPINE / "r01_clean_write").glob("leaf1-spine*.pcap.gz"))
SPRAYED = sorted((LEAFSPINE / "r09_packet_spray_h1").glob("leaf2-spine*.pcap.gz"))


def drawn_row(screen, row):
    """The cells of a row of the map, as they are written."""
    return [text for text, _ in screen._cells(screen._matrix, row)[1]]


def cells(captures):
    """Styles of all cells of the map by tap, and the text of the screen."""

    def look(app):
        grid = app.screen.query_one("#heat")
        rows = [app.screen._cells(app.screen._matrix, row)[1] for row in range(grid.row_count)]
        return {style for row in rows for _, style in row}, "\n".join(text_of(app))

    return drive(captures, ["4"], (110, 40), look)


def test_single_paths_are_no_hot_spots_where_no_flow_sprays():
    styles, text = cells(ECMP)
    assert styles == {"accent", "dim"} and "■ only path" in text


def test_the_only_path_of_a_flow_is_below_the_name_of_its_link():
    """One mark per row, in the column of the link that carries the flow; the others have dots."""

    def look(app):
        screen, matrix = app.screen, app.screen._matrix
        rows = range(screen.query_one("#heat").row_count)
        return screen._cell, matrix.loads, [drawn_row(screen, row) for row in rows]

    width, loads, rows = drive(ECMP, ["4"], (110, 40), look)
    assert len(rows) > 1
    for texts, load in zip(rows, loads, strict=True):
        marks = ["■" if carried else "·" for carried in load]
        assert marks.count("■") == 1
        assert texts == [f"{mark.rjust(width - 1)} " for mark in marks]


def test_nor_where_few_flows_spray():
    """Four of 36 flows spray: their cells are shares, those of the others are not."""
    styles, text = cells(SPRAYED)
    assert styles == {"accent", "dim", "fair"} and "■ only path" in text


def test_they_are_where_most_traffic_is_sprayed(monkeypatch):
    monkeypatch.setattr(paths, "SPRAYS_FROM_WIDTH", 1.0)
    styles, text = cells(SPRAYED)
    assert "hot3" in styles and "only path" not in text


def test_taps_are_told_apart_where_their_names_do_not_fit():
    """Four links of each leaf at 80 columns: the legend names the numbers above the map."""
    run = data("whole_leafspine") / "r03_link_down_reroute"
    captures = sorted(run.glob("leaf?-spine*.pcap.xz"))
    text = "\n".join(drive(captures, ["4"], (80, 24), text_of))
    assert " p0 p1 p2 p3 p4 p5 p6 p7 " in text
    for number, name in enumerate(path.name.split(".")[0] for path in captures):
        assert f"p{number}={name}" in text
    assert "p0=" not in "\n".join(drive(captures, ["4"], (200, 24), text_of))


def test_short_heads_differ():
    """Numbers of links only where the rest of their names is the same."""
    assert paths._heads(["port-49153", "port-49154"], 2) == ["53", "54"]
    assert paths._heads(["port-49153", "port-50153"], 2) == ["p0", "p1"]
    assert paths._heads(["leaf1-up1", "spine2-up2"], 2) == ["p0", "p1"]


def test_a_measure_that_is_nowhere_says_so():
    sentences = []
    keep = lambda app: sentences.append(text_of(app)[2].strip())  # noqa: E731
    drive([data("c05_rc_atomic_fetchadd")], ["4", "v", "v", keep, "v", keep])
    assert sentences == ["No packet is marked CE.", "No packet is late."]
