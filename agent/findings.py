"""Problems that the counters of the last minute show, without false all-clears.

Counters know no cause: `rocescope analyze` of a recording does. Retransmissions fill skipped PSNs
as late packets do, so a flow with more late packets than skipped PSNs has most likely lost some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec
import numpy as np

from ..analyzer.results.diagnosis import SEVERITIES, Severity
from ..kernels.kernel import Array
from .adapters import AdapterState
from .flows import COUNTED, PACKETS, grouped
from .results import AgentFinding, Problem

WINDOW_NS: Final = 60_000_000_000
NEW_AGAIN_NS: Final = 600_000_000_000
"""A finding that comes back within this time is the same."""
_BUCKET_NS = 5_000_000_000
"""Shorter intervals are kept together, so that memory does not depend on them."""
_GROWN = 10
"""A finding with this many times the packets of its first minute is told again."""
_IN_ERROR: Final = "queue-pairs-in-error"
_BURST = 2
"""So many times as many late packets as skipped PSNs are retransmissions."""
FLOW, TAP, GAP, LATE = range(4)
"""Columns of what `CountedFlows.disordered` returns."""
_C = {name: i for i, name in enumerate(COUNTED)}


@dataclass(frozen=True, slots=True)
class Place:
    """A tap of the agent."""

    interface: str
    direction: str

    def __str__(self) -> str:
        return f"{self.interface} {self.direction}"


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: Problem
    severity: Severity
    of: str
    """Field of COUNTED: the packets that could have been hit."""
    least: int
    share_percent: float
    says: str
    next_step: str


_RULES = {
    "gap_psns": _Rule(
        *("loss", "critical", "ordered", 10, 0.01),
        "PSNs were skipped: lost before this interface",
        "find the place with rocescope analyze, in a recording or in captures at two taps",
    ),
    "naks": _Rule(
        *("naks", "critical", "acks", 10, 0.1),
        "ACKs are NAKs: receivers miss packets or refuse requests",
        "rocescope analyze of a recording shows the codes, the flows and the place of the loss",
    ),
    "rnr_naks": _Rule(
        *("receiver-not-ready", "warning", "acks", 10, 1.0),
        "ACKs are RNR NAKs: receivers post too few receive requests",
        "look for slow receivers among the worst flows of /flows",
    ),
    "late": _Rule(
        *("reordering", "warning", "ordered", 100, 1.0),
        "packets arrived after higher PSNs; retransmissions are among them",
        "rocescope analyze of a capture separates reordering from retransmission",
    ),
    "ecn_marked": _Rule(
        *("ecn-marking", "warning", "ecn_capable", 100, 5.0),
        "packets are marked by ECN: queues are full",
        "compare the peers: one receiver points to incast, many to the fabric",
    ),
}
"""By field of COUNTED."""
_UNJUDGED = ("jumps", "restarts", "unordered")
"""Counts of packets and PSNs whose order was not judged: no all-clear beside them."""
_OF = {
    "acks": ("ACK", "ACKs"),
    "ordered": ("data packet", "data packets"),
    "ecn_capable": ("ECN-capable packet", "ECN-capable packets"),
}


class Now(NamedTuple):
    """One moment by two clocks."""

    time_ns: int
    """Wall time."""
    monotonic_ns: int


@dataclass(slots=True)
class _Bucket:
    """Counts of some seconds."""

    began_ns: int
    counts: Array
    """[places, COUNTED]"""
    whole: Array
    """bool[places]"""
    disordered: Array
    """Flow, place, skipped PSNs, late packets: one row per flow with any."""


@dataclass(slots=True)
class _Known:
    """A finding that was told."""

    since_ns: int
    told_ns: int
    """Monotonic, as `last_ns`."""
    last_ns: int
    most: int
    """Its packets in the minute after it was told, at most."""
    queue_pairs: set[int]


class Findings:
    """The findings of the last minute, and which of them are new."""

    def __init__(self, places: Sequence[Place]) -> None:
        self._places = places
        self._window: deque[_Bucket] = deque()
        self._known: dict[tuple[Problem, str, str], _Known] = {}
        self.current: list[AgentFinding] = []
        self.healthy: list[str] = []
        self.undecided: list[str] = []
        """Skipped PSNs that are neither a finding nor healthy."""
        self.counted = 0
        """Packets of the last minute whose details are known, at places whose packets are seen."""

    def take(
        self,
        now: Now,
        interval: Array,
        disordered: Array,
        seen: Sequence[bool],
        known: Sequence[bool],
        adapters: AdapterState,
    ) -> list[AgentFinding]:
        """Judge after an interval; returns the critical findings that are new.

        interval: counts of the interval, [places, COUNTED]. disordered: those of flows with
        skipped PSNs or late packets, int64[n, 4]: FLOW, TAP, GAP, LATE. seen: whether the packets
        of a place are seen. known: whether the details of all its packets of the interval are in
        the counts.
        """
        self._keep(now.monotonic_ns, interval, disordered, known)
        sums = np.sum([bucket.counts for bucket in self._window], axis=0)
        unbroken = np.all([bucket.whole for bucket in self._window], axis=0)
        flows = _merged(np.concatenate([bucket.disordered for bucket in self._window]))
        findings: list[AgentFinding] = []
        self.healthy, self.undecided = [], []
        self.counted = int(sums[np.array(seen, bool), PACKETS].sum())
        for number, (place, counts) in enumerate(zip(self._places, sums, strict=True)):
            if seen[number]:
                naks = self._naks(place, sums)
                of_place = list(_judged(place, counts, flows[flows[:, TAP] == number], naks, now))
                findings += of_place
                self._note_undecided(place, counts, of_place)
                if unbroken[number]:
                    self._note_healthy(place, counts, of_place)
        failed: dict[str, set[int]] = {}
        for pair in adapters.in_error():
            failed.setdefault(pair.device, set()).add(pair.local_qp)
        findings += _in_error(failed, adapters, now.time_ns)
        findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
        fresh = [finding for finding in findings if self._is_new(finding, now, failed)]
        self.current = [
            msgspec.structs.replace(finding, since_ns=self._known[_key(finding)].since_ns)
            for finding in findings
        ]
        return [finding for finding in fresh if finding.severity == "critical"]

    def _keep(self, now_ns: int, interval: Array, disordered: Array, known: Sequence[bool]) -> None:
        counts, flags = interval.astype(np.int64), np.array(known, bool)
        last = self._window[-1] if self._window else None
        if last is not None and now_ns - last.began_ns < _BUCKET_NS:
            last.counts += counts
            last.whole &= flags
            last.disordered = _merged(np.concatenate((last.disordered, disordered)))
        else:
            self._window.append(_Bucket(now_ns, counts, flags, disordered))
        while now_ns - self._window[0].began_ns >= WINDOW_NS:
            self._window.popleft()

    def _naks(self, place: Place, sums: Array) -> int:
        """NAKs of an interface in both directions: they go against the data."""
        same = [place.interface == other.interface for other in self._places]
        return int(sums[same, _C["naks"]].sum())

    def _is_new(self, finding: AgentFinding, now: Now, failed: Mapping[str, set[int]]) -> bool:
        """New: not there for long, far more than before, or other queue pairs than before."""
        key, at = _key(finding), now.monotonic_ns
        known = self._known.get(key)
        pairs = failed[finding.interface] if finding.kind == _IN_ERROR else set[int]()
        if known is None or at - known.last_ns >= NEW_AGAIN_NS or pairs - known.queue_pairs:
            self._known[key] = _Known(now.time_ns, at, at, finding.packets, pairs)
            return True
        known.last_ns, known.queue_pairs = at, pairs
        if at - known.told_ns <= WINDOW_NS:
            known.most = max(known.most, finding.packets)
        elif finding.kind != _IN_ERROR and finding.packets >= _GROWN * known.most:
            known.told_ns, known.most = at, finding.packets
            return True
        return False

    def _note_undecided(self, place: Place, counts: Array, judged: Sequence[AgentFinding]) -> None:
        skipped = int(counts[_C["gap_psns"]])
        if place.direction == "in" and skipped and "loss" not in {each.kind for each in judged}:
            self.undecided.append(
                f"{place}: {skipped} {'PSNs were' if skipped > 1 else 'PSN was'} skipped: counters"
                " cannot distinguish loss from reordering"
            )

    def _note_healthy(self, place: Place, counts: Array, findings: Sequence[AgentFinding]) -> None:
        """Name the checks that passed and the packets that they cover."""
        kinds = {finding.kind for finding in findings}
        for name, rule in _RULES.items():
            of = int(counts[_C[rule.of]])
            unjudged = int(sum(counts[_C[field]] for field in _UNJUDGED))
            if rule.kind in kinds or not of or (rule.of == "ordered" and unjudged):
                continue
            if name == "gap_psns" and (place.direction != "in" or counts[_C[name]]):
                continue
            of_what = _OF[rule.of][of != 1]
            self.healthy.append(f"{place}: no {rule.kind} finding in {of} {of_what}")


def _key(finding: AgentFinding) -> tuple[Problem, str, str]:
    return finding.kind, finding.interface, finding.direction


def _merged(rows: Array) -> Array:
    """One row per flow."""
    flow = (rows[:, TAP] << 32) + rows[:, FLOW]
    _, counts = grouped(flow, rows[:, GAP:])
    _, first = np.unique(flow, return_index=True)
    return np.concatenate((rows[first, :GAP], counts), axis=1)


def _judged(
    place: Place, counts: Array, flows: Array, naks: int, now: Now
) -> Iterable[AgentFinding]:
    for name, rule in _RULES.items():
        number = int(counts[_C[name]])
        if name == "gap_psns":
            # What a host skips when it sends is not lost before its own interface.
            if place.direction != "in":
                continue
            number, rule = _lost(flows, naks, rule)
        finding = _finding(rule, place, number, int(counts[_C[rule.of]]), now.time_ns)
        if finding is not None:
            yield finding


def _lost(flows: Array, naks: int, rule: _Rule) -> tuple[int, _Rule]:
    """Skipped PSNs that were lost, certainly or most likely, and the rule with the words for both.

    A reordered packet fills one skipped PSN: late packets beyond these are retransmissions.
    """
    gap, late = flows[:, GAP], flows[:, LATE]
    burst = late >= _BURST * gap
    missing = int(np.maximum(gap - late, 0).sum())
    sent_again = int(gap[burst].sum())
    rest = int(np.minimum(gap, late)[~burst].sum())
    likely = sent_again + min(rest, max(0, naks - sent_again))
    if likely:
        says = "PSNs were skipped, and NAKs or retransmitted packets followed"
        says += ": lost before this interface, or reordered and refused"
    else:
        says = "PSNs at least were skipped and not seen later: lost before this interface"
    return missing + likely, replace(rule, says=says)


def _finding(rule: _Rule, place: Place, number: int, of: int, time_ns: int) -> AgentFinding | None:
    share = 100 * number / of if of else 0.0
    if number < rule.least or share < rule.share_percent:
        return None
    return AgentFinding(
        kind=rule.kind,
        severity=rule.severity,
        interface=place.interface,
        direction=place.direction,
        since_ns=time_ns,
        packets=number,
        of_packets=of,
        share_percent=share,
        sentence=f"{place}: {number} {rule.says}",
        next_step=rule.next_step,
    )


def _in_error(
    failed: Mapping[str, set[int]], state: AdapterState, time_ns: int
) -> Iterable[AgentFinding]:
    for adapter, pairs in failed.items():
        number = len(pairs)
        of = sum(pair.device == adapter for pair in state.queue_pairs)
        yield AgentFinding(
            kind=_IN_ERROR,
            severity="critical",
            interface=adapter,
            direction="",
            since_ns=time_ns,
            packets=number,
            of_packets=of,
            share_percent=100 * number / of,
            sentence=f"{adapter}: {number} of {of} queue pairs are in the error state",
            next_step="/queue-pairs names their processes",
        )
