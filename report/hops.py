"""Names of taps and hops, and their values in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import median

from ..analyzer.measures.hops.vantage import short_names
from ..analyzer.results.analysis import CaptureLoss, Hop, TapClock
from ..analyzer.words import printable
from .human import count, counted, duration, percent

EXPECTED_BY = {
    "flow": "other packets of the same flow went there",
    "destination": "other packets to the same destination went there",
    "host": "packets of this host pass there",
    "partner": "its parallel link leads there",
    "fabric": "by the fabric file",
}


LONG_QUEUE_NS = 200_000
QUEUE_FACTOR = 10
"""A queueing delay (p99) that stands out: at least this, and this many times the median hop's."""


def long_queue(hops: Iterable[Hop]) -> float:
    """The queueing delay (p99, ns) from which a hop stands out among these; 0 if none is known."""
    waits = [hop.queueing_ns.p99 for hop in hops if hop.queueing_ns is not None]
    return max(LONG_QUEUE_NS, QUEUE_FACTOR * median(waits)) if waits else 0


def worst_first(hops: Iterable[Hop]) -> list[Hop]:
    """Hops with losses first, then those that mark, reorder, copy, trim or delay; else as given."""
    hops = list(hops)
    long = long_queue(hops)

    def trouble(hop: Hop) -> tuple[float, ...]:
        wait = 0 if hop.queueing_ns is None else hop.queueing_ns.p99
        return (
            hop.lost_packets,
            hop.ce_marked_packets,
            hop.reordered_packets,
            hop.duplicate_packets,
            hop.trimmed_packets,
            wait if wait >= long else 0,
        )

    return sorted(hops, key=trouble, reverse=True)


def mostly_at(hops: Iterable[Hop], counter: str) -> str:
    """`most of them from a to b`, for a counter of hops; empty where no hop has any."""
    hops = list(hops)
    counts_ = {hop.id: int(getattr(hop, counter)) for hop in hops}
    worst = max(hops, key=lambda hop: counts_[hop.id], default=None)
    if worst is None or not counts_[worst.id]:
        return ""
    short = short_taps(t for hop in hops for t in (hop.from_tap, hop.to_tap) if t)
    which = "all" if counts_[worst.id] == sum(counts_.values()) else "most"
    return f"{which} of them from {short[worst.from_tap]} to {expected_tap(worst, short)}"


_ETHERNET = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b")
_TAIL = slice(9, None)


def short_taps(names: Iterable[str]) -> dict[str, str]:
    """Names of taps without what all have in common, printable; of Ethernet addresses the last
    three bytes, where these tell them apart."""
    taps = list(dict.fromkeys(names))
    shown = [printable(short) for short in short_names(taps)]
    addresses = {address for tap in shown for address in _ETHERNET.findall(tap)}
    if len({address[_TAIL] for address in addresses}) == len(addresses):
        shown = [_ETHERNET.sub(lambda match: match[0][_TAIL], tap) for tap in shown]
    return dict(zip(taps, shown, strict=True))


def tier(device: str) -> str:
    """`spine` of `spine3`: devices of one tier differ in their numbers."""
    return re.sub(r"\d+", "", device)


def expected_tap(hop: Hop, short: dict[str, str]) -> str:
    """The next tap; `?` if nothing tells where the lost packets were going."""
    return "?" if hop.to_tap is None else short.get(hop.to_tap, printable(hop.to_tap))


def expected_by(hop: Hop) -> str:
    """How the next tap of lost packets is known, or that it is not."""
    if hop.to_tap is not None:
        return EXPECTED_BY.get(hop.expected_by or "", "")
    if hop.expected_by == "fabric":
        return "one of several by the fabric file"
    return "not known; similar packets continued over several"


def counts(hop: Hop) -> str:
    """`7,904 packets of 12 flows, 71 lost (0.90 %), 3 marked CE here`"""
    text = f"{counted(hop.packets, 'packet')} of {counted(hop.flows, 'flow')}"
    text += f", {count(hop.lost_packets)} lost"
    if hop.lost_packets:
        text += f" ({percent(hop.lost_percent / 100)})"
    for number, word in (
        (hop.ce_marked_packets, "marked CE here"),
        (hop.reordered_packets, overtaken(hop)),
        (hop.duplicate_packets, "copied here"),
        (hop.trimmed_packets, "trimmed here"),
        (hop.dscp_changed_packets, "with another DSCP"),
    ):
        text += f", {count(number)} {word}" if number else ""
    return text


def overtaken(hop: Hop) -> str:
    """`overtaken here by up to 12 packets`"""
    most = 0 if hop.overtaken_by is None else int(hop.overtaken_by.max)
    return f"overtaken here by up to {counted(most, 'packet')}"


def delay(hop: Hop) -> str:
    """`delay 12.0 us (p50), 40.1 us (p99); queueing 28.0 us (p99)`; empty if unknown."""
    if hop.delay_ns is None:
        return ""
    text = f"delay min {duration_of(hop.delay_ns.min)}, p50 {duration_of(hop.delay_ns.p50)}"
    text += f", p99 {duration_of(hop.delay_ns.p99)}, max {duration_of(hop.delay_ns.max)}"
    if (above := hop.queueing_ns) is not None:
        text += f"; queueing p50 {duration(above.p50)}, p99 {duration(above.p99)}"
    return text


def duration_of(nanoseconds: float) -> str:
    """A delay between two clocks, which may be negative."""
    return f"-{duration(-nanoseconds)}" if nanoseconds < 0 else duration(nanoseconds)


def capture_loss(loss: CaptureLoss, short: dict[str, str]) -> str:
    """What a capture missed."""
    tap = short.get(loss.tap, printable(loss.tap))
    share = percent(loss.packets / loss.of_packets if loss.of_packets else None)
    missed = f"{count(loss.packets)} of {count(loss.of_packets)}"
    return f"the capture of {tap} missed {missed} ({share})"


def clock(tap_clock: TapClock, short: dict[str, str]) -> str:
    """The clock of a tap: its offset and how well it is known."""
    names = [short.get(tap, printable(tap)) for tap in (tap_clock.tap, tap_clock.relative_to)]
    text = f"clock of {names[0]}: {duration_of(tap_clock.offset_ns)} from {names[1]}"
    text += f", known to {duration(tap_clock.uncertainty_ns)}"
    text += f", drift {tap_clock.drift_ppm:.2f} ppm" if tap_clock.drift_ppm is not None else ""
    return f"{text}, {counted(tap_clock.steps, 'jump')}" if tap_clock.steps else text
