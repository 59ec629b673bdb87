"""One cause is one finding: which effects the causes found so far explain."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf
from typing import Final

from msgspec import UNSET

from ..results.diagnosis import Finding, Kind, Place
from ..results.flow import Flow
from .case import ALL_PRIORITIES, Case

CLOCKS_NS = 1_000_000
"""An effect may seem to begin this much before its cause, or as much as the clocks of two taps are
known to differ."""
AFTERMATH_NS = 5_000_000_000
"""An effect may begin this long after the end of its cause: ACK timeouts and their back-off."""

REROUTED_NS = 1_000_000_000
"""Routers spread flows anew within this time after a link went down."""

LOSSES: Final[tuple[Kind, ...]] = (
    "loss", "selective-loss", "blackhole", "outage", "rate-limit", "link-down", "incast",
    "collision", "corruption", "mtu-mismatch",
)  # fmt: skip
OVERFLOWS: Final[tuple[Kind, ...]] = ("rate-limit", "incast")
"""Losses of an egress, whatever way the packets come to it."""
DISORDER: Final[tuple[Kind, ...]] = ("reordering", "rehash")
REFUSALS: Final[tuple[Kind, ...]] = ("receiver-not-ready", "fatal-nak")
SLOWNESS: Final[tuple[Kind, ...]] = ("queueing", "delay-step")
QUEUE_CAUSES: Final[tuple[Kind, ...]] = ("incast", "collision", "rate-limit", "pause")
REHASH_CAUSES: Final[tuple[Kind, ...]] = ("link-down", "outage", "capture-loss")

SLOW_PATH = "slow_path"
"""The detail of a loss on one of several paths, whose packets are late as well."""

STEP_NS = "step_ns"
"""The detail of a delay step: by how much the minimum delay is higher."""

P99_NS = "p99_ns"
"""The detail of a queue: the delay above the minimum that 1 % of the packets exceed."""

PAUSED_NS = "paused_ns"
"""The detail of a pause whose length is known."""
QUEUED_SINCE_NS = "queued_since_ns"
"""The detail of an overflow: the first queue there, which may delay packets before one is lost."""
PRIORITY = "priority"
"""The detail of a pause of one priority; a global pause has none."""


def is_slow_path(cause: Finding) -> bool:
    """Whether `cause` is loss on a path that also delays packets: its queue overflows."""
    return cause.details is not UNSET and SLOW_PATH in cause.details


def _is_port_down(cause: Finding) -> bool:
    """Whether `cause` is the port of a host that is down, with the packets lost there."""
    return cause.kind == "mrc-path" and cause.place.to_tap is not None


class Known:
    """The causes found so far, by flow."""

    def __init__(
        self,
        findings: Iterable[Finding] = (),
        peers: Mapping[int, int] | None = None,
        clocks_ns: Mapping[str, float] | None = None,
        priorities: Callable[[int], AbstractSet[int]] = lambda flow: ALL_PRIORITIES,
    ) -> None:
        """clocks_ns: by tap, how far its clock is ahead of those of most taps, where known.

        priorities: that packets of a flow may have.
        """
        self._priorities = priorities
        self._peers = peers or {}
        apart = clocks_ns or {}
        self._early = max(
            CLOCKS_NS, max(apart.values(), default=0) - min(apart.values(), default=0)
        )
        self._wrong_clocks = {tap for tap, ns in apart.items() if abs(ns) > CLOCKS_NS}
        self._places: list[Finding] = []
        self._absorbed: list[Finding] = []
        self._by_flow: dict[int, list[Finding]] = defaultdict(list)
        for finding in findings:
            self.add(finding)

    def add(self, finding: Finding) -> None:
        """Let `finding` explain effects from now on; a note explains nothing."""
        if finding.severity == "note":
            return
        self._places.append(finding)
        if finding.kind != "pause":  # it explains what waits at its link only: `queue_at`
            for flow in finding.flows:
                self._note(finding, flow)

    def _note(self, cause: Finding, flow: int) -> None:
        self._by_flow[flow].append(cause)
        peer = self._peers.get(flow)  # waits for the ACKs that the fault hit
        if peer is not None:
            self._by_flow[peer].append(cause)

    def onto(self, kind: Kind, device: str, tap: str) -> list[Finding]:
        """The known faults of `kind` in this device on the way to this tap."""
        return [
            cause
            for cause in self._places
            if (cause.kind, cause.place.device, cause.place.to_tap) == (kind, device, tap)
        ]

    def absorb(self, effect: Finding) -> None:
        """Let a finding be a part of one that is found later."""
        self._absorbed.append(effect)

    def remaining(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that are no part of another one."""
        return [
            finding
            for finding in findings
            if not any(finding is effect for effect in self._absorbed)
        ]

    def queue_at(
        self,
        place: Place,
        flows: Iterable[int],
        span: tuple[int, int],
        window_ns: int = 0,
        in_pauses: bool = True,
    ) -> set[int]:
        """Those of `flows` that a known cause lets wait between these taps, or at this device on
        the way to this tap; a pause of the link at this tap holds flows of its priority only. The
        cause then explains effects in them.

        Packets that overtake others on one hop are delayed, not queued. span: the first and the
        last time of the queue, which begins and ends in windows of `window_ns` there. in_pauses:
        whether it is there only while the link is paused, and drains then.
        """
        waiting = set(flows)
        explained: set[int] = set()
        for cause in self._places:
            if cause.kind not in (*QUEUE_CAUSES, "reordering"):
                continue
            there = cause.place
            same_taps = (there.from_tap, there.to_tap) == (place.from_tap, place.to_tap)
            onto = place.to_tap is not None and there.to_tap == place.to_tap
            device = place.device is not None and there.device == place.device
            there_too = same_taps or (onto and (device or cause.kind == "pause"))
            several_ends = there.to_tap is None and there.from_tap == place.from_tap is not None
            hit = waiting & set(cause.flows) if several_ends else set()
            held_there = waiting if there_too else hit
            known_pause = cause.details is not UNSET and PAUSED_NS in cause.details
            if cause.kind == "pause" and known_pause and not in_pauses:
                continue
            if held_there and self._makes_queue(cause, *span, window_ns):
                held = {f for f in held_there if f not in explained and self._holds(cause, f)}
                for flow in held:
                    self._note(cause, flow)
                explained |= held
        return explained

    def _holds(self, cause: Finding, flow: int) -> bool:
        """Whether packets of `flow` may wait because of `cause`: a pause holds one priority."""
        if cause.details is UNSET or PRIORITY not in cause.details:
            return True
        return cause.details[PRIORITY] in self._priorities(flow)

    def moved_from(self, taps: AbstractSet[str], first_ns: int, last_ns: int) -> bool:
        """Whether a known fault hit one of these links when flows left it, or a link went down just
        then: its flows are spread anew, and others with them."""
        if any(
            cause.kind == "link-down" and abs(first_ns - cause.from_ns) <= REROUTED_NS
            for cause in self._places
        ):
            return True
        return any(
            cause.kind in REHASH_CAUSES
            and taps & {cause.place.from_tap, cause.place.to_tap}
            and first_ns <= (cause.until_ns or last_ns) + AFTERMATH_NS
            and last_ns >= cause.from_ns - AFTERMATH_NS
            for cause in self._places
        )

    def hit_by(self, kind: Kind, flow: int, first_ns: int, last_ns: int) -> bool:
        """Whether a known fault of `kind` hit `flow` in this time."""
        return any(
            cause.kind == kind and self._is_around(cause, first_ns, last_ns)
            for cause in self._by_flow.get(flow, ())
        )

    def lost_over_link(self, flow: int, first_ns: int, last_ns: int) -> bool:
        """Whether a link, known by the flows that left it, went down and lost what this flow lost
        between these times."""
        return any(
            cause.kind == "link-down"
            and None in (cause.place.from_tap, cause.place.to_tap)
            and cause.from_ns - REROUTED_NS <= first_ns
            and last_ns <= cause.from_ns + AFTERMATH_NS
            for cause in self._by_flow.get(flow, ())
        )

    def troubled(self, taps: AbstractSet[str], kinds: Collection[Kind] | None = None) -> bool:
        """Whether a known fault, of one of these kinds, is at one of these taps."""
        return any(
            taps & {cause.place.from_tap, cause.place.to_tap}
            and (kinds is None or cause.kind in kinds)
            for cause in self._places
        )

    def cut_off(self, host: str, first_ns: int, last_ns: int) -> bool:
        """Whether a known fault swallows what goes to this host: a link that is down carries
        nothing from it either."""
        return any(
            cause.kind in ("blackhole", "outage", "link-down")
            and {victim.dst for victim in cause.affected} == {host}
            and self._is_around(cause, first_ns, last_ns)
            for cause in self._places
        )

    def host_explains(self, hosts: Collection[str], first_ns: int, last_ns: int) -> bool:
        """Whether one of these hosts is cut off or loses packets: then answers are lost there."""
        return any(self.cut_off(host, first_ns, last_ns) for host in hosts) or any(
            cause.kind == "loss"
            and cause.place.host in hosts
            and self._is_around(cause, first_ns, last_ns)
            for cause in self._places
        )

    def loses_answers(self, flow: Flow, first_ns: int, last_ns: int) -> bool:
        """Whether packets of other flows on the way of the answers to `flow` are lost after a tap:
        then answers are lost there as well."""
        way = flow.dst, flow.src
        return any(
            cause.kind in LOSSES
            and cause.place.direction == "after the tap"
            and any((hit.src, hit.dst) == way for hit in cause.affected)
            and self._is_around(cause, first_ns, last_ns)
            for cause in self._places
        )

    def queue_explains(self, taps: AbstractSet[str], first_ns: int, last_ns: int) -> bool:
        """Whether packets that pass these taps waited in a known queue: their answers came late."""
        return any(
            (cause.kind in (*QUEUE_CAUSES, *SLOWNESS, "reordering") or is_slow_path(cause))
            and (there := {cause.place.from_tap, cause.place.to_tap} - {None})
            and there <= taps
            and self._is_around(cause, first_ns, last_ns)
            for cause in self._places
        )

    def way_explains(
        self, taps: AbstractSet[str], hosts: AbstractSet[str], first_ns: int, last_ns: int
    ) -> bool:
        """Whether what passes these taps met a known fault that swallows all packets of a link, or
        on the way to or from one of these hosts, after the same tap, packets that are never
        answered."""
        for cause in self._places:
            place = cause.place
            at = {place.from_tap, place.to_tap} - {None}
            if not at or not at <= taps or not self._is_around(cause, first_ns, last_ns):
                continue
            if cause.kind == "link-down" and first_ns <= cause.from_ns + AFTERMATH_NS:
                return True  # later its flows have other ways
            if cause.kind == "outage" or (cause.kind == "stalled" and place.host in hosts):
                return True
        return False

    def loses_at(
        self, last_tap: str | None, next_tap: str | None, first_ns: int, last_ns: int
    ) -> bool:
        """Whether a known loss is after the last tap that saw packets, or before the next one on
        their way: that of their answers."""
        return any(
            cause.kind in LOSSES
            and (at := (cause.place.from_tap, cause.place.to_tap)) != (None, None)
            and at in ((last_tap, None), (None, next_tap))
            and self._is_around(cause, first_ns, last_ns)
            for cause in self._places
        )

    def misplaced(self, flow: Flow, first_ns: int, last_ns: int) -> bool:
        """Whether the taps of `flow` seem to see its packets in the wrong order, because a clock is
        wrong, and a known loss between taps is what seems to be before the first tap."""
        return not self._wrong_clocks.isdisjoint(flow.taps) and any(
            cause.kind in LOSSES and self._is_around(cause, first_ns, last_ns)
            for cause in self._by_flow.get(flow.id, ())
        )

    def overflows(self, flow: Flow) -> bool:
        """Whether a known egress before the only tap of `flow` loses its packets, and not only
        those of its answers."""
        return any(
            cause.kind in OVERFLOWS
            and flow.id in cause.flows
            and [cause.place.to_tap] == list(flow.taps)
            for cause in self._by_flow.get(flow.id, ())
        )

    def slow_path(self, tap: str | None, first_ns: int, last_ns: int) -> bool:
        """Whether a known loss on the path to this tap covers that its packets are late, too."""
        return any(
            is_slow_path(cause)
            and cause.place.to_tap == tap
            and self._is_around(cause, first_ns, last_ns)
            for cause in self._places
        )

    def explains(
        self, causes: Collection[Kind], flow: int, first_ns: int, last_ns: int, queue: bool = False
    ) -> bool:
        """Whether a known cause of these kinds hit `flow` while or shortly before an effect was
        seen there. queue: the effect is a queue."""
        return any(True for _ in self.causes_of(causes, flow, first_ns, last_ns, queue))

    def causes_of(
        self, causes: Collection[Kind], flow: int, first_ns: int, last_ns: int, queue: bool = False
    ) -> Iterator[Finding]:
        """The known causes that explain such an effect, see `explains`."""
        fits = self._makes_queue if queue else self._is_around
        for cause in self._by_flow.get(flow, ()):
            is_such = cause.kind in causes or (_is_port_down(cause) and "link-down" in causes)
            if is_such and fits(cause, first_ns, last_ns):
                yield cause

    def _makes_queue(self, cause: Finding, first_ns: int, last_ns: int, window_ns: int = 0) -> bool:
        """Whether a queue of this time can be that of `cause`.

        A pause holds packets while it lasts. Where its length is unknown it may be short, and is
        the cause of a queue only if that lasts from its first to its last frame at most.
        """
        if cause.kind != "pause":
            return self._is_around(cause, first_ns, last_ns)
        begin = cause.from_ns - cause.onset_uncertainty_ns - self._early
        end = inf if cause.until_ns is None else cause.until_ns + self._early
        if cause.details is UNSET or PAUSED_NS not in cause.details:
            return begin <= first_ns + window_ns and last_ns - window_ns <= end
        return begin <= last_ns and first_ns <= end

    def _is_around(self, cause: Finding, first_ns: int, last_ns: int) -> bool:
        """Whether an effect between these times can be that of `cause`."""
        since = cause.from_ns - cause.onset_uncertainty_ns
        if cause.details is not UNSET:
            since = min(since, int(cause.details.get(QUEUED_SINCE_NS, since)))
        onset = since - self._early
        return last_ns >= onset and (
            cause.until_ns is None or first_ns <= cause.until_ns + AFTERMATH_NS
        )


@dataclass(frozen=True)
class Finder:
    """One finder, and how it stands to the others."""

    find: Callable[[Case, Known], Iterable[Finding]]
    """What it needs is in the `Case`; without that it finds nothing."""
    finds: tuple[Kind, ...]
    explained_by: tuple[Kind, ...] = ()
    """Kinds of causes that explain its effects in the same flows at the same time."""
    after: tuple[str, ...] = ()
    """Finders, by the names of their functions, that come first: what they find explains what this
    one sees, or is better proof of it."""

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.find.__name__


def in_order(finders: Iterable[Finder]) -> list[Finder]:
    """Causes before effects; otherwise as given.

    Raises ValueError where a finder waits for itself, or for one that is not given.
    """
    waiting, done = list(finders), list[Finder]()
    names = set[str]()
    while waiting:
        ready = next((finder for finder in waiting if names.issuperset(finder.after)), None)
        if ready is None:
            stuck = ", ".join(finder.name for finder in waiting)
            raise ValueError(f"no order of cause and effect: {stuck}")
        waiting.remove(ready)
        done.append(ready)
        names.add(ready.name)
    return done
