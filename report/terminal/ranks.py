"""The report's tables of ranks, as logs of the job name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from ...analyzer.results.analysis import CommunicatorTiming, RankPair, Ranks, RankTiming
from ...analyzer.results.flow import Flow, Owner
from ...analyzer.words import printable
from .. import human
from ..human import Glyphs
from .page import numbers, texts

_FIRST, _CELL = 9, 11
"""Columns of the heads of the rows, and of a cell of the matrix."""
MOST_TIMED = 3
"""Communicators whose arrival order is shown."""
_FEWEST, _MOST = 3, 16
"""Ranks of a matrix: two are one pair."""
MATRIX = "rows send, columns receive: bytes, packets lost or missing, longest completion"
PAIRS = "completion: median of the slowest queue pair, and the longest"
TIMING = (
    "last: collectives in which the rank arrives last; late: after the first rank; others wait:"
    " for this rank alone; waits, holds: in ring steps, see docs/ranks.md"
)


def overview(ranks: Ranks) -> str:
    """Pairs and communicators, and who waits for whom, in a few sentences."""
    text = f"Data passes between {human.counted(len(ranks.pairs), 'pair')} of ranks"
    comms = len({pair.comm for pair in ranks.pairs})
    text += f" in {human.counted(comms, 'communicator')}." if comms > 1 else "."
    for timing in ranks.timing[:MOST_TIMED]:
        text += f" {_waiting(timing, named=comms > 1)}"
    left = len(ranks.timing) - MOST_TIMED
    if left > 0:
        text += f" The arrival order in {human.counted(left, 'communicator')} is not shown."
    return text


def ranks_of_owner(owner: Owner | None) -> str:
    """`0>3` of a flow; empty if no rank is known."""
    return "" if owner is None else ranks_text(*owner.ranks)


def ranks_text(sender: int | None, receiver: int | None) -> str:
    """`0>3`, `?>3`; empty if neither is known."""
    if sender is None and receiver is None:
        return ""
    return ">".join("?" if rank is None else str(rank) for rank in (sender, receiver))


def _waiting(timing: CommunicatorTiming, named: bool) -> str:
    """What is known of the arrival order in a communicator."""
    where = f"{printable(timing.comm)}: " if named else ""
    if not timing.collectives:
        return f"{where}Arrival order unknown: {timing.why[0]}."
    of = human.counted(timing.collectives, "collective")
    slow = next((rank for rank in timing.ranks if rank.rank == timing.slowest), None)
    if slow is not None:
        text = (
            f"Rank {slow.rank} arrives last in {slow.last} of {of},"
            f" {human.duration(slow.late_ns.p50)} after the first (median): the others wait"
            f" {human.duration(slow.others_wait_ns)} for it."
        )
    elif timing.collectives > 2:
        text = f"No rank arrives last in most of {of}."
    else:
        text = f"Arrival order of {of} only: too few to name the slowest rank."
    text = where + text
    if timing.waits_least is not None:
        text += f" In ring steps rank {timing.waits_least} waits least for its predecessor."
    return text


@dataclass(frozen=True)
class Matrix:
    """The ranks with the worst pairs of one communicator, as rows and columns."""

    ranks: list[int]
    pairs: dict[tuple[int, int], RankPair]
    words: str
    """What it shows and leaves out."""

    @classmethod
    def of(cls, ranks: Ranks, width: int, most: int = _MOST) -> Matrix | None:
        """As many ranks as fit, at most `most`; None for fewer than three."""
        comm = ranks.pairs[0].comm
        pairs = {(pair.sender, pair.receiver): pair for pair in ranks.pairs if pair.comm == comm}
        everyone = list(dict.fromkeys(rank for pair in pairs for rank in pair))
        if len(everyone) < _FEWEST:
            return None
        shown = sorted(everyone[: max(_FEWEST, min(most, _MOST, (width - _FIRST) // _CELL))])
        others = len({pair.comm for pair in ranks.pairs}) - 1
        left = len(everyone) - len(shown)
        words = f"communicator {comm}"
        if others:
            words += f", the one with the worst pair; {human.counted(others, 'other')} not shown"
        if left:
            words += f"; the ranks with the worst pairs, {human.counted(left, 'rank')} not shown"
        return cls(shown, pairs, f"{words}; {MATRIX}")

    def fill(self, table: Table, glyphs: Glyphs) -> None:
        """Three rows per sending rank, one column per receiving one."""
        numbers(table, "from / to", *map(str, self.ranks))
        for sender in self.ranks:
            cells = [_cell(self.pairs.get((sender, rank)), glyphs) for rank in self.ranks]
            for head, row in zip((str(sender), "", ""), zip(*cells, strict=True), strict=True):
                if any(row):
                    table.add_row(head, *row)


def _cell(pair: RankPair | None, glyphs: Glyphs) -> tuple[str, str, str]:
    """Bytes, losses and the longest completion; nothing where there is none."""
    if pair is None:
        return ".", "", ""
    lost = gone(pair)
    losses = "" if lost == 0 else f"{human.count(lost)} lost"
    if lost:
        losses = f"{glyphs.bad} {losses}"
    longest = pair.completion_max_ns
    return human.size(pair.wire_bytes), losses, "" if longest is None else human.duration(longest)


def lost_packets(counts: Flow | RankPair) -> int | None:
    """Packets lost before or between taps; None: none known, and those before the tap unknown."""
    before, between = counts.recovered_packets, counts.lost_between_taps
    return (before or 0) + between if between else before


def gone(pair: RankPair) -> int | None:
    """Packets lost before or between taps, and those never seen."""
    lost = lost_packets(pair)
    if lost is None or (pair.missing_packets is None and not pair.lost_between_taps):
        return None
    return lost + (pair.missing_packets or 0)


def rank_table(table: Table, pairs: Sequence[RankPair]) -> None:
    """One row per pair of ranks; `?` where the number of one of its flows is unknown."""
    numbers(table, "from rank", "to rank", "bytes", "retrans", "lost", "missing")
    numbers(table, "completion", "max", "messages", "flows")
    texts(table, "communicator")
    for pair in pairs:
        table.add_row(
            str(pair.sender),
            str(pair.receiver),
            human.size(pair.wire_bytes),
            human.count(pair.retransmitted_packets),
            human.count(lost_packets(pair)),
            human.count(pair.missing_packets),
            human.duration(pair.completion_p50_ns),
            human.duration(pair.completion_max_ns),
            human.count(pair.messages),
            human.count(pair.flows),
            printable(pair.comm),
        )


def timing_table(table: Table, timing: CommunicatorTiming, most: int) -> None:
    """One row per rank, the rank that others wait for longest first."""
    numbers(table, "rank", "last", "late", "max", "others wait", "waits", "holds", "steps")
    for rank in timing.ranks[:most]:
        table.add_row(
            str(rank.rank),
            f"{rank.last} of {timing.collectives}",
            human.duration(rank.late_ns.p50),
            human.duration(rank.late_ns.max),
            human.duration(rank.others_wait_ns),
            *_steps(rank),
        )


def _steps(rank: RankTiming) -> list[str]:
    """Waiting, holding and number of the ring steps; without steps the columns are left out."""
    if rank.ring_steps is None:
        return ["-", "-", "-"]
    return [
        human.duration(rank.waits_ns),
        human.duration(rank.holds_ns),
        human.count(rank.ring_steps),
    ]
