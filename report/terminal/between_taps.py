"""The report's section on hops: what happened between taps."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ...analyzer.results.hops import CaptureLoss, Hop
from ...analyzer.words import printable
from ..words.hops import short_taps
from ..words.human import Glyphs, count, counted, duration, percent
from .page import numbers, texts


def between_taps(hops: Sequence[Hop], losses: Sequence[CaptureLoss]) -> str:
    """How many packets passed, and the hop with the most losses."""
    passed = sum(hop.passed_packets for hop in hops)
    text = f"{counted(len(hops), 'hop')}, {counted(passed, 'packet hop')}"
    short = _short(hops)
    lossy = [hop for hop in hops if hop.lost_packets]
    if lossy:
        worst = max(lossy, key=lambda hop: hop.lost_packets)
        text += f"; {count(worst.lost_packets)} of {count(worst.packets)} packets"
        text += f" ({percent(worst.lost_packets / worst.packets)}) were lost {where(worst, short)}"
        others = sum(hop.lost_packets for hop in lossy) - worst.lost_packets
        text += f", {count(others)} on other hops" if others else ""
    else:
        text += ", no packet lost between taps"
    for loss in losses:
        tap = short.get(loss.tap, printable(loss.tap))
        text += f"; the capture {tap} missed {counted(loss.packets, 'packet')}"
    return f"{text}."


def where(hop: Hop, short: dict[str, str]) -> str:
    """`in spine2, from leaf1-spine2 to leaf2-spine2`."""
    if hop.to_tap is None:
        text = f"after {short[hop.from_tap]}"
    else:
        text = f"from {short[hop.from_tap]} to {short[hop.to_tap]}"
        text = f"in {hop.device}, {text}" if hop.device else text
    return f"{text} (next tap by the fabric file)" if hop.expected_by == "fabric" else text


def _short(hops: Sequence[Hop]) -> dict[str, str]:
    return short_taps(tap for hop in hops for tap in (hop.from_tap, hop.to_tap) if tap is not None)


def hop_table(table: Table, hops: Sequence[Hop], glyphs: Glyphs, width: int) -> None:
    """One row per hop and direction, in this order. width: of the terminal."""
    trims = any(hop.trimmed_packets for hop in hops)
    titles = ["packets", "lost", "CE", "late", "dup", *["trim"] * trims, "delay p50", "p99"]
    texts(table, "from", "to")
    numbers(table, *titles)
    rows = [_figures(hop, glyphs, trims) for hop in hops]
    taken = sum(1 + max(map(len, cells)) for cells in zip(titles, *rows, strict=True))
    short = _short(hops)
    fitting = glyphs.shortened(short.values(), max(8, (width - taken - 1) // 2))
    for hop, row in zip(hops, rows, strict=True):
        table.add_row(
            Text(fitting[short[hop.from_tap]]),
            Text("?" if hop.to_tap is None else fitting[short[hop.to_tap]]),
            *(Text(cell, "red" if glyphs.bad in cell else "") for cell in row),
        )


def _figures(hop: Hop, glyphs: Glyphs, trims: bool) -> list[str]:
    mark = f"{glyphs.bad} " if hop.lost_packets else ""
    return [
        count(hop.packets),
        mark + count(hop.lost_packets),
        count(hop.ce_marked_packets),
        count(hop.reordered_packets),
        count(hop.duplicate_packets),
        *[count(hop.trimmed_packets)] * trims,
        "" if hop.delay_ns is None else duration(hop.delay_ns.p50),
        "" if hop.delay_ns is None else duration(hop.delay_ns.p99),
    ]
