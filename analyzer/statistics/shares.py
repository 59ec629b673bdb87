"""Shares of a whole: how evenly it is divided, and how sure a share is."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from ...kernels.kernel import Array, NamedTuple
from ..results.base import PathShare

# Confidence interval of a share.

_Z = 1.959963984540054  # of the normal distribution, 95 % two-sided


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % confidence interval of hits / of: low and high, 0 to 1.

    Wilson, "Probable inference, the law of succession, and statistical inference", JASA 1927. It
    holds for few hits too. hits is at most `of`; (0, 1) without any trial.
    """
    if of <= 0:
        return 0.0, 1.0
    share, z2 = hits / of, _Z * _Z
    middle = (share + z2 / (2 * of)) / (1 + z2 / of)
    half = _Z / (1 + z2 / of) * math.sqrt(share * (1 - share) / of + z2 / (4 * of * of))
    low = 0.0 if hits == 0 else max(0.0, middle - half)
    high = 1.0 if hits == of else min(1.0, middle + half)
    return low, high


LISTED_PATHS = 64
"""Longest list of paths in a result, the entry for the rest included."""


class Carried(NamedTuple):
    """Traffic of one path; the fields of `path_table.PATH` without lane and key."""

    packets: int
    wire_bytes: int
    late: int
    marked: int
    first_ns: int
    last_ns: int


NOTHING = Carried(0, 0, 0, 0, 0, 0)


def carried(paths: Array) -> list[Carried]:
    """One `Usage` per `path_table.PATH` record."""
    return [Carried(*record[2:]) for record in paths.tolist()]


def together(parts: Iterable[Carried]) -> Carried:
    """Sum over several paths."""
    used = [part for part in parts if part.packets]
    if not used:
        return NOTHING
    packets, wire_bytes, late, marked, first_ns, last_ns = zip(*used, strict=True)
    return Carried(
        sum(packets), sum(wire_bytes), sum(late), sum(marked), min(first_ns), max(last_ns)
    )


def path_shares(lines: list[tuple[str, Carried]]) -> list[PathShare]:
    """Named paths as results, at most `LISTED_PATHS`; the last then sums up the rest."""
    if len(lines) > LISTED_PATHS:
        rest = [part for _, part in lines[LISTED_PATHS - 1 :]]
        lines = [*lines[: LISTED_PATHS - 1], (f"{len(rest)} more", together(rest))]
    all_bytes = sum(part.wire_bytes for _, part in lines)
    return [
        PathShare(
            path=name,
            packets=part.packets,
            wire_bytes=part.wire_bytes,
            share=part.wire_bytes / all_bytes if all_bytes else 0.0,
            reordered_packets=part.late,
            ecn_marked_packets=part.marked,
            first_time_ns=part.first_ns if part.packets else None,
            last_time_ns=part.last_ns if part.packets else None,
        )
        for name, part in lines
    ]


def width(weights: Array) -> float:
    """exp(Shannon entropy): 1 for a single path, n for n equal ones."""
    if len(weights) == 1:
        return 1.0
    used = weights[weights > 0].astype(np.float64)
    share = used / used.sum()
    return float(np.exp(-np.sum(share * np.log(share))))


def jain(weights: Array) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one carries everything."""
    if len(weights) == 1:
        return 1.0
    w = weights.astype(np.float64)
    return float(w.sum() ** 2 / (len(w) * np.sum(w * w)))
