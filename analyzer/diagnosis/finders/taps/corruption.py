"""Packets with a wrong ICRC (only with --icrc)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np

from ....measures.hops.hops import TapHops
from ....measures.hops.state import START
from ....measures.troubles import CORRUPT, Trouble
from ....results.diagnosis import Finding, Place
from ....words import printable
from ...case import Case
from ...finding import finding
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
    bad = case.measuring.troubles.by_flow(CORRUPT)
    counts = [capture.icrc for capture in case.captures if capture.icrc is not None]
    checked = sum(count["ok"] + count["bad"] for count in counts)
    if case.ways is not None and bad:
        sightings = _Sightings(case, case.ways, bad)
        bad = {f: left for f, t in bad.items() if (left := sightings.before_the_taps(f, t))}
        checked = round(checked / sightings.mean)
    if not bad:
        return
    packets = sum(trouble.packets for trouble in bad.values())
    # The first tap of a flow saw its first wrong packet first.
    names = case.registry.tap_names
    tap = only(names[min(trouble.frames)[2]] for trouble in bad.values() if trouble.frames)
    of_capture = packets > MOSTLY * checked
    yield finding(
        case,
        "corruption",
        Place(capture=tap) if of_capture else Place(to_tap=tap, direction="before the tap"),
        checked,
        f"{packets_of(packets, checked)} have a wrong ICRC"
        + (f" at {printable(tap or 'the taps')}" if of_capture else f" {before(case, tap)}"),
        "check that the tap is after the NIC, and what rewrites headers"
        if of_capture
        else "look at the error counters of links and devices before the tap",
        confidence="possible" if of_capture else "proven",
        seen=bad.values(),
        severity="note" if of_capture else None,
    )


class _Sightings:
    """How often one packet was seen with its ICRC checked: ICRCs are checked at every tap.

    Exact where all packets of a flow pass the same taps, and these capture whole frames; else the
    mean over the packets of the flow.
    """

    def __init__(self, case: Case, ways: TapHops, wanted: Collection[int]) -> None:
        """wanted: the flows that `before_the_taps` will be asked for."""
        self._checked = _checked_shares(case)
        """By tap: the share of its packets whose ICRC could be checked."""
        visits = ways.visits[ways.visits["tap"] < START]
        flows, taps = visits["flow"], visits["tap"].astype(np.int64)
        self._seen = dict(
            zip(
                zip(flows.tolist(), taps.tolist(), strict=True),
                visits["packets"].tolist(),
                strict=True,
            )
        )
        """By flow and tap: packets seen."""
        packets, seen = np.zeros(len(case.flows)), np.zeros(len(case.flows))
        np.add.at(packets, flows, visits["packets"])
        np.add.at(seen, flows, visits["packets"] * self._checked[taps])
        self._onward: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
        """By flow and tap: next tap, packets that went there, and those damaged on this hop."""
        self._left: dict[int, set[int]] = defaultdict(set)
        """By flow: the taps from which packets continued."""
        for way in ways.hops:
            np.subtract.at(packets, way.passed["flow"], way.passed["packets"])
            mine = way.passed[np.isin(way.passed["flow"], list(wanted))]
            columns = (mine[name].tolist() for name in ("flow", "packets", "corrupted"))
            for flow, passed, corrupted in zip(*columns, strict=True):
                self._onward[flow, way.from_tap].append((way.to_tap, passed, corrupted))
                self._left[flow].add(way.from_tap)
        once = np.minimum(packets, seen)
        self._of_flow = np.maximum(seen / np.maximum(once, 1), 1)
        self.mean = max(seen.sum() / max(once.sum(), 1), 1)
        """Checked ICRCs per packet."""

    def before_the_taps(self, flow: int, wrong: Trouble) -> Trouble | None:
        """The packets among `wrong` that no hop between taps explains; None without any."""
        left, after = float(wrong.packets), set[int]()
        for tap in self._left.get(flow, ()):
            for to_tap, _, corrupted in self._onward[flow, tap]:
                if corrupted:
                    left -= corrupted * (1 + self._later(flow, to_tap, after))
        packets = round(left / self._of_flow[flow])
        if packets <= 0:
            return None
        frames = [frame for frame in wrong.frames if frame[2] not in after]
        return wrong._replace(packets=packets, frames=frames)

    def _later(self, flow: int, tap: int, after: set[int], known: tuple[int, ...] = ()) -> float:
        """How often a packet is seen behind a tap; adds the tap and these taps to `after`."""
        after.add(tap)
        later = 0.0
        for to_tap, passed, _ in self._onward.get((flow, tap), ()):
            if to_tap not in known:
                share = min(passed / max(self._seen.get((flow, tap), 0), 1), 1)
                again = self._later(flow, to_tap, after, (*known, tap))
                later += share * (float(self._checked[to_tap]) + again)
        return later


def _checked_shares(case: Case) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    names = case.registry.tap_names
    shares = np.zeros(len(names))
    for capture in case.captures:
        if capture.icrc is not None and (every := sum(capture.icrc.values())):
            taps = [names.index(tap.name) for tap in capture.taps]
            shares[taps] = (capture.icrc["ok"] + capture.icrc["bad"]) / every
    return shares
