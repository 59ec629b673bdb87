"""The report's section on taps in series: losses between taps."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ...analyzer.results.paths import Hop
from ..words.human import Glyphs, count, counted, percent


def between_taps(hops: Sequence[Hop]) -> str:
    """The two taps with the most losses between them."""
    lossy = [hop for hop in hops if hop.lost_packets]
    added = sum(hop.added_packets for hop in hops)
    more = f" {counted(added, 'packet was', 'packets were')} duplicated." if added else ""
    if not lossy:
        return f"Every packet seen at one tap was seen at the next tap.{more}"
    worst = max(lossy, key=lambda hop: hop.lost_packets)
    text = f"{count(worst.lost_packets)} of {count(worst.packets_before)} packets "
    text += f"({percent(worst.lost_packets / worst.packets_before)}) were lost between "
    text += f"{named(worst.from_taps)} and {named(worst.to_taps)}"
    others = sum(hop.lost_packets for hop in lossy) - worst.lost_packets
    if others:
        text += f", {count(others)} between other taps"
    if worst.lost_by_flow:
        flow, packets = next(iter(worst.lost_by_flow.items()))
        text += f"; most of them ({count(packets)}) belong to {flow}"
    return f"{text}.{more}"


def hop_table(table: Table, hops: Sequence[Hop], glyphs: Glyphs) -> None:
    """One row per pair of neighbouring taps, those with losses first."""
    table.add_column("from")
    table.add_column("to")
    for heading in ("flows", "packets", "lost", "duplicated"):
        table.add_column(heading, justify="right", no_wrap=True)
    for hop in sorted(hops, key=lambda hop: -hop.lost_packets):
        lost = Text(count(hop.lost_packets))
        if hop.lost_packets:
            lost = Text(f"{glyphs.bad} {count(hop.lost_packets)}", "red")
        table.add_row(
            named(hop.from_taps),
            named(hop.to_taps),
            count(hop.flows),
            count(hop.packets_before),
            lost,
            count(hop.added_packets),
        )


def named(taps: Sequence[str]) -> str:
    """The name of a tap; of parallel taps the first name and the number of others."""
    return taps[0] if len(taps) == 1 else f"{taps[0]} and {len(taps) - 1} parallel"
