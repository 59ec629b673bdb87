"""Findings of the agent, from counters and flows.

Counters know no cause: `rocescope analyze` of a recording does. Retransmissions fill skipped PSNs
as late packets do, so a flow with more late packets than skipped PSNs has most likely lost some.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
import numpy as np

from ..analyzer.results.base import Record, about
from ..analyzer.results.diagnosis import SEVERITIES, Severity
from ..kernels.kernel import Array
from .adapters import Adapter, AdapterState
from .flows import COUNTED, PACKETS, grouped

# What the agent answers as JSON.

SCHEMA_VERSION = "1.0"
Problem = Literal[
    "loss", "naks", "receiver-not-ready", "reordering", "ecn-marking", "queue-pairs-in-error"
]


class FlowCounts(Record, frozen=True, kw_only=True):
    """A listed flow; counts since it is listed."""

    interface: str
    direction: str
    src: str
    dst: str
    dest_qp: int
    owner: Annotated[str | None, about("process of this host, where known")]
    pid: int | None
    idle_ns: Annotated[int, about("time since its last packet")]
    packets: int
    wire_bytes: int
    payload_bytes: int
    messages: int
    late_packets: Annotated[int, about("below the expected PSN; with retransmissions")]
    skipped_psns: Annotated[int, about("passed over; late packets may have filled them")]
    naks: int
    rnr_naks: int
    cnps: int
    ecn_marked_packets: int
    packets_in_interval: int
    wire_bytes_in_interval: int
    spraying_width: Annotated[
        float | None, about("of the last interval with 32 data packets; null: none yet")
    ]


class Flows(Record, frozen=True, kw_only=True):
    """Answer of /flows: those with most late, refused and marked packets first, then by bytes."""

    schema_version: str = SCHEMA_VERSION
    time_ns: int
    interval_ns: int
    listed: Annotated[int, about("flows with a packet within the last minute")]
    blind: Annotated[list[Blind], about("interfaces whose packets are not seen")]
    flows: list[FlowCounts]


class QueuePairCounts(Record, frozen=True, kw_only=True):
    """A queue pair of this host, and the adapter's counters of it."""

    adapter: str
    port: int | None
    qp: int
    remote_qp: int | None
    type: str
    state: str
    pid: int | None
    command: str
    counters: dict[str, int]
    counted_with: Annotated[int, about("queue pairs whose sum the counters are; 0: not counted")]


class QueuePairs(Record, frozen=True, kw_only=True):
    """Answer of /queue-pairs: those in error first, then those with the largest counters."""

    schema_version: str = SCHEMA_VERSION
    time_ns: int
    known: int
    unknown_because: str | None
    counters_unknown_because: str | None
    queue_pairs: list[QueuePairCounts]


class AgentFinding(Record, frozen=True, kw_only=True):
    """A problem that the counters of the last minute show."""

    kind: Problem
    severity: Severity
    interface: str
    direction: str
    since_ns: int
    packets: Annotated[int, about("hit by it; queue pairs for queue-pairs-in-error")]
    of_packets: int
    share_percent: float
    sentence: str
    next_step: str
    recordings: Annotated[list[str], about("files around its beginning")] = []


class Blind(Record, frozen=True, kw_only=True):
    """An interface whose packets are not seen, and why."""

    interface: str
    reason: str
    sentence: str


class AgentDiagnosis(Record, frozen=True, kw_only=True):
    """Answer of /diagnosis."""

    schema_version: str = SCHEMA_VERSION
    time_ns: int
    window_ns: int
    summary: str
    findings: list[AgentFinding]
    healthy: Annotated[list[str], about("checks that passed, and what they cover")]
    blind: list[Blind]
    limits: Annotated[list[str], about("what the counters cannot show")]


# Where the agent sees packets, and where it is blind and says so.

NOT_ATTACHED, ADAPTER, GONE = "not_attached", "adapter_bypass", "interface_gone"
UNKNOWN = "adapter_unknown"
_SENTENCES = {
    NOT_ATTACHED: "no probes are attached",
    ADAPTER: "the RDMA adapter moves RoCE past the kernel, where probes do not see it",
    UNKNOWN: (
        "no RoCE packet was seen, and whether an RDMA adapter moves RoCE past the kernel is"
        " unknown: adapters are not looked up in other network namespaces"
    ),
    GONE: "the interface has disappeared or lost its probes; restart the agent",
}


@dataclass(slots=True)
class Bypass:
    """Whether adapters move packets of an interface past the probes, by growth between looks."""

    found: bool = False
    _counted: int = 0
    _moved: dict[str, int] = field(default_factory=dict)

    def look(self, counted: int, moved: Mapping[str, int]) -> None:
        """Compare what has grown since the last look.

        counted: RoCE packets that probes have counted. moved: packets of each adapter other than
        Soft-RoCE by its own counters, in the directions of the probes. An adapter that copies RoCE
        to the kernel shows as many as it moves.
        """
        grown = sum(
            max(0, n - self._moved[name]) for name, n in moved.items() if name in self._moved
        )
        seen = counted - self._counted
        if grown or seen:
            self.found = 2 * seen < grown
        self._counted, self._moved = counted, dict(moved)


def blind_because(
    attached: bool, gone: bool, adapters: Sequence[Adapter] | None, counted: int, bypassed: bool
) -> str | None:
    """Why the packets of an interface are not seen; None: they are.

    adapters: of the interface; None: unknown. counted: RoCE packets that probes have counted.
    bypassed: `Bypass.found`.
    """
    if not attached:
        return NOT_ATTACHED
    if gone:
        return GONE
    if adapters is None:
        return None if counted else UNKNOWN
    hardware = any(not adapter.is_software for adapter in adapters)
    return ADAPTER if hardware and (bypassed or not counted) else None


def blind(interface: str, reason: str) -> Blind:
    """The record of an interface whose packets are not seen."""
    return Blind(interface=interface, reason=reason, sentence=_SENTENCES[reason])


def placed(text: str, namespace: str | None) -> tuple[str, str | None]:
    """Name and network namespace of an interface as the user gave it."""
    where, _, name = text.rpartition(":")
    return name, where or namespace


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
