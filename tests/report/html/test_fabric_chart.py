"""The fabric as captured: cells of links, signs and numbers."""

from __future__ import annotations

import io

from rich.console import Console
from rich.table import Table

from rocescope.report.html.fabric_chart import MOST_SIDE, fabric_chart, fault_table, faulty_links
from rocescope.report.overview import GLYPHS, Device, Direction, Fabric, Link, State


def direction(source: str, target: str, state: State, lost: int | None) -> Direction:
    return Direction(
        source=source,
        target=target,
        packets=None if lost is None else 1_000,
        wire_bytes=None,
        lost_after_packets=lost,
        lost_before_packets=None,
        expected_packets=None,
        queueing_p99_ns=None,
        ce_packets=None,
        late_packets=None,
        utilisation_percent=None,
        fair_ratio=None,
        state=state,
        findings=(1,) if lost else (),
    )


def made(leaves: int = 2, spines: int = 3) -> Fabric:
    """leaf1 loses packets upwards to spine2; nothing captures the links of the last leaf."""
    devices = [Device(f"leaf{n}", f"leaf{n}", 1, State.FINE, ()) for n in range(1, leaves + 1)]
    devices += [Device(f"spine{n}", f"spine{n}", 2, State.FINE, ()) for n in range(1, spines + 1)]
    devices.append(Device("h1<b>", "h1<b>", 0, State.FINE, ()))
    links = []
    pairs = [(f"leaf{a}", f"spine{b}") for a in range(1, leaves + 1) for b in range(1, spines + 1)]
    for lower, upper in [("h1<b>", "leaf1"), *pairs]:
        state = State.LOSSY if (lower, upper) == ("leaf1", "spine2") else State.FINE
        lost: int | None = 20 if state is State.LOSSY else 0
        if lower == f"leaf{leaves}":
            state, lost = State.UNCAPTURED, None
        up = direction(lower, upper, state, lost)
        rest = State.FINE if state is State.LOSSY else state
        down = direction(upper, lower, rest, None if lost is None else 0)
        taps = () if lost is None else (f"{lower}-{upper}",)
        links.append(Link(lower, upper, taps, up, down, state, up.findings, None, None))
    return Fabric(tuple(devices), tuple(links), False)


def test_every_link_is_a_cell_and_a_fault_has_its_sign() -> None:
    fabric = made()
    svg = fabric_chart(fabric).svg()
    assert svg.count(' cell"') == 2 * len(fabric.links)
    assert svg.count('class="span cell"') == 1
    assert svg.count('class="none cell"') == 2 * 3
    assert svg.count(f">{GLYPHS[State.LOSSY]}<") == 1
    assert "h1&lt;b&gt;" in svg and "<b>" not in svg


def test_numbers_are_those_of_captured_links_and_unknown_stays_unknown() -> None:
    rows = fabric_chart(made()).rows
    assert len(rows) == 2 * 4
    assert rows[0][:4] == ("leaf1-spine2", "leaf1 to spine2", "lossy", 2.0)
    assert rows[0][4] is None and rows[0][-1] == "1"
    assert all(row[3] == 0 for row in rows[1:])


def test_links_with_faults_have_a_table() -> None:
    table = Table()
    faulty = faulty_links(made())
    fault_table(table, faulty)
    out = io.StringIO()
    Console(file=out, width=200).print(table)
    assert [link.name for link in faulty] == ["leaf1-spine2"]
    assert table.row_count == 1 and "2.0 %" in out.getvalue() and "✗ lossy" in out.getvalue()


def test_a_large_fabric_says_what_is_not_drawn() -> None:
    chart = fabric_chart(made(MOST_SIDE + 6, 4))
    assert chart.left_out == "6 switches of tier 1 not drawn."
    assert chart.svg().count(' cell"') == 2 * (MOST_SIDE * 4 + 1)
