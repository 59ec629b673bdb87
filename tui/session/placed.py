"""Where flows lie on a fabric: placed by a replayed strategy, or traced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...analyzer.errors import RocescopeError
from ...analyzer.spec import parse_options
from ...discovery.asking import Line
from ...discovery.dialects.dialect import Dialect
from ...discovery.follow import Follow, FollowEvent
from ...discovery.tracing.paths import TracedPaths, complete, trace_paths
from ...kernels.kernel import Bytes, Floats, Int32s, Ints
from ...replay.compare.flows import NO_CHANCES, result_of
from ...replay.compare.summaries import mapped
from ...replay.fabrics.fabric import Fabric
from ...replay.fabrics.switch_hashing import hash_known, switch_hashing
from ...replay.flows.shares import by_capacity
from ...replay.hashing.keys import address_text
from ...replay.hashing.models import MODELS, bind
from ...replay.hashing.settings import Group, HashSettings
from ...replay.results import StrategyResult
from ...replay.strategies.base import FlowStrategy, Outcome
from ...replay.traffic.traffic import Traffic
from .columns import widths
from .snapshot import TRACED, FlowKey, PathColumns, Snapshot

_LABEL_SHIFT = 16
"""The entropy key of a path: flow label << 16 | UDP source port."""
_NOWHERE = -1


class Noted:
    """A strategy that stores its placement."""

    def __init__(self, strategy: FlowStrategy) -> None:
        self._strategy = strategy
        self.outcome: Outcome | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._strategy, name)

    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        """Place as the strategy does."""
        self.outcome = self._strategy.place(traffic, fabric)
        return self.outcome


class OnLink(NamedTuple):
    """One unit of traffic on a link."""

    key: FlowKey
    entropy: int
    wire_bytes: int
    packets: int


class Placed:
    """The paths of all units with one strategy; `text` is the user's name for the strategy."""

    def __init__(self, text: str, outcome: Outcome, fabric: Fabric) -> None:
        self.text = text
        self._outcome, self._fabric = outcome, fabric
        self._columns: tuple[Snapshot | None, PathColumns] = (None, PathColumns.none("fabric"))

    @cached_property
    def _links(self) -> dict[str, int]:
        return {self._fabric.link_name(i): i for i in range(len(self._fabric.links.source))}

    @cached_property
    def _units(self) -> dict[tuple[str, str, int, int], int]:
        """Unit by source, destination, queue pair and entropy key."""
        keys = self._outcome.traffic.keys
        entropy = (keys.flow_label.astype(np.int64) << _LABEL_SHIFT) | keys.sport
        known: dict[bytes, str] = {}
        columns = (keys.src, keys.dst, keys.dest_qp.tolist(), entropy.tolist())
        return {
            (_text(src, known), _text(dst, known), qp, value): unit
            for unit, (src, dst, qp, value) in enumerate(zip(*columns, strict=True))
        }

    def on_link(self, name: str) -> list[OnLink]:
        """The units on a link, the largest first."""
        link = self._links.get(name, _NOWHERE)
        placement, traffic = self._outcome.placement, self._outcome.traffic
        units = np.flatnonzero((placement.links == link).any(1) & ~placement.dropped)
        units = units[np.argsort(-traffic.wire_bytes[units], kind="stable")]
        wanted = set(units.tolist())
        named = {unit: key for key, unit in self._units.items() if unit in wanted}
        return [
            OnLink(
                FlowKey(*named[unit][:3]),
                named[unit][3],
                int(traffic.wire_bytes[unit]),
                int(traffic.packets[unit]),
            )
            for unit in units.tolist()
            if unit in named
        ]

    def way(self, key: FlowKey, entropy: int) -> list[str]:
        """The links of a packet's path; empty if its addresses are not in the fabric."""
        unit = self._units.get((*key, entropy))
        return [] if unit is None else [self._fabric.link_name(i) for i in self._way(unit)]

    def _way(self, unit: int) -> list[int]:
        placement = self._outcome.placement
        if placement.dropped[unit]:
            return []
        return [link for link in placement.links[unit].tolist() if link >= 0]

    def why(self, key: FlowKey, entropy: int) -> list[str]:
        """One line per choice on the path: the hash, its fields and the selected link."""
        unit = self._units.get((*key, entropy))
        if unit is None:
            return ["The fabric of screen 9 has no host with these addresses."]
        way = self._way(unit)
        if not way:
            return [f"{self.text} has no route for it."]
        settings = self._settings()
        edge = self._edge(way[-1], unit)
        lines = []
        for link in way:
            switch = int(self._fabric.links.source[link])
            if switch >= self._fabric.switches:
                continue  # hosts choose no link
            members, weights = self._fabric.group(switch, edge)
            if len(members) > 1 and link in members:
                group = int(self._fabric.forwarding.group_of[switch, edge])
                buckets = self._fabric.forwarding.buckets.get(group)
                lines.append(
                    self._choice(unit, switch, link, members, Group(weights, buckets), settings)
                )
        return lines or ["No switch on its path has a choice of links."]

    def _choice(
        self,
        unit: int,
        switch: int,
        link: int,
        members: Int32s,
        group: Group,
        settings: Sequence[HashSettings] | None,
    ) -> str:
        name = self._fabric.link_name(link)
        place = members.tolist().index(link)
        if settings is None:
            return f"{name}: {self.text} selects link {place + 1} of {len(members)}"
        setting = settings[switch]
        try:
            bound = bind(self._outcome.traffic.keys.take(np.array([unit])), setting)
            value = int(bound.values([setting.seed])[0, 0])
            chosen = int(bound.choose([setting.seed], group)[0, 0])
        except RocescopeError as error:
            return f"{name}: {error}"
        if chosen != place:  # for example, a hash of the ingress port
            return f"{name}: link {place + 1} of {len(members)} by {setting.model}"
        fields = "its policy's fields" if setting.model == "linux" else setting.field_set
        digits = MODELS[setting.model].bits // 4
        return (
            f"{name}: {setting.model}({fields}, seed 0x{setting.seed:x}) = 0x{value:0{digits}x}"
            f", {bound.reduction} {len(members)} -> {place}"
        )

    def _settings(self) -> Sequence[HashSettings] | None:
        """Hash settings of the switches; None for strategies without a hash."""
        name, _, options = self.text.partition(":")
        if name != "ecmp":
            return None
        return switch_hashing(self._fabric, parse_options(options, name), name).settings

    def _edge(self, last: int, unit: int) -> int:
        host = self._fabric.links.target[[last]] - self._fabric.switches
        return int(self._fabric.edge_of(host, self._outcome.traffic.keys.ipv6[[unit]])[0])

    def path_columns(self, snapshot: Snapshot) -> PathColumns:
        """Every flow's bytes by its first link with a choice, and by the links it could take.

        Counts by entropy value are summed by link, so late and marked packets are known too;
        values that were not replayed are omitted.
        """
        if self._columns[0] is not snapshot:
            self._columns = (snapshot, self._by_link(snapshot))
        return self._columns[1]

    def _by_link(self, snapshot: Snapshot) -> PathColumns:
        paths, flows = snapshot.paths["entropy"], len(snapshot.flows)
        flow = np.repeat(np.arange(flows), paths.seen())
        names = [snapshot.key(f) for f in range(flows)]
        rows = zip(flow.tolist(), paths.key.tolist(), strict=True)
        units = [self._units.get((*names[f], value), _NOWHERE) for f, value in rows]
        unit = np.array(units, np.int64)
        link = np.where(unit >= 0, self._first_choice[unit], _NOWHERE)
        known = np.flatnonzero(link >= 0)
        links = len(self._fabric.links.source)
        of, could, part = self._choices(unit[known], link[known])
        used = flow[known] * links + link[known]
        possible = flow[known][of] * links + could
        code, where = np.unique(np.concatenate([used, possible]), return_inverse=True)
        sums = {
            name: np.bincount(where[: len(known)], getattr(paths, name)[known], len(code)).astype(
                np.int64
            )
            for name in ("packets", "wire_bytes", "late", "marked")
        }
        shares = np.concatenate([np.zeros(len(known)), paths.wire_bytes[known][of] * part])
        owner = code // links
        return PathColumns(
            by="fabric",
            starts=np.searchsorted(owner, np.arange(flows + 1)),
            key=code % links,
            width=widths(owner, sums["wire_bytes"].astype(np.float64), flows)[0],
            name=self._fabric.link_name,
            fair=np.bincount(where, shares, len(code)).astype(np.float64),
            traced=self.text == TRACED,
            **sums,
        )

    def _choices(self, unit: Ints, link: Ints) -> tuple[Ints, Ints, Floats]:
        """(row, link, share) of every link that each row's unit could take instead of its own.

        A switch shares its traffic evenly over a group, as `flows.shares` does; a link outside
        groups has no alternative.
        """
        fabric = self._even
        forwarding, switch = fabric.forwarding, fabric.links.source[link].astype(np.int64)
        traffic = self._outcome.traffic
        edge = fabric.edge_of(traffic.dst_host[unit], traffic.keys.ipv6[unit])
        inside = switch < fabric.switches
        group = np.where(inside, forwarding.group_of[np.where(inside, switch, 0), edge], _NOWHERE)
        start, sizes = forwarding.group_start, np.diff(forwarding.group_start)
        size = np.where(group >= 0, sizes[np.maximum(group, 0)], 0)
        row = np.repeat(np.arange(len(link)), size)
        place = np.arange(len(row)) - np.repeat(np.cumsum(size) - size, size) + start[group[row]]
        could, weight = forwarding.group_links[place], forwarding.group_weights[place]
        known = np.bincount(row, could == link[row], len(link)) > 0
        mine = known[row] & (weight > 0)
        row, could, weight = row[mine], could[mine].astype(np.int64), weight[mine]
        alone = np.flatnonzero(~known)
        part = weight / np.bincount(row, weight, len(link))[row]
        return (
            np.concatenate([row, alone]),
            np.concatenate([could, link[alone]]),
            np.concatenate([part, np.ones(len(alone))]),
        )

    @cached_property
    def _even(self) -> Fabric:
        return by_capacity(self._fabric)

    @cached_property
    def _first_choice(self) -> Ints:
        """Per unit: the first link that a switch chose among several, else the first link."""
        forwarding = self._fabric.forwarding
        sizes = np.diff(forwarding.group_start)
        chosen = np.zeros(len(self._fabric.links.source), np.bool_)
        chosen[forwarding.group_links[np.repeat(sizes > 1, sizes)]] = True
        links = self._outcome.placement.links
        if not links.shape[1]:
            return np.full(len(links), _NOWHERE, np.int64)
        by_choice = (links >= 0) & chosen[np.maximum(links, 0)]
        first = np.argmax(by_choice, axis=1)
        choices: Ints = links[np.arange(len(links)), first].astype(np.int64)
        choices[self._outcome.placement.dropped] = _NOWHERE
        return choices


def _text(packed: Bytes, known: dict[bytes, str]) -> str:
    raw = packed.tobytes()
    if raw not in known:
        known[raw] = address_text(packed)
    return known[raw]


# The paths of the captured flows on a fabric whose tables and hashes are known.

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
                        Point(event.seconds, event.fim_percent, _text_traced(event)),
                        _of(following.traffic, following.fabric, following.paths),
                        len(following.traffic),
                    )
        except (RocescopeError, OSError) as error:
            self._failed(" ".join(str(error).split()))


def _text_traced(event: FollowEvent) -> str:
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
