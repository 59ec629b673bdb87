"""Intervals of a live analysis as lines of a table."""

from __future__ import annotations

import time

from ...analyzer.results.live import LiveInterval
from ..words import human

_HEADING_EVERY = 20
_COLUMNS = (
    ("time", 8),
    ("packets/s", 9),
    ("rate", 10),
    ("flows", 5),
    ("late", 5),
    ("retrans", 7),
    ("missing", 7),
    ("CE", 6),
    ("CNP", 5),
    ("NAK", 5),
)


def interval_lines(interval: LiveInterval) -> list[str]:
    """The lines of an interval: losses of the capture first, headings at intervals."""
    lines = []
    if (interval.interval - 1) % _HEADING_EVERY == 0:
        lines.append(_line(*(name for name, _ in _COLUMNS)))
    if interval.dropped_frames:
        lost = human.counted(interval.dropped_frames, "packet")
        lines.append(
            f"the capture dropped {lost} ({human.count(interval.dropped_frames_total)} in total):"
            " use a larger --ring"
        )
    lines += [f"interface {name} disappeared" for name in interval.interfaces_gone]
    lines.append(
        _line(
            time.strftime("%H:%M:%S", time.localtime(interval.end_time_ns / 1e9)),
            human.count(round(interval.packets_per_second)),
            human.rate(interval.bits_per_second),
            *(
                human.count(value)
                for value in (
                    interval.flows,
                    interval.reordered_packets,
                    interval.retransmitted_packets,
                    interval.missing_packets_total,
                    interval.ecn_marked_packets,
                    interval.cnps,
                    interval.naks + interval.rnr_naks,
                )
            ),
        )
    )
    return lines


def _line(*cells: str) -> str:
    widths = (width for _, width in _COLUMNS)
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
