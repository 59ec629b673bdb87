"""What a strategy gives to the packet-level drivers: two compiled functions and their state.

The drivers call the functions by pointer, so a new strategy compiles only its own functions. Both
functions get their state as one int64 array that the strategy builds from the fabric.

`choose(state, links, at) -> position`
    A switch has `at.size` > 1 equal-cost links for a packet (`Choice`). Returns 0 .. size-1; other
    values are taken modulo size. `links` are records of `model.Link`: with `reads_queues`,
    those of the members are valid at `at.time`. With `sees_all` the function is called for every
    packet at every switch: with size 1 when there is no choice, with size 0 and the link as
    `at.first` at the switch of the destination host.
`emit(state, links, host, link, packet, time) -> label`
    A host sends a packet (data or ACK) over its access link `link`. Returns the entropy
    value or route of the packet, 0 .. 2**32 - 1.

Hosts that learn from ACKs give the functions of `labels.py` as well; only the event-driven driver
calls those.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

from ....kernels.kernel import Int, Int32s, Ints, NamedTuple, callback, function_at, inlined
from ...fabrics.fabric import Fabric
from ...results import SwitchHash
from .labels import EvState, HostFunctions
from .model import LINK, Model, Workload
from .records import Records, array_of


class Choice(NamedTuple):
    """A packet at a switch with several links to its destination."""

    members: Int32s
    """Links of all groups; those of this group are members[first : first + size]."""
    first: Int
    """Also identifies the group."""
    size: Int
    switch: Int
    edge: Int
    """The edge of the destination host."""
    packet: Int
    """Its key (`model.packet_key`)."""
    label: Int
    """The label that the host gave it."""
    time: Int
    """ps."""


def _choose() -> Any:
    from numba import types

    integer: Any = types.int64
    choice: Any = types.NamedTuple([types.int32[::1], *[integer] * 7], Choice)  # type: ignore[no-untyped-call, unused-ignore]
    return integer(integer[::1], array_of(LINK), choice)


def _emit() -> Any:
    from numba import types

    integer: Any = types.int64
    return integer(integer[::1], array_of(LINK), *[integer] * 4)


choose_at, emit_at = function_at(_choose), function_at(_emit)
Choose: TypeAlias = Callable[[Ints, Records, Choice], Int]
Emit: TypeAlias = Callable[[Ints, Records, Int, Int, Int, Int], Int]


def chooser(function: Choose) -> Callable[[], int]:
    """Declares a `choose` function; calling the result gives its address."""
    return callback(_choose)(function)


def emitter(function: Emit) -> Callable[[], int]:
    """Declares an `emit` function; calling the result gives its address."""
    return callback(_emit)(function)


@inlined
def nth_link(at: Choice, position: Int) -> Int:
    """The link at a position of the group."""
    return np.int64(at.members[at.first + position])


@emitter
def no_label(state: Ints, links: Records, host: Int, link: Int, packet: Int, time: Int) -> Int:
    """For strategies in which hosts decide nothing."""
    return 0


@dataclass(frozen=True)
class Rules:
    """A strategy bound to a fabric, a workload and a seed. `state` is changed by a run."""

    choose: int
    """Address of the function, as of `emit`."""
    emit: int
    state: Ints
    reads_queues: bool = False
    sees_all: bool = False
    any_port: bool = False
    """Any port of a host may send any of its packets; else each flow uses one port, in turn."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    switches: tuple[SwitchHash, ...] = ()
    """The hash of every switch, for the report."""
    fabric: Fabric | None = None
    """The fabric with other groups or weights; None for the one given."""
    hosts: tuple[EvState, HostFunctions] | None = None
    """Hosts that choose the label of data from feedback, instead of `emit`; they need the
    event-driven driver."""
    rerouted: Callable[[Fabric, Int32s], Rules] | None = None
    """The same for a run in which routing changes: the fabric has the groups of all routing states,
    int32[states, S, E] shows which holds in each (`failures.Scheduled`). None: the rules serve
    whatever group they are given."""


class Strategy(Protocol):
    """What the drivers need from every strategy, whether it decides per packet or places flows.

    Strategies inherit from this class, so each states only what differs from the defaults.
    """

    @property
    def name(self) -> str:
        """Its standard name."""

    @property
    def reacts(self) -> bool:
        """Whether hosts learn from ACKs and losses: only the event-driven driver can run it."""
        return False

    @property
    def static_paths(self) -> bool:
        """Whether labels name links: switches do not route around links that are down."""
        return False

    @property
    def learns_from_marks(self) -> bool:
        """Whether hosts learn of congestion from ECN marks."""
        return False

    def under(self, model: Model) -> Strategy:
        """The same strategy for these queues; differs if its defaults depend on them."""
        return self

    def in_run(self, number: int, fabric: Fabric) -> Strategy:
        """The same strategy for run `number` of several, from 0: with other hash seeds, unless its
        options or the fabric give them."""
        return self

    @abstractmethod
    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        """Bind it. UsageError when options, fabric and strategy do not go together."""
