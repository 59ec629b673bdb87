"""How findings write numbers, times and names."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .. import words
from ..results.flow import Flow
from ..words import printable
from .case import Case


def number(value: int) -> str:
    """`7,904`."""
    return f"{value:,}"


def counted(value: int, noun: str) -> str:
    """`1 flow`, `1,200 flows`."""
    return f"{value:,} {words.noun(value, noun)}"


def percent(share: float) -> str:
    """A share of 1: `0.9 %`; two digits that count below 1 %."""
    value = 100 * share
    if value in (0, 100):
        return f"{value:.0f} %"
    if value >= 99.95:
        return ">99.9 %"
    return f"{value:.1f} %" if value >= 0.95 else f"{value:.2g} %" if value >= 1e-4 else "<0.0001 %"


def packets_of(hits: int, of: int) -> str:
    """`0.9 % of the packets (71 of 7,904)`; `3 of 10,000 packets` when few."""
    if hits < 10 or of <= 0:
        return f"{hits:,} of {counted(of, 'packet')}"
    return f"{percent(hits / of)} of the packets ({hits:,} of {of:,})"


def duration(ns: float) -> str:
    """`1.2 s`, `310 ms`, `12 us`, `850 ns`."""
    return words.short(words.duration(ns))


def rate(bits_per_second: float) -> str:
    """`9.8 Gb/s`, `312 Mb/s`."""
    return words.short(words.scaled(bits_per_second, "b/s"))


def moment(case: Case, ns: int) -> str:
    """Time since the first packet, to about a thousandth of the capture: `1.2 s`, `0.950 s`."""
    since, duration_ns = max(0, ns - case.first_ns), case.last_ns - case.first_ns
    for least, scale, unit, digits in _MOMENTS:
        if duration_ns >= least:
            return f"{since / scale:.{digits}f} {unit}"
    return f"{since} ns"


_MOMENTS = ((1e10, 1e9, "s", 1), (1e8, 1e9, "s", 3), (1e7, 1e6, "ms", 1), (1e4, 1e3, "us", 0))
"""Shortest capture, unit in ns, its name, digits."""


def when(case: Case, from_ns: int, until_ns: int | None, uncertain_ns: int = 0) -> str:
    """`all the time`, `from 1.2 s to the end`, `at 1.2 s`, `from 1.2 s to 1.9 s`."""
    from_start = from_ns - uncertain_ns <= case.first_ns
    if until_ns is None:
        return "all the time" if from_start else f"from {moment(case, from_ns)} to the end"
    begin, end = moment(case, from_ns), moment(case, until_ns)
    if begin == end:
        return f"at {begin}"
    return f"until {end}" if from_start else f"from {begin} to {end}"


def flow_name(flow: Flow) -> str:
    """`10.0.0.1 to 10.0.0.2 QP 0x000022`."""
    return f"{printable(flow.src)} to {printable(flow.dst)} QP 0x{flow.dest_qp:06x}"


def ranks(flows: Collection[Flow]) -> str:
    """` (rank 11 to rank 3)`, ` (ranks 11 to 3, 3 to 7)`; empty where logs name no pair."""
    pairs = sorted(
        {
            (sender, receiver)
            for flow in flows
            if flow.owner is not None
            for sender, receiver in (flow.owner.ranks,)
            if sender is not None and receiver is not None
        }
    )
    if not pairs:
        return ""
    if len(pairs) == 1:
        return f" (rank {pairs[0][0]} to rank {pairs[0][1]})"
    listed = ", ".join(f"{sender} to {receiver}" for sender, receiver in pairs[:_RANKS_NAMED])
    more = len(pairs) - _RANKS_NAMED
    return f" (ranks {listed}{f' and {more:,} more' if more > 0 else ''})"


def hosts(flows: Sequence[Flow]) -> str:
    """`10.0.0.1 to 10.0.0.2`, `3 hosts to 10.0.0.2`: the way of these flows."""
    return f"{_some({f.src for f in flows})} to {_some({f.dst for f in flows})}"


_RANKS_NAMED = 3


def _some(names: Collection[str]) -> str:
    return printable(next(iter(names))) if len(names) == 1 else f"{len(names)} hosts"
