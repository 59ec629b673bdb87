"""Joins the queue pairs of logs with flows, by address, queue pair number and time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..results.base import Event
from ..results.flow import Owner
from ..track.pairing import CmPairs, NamedFlow, named_flows, settle
from ..track.state import EVIDENCE_HOST_PROBE
from ..track.tracker import FlowTracker
from ..wire.registry import Endpoints
from .job import Job, LoggedError, LoggedPair
from .lines import Speaker

# Addresses of queue pairs whose log names only the other end, as UCX's does: from the capture.

SLACK_NS = 2_000_000_000
"""Times in logs may be whole seconds."""


def in_time(pair: LoggedPair, flow: NamedFlow) -> bool:
    """Whether the queue pair may have existed while the flow had packets."""
    return (pair.time_ns is None or pair.time_ns <= flow.last_ns + SLACK_NS) and (
        pair.ended_ns is None or flow.first_ns <= pair.ended_ns + SLACK_NS
    )


def located(pairs: Sequence[LoggedPair], flows: Iterable[NamedFlow]) -> dict[int, str]:
    """Addresses by `id` of the queue pair, of those without one that have only one possible.

    The address is the source of the flow to the other end, unless packets come back from there for
    other queue pairs only. Otherwise it is what the log of the other end calls its peer, or the
    address of other queue pairs of the same device.
    """
    missing = [pair for pair in pairs if pair.address is None]
    if not missing:
        return {}
    by_pair: dict[int, str] = {}
    to: dict[tuple[str, int], list[NamedFlow]] = defaultdict(list)
    back: dict[tuple[str, str], set[int]] = defaultdict(set)
    for flow in flows:
        to[flow.dst, flow.dest_qp].append(flow)
        back[flow.src, flow.dst].add(flow.dest_qp)
    for pair in missing:
        if pair.remote is not None:
            there, _ = pair.remote
            _only(by_pair, pair, {
                flow.src
                for flow in to.get(pair.remote, ())
                if in_time(pair, flow)
                and pair.qpn in back.get((there, flow.src), {pair.qpn})
            })  # fmt: skip
    ends: dict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
    """What the queue pairs at an address call their other ends."""
    for pair in pairs:
        address = by_pair.get(id(pair), pair.address)
        if address is not None and pair.remote is not None:
            ends[address, pair.qpn].add(pair.remote)
    for pair in missing:
        if pair.remote is not None:
            _only(by_pair, pair, {
                address for address, qpn in ends.get(pair.remote, ()) if qpn == pair.qpn
            })  # fmt: skip
    devices: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pair in pairs:
        address = by_pair.get(id(pair), pair.address)
        if address is not None and pair.speaker is not None and pair.device is not None:
            devices[pair.speaker.host, pair.device].add(address)
    for pair in missing:
        if pair.speaker is not None and pair.device is not None:
            _only(by_pair, pair, devices.get((pair.speaker.host, pair.device), set()))
    return by_pair


def _only(by_pair: dict[int, str], pair: LoggedPair, addresses: set[str]) -> None:
    if id(pair) not in by_pair and len(addresses) == 1:
        (by_pair[id(pair)],) = addresses


_LONG_BEFORE_NS = 3_600_000_000_000
"""A queue pair that is older when its flow begins may be of an earlier job."""
_MOST_AFTER_NS = 600_000_000_000
"""An error is reported after the last retry, maybe after the capture."""
_RETRIES_EXCEEDED = {12: " (retries exceeded)", 13: " (RNR retries exceeded)"}

_HOW_TO_LOG = (
    ": NCCL names them with NCCL_DEBUG=INFO and NET in NCCL_DEBUG_SUBSYS, UCX with"
    " UCX_LOG_LEVEL=debug"
)

NOTE = "job logs: "
"""Begins every note."""

_Key = tuple[str, int]
_NOWHERE: _Key = ("", -1)


@dataclass
class Joined:
    """Owners by flow index, errors of the logs as events, and what could not be joined."""

    owners: dict[int, Owner] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)
    """Flows whose queue pair a log reports as failed, or of an address where one failed."""
    notes: list[str] = field(default_factory=list)


class _Places:
    """Where errors may be in the flows of a capture."""

    def __init__(self, flows: Sequence[NamedFlow], at_end: Sequence[LoggedPair | None]) -> None:
        self.flow_of = {id(pair): number for number, pair in enumerate(at_end) if pair is not None}
        """The flow to a logged queue pair, by its `id`."""
        self.addresses = {host for flow in flows for host in (flow.src, flow.dst)}
        self.qpns = {flow.dest_qp for flow in flows}
        self.to: dict[_Key, list[NamedFlow]] = defaultdict(list)
        for flow in flows:
            self.to[flow.dst, flow.dest_qp].append(flow)


class Join:
    """The join of one job with the flows of one analysis.

    cm: settles the pairing of connections; None: of a running analysis, whose inferred pairing
    stays unchanged.
    """

    def __init__(
        self,
        job: Job,
        tracker: FlowTracker,
        endpoints: Endpoints,
        cm: CmPairs | None = None,
    ) -> None:
        self._job = job
        self._tracker = tracker
        pairs = job.pairs()
        self._by_key: dict[_Key, list[LoggedPair]] = defaultdict(list)
        self._hosts: dict[str, set[str]] = defaultdict(set)
        """Hosts by address."""
        self._speakers: dict[Speaker, set[str]] = defaultdict(set)
        """Addresses of the queue pairs of a process."""
        self._devices: dict[tuple[str, str], set[str]] = defaultdict(set)
        """Addresses by host and device."""
        self._by_remote: dict[_Key, list[LoggedPair]] = defaultdict(list)
        """Queue pairs by the other end."""
        self._nowhere = 0
        seen = named_flows(tracker, endpoints)
        self._located = located(pairs, seen)
        for pair in pairs:
            if pair.remote is not None:
                self._by_remote[pair.remote].append(pair)
            address = self._address(pair)
            if address is None:
                self._nowhere += pair.remote is None
                continue
            self._by_key[address, pair.qpn].append(pair)
            if pair.speaker is not None:
                self._hosts[address].add(pair.speaker.host)
                self._speakers[pair.speaker].add(address)
                if pair.device is not None:
                    self._devices[pair.speaker.host, pair.device].add(address)
        self._pairs = len(pairs)
        self._dated = any(pair.time_ns is not None for pair in pairs)
        self._later = self._ambiguous = self._undated = self._elsewhen = self._several_ranks = 0
        self._unplaced: list[str] = []
        self._failed_flows: set[int] = set()
        """Errors of which the logs name no queue pair or address that is known."""
        self._old = self._oldest_ns = 0
        if cm is not None:
            settle(tracker, cm)
        self._pair_connections(seen)
        self._flows = named_flows(tracker, endpoints)

    def result(self) -> Joined:
        """Owners of the destination queue pair of a flow, else of its source."""
        owners: dict[int, Owner] = {}
        at_end = [self._of(flow) for flow in self._flows]
        for flow in self._flows:
            near = at_end[flow.number]
            far = None
            if flow.peer >= 0 and self._flows[flow.peer].dst == flow.src:
                far = at_end[flow.peer]
            far = far or self._from(flow)
            if near is not None:
                owners[flow.number] = self._owner(near, far, flow.src, "destination")
            elif far is not None:
                owners[flow.number] = self._owner(far, None, flow.dst, "source")
            self._several_ranks += any(
                pair is not None and pair.has_several_ranks for pair in (near, far)
            )
            if (pair := near or far) is not None:
                self._note_age(pair, flow)
        return Joined(owners, self._events(at_end), self._failed_flows, self._notes(owners))

    def _pair_connections(self, seen: list[NamedFlow]) -> None:
        """Pair the flows of connections of which a log names both ends."""
        numbers = {(flow.src, flow.dst, flow.dest_qp): flow.number for flow in seen}
        for (address, qpn), pairs in self._by_key.items():
            remote = pairs[0].remote
            if len(pairs) > 1 or remote is None:
                continue
            to_here = numbers.get((remote[0], address, qpn))
            from_here = numbers.get((address, *remote))
            if to_here is not None and from_here is not None:
                self._tracker.pair(from_here, to_here, EVIDENCE_HOST_PROBE)

    def _of(self, flow: NamedFlow) -> LoggedPair | None:
        """The logged queue pair that a flow goes to; None if there is none or more than one."""
        named = self._by_key.get((flow.dst, flow.dest_qp), [])
        possible = [
            pair
            for pair in named
            if in_time(pair, flow) and pair.remote_address in (None, flow.src)
        ]
        if named and not possible:
            self._later += 1
        if len(possible) > 1:
            times = [pair.time_ns for pair in possible]
            if None not in times and len(set(times)) == len(times):
                last = max(possible, key=lambda pair: pair.time_ns or 0)
                assert last.time_ns is not None
                if last.time_ns <= flow.first_ns + SLACK_NS:
                    return last
            self._ambiguous += 1
            return None
        return possible[0] if possible else None

    def _from(self, flow: NamedFlow) -> LoggedPair | None:
        """The logged queue pair whose other end a flow goes to, if there is only one."""
        possible = [
            pair
            for pair in self._by_remote.get((flow.dst, flow.dest_qp), ())
            if in_time(pair, flow) and self._address(pair) == flow.src
        ]
        return possible[0] if len(possible) == 1 else None

    def _address(self, pair: LoggedPair) -> str | None:
        return self._located.get(id(pair), pair.address)

    def _note_age(self, pair: LoggedPair, flow: NamedFlow) -> None:
        if pair.time_ns is not None and pair.ended_ns is None:
            age_ns = flow.first_ns - pair.time_ns
            self._oldest_ns = max(self._oldest_ns, age_ns)
            self._old += age_ns > _LONG_BEFORE_NS

    def _owner(self, pair: LoggedPair, other: LoggedPair | None, far: str, end: str) -> Owner:
        speaker = pair.speaker
        return Owner(
            pid=None if speaker is None else speaker.pid,
            command="perftest" if speaker is None else None,
            rank=pair.rank,
            end=end,
            host=None if speaker is None else speaker.host,
            device=pair.device,
            comm=pair.comm,
            peer_rank=self._peer(pair, other, far),
            inferred_channel=pair.channel,
        )

    def _peer(self, pair: LoggedPair, other: LoggedPair | None, far: str) -> int | None:
        """The rank at the other end: as its own log says, else the only neighbour on its host, or
        the only one at all where no log names that host."""
        if pair.rank is None:
            return None
        if other is not None:
            same = None not in (pair.comm, other.comm) and pair.comm == other.comm
            return other.rank if same else None
        there = self._hosts.get(far, set())
        near = self._job.neighbours.get((pair.comm, pair.rank), set())
        if there:
            near = {rank for rank in near if self._job.hosts.get((pair.comm, rank)) in there}
        return next(iter(near)) if pair.comm is not None and len(near) == 1 else None

    def _events(self, at_end: Sequence[LoggedPair | None]) -> list[Event]:
        """Errors of the logs that have a time and belong to a queue pair or address here."""
        first = min((flow.first_ns for flow in self._flows), default=0)
        last = max((flow.last_ns for flow in self._flows), default=0)
        places = _Places(self._flows, at_end)
        events = []
        for error in self._job.errors:
            pair = self._failed(error)
            number = self._flow_of(error, pair, places)
            is_here = number is not None or self._is_here(error, pair, places)
            is_unplaced = not is_here and self._is_unplaced(error, pair)
            if not (is_here or is_unplaced):
                continue  # of another job, or of other hosts
            if error.time_ns is not None and not (
                first - SLACK_NS <= error.time_ns <= last + _MOST_AFTER_NS
            ):
                self._elsewhen += 1
                continue
            if number is not None:
                self._failed_flows.add(number)
            elif is_here:
                ends = self._ends(error, pair)
                self._failed_flows |= {f.number for f in self._flows if {f.src, f.dst} & ends}
            text = _error_text(error, pair)
            if is_unplaced:
                self._unplaced.append(text)
                if error.qpn not in places.qpns:
                    continue
            if error.time_ns is None:
                self._undated += is_here
                continue
            events.append(
                Event(
                    time_ns=error.time_ns,
                    kind="job_error",
                    flow=number,
                    frame_number=None,
                    tap=None,
                    text=text,
                )
            )
        return events

    def _flow_of(self, error: LoggedError, pair: LoggedPair | None, places: _Places) -> int | None:
        """The flow whose packets failed: that of a logged queue pair, else the only one to the
        other end that the error names, else the one from a queue pair of the device."""
        if pair is not None:
            number = places.flow_of.get(id(pair))
            if number is not None:
                return self._data(number) if pair.sends else number
            flows = [
                flow
                for flow in places.to.get(pair.remote or _NOWHERE, ())
                if flow.src == self._address(pair) and in_time(pair, flow)
            ]
            return flows[0].number if len(flows) == 1 else None
        local = self._local(error)
        if error.remote is not None and error.remote_qpn is not None:
            flows = [
                flow
                for flow in places.to.get((error.remote, error.remote_qpn), ())
                if local in (None, flow.src) and self._may_be_from(error.speaker, flow.src)
            ]
            return flows[0].number if len(flows) == 1 else None
        if local is not None and error.qpn is not None:
            flows = places.to.get((local, error.qpn), [])
            return self._data(flows[0].number) if len(flows) == 1 else None
        return None

    def _data(self, number: int) -> int:
        """The flow from the queue pair that a flow goes to if it is known, else this flow."""
        peer = self._flows[number].peer
        return number if peer < 0 else peer

    def _local(self, error: LoggedError) -> str | None:
        """The address of the process that reports an error, or of its device."""
        if error.local is not None or error.device is None:
            return error.local
        addresses = self._devices.get((error.speaker.host, error.device), set())
        return next(iter(addresses)) if len(addresses) == 1 else None

    def _may_be_from(self, speaker: Speaker, address: str) -> bool:
        """Whether no log contradicts that an address is of the host of a process."""
        return speaker.host in self._hosts.get(address, (speaker.host,))

    def _is_here(self, error: LoggedError, pair: LoggedPair | None, places: _Places) -> bool:
        """Whether an error is of an address, or else of a process, in the capture."""
        return not self._ends(error, pair).isdisjoint(places.addresses)

    def _ends(self, error: LoggedError, pair: LoggedPair | None) -> set[str | None]:
        """The addresses that an error is about, or else those of its process."""
        addresses = {error.local, error.remote, None if pair is None else self._address(pair)}
        if addresses == {None}:
            addresses = {self._local(error), *self._speakers.get(error.speaker, ())}
        return addresses

    def _is_unplaced(self, error: LoggedError, pair: LoggedPair | None) -> bool:
        """Whether nothing shows which addresses an error is about."""
        located = None if pair is None else self._address(pair)
        known = (error.local, error.remote, located, self._local(error))
        return not any(known) and not self._speakers.get(error.speaker)

    def _failed(self, error: LoggedError) -> LoggedPair | None:
        """The queue pair of the process that reports an error."""
        if error.qpn is None:
            return None
        return self._job.pair_of(error.speaker, error.qpn, error.time_ns)

    def _notes(self, owners: dict[int, Owner]) -> list[str]:
        job, notes = self._job, []
        files = f"{job.files:,} {'file' if job.files == 1 else 'files'}"
        placed = self._pairs - self._nowhere
        if placed and not (owners or self._ambiguous or self._later):
            notes.append(
                f"none of the {placed:,} queue pairs in {files} is in this capture:"
                " logs of another job, or of other hosts?"
            )
        elif not placed:
            notes.append(
                f"no queue pair with a RoCE address in {files}"
                + ("" if job.unmatched_perftest_lines else _HOW_TO_LOG)
            )
        elif not self._dated:
            notes.append(
                "their queue pairs have no times: a queue pair of an earlier job with"
                " the same address and number would match as well"
            )
        if self._old:
            notes.append(
                f"the queue pairs of {self._old:,} flows were created up to"
                f" {self._oldest_ns / 3_600_000_000_000:,.0f} hours before the flows begin, and no"
                " line shows their end: queue pairs of a later job with the same address and"
                " number would match as well"
            )
        if self._nowhere:
            notes.append(f"{self._nowhere:,} queue pairs have no address in the logs: not joined")
        if self._ambiguous:
            notes.append(
                f"{self._ambiguous:,} flows fit several queue pairs of the logs: their"
                " owner is unknown"
            )
        if self._later:
            notes.append(
                f"{self._later:,} flows ended before their queue pair was created, began"
                " after it or its communicator was destroyed, or come from another peer:"
                " not joined (log times are read as local time, see TZ)"
            )
        if self._several_ranks:
            notes.append(
                f"{self._several_ranks:,} flows belong to processes with several communicators, in"
                " which they have different ranks: their rank is unknown"
            )
        if job.mixed_perftest_pairs:
            notes.append(
                f"{job.mixed_perftest_pairs:,} queue pairs are of programs of perftest whose lines"
                " are mixed in one file: their other end is unknown, and their device if the"
                " programs use different ones"
            )
        if job.unmatched_perftest_lines:
            notes.append(
                f"{job.unmatched_perftest_lines:,} GIDs in lines of perftest follow no queue pair"
                " with the same text before its line: not used"
            )
        if self._unplaced:
            notes.append(
                f"{len(self._unplaced):,} errors name no other end, and no line shows the address"
                f" of their queue pair ({self._unplaced[0]}): their flow is unknown"
            )
        if self._undated:
            notes.append(f"{self._undated:,} errors have no time: not among the events")
        if self._elsewhen:
            notes.append(
                f"{self._elsewhen:,} errors are not from the time of the capture: not"
                " among the events (log times are read as local time, see TZ)"
            )
        if job.doubtful_labels:
            notes.append(
                f"{job.doubtful_labels:,} ranks that mpirun or srun wrote before lines of UCX"
                " belong to several processes, or to a process with other ranks, as in logs of"
                " several jobs: not used"
            )
        if job.unknown_lines:
            notes.append(f"{job.unknown_lines:,} lines have an unknown form: not used")
        if job.dropped:
            notes.append(f"{job.dropped:,} entries exceed the limits: not used")
        return [NOTE + note for note in notes]


def _error_text(error: LoggedError, pair: LoggedPair | None) -> str:
    who = f"{error.speaker.host} pid {error.speaker.pid}"
    if pair is not None and pair.rank is not None:
        who = f"rank {pair.rank} ({who})"
    text = f"{who}: completion with error"
    if error.status is not None:
        text += f" {error.status}{_RETRIES_EXCEEDED.get(error.status, '')}"
    if error.qpn is not None:
        text += f", QP 0x{error.qpn:06x}"
    if error.remote is not None:
        text += f" to {error.remote}"
    return text
