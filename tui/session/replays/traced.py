"""The paths of the captured flows on a fabric whose tables and hashes are known."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ....analyzer.errors import RocescopeError
from ....discovery.asking.commands import Line
from ....discovery.dialects.dialect import Dialect
from ....discovery.following.follow import Follow
from ....discovery.following.results import FollowEvent
from ....discovery.tracing.paths import TracedPaths, complete, trace_paths
from ....replay.compare.flows import NO_CHANCES, result_of
from ....replay.compare.summaries import mapped
from ....replay.fabrics.fabric import Fabric
from ....replay.fabrics.switch_hashing import hash_known
from ....replay.results.replay import StrategyResult
from ....replay.traffic.traffic import Traffic
from ..snapshots.snapshot import TRACED
from .placed import Placed

MOST_POINTS = 4096
"""Most events that are kept; older ones are forgotten."""


class TracedOn(NamedTuple):
    """A fabric, and how its switches are reached if they are followed."""

    spec: str
    line: Line | None
    dialects: Mapping[str, Dialect]


class Point(NamedTuple):
    """An event of the switches, and the paths after it."""

    seconds: float
    """Since the beginning."""
    fim_percent: float | None
    text: str


class Traced(NamedTuple):
    """The flows whose path is known to the destination, with their loads."""

    result: StrategyResult
    placed: Placed
    flows: int
    """All, also those whose path ends early."""
    known: int


def traceable(fabric: Fabric) -> bool:
    """Whether the hash of a switch is known: without one, paths end at the first choice."""
    return any(map(hash_known, fabric.hash_settings))


def traced(traffic: Traffic, fabric: Fabric) -> Traced | None:
    """The traced paths; None if none is known. UsageError if no flow is on the fabric."""
    inside, _ = mapped(traffic, fabric)
    return _of(inside, fabric, trace_paths(inside, fabric))


def _of(traffic: Traffic, fabric: Fabric, paths: TracedPaths) -> Traced | None:
    outcome = complete(traffic, paths)
    if outcome is None:
        return None
    result = result_of(TRACED, outcome, fabric, known=NO_CHANCES)
    return Traced(result, Placed(TRACED, outcome, fabric), len(traffic), len(outcome.traffic))


class Followed:
    """Follows the switches in its own thread, and reports the paths after every event."""

    def __init__(
        self,
        line: Line,
        dialects: Mapping[str, Dialect],
        tell: Callable[[Point, Traced | None, int], object],
        failed: Callable[[str], object],
    ) -> None:
        """tell: takes an event, the paths after it, None if none is known, and the number of all
        flows."""
        self._line, self._dialects = line, dialects
        self._tell, self._failed = tell, failed
        self._follow: Follow | None = None

    def begin(self, traffic: Traffic, fabric: Fabric) -> None:
        """Begin. UsageError as `Follow`."""
        self._follow = Follow(self._line, self._dialects, fabric, traffic)
        threading.Thread(target=self._run, args=(self._follow,), name="follow", daemon=True).start()

    def stop(self) -> None:
        """End it, without a wait."""
        if self._follow is not None:
            self._follow.stop()

    def _run(self, following: Follow) -> None:
        try:
            for event in following.events():
                if event.kind != "ended":
                    self._tell(
                        Point(event.seconds, event.fim_percent, _text(event)),
                        _of(following.traffic, following.fabric, following.paths),
                        len(following.traffic),
                    )
        except (RocescopeError, OSError) as error:
            self._failed(" ".join(str(error).split()))


def _text(event: FollowEvent) -> str:
    """An event in a few words."""
    when, names = event.time[11:19], ", ".join(event.devices[:3])
    names += f" and {len(event.devices) - 3} more" if len(event.devices) > 3 else ""
    if event.kind == "began":
        silent = f", {len(event.lost_devices)} lost" if event.lost_devices else ""
        return f"{when} following {len(event.devices)} switches{silent}"
    if event.kind == "changed":
        return f"{when} {names} changed: {event.moved_flows:,} flows moved"
    if event.kind == "lost":
        return f"{when} {names} lost: {event.problem}"
    return f"{when} {names} back"
