"""Failures: events of links at given times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from ....analyzer.errors import UsageError
from ....kernels.kernel import Ints
from ....kernels.named import NamedTuple
from ...fabrics.fabric import Fabric
from ..model.draws import generator

DOWN: Final = "down"
UP: Final = "up"
SLOW: Final = "slow"
LOSSY: Final = "lossy"
_CABLES: Final = 0x4641
"""Purpose of `generator`."""


class LinkEvent(NamedTuple):
    """A change of a link at a time."""

    time_ps: int
    link: int | str
    """Index of a one-way link, or a name (`Fabric.find_links`)."""
    what: str
    """down, up, slow, lossy."""
    value: float = 0.0
    """slow: bits per second. lossy: chance that a packet is lost, 0 to 1."""


@dataclass(frozen=True)
class Failures:
    """Events in any order."""

    events: tuple[LinkEvent, ...] = ()
    convergence_ps: int | None = None
    """G: time until the other switches learn of an event; None for never."""

    def __post_init__(self) -> None:
        if self.convergence_ps is not None and self.convergence_ps < 0:
            raise UsageError("convergence_ps must be 0 or more, or None for never")
        for event in self.events:
            if event.what not in (DOWN, UP, SLOW, LOSSY) or event.time_ps < 0:
                raise UsageError(f"{event}: use down, up, slow or lossy at a time from 0 on")
            if event.what == SLOW and event.value < 1e6:
                raise UsageError(f"{event.link}: slow needs a rate of 1 Mb/s or more")
            if event.what == LOSSY and not 0.0 <= event.value <= 1.0:
                raise UsageError(f"{event.link}: lossy needs a chance from 0 to 1")

    def known_before(self) -> list[int | str]:
        """Links that are down during the whole run, if routing converges at once (G = 0)."""
        if self.convergence_ps != 0:
            return []
        later = {event.link for event in self.events if event.time_ps > 0}
        return [
            event.link for event in self.events if event.what == DOWN and event.link not in later
        ]

    def __add__(self, other: Failures) -> Failures:
        """The events of both; the convergence time of the first."""
        return Failures(self.events + other.events, self.convergence_ps)


def cables(fabric: Fabric) -> Ints:
    """int64[n, 2]: both directions of every cable between switches."""
    source, target = fabric.links.source, fabric.links.target
    inner = np.flatnonzero((source < fabric.switches) & (target < fabric.switches))
    low = np.minimum(source[inner], target[inner]).astype(np.int64)
    high = np.maximum(source[inner], target[inner])
    by_cable = np.lexsort((inner, source[inner] > target[inner], high, low))
    order, pair = inner[by_cable], (low * fabric.switches + high)[by_cable]
    ends = np.flatnonzero(np.append(pair[1:] != pair[:-1], True)) + 1
    both = []
    for begin, end in zip(np.append(0, ends[:-1]).tolist(), ends.tolist(), strict=True):
        half = (end - begin) // 2  # parallel cables: the n-th of each direction
        both.append(np.stack([order[begin : begin + half], order[begin + half : end]], 1))
    return np.concatenate(both) if both else np.zeros((0, 2), np.int64)


def random_cables(
    fabric: Fabric, share: float, seed: int, time_ps: int = 0, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """Every cable between switches fails independently with probability `share`, both ways."""
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"the share of links that fail must be 0 to 1, not {share}")
    all_cables = cables(fabric)
    failed = generator(seed, _CABLES).random(len(all_cables)) < share
    return outage(all_cables[failed].reshape(-1).tolist(), time_ps, until_ps)


def outage(
    links: Iterable[int | str], time_ps: int, until_ps: int | None = None
) -> tuple[LinkEvent, ...]:
    """Links that go down together, and return unless `until_ps` is None."""
    events = [LinkEvent(time_ps, link, DOWN) for link in links]
    if until_ps is not None:
        events += [LinkEvent(until_ps, event.link, UP) for event in events]
    return tuple(events)


def flapping(
    links: Iterable[int | str], time_ps: int, until_ps: int, down_ps: int, up_ps: int
) -> tuple[LinkEvent, ...]:
    """Links that are down for `down_ps` and up for `up_ps` in turn; up at the end."""
    if down_ps <= 0 or up_ps <= 0:
        raise UsageError("a flapping link needs times for down and up above 0")
    names = tuple(links)
    events: list[LinkEvent] = []
    begin = time_ps
    while begin < until_ps:
        events += outage(names, begin, min(begin + down_ps, until_ps))
        begin += down_ps + up_ps
    return tuple(events)
