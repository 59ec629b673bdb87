"""Where and when, from one analysis: the fabric as the captures show it, and the axis of time.

Screens and pages draw the same `Overview`. Nothing here is guessed: a link whose packets were not
compared with those of another tap is `not checked`, a link without a tap is `not captured`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from ipaddress import ip_address
from typing import Final, NamedTuple

from ..analyzer.measures.hops.vantage import FabricLinks, device_between, ends_of, short_names
from ..analyzer.results.analysis import Analysis, Hop
from ..analyzer.results.base import Imbalance, Series
from ..analyzer.results.captures import TapSummary
from ..analyzer.results.diagnosis import Finding, Kind, Severity
from ..analyzer.results.jobs import TrainingJob
from ..analyzer.wire.registry import DIVIDER
from ..analyzer.words import printable
from .hops import long_queue, tier
from .human import UNICODE, count, counted, duration, percent
from .notes import captured_ns


class State(StrEnum):
    """What the captures show of a link or device; the first one that applies."""

    LOSSY = "lossy"
    MOVED = "moved away"
    """Its flows moved to other links: it is down, or sends nothing any more."""
    PAUSED = "paused"
    SLOW = "slow"
    """Packets wait long in the queue before it."""
    MARKED = "marked"
    LATE = "late"
    """Packets are overtaken on their way to it."""
    UNCHECKED = "not checked"
    """No other tap tells whether its packets pass in order and in time."""
    FINE = "fine"
    """Its packets were compared with those of another tap, and nothing of the above shows."""
    IDLE = "idle"
    """Captured, without a RoCE packet."""
    UNCAPTURED = "not captured"


WORST_FIRST: Final = tuple(State)
FAULTS: Final = WORST_FIRST[: WORST_FIRST.index(State.UNCHECKED)]
"""States that a fault or congestion causes."""
GLYPHS: Final = {
    State.LOSSY: UNICODE.severities[0],
    State.MOVED: "↷",
    State.PAUSED: "‖",
    State.SLOW: "≈",
    State.MARKED: "!",
    State.LATE: "↔",
    State.UNCHECKED: "?",
    State.FINE: "·",
    State.IDLE: "○",
    State.UNCAPTURED: "░",
}
"""One sign for each state, so that no state needs a colour."""

_STATE_OF: Final[dict[Kind, State]] = {
    "loss": State.LOSSY,
    "selective-loss": State.LOSSY,
    "blackhole": State.LOSSY,
    "outage": State.LOSSY,
    "corruption": State.LOSSY,
    "rate-limit": State.LOSSY,
    "incast": State.SLOW,
    "collision": State.SLOW,
    "queueing": State.SLOW,
    "delay-step": State.SLOW,
    "ecn-marking": State.MARKED,
    "pause": State.PAUSED,
    "reordering": State.LATE,
    "link-down": State.MOVED,
}
"""What a finding makes of the links and the device that it names; other kinds say nothing of a
link."""
_EXPLAINS_LOSS = {State.LOSSY, State.SLOW, State.MOVED}


def worst(states: Iterable[State], otherwise: State = State.UNCHECKED) -> State:
    """The first of `WORST_FIRST` among some."""
    return min(states, key=WORST_FIRST.index, default=otherwise)


# The fabric.


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a link. Numbers are None where these captures cannot give them."""

    source: str
    target: str
    packets: int | None
    """Seen here in this direction."""
    wire_bytes: int | None
    lost_after_packets: int | None
    """Last seen here, never at the next tap."""
    lost_before_packets: int | None
    """Expected here after another tap, never seen."""
    expected_packets: int | None
    """Left another tap for this link."""
    queueing_p99_ns: float | None
    """Delay above the smallest one, from the tap before; the longest of several."""
    ce_packets: int | None
    """Marked since the tap before; None also if no packet is ECN-capable."""
    late_packets: int | None
    """Overtaken since the tap before."""
    utilisation_percent: float | None
    """Of the link rate, mean over the captures."""
    fair_ratio: float | None
    """Bytes over the mean of the parallel links in this direction; 1 is fair."""
    state: State
    findings: tuple[int, ...]
    """Numbers of the findings that name it, from 1, as the list of findings has them."""

    @property
    def loss_percent(self) -> float | None:
        """The larger share of packets lost: after this link, or before they reached it."""
        shares = [
            100 * lost / of
            for lost, of in (
                (self.lost_after_packets, self.packets),
                (self.lost_before_packets, self.expected_packets),
            )
            if lost is not None and of
        ]
        return max(shares, default=None)


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two devices, with all parallel links between the same two."""

    lower: str
    """The device nearer to the hosts."""
    upper: str
    taps: tuple[str, ...]
    """Names as in the analysis; empty: not captured."""
    up: Direction
    """From `lower` to `upper`."""
    down: Direction
    state: State
    findings: tuple[int, ...]
    wire_bytes: int | None
    """Of both directions, as counted at the tap."""
    pause_frames: int | None
    """PFC and global pause at its taps, both directions."""
    is_supposed: bool = False
    """Neither a tap nor a fabric file shows it: other devices of this tier have such a link."""

    @property
    def directions(self) -> tuple[Direction, Direction]:
        return self.up, self.down

    @property
    def name(self) -> str:
        return f"{self.lower}-{self.upper}"


@dataclass(frozen=True, slots=True)
class Device:
    """A switch or a host."""

    name: str
    label: str
    """As drawn: of an Ethernet address its end, where this tells all apart."""
    level: int
    """0: host; 1: the switches of hosts; 2 and more: switches above."""
    state: State
    findings: tuple[int, ...]
    addresses: tuple[str, ...] = ()
    """Of a host, as far as known."""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Devices and links, as the captures or a fabric file show them."""

    devices: tuple[Device, ...]
    """By level and name, in natural order."""
    links: tuple[Link, ...]
    from_file: bool
    """Whether a fabric file gives the links: then none is supposed."""

    def level(self, number: int) -> list[Device]:
        """The devices of one level: 0 are hosts."""
        return [device for device in self.devices if device.level == number]

    @property
    def tiers(self) -> int:
        """Levels of switches."""
        return max((device.level for device in self.devices), default=0)

    def cells(self) -> dict[tuple[str, str], Link]:
        """Links by lower and upper device."""
        return {(link.lower, link.upper): link for link in self.links}

    def hosts_of(self, switch: str) -> list[tuple[Device, Link]]:
        """The hosts below a switch, with their links."""
        by_name = {device.name: device for device in self.devices}
        return [
            (by_name[link.lower], link)
            for link in self.links
            if link.upper == switch and by_name[link.lower].level == 0
        ]

    def sentence(self) -> str:
        """`spine3 ✗ lossy; 7 links fine, 8 not captured`"""
        named = [
            f"{device.label} {GLYPHS[device.state]} {device.state}"
            for device in self.devices
            if device.level and device.state in FAULTS
        ]
        times = Counter(link.state for link in self.links)
        first, *others = [state for state in WORST_FIRST if times[state]]
        parts = [f"{counted(times[first], 'link')} {first}"]
        parts += [f"{times[state]} {state}" for state in others]
        return "; ".join([*named[:3], ", ".join(parts)])


class Measure(NamedTuple):
    """What cells of the fabric show."""

    key: str
    title: str
    unit: str
    value: Callable[[Direction], float | None]
    text: Callable[[float], str]
    is_trouble: bool
    """Whether every value above 0 is a problem."""


MEASURES: Final = (
    Measure(
        "loss", "loss", "% of packets",
        lambda way: way.loss_percent, lambda v: percent(v / 100), True,
    ),
    Measure(
        "utilisation", "utilisation", "% of the link rate",
        lambda way: way.utilisation_percent, lambda v: percent(v / 100), False,
    ),
    Measure(
        "queueing", "queueing delay", "p99 above the least delay",
        lambda way: way.queueing_p99_ns, duration, False,
    ),
    Measure(
        "ce", "CE marks", "packets",
        lambda way: way.ce_packets, lambda v: count(int(v)), True,
    ),
    Measure(
        "late", "late packets", "packets",
        lambda way: way.late_packets, lambda v: count(int(v)), True,
    ),
    Measure(
        "fair", "share of fair", "1 is fair",
        lambda way: way.fair_ratio, lambda v: f"{v:.2f}", False,
    ),
)  # fmt: skip


# The axis of time.


class FindingSpan(NamedTuple):
    """A finding from onset to end."""

    number: int
    """In the list of findings, from 1."""
    kind: Kind
    severity: Severity
    from_ns: int
    until_ns: int | None
    """None: ongoing at the end."""


class PausedSpan(NamedTuple):
    """A tap and priority that was paused. Without a link rate: from the first to the last frame."""

    tap: str
    priority: int | None
    from_ns: int
    until_ns: int
    is_exact: bool


class StepEnd(NamedTuple):
    """The end of a step of a job."""

    job: str
    step: int
    at_ns: int


SERIES: Final = (
    ("bytes", "wire_bytes"),
    ("retransmitted", "retransmitted_packets"),
    ("late", "reordered_packets"),
    ("NAKs", "naks"),
    ("CE marks", "ecn_marked_packets"),
    ("CNPs", "cnps"),
)
"""Label and column of `Series`. Late packets and marks are those at the first tap of each packet;
`Direction` has those between taps."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """What happens when, on one axis; times are nanoseconds since the Unix epoch."""

    start_ns: int
    """First packet of any capture."""
    end_ns: int
    slices_start_ns: int
    slice_ns: int
    columns: Mapping[str, Sequence[int]]
    """By column of `Series`: a sum per slice."""
    findings: tuple[FindingSpan, ...]
    pauses: tuple[PausedSpan, ...]
    steps: tuple[StepEnd, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """Where and when."""

    fabric: Fabric | None
    why: str
    """Why there is no fabric; empty if there is."""
    time: TimeAxis | None
    """None without packets."""


def overview(analysis: Analysis, fabric: FabricLinks | None = None) -> Overview:
    """The overview of an analysis. fabric: the links of a fabric file."""
    drawn = _Drawing(analysis, fabric).fabric()
    return Overview(drawn, "" if drawn is not None else _why(analysis), time_axis(analysis))


def _why(analysis: Analysis) -> str:
    taps = _taps(analysis)
    if len(taps) < 2:
        return (
            "one tap shows no fabric: capture several links, or the mirror of several links, or"
            " name the fabric (--fabric)"
        )
    return (
        "the taps do not show which devices they stand between: name files by link"
        " (leaf1-spine1.pcap), or name the fabric (--fabric)"
    )


def time_axis(analysis: Analysis) -> TimeAxis | None:
    """The axis of time of an analysis; None without packets."""
    series: Series = analysis.series
    begin, end = captured_ns(analysis)
    if begin is None or end is None or not series.packets:
        return None
    return TimeAxis(
        begin,
        end,
        series.start_ns,
        series.window_ns,
        {column: getattr(series, column) for _, column in SERIES},
        finding_spans(analysis.diagnosis.findings),
        tuple(_paused(_taps(analysis))),
        tuple(step_ends(analysis.jobs)),
    )


def finding_spans(findings: Sequence[Finding]) -> tuple[FindingSpan, ...]:
    """Findings in the order of their list."""
    return tuple(
        FindingSpan(number, each.kind, each.severity, each.from_ns, each.until_ns)
        for number, each in enumerate(findings, 1)
    )


def step_ends(jobs: Sequence[TrainingJob]) -> list[StepEnd]:
    """The ends of the steps of all jobs."""
    return [
        StepEnd(job.name, step.index, step.last_message_ns)
        for job in jobs
        if job.iterations is not None
        for step in job.iterations.steps
    ]


def _paused(taps: Iterable[TapSummary]) -> Iterable[PausedSpan]:
    for tap in taps:
        for pause in tap.pauses:
            for span in pause.spans:
                yield PausedSpan(tap.name, pause.priority, span.from_ns, span.until_ns, True)
            first, last = pause.first_time_ns, pause.last_time_ns
            if not pause.spans and first is not None and last is not None:
                yield PausedSpan(tap.name, pause.priority, first, last, False)


def _taps(analysis: Analysis) -> list[TapSummary]:
    return [tap for capture in analysis.captures for tap in capture.taps]


# How the fabric follows from names of taps, hops, parallel links and findings.

_SWITCHES = re.compile(r"leaf|spine|tor|agg|core|super|border|sw", re.IGNORECASE)
_ETHERNET = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_LEAST_FILLED = 0.5
"""Links are supposed where at least this part of the pairs of two tiers have one."""
_Way = tuple[str, str]


def _natural(name: str) -> list[tuple[int, str]]:
    return [
        (int(part), "") if part.isdigit() else (0, part)
        for part in re.split(r"(\d+)", name)
        if part
    ]


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class _Drawing:
    """The fabric of one analysis."""

    def __init__(self, analysis: Analysis, file: FabricLinks | None) -> None:
        self._analysis, self._file = analysis, file
        self._taps = {tap.name: tap for tap in _taps(analysis)}
        # Links of a mirror are named by their ends, and keep the endings of other names.
        files = [tap for tap in self._taps if DIVIDER not in tap]
        self._short = {tap: tap for tap in self._taps}
        self._short |= dict(zip(files, short_names(files), strict=True))
        self._ends = self._known_ends()
        self._out: dict[_Way, list[Hop]] = defaultdict(list)
        self._in: dict[_Way, list[Hop]] = defaultdict(list)
        self._astray: dict[frozenset[str], list[Hop]] = defaultdict(list)
        """Hops whose lost packets left a link in an unknown direction."""
        self._ways_of: dict[int, tuple[_Way, _Way]] = {}
        """By hop: the direction of the link that it leaves, and of the link that it reaches."""
        self._hops_at: dict[str, list[Hop]] = defaultdict(list)
        """By tap: hops from and to it whose directions are known."""
        for hop in analysis.hops:
            self._place(hop)
        self._between = {way[1] for way in self._out} & {way[0] for way in self._in}
        self._long = long_queue(analysis.hops)
        marks = any(flow.congestion.ecn_capable_packets for flow in analysis.flows)
        self._marks_show = marks or any(hop.ce_marked_packets for hop in analysis.hops)
        begin, end = captured_ns(analysis)
        self._length_ns = max(1, (end or 0) - (begin or 0))
        self._named, self._states, self._of_devices = self._of_findings()

    def _known_ends(self) -> dict[str, _Way]:
        """The two devices of each tap that shows them, where more than its name says so."""
        ends = {tap: both for tap, name in self._short.items() if (both := ends_of(name))}
        sure = {tap for tap, tap_ in self._taps.items() if tap_.link_addresses}
        sure &= ends.keys()
        for hop in self._analysis.hops:
            taps = [tap for tap in (hop.from_tap, hop.to_tap) if tap in ends]
            if len(taps) == 2 and set(ends[taps[0]]) & set(ends[taps[1]]):
                sure |= set(taps)
        for parallel in self._parallel():
            if all(tap in ends for tap in parallel) and self._shared(parallel, ends):
                sure |= set(parallel)
        if self._file is not None:
            known = {frozenset(link) for link in self._file.links}
            sure |= {tap for tap, both in ends.items() if frozenset(both) in known}
        devices = {device for tap in sure for device in ends[tap]}
        return {tap: both for tap, both in ends.items() if tap in sure or set(both) & devices}

    def _parallel(self) -> list[tuple[str, ...]]:
        """Sets of parallel taps, once for both directions."""
        by_tap: Iterable[Imbalance] = (i for i in self._analysis.imbalance if i.path_by == "tap")
        sets = (tuple(sorted(share.path for share in each.shares)) for each in by_tap)
        return [taps for taps in dict.fromkeys(sets) if len(taps) > 1]

    @staticmethod
    def _shared(taps: Sequence[str], ends: Mapping[str, _Way]) -> str | None:
        """The one device at which all these links end."""
        common = set.intersection(*(set(ends[tap]) for tap in taps))
        return common.pop() if len(common) == 1 else None

    def _place(self, hop: Hop) -> None:
        """The directions of the links that a hop leaves and reaches."""
        near = self._ends.get(hop.from_tap)
        far = self._ends.get(hop.to_tap) if hop.to_tap is not None else None
        if near is None:
            return
        if far is None:
            if hop.lost_packets:
                self._astray[frozenset(near)].append(hop)
            return
        if set(near) == set(far):  # both ends of one link; a tap is named from its own end
            if near != far:
                self._note(hop, near, near)
            return
        device = hop.device
        if device not in near or device not in far:
            device = device_between(self._short[hop.from_tap], self._short[hop.to_tap or ""])
        if device is None:
            return
        self._note(hop, (_other(near, device), device), (device, _other(far, device)))

    def _note(self, hop: Hop, out: _Way, into: _Way) -> None:
        self._ways_of[hop.id] = out, into
        self._out[out].append(hop)
        self._in[into].append(hop)
        for tap in (hop.from_tap, hop.to_tap):
            if tap is not None:
                self._hops_at[tap].append(hop)

    def _of_findings(
        self,
    ) -> tuple[dict[str, list[int]], dict[_Way, set[State]], dict[str, list[tuple[int, State]]]]:
        """By tap the findings that name it; by direction and device what they make of it."""
        named: dict[str, list[int]] = defaultdict(list)
        states: dict[_Way, set[State]] = defaultdict(set)
        devices: dict[str, list[tuple[int, State]]] = defaultdict(list)
        losses: list[Finding] = []
        for number, finding in enumerate(self._analysis.diagnosis.findings, 1):
            place, state = finding.place, _STATE_OF.get(finding.kind)
            for tap in dict.fromkeys((place.from_tap, place.to_tap, place.capture)):
                if tap is not None:
                    named[tap].append(number)
            if place.device is not None:
                devices[place.device].append((number, state or State.UNCHECKED))
            if state is None:
                continue
            if state in _EXPLAINS_LOSS and (place.from_tap or place.to_tap or place.device):
                losses.append(finding)
            for way in self._ways(finding):
                states[way].add(state)
        for hop in self._analysis.hops:
            if hop.lost_packets and hop.id in self._ways_of:
                ends = dict(zip(("from", "to"), self._ways_of[hop.id], strict=True))
                for end, state in _blamed(hop, losses):
                    states[ends[end]].add(state)
        return named, states, devices

    def _ways(self, finding: Finding) -> set[_Way]:
        """The directions of links that a finding names."""
        place, ways = finding.place, set[_Way]()
        for hop in self._hops_at.get(place.from_tap or "", ()):
            if hop.from_tap == place.from_tap and place.to_tap in (None, hop.to_tap):
                ways.add(self._ways_of[hop.id][0])
        for hop in self._hops_at.get(place.to_tap or "", ()):
            if hop.to_tap == place.to_tap and place.from_tap in (None, hop.from_tap):
                ways.add(self._ways_of[hop.id][1])
        return ways

    def fabric(self) -> Fabric | None:
        """None if nothing shows a link between two devices."""
        pairs = {frozenset(both) for both in self._ends.values()}
        if not pairs:
            return None
        if self._file is not None:
            pairs |= {frozenset(link) for link in self._file.links}
        levels = self._levels(pairs)
        taps: dict[frozenset[str], list[str]] = defaultdict(list)
        for tap, both in self._ends.items():
            taps[frozenset(both)].append(tap)
        fair = self._fair()
        links = [self._link(pair, taps.get(pair, []), levels, fair, False) for pair in pairs]
        if self._file is None:
            links += [self._link(pair, [], levels, fair, True) for pair in _supposed(pairs, levels)]
        links.sort(
            key=lambda link: (levels[link.lower], _natural(link.lower), _natural(link.upper))
        )
        return Fabric(tuple(self._devices(levels, links)), tuple(links), self._file is not None)

    # Levels.

    def _levels(self, pairs: set[frozenset[str]]) -> dict[str, int]:
        near: dict[str, set[str]] = defaultdict(set)
        for pair in pairs:
            for device in pair:
                near[device] |= pair - {device}
        hosts = {device for device in near if self._is_host(device, near)}
        level = dict.fromkeys(hosts, 0)
        edge = {device for host in hosts for device in near[host] if device not in hosts}
        for part in _parts(near):
            if not part & edge:
                edge |= self._edge(part)
        # Idle links show no hop: devices of one tier have names that differ in their numbers.
        stems = {tier(device) for device in edge} - {tier(d) for d in near.keys() - edge - hosts}
        edge |= {d for d in near if tier(d) in stems and tier(d) and d not in hosts}
        at, number = edge, 1
        while at:
            level |= dict.fromkeys(at, number)
            at = {above for device in at for above in near[device]} - level.keys()
            number += 1
        return {device: level.get(device, 1) for device in near}

    def _edge(self, part: set[str]) -> set[str]:
        """The switches of hosts, where no link of a host is captured: paths begin there."""
        ends = {way[0] for way in self._out} | {way[1] for way in self._in}
        if ends := (ends - self._between) & part:
            return ends
        shared = {
            device
            for taps in self._parallel()
            if all(tap in self._ends for tap in taps)
            and (device := self._shared(taps, self._ends)) is not None
        }
        return shared & part or {both[0] for both in self._ends.values()} & part

    def _is_host(self, device: str, near: Mapping[str, set[str]]) -> bool:
        if self._file is not None and device in self._file.hosts:
            return True
        if _is_address(device):
            return True
        # Of a host with an Ethernet address the links are named by its network address.
        if _ETHERNET.fullmatch(device) or _SWITCHES.search(device):
            return False
        if len(near[device]) != 1 or device in self._between:
            return False
        return bool(self._common_addresses.get(device))

    @cached_property
    def _common_addresses(self) -> dict[str, set[str]]:
        """By device with one link: the addresses at an end of all flows there."""
        common: dict[str, set[str]] = {}
        for flow in self._analysis.flows:
            for device in {end for tap in flow.taps for end in self._ends.get(tap, ())}:
                ends = common.setdefault(device, {flow.src, flow.dst})
                ends &= {flow.src, flow.dst}
        return common

    # Numbers.

    def _fair(self) -> dict[_Way, float]:
        """By direction: bytes over the mean of its parallel links."""
        ratios: dict[_Way, float] = {}
        for taps in self._parallel():
            if not all(tap in self._ends for tap in taps):
                continue
            device = self._shared(taps, self._ends)
            if device is None:
                continue
            others = [_other(self._ends[tap], device) for tap in taps]
            for ways in (
                [(device, other) for other in others], [(other, device) for other in others],
            ):  # fmt: skip
                amounts = [self._bytes(way) for way in ways]
                if any(amounts):
                    mean = sum(amount or 0 for amount in amounts) / len(ways)
                    ratios |= {
                        way: (amount or 0) / mean for way, amount in zip(ways, amounts, strict=True)
                    }
        return ratios

    def _bytes(self, way: _Way) -> int | None:
        """Wire bytes in one direction: those that left, or those that came."""
        if hops := self._out.get(way):
            return max(_by_tap(hops, "from_tap", lambda hop: hop.wire_bytes))
        if hops := self._in.get(way):
            return round(
                max(
                    _by_tap(
                        hops,
                        "to_tap",
                        lambda hop: hop.wire_bytes * hop.passed_packets / hop.packets,
                    )
                )
            )
        return None

    def _direction(self, way: _Way, taps: Sequence[str], fair: Mapping[_Way, float]) -> Direction:
        out, into = self._out.get(way), self._in.get(way)
        packets, wire_bytes = None, self._bytes(way)
        if out is not None:
            packets = max(_by_tap(out, "from_tap", lambda hop: hop.packets))
        elif into is not None:
            packets = max(_by_tap(into, "to_tap", lambda hop: hop.passed_packets))
        waits = [hop.queueing_ns.p99 for hop in into or () if hop.queueing_ns is not None]
        rates = [self._taps[tap].speed_bits_per_second for tap in taps]
        rate = sum(rate for rate in rates if rate)
        known = all(rates) and bool(rates) and wire_bytes is not None
        marked = into is not None and self._marks_show
        direction = Direction(
            source=way[0],
            target=way[1],
            packets=packets,
            wire_bytes=wire_bytes,
            lost_after_packets=None if out is None else sum(hop.lost_packets for hop in out),
            lost_before_packets=None if into is None else sum(hop.lost_packets for hop in into),
            expected_packets=None if into is None else sum(hop.packets for hop in into),
            queueing_p99_ns=max(waits, default=None),
            ce_packets=sum(hop.ce_marked_packets for hop in into or ()) if marked else None,
            late_packets=None if into is None else sum(hop.reordered_packets for hop in into),
            utilisation_percent=(wire_bytes or 0) * 8e11 / (rate * self._length_ns)
            if known
            else None,
            fair_ratio=fair.get(way),
            state=State.UNCHECKED,
            findings=tuple(
                sorted({n for tap in taps for n in self._named.get(tap, ()) if self._is_of(way, n)})
            ),
        )
        return replace(direction, state=self._state(direction, taps))

    def _is_of(self, way: _Way, number: int) -> bool:
        """Whether a finding that names the tap may be of this direction."""
        finding = self._analysis.diagnosis.findings[number - 1]
        ways = self._ways(finding)
        return way in ways or way[::-1] not in ways

    def _state(self, way: Direction, taps: Sequence[str]) -> State:
        if not taps:
            return State.UNCAPTURED
        states = set(self._states.get((way.source, way.target), ()))
        if way.queueing_p99_ns is not None and 0 < self._long <= way.queueing_p99_ns:
            states.add(State.SLOW)
        if way.ce_packets:
            states.add(State.MARKED)
        if way.late_packets:
            states.add(State.LATE)
        if states:
            return worst(states)
        if way.packets is None:
            idle = not any(self._taps[tap].roce_packets for tap in taps)
            return State.IDLE if idle else State.UNCHECKED
        # What was lost further on may have been lost here.
        return State.UNCHECKED if way.lost_after_packets else State.FINE

    def _link(
        self,
        pair: frozenset[str],
        taps: Sequence[str],
        levels: Mapping[str, int],
        fair: Mapping[_Way, float],
        is_supposed: bool,
    ) -> Link:
        lower, upper = sorted(pair, key=lambda device: (levels[device], _natural(device)))
        up = self._direction((lower, upper), taps, fair)
        down = self._direction((upper, lower), taps, fair)
        states: set[State] = set()
        pauses = [pause for tap in taps for pause in self._taps[tap].pauses]
        if pauses:
            states.add(State.PAUSED)
        if pair in self._astray:
            states.add(State.LOSSY)
        for tap in taps:  # findings whose direction nothing shows
            for number in self._named.get(tap, ()):
                finding = self._analysis.diagnosis.findings[number - 1]
                state = _STATE_OF.get(finding.kind)
                if state is not None and not self._ways(finding):
                    states.add(state)
        if states:  # of one direction or the other
            up, down = (
                replace(way, state=State.UNCHECKED) if way.state is State.FINE else way
                for way in (up, down)
            )
        return Link(
            lower=lower,
            upper=upper,
            taps=tuple(taps),
            up=up,
            down=down,
            state=worst({up.state, down.state, *states}),
            findings=tuple(sorted({*up.findings, *down.findings})),
            wire_bytes=max((self._taps[tap].wire_bytes for tap in taps), default=None),
            pause_frames=sum(pause.frames for pause in pauses) if taps else None,
            is_supposed=is_supposed,
        )

    def _devices(self, levels: Mapping[str, int], links: Sequence[Link]) -> Iterable[Device]:
        labels = _labels(levels)
        states: dict[str, set[State]] = defaultdict(set)
        for link in links:
            for device in (link.lower, link.upper):
                states[device].add(link.state)
        for name in sorted(levels, key=lambda device: (levels[device], _natural(device))):
            found = self._of_devices.get(name, [])
            faults = [state for _, state in found if state in FAULTS]
            rest = State.UNCHECKED
            if states[name] <= {State.FINE, State.IDLE}:
                rest = worst(states[name])
            elif states[name] == {State.UNCAPTURED}:
                rest = State.UNCAPTURED
            addresses = self._addresses(name) if levels[name] == 0 else set()
            numbers = [number for number, _ in found]
            numbers += [
                number
                for number, finding in enumerate(self._analysis.diagnosis.findings, 1)
                if finding.place.host is not None and finding.place.host in addresses
            ]
            yield Device(
                name=name,
                label=printable(labels[name]),
                level=levels[name],
                state=worst(faults) if faults else rest,
                findings=tuple(sorted(set(numbers))),
                addresses=tuple(sorted(addresses)),
            )

    def _addresses(self, host: str) -> set[str]:
        if _is_address(host):
            return {host}
        if self._file is not None:
            return {
                str(network.network_address)
                for network, name in self._file.networks.items()
                if name == host and network.prefixlen == network.max_prefixlen
            }
        return self._address_of[host]

    @cached_property
    def _address_of(self) -> dict[str, set[str]]:
        """By device with one link: its address, alone or because the others have other ones."""
        left = {device: set(ends) for device, ends in self._common_addresses.items()}
        left = {device: ends for device, ends in left.items() if self._links_of[device] == 1}
        known: dict[str, set[str]] = defaultdict(set)
        while sure := [device for device, ends in left.items() if len(ends) == 1]:
            for device in sure:
                known[device] = left.pop(device)
            taken = set().union(*known.values())
            left = {device: ends - taken for device, ends in left.items()}
        return known

    @cached_property
    def _links_of(self) -> Counter[str]:
        return Counter(
            device for pair in set(map(frozenset, self._ends.values())) for device in pair
        )


def _parts(near: Mapping[str, set[str]]) -> list[set[str]]:
    """The devices that links connect with each other."""
    left, parts = set(near), list[set[str]]()
    while left:
        part, new = set[str](), {left.pop()}
        while new:
            part |= new
            new = {other for device in new for other in near[device]} - part
        left -= part
        parts.append(part)
    return parts


def _other(ends: _Way, device: str) -> str:
    return ends[1] if ends[0] == device else ends[0]


def _by_tap(hops: Sequence[Hop], end: str, amount: Callable[[Hop], float]) -> list[int]:
    """Sums by tap: a packet may pass several taps of one link."""
    sums: Counter[str] = Counter()
    for hop in hops:
        sums[getattr(hop, end)] += amount(hop)  # type: ignore[assignment]
    return list(sums.values())


def _blamed(hop: Hop, losses: Sequence[Finding]) -> set[tuple[str, State]]:
    """What the losses of a hop make of its ends: of those that their findings name, else both."""
    ends: set[tuple[str, State]] = set()
    for finding in losses:
        place = finding.place
        if (
            place.from_tap in (None, hop.from_tap)
            and place.to_tap in (None, hop.to_tap)
            and place.device in (None, hop.device)
        ):
            state = State.MOVED if finding.kind == "link-down" else State.LOSSY
            named = {"from": place.from_tap, "to": place.to_tap}
            ends |= {(end, state) for end, tap in named.items() if tap or not any(named.values())}
    return ends or {("from", State.LOSSY), ("to", State.LOSSY)}


def _supposed(pairs: set[frozenset[str]], levels: Mapping[str, int]) -> Iterable[frozenset[str]]:
    """Pairs of connected switches without a known link, between tiers where most pairs have one."""
    near: dict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        for device in pair:
            near[device] |= pair
    for part in _parts(near):
        for level in range(1, max(levels[device] for device in part)):
            lower, upper = ([d for d in part if levels[d] == n] for n in (level, level + 1))
            every = [frozenset((a, b)) for a in lower for b in upper]
            missing = [pair for pair in every if pair not in pairs]
            if len(every) - len(missing) >= _LEAST_FILLED * len(every):
                yield from missing


def _labels(names: Iterable[str]) -> dict[str, str]:
    """Names as drawn: of Ethernet addresses the last three bytes, where these differ."""
    names = list(names)
    addresses = [name for name in names if _ETHERNET.fullmatch(name)]
    if len({name[9:] for name in addresses}) < len(addresses):
        return {name: name for name in names}
    return {name: name[9:] if _ETHERNET.fullmatch(name) else name for name in names}
