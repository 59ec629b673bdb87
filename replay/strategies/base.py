"""What strategies share.

The drivers use strategies by the protocol `packets.model.rules.Strategy`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import numpy as np

from ...analyzer.spec import PS, Options
from ...analyzer.words import parse_duration
from ...kernels.kernel import Array, Int, Ints, NamedTuple
from ..fabrics.fabric import Fabric
from ..flows.loads import Placement
from ..packets.model.arrays import FabricArrays, fabric_arrays
from ..packets.model.draws import SHUFFLE, shuffle_each
from ..packets.model.model import ACK, Workload, message_of, number_of
from ..packets.model.rules import Choice, Rules, Strategy, chooser, emitter
from ..results import SolverReport, SwitchHash
from ..traffic.traffic import Traffic

# The state of packet strategies: one int64 array of numbers, followed by tables.

WITHOUT_FLAGS = (1 << 57) - 1
"""Mask of a packet key: message, number and the flag ACK, without marks."""


def state_of(numbers: Sequence[int], *tables: Array) -> Ints:
    """int64[]: the numbers, the positions of the tables, the tables."""
    begins = np.cumsum([len(numbers) + len(tables), *(t.size for t in tables)])
    head = np.array([*numbers, *begins[:-1]], np.int64)
    return np.concatenate([head, *(t.reshape(-1).astype(np.int64) for t in tables)])


def shuffled(sizes: Ints, seed: int, what: Ints) -> tuple[Ints, Ints]:
    """(start, order): order[start[i] : start[i + 1]] is 0 .. sizes[i]-1, shuffled for what[i]."""
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    order = np.zeros(int(start[-1]), np.int64)
    shuffle_each(seed, SHUFFLE, np.asarray(what, np.int64), start, order)
    return start, order


# Whole-flow strategies on the packet engine: packets follow the path of their unit.
#
# The label of a packet is the row of its placement, in which switches look up their link. Data
# and ACKs are separate units, placed by their own header fields. A strategy that splits
# units gives the origin of each part (`Outcome.origin`); packets use the parts in turn.


class Outcome(NamedTuple):
    """The paths of the units."""

    traffic: Traffic
    """The placed units: a strategy may split flows."""
    placement: Placement
    parameters: dict[str, str]
    """All parameters in force, for the report."""
    solver: SolverReport | None = None
    notes: tuple[str, ...] = ()
    origin: Ints | None = None
    """int64[placed units], ascending: the original unit of each; None: units were not split."""
    switches: tuple[SwitchHash, ...] = ()
    """The hash of every switch, for the report."""


def placed_rules(outcome: Outcome, workload: Workload, fabric: Fabric) -> Rules:
    """Rules that follow a placement of `workload.traffic`."""
    units = 2 * workload.units
    rows = len(outcome.traffic)
    origin = np.arange(rows) if outcome.origin is None else outcome.origin
    first = np.searchsorted(origin, np.arange(units + 1))
    choices = _choices(outcome.placement, outcome, fabric_arrays(fabric), fabric)
    number = workload.packet_start[:-1] - workload.packet_start[workload.flow_start[workload.flow]]
    state = state_of(
        [workload.units, choices.shape[1], len(workload.unit)],
        workload.flow,
        number,
        first,
        choices,
        workload.packet_start,
        workload.unit,
    )
    lost = int(np.count_nonzero(outcome.placement.dropped))
    notes = (f"{lost:,} of {rows:,} units have no path to their host",) if lost else ()
    return Rules(
        _choose(),
        _emit(),
        state,
        parameters=outcome.parameters,
        notes=(*outcome.notes, *notes),
        switches=outcome.switches,
    )


def _choices(placement: Placement, outcome: Outcome, arrays: FabricArrays, fabric: Fabric) -> Ints:
    """int64[rows, choices]: switch << 32 | position for the choices of a row in order, then -1."""
    links = placement.links
    source = np.where(links >= 0, fabric.links.source[links], -1)
    edge = arrays.host_edge[np.maximum(outcome.traffic.dst_host, 0)][:, None]
    at_switch = (source >= 0) & (source < fabric.switches) & (edge >= 0)
    group = np.where(at_switch, arrays.route[np.where(at_switch, source, 0), edge], -1)
    at_switch &= group >= 0
    begin = arrays.group_start[np.maximum(group, 0)]
    size = arrays.group_start[np.maximum(group, 0) + 1] - begin
    position = np.zeros(links.shape, np.int64)
    for i in range(int(size[at_switch].max(initial=0))):
        inside = at_switch & (i < size)
        member = arrays.members[np.where(inside, begin + i, 0)]
        position[inside & (member == links)] = i
    chosen = at_switch & (size > 1)
    packed = np.where(chosen, source.astype(np.int64) << 32 | position, -1)
    most = max(1, int(chosen.sum(1).max(initial=0)))
    in_front = np.argsort(~chosen, axis=1, kind="stable")[:, :most]
    return np.take_along_axis(packed, in_front, 1)


@emitter
def _emit(state: Ints, links: Ints, host: Int, link: Int, packet: Int, time: Int) -> Int:
    """State: units of data, choices of a row, number of packets in the last table (0: the unit of a
    packet is its flow); flow and first number of every message, first row of every unit, choices of
    every row, first packet of every message, unit of every packet."""
    message = message_of(packet)
    unit = state[state[3] + message]
    if state[2]:
        begin = state[state[7] + message]
        size = state[state[7] + message + 1] - begin
        # The number of a retransmitted packet is random (`drawn_key`).
        unit = state[state[8] + begin + number_of(packet) % size]
    if packet & np.int64(ACK):
        unit += state[0]
    first = state[state[5] + unit]
    rows = state[state[5] + unit + 1] - first
    if rows <= 1:
        return first
    return first + (state[state[4] + message] + number_of(packet)) % rows


@chooser
def _choose(state: Ints, links: Ints, at: Choice) -> Int:
    row = state[6] + at.label * state[1]
    for i in range(state[1]):
        choice = state[row + i]
        if choice >> np.int64(32) == at.switch:
            return choice & np.int64(0xFFFFFFFF)
    # Subflows and ACKs use the port of their flow, whose plane may differ from the plane of their
    # placement: they use the link with the same position.
    return np.int64(0) if state[row] < 0 else state[row] & np.int64(0xFFFFFFFF)


class Configured:
    """Reads the options of a strategy; each method raises UsageError for an invalid value."""

    name: str
    """The standard name, set by each strategy."""

    def __init__(self, options: Mapping[str, str], name: str = "") -> None:
        """name: the strategy that uses this one, for messages."""
        self.name = name or self.name
        self.options = Options(options, self.name)

    def with_default(self, key: str, value: str) -> Self:
        """The same strategy with a value for an option that is not set."""
        return type(self)(self.options.with_defaults({key: value}))

    def known(self, *names: str) -> None:
        """UsageError for an option that is not one of these."""
        self.options.check_known(names, f"{self.name} has no option")

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        """An integer from least to most."""
        return self.options.whole(key, str(default), least, most)

    def word(self, key: str, *words: str) -> str:
        """One of these words, by default the first."""
        return self.options.word(key, *words)

    def duration_ps(self, key: str, default: str) -> tuple[int, str]:
        """A time in ps, and its text."""
        text = self.options.get(key, default)
        return parse_duration(text, f"{self.name}: {key}") * PS, text


class FlowStrategy(Strategy, Protocol):
    """A strategy that gives every unit of traffic its whole path."""

    @abstractmethod
    def place(self, traffic: Traffic, fabric: Fabric) -> Outcome:
        """Give every unit its path. UsageError if options and fabric do not fit."""

    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        """Packets follow the path that `place` finds for their unit."""
        return placed_rules(self.place(workload.traffic, fabric), workload, fabric)
