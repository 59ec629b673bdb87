"""Packets with a wrong ICRC (only with --icrc)."""

from __future__ import annotations

from collections.abc import Iterator

from ....measures.troubles import CORRUPT
from ....results.diagnosis import Finding, Place
from ....words import printable
from ...case import Case
from ...finding import finding
from ...interval import span_of
from ...known import Known
from ...words import packets_of
from ..places import before, only

MOSTLY = 0.5
"""Share of wrong ICRCs from which the capture is at fault: a tap before the NIC that computes the
ICRC, or a device that rewrites fields the ICRC covers."""


def corrupt_packets(case: Case, known: Known) -> Iterator[Finding]:
    """Wrong ICRCs: a bit changed on the way, or the header was rewritten.

    Packets that were right at an earlier tap are those of a hop.
    """
    troubles = case.measuring.troubles
    bad = {f: trouble for f in troubles.flows(CORRUPT) if (trouble := troubles.of(f, CORRUPT))}
    if case.ways is not None:
        hops = case.ways.arisen("corrupted")
        bad = {f: trouble for f, trouble in bad.items() if f not in hops}
    if not bad:
        return
    counts = [capture.icrc for capture in case.captures if capture.icrc is not None]
    checked = sum(count["ok"] + count["bad"] for count in counts)
    # Each was wrong at all taps of its flow.
    hits = {f: -(-trouble.packets // len(case.flows[f].taps)) for f, trouble in bad.items()}
    packets = sum(hits.values())
    # The first tap of a flow saw its first wrong packet first.
    names = case.registry.tap_names
    tap = only(names[min(trouble.frames)[2]] for trouble in bad.values())
    span = span_of(bad.values())
    of_capture = packets > MOSTLY * checked
    yield finding(
        case,
        "corruption",
        Place(capture=tap) if of_capture else Place(to_tap=tap, direction="before the tap"),
        hits,
        checked,
        span,
        f"{packets_of(packets, checked)} have a wrong ICRC"
        + (f" at {printable(tap or 'the taps')}" if of_capture else f" {before(case, tap)}"),
        "check that the tap is after the NIC, and what rewrites headers"
        if of_capture
        else "look at the error counters of links and devices before the tap",
        confidence="possible" if of_capture else "proven",
        seen=bad.values(),
        severity="note" if of_capture else None,
    )
