"""What a strategy gives to the packet-level drivers: two compiled functions and their state.

The drivers call them by pointer, so a new strategy compiles nothing but itself. Both
get their state as one int64 array that the strategy has built from the fabric.

`choose(state, links, members, first, size, switch, edge, packet, label, time) -> position`
    A switch has `size` > 1 equal-cost links, `members[first : first + size]`, towards the hosts
    of `edge`. Returns 0 .. size-1; all else is taken modulo size. `first` names the group.
    `links` are the columns of `LinkColumn`: with `reads_queues`, those of the members are true
    at `time`. `label` is what the host gave. With `sees_all` it is called for every packet at
    every switch: with size 1 without a choice, with size 0 and the link as `first` where the
    host is attached.
`emit(state, links, host, link, packet, time) -> label`
    A host sends a packet (data or ACK) over its access link `link`. Returns the entropy
    value or route the packet carries, 0 .. 2**32 - 1.

`Learn` (feedback at hosts) is called by the event-driven driver alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from numba import types

from ....kernels.kernel import Int, Int32s, Ints, callback
from ...fabrics.fabric import Fabric
from .labels import EvState, HostFunctions
from .model import Workload

_STATE = types.int64[::1]
_LINKS = types.int64[:, ::1]
_MEMBERS = types.int32[::1]
_I = types.int64
CHOOSE = types.int64(_STATE, _LINKS, _MEMBERS, _I, _I, _I, _I, _I, _I, _I)
EMIT = types.int64(_STATE, _LINKS, _I, _I, _I, _I)

Choose: TypeAlias = Callable[
    [
        Ints,
        Ints,
        Int32s,
        Int,
        Int,
        Int,
        Int,
        Int,
        Int,
        Int,
    ],
    Int,
]
Emit: TypeAlias = Callable[[Ints, Ints, Int, Int, Int, Int], Int]


def chooser(function: Choose) -> Callable[[], Choose]:
    """Declares a `choose` function; calling the result gives its compiled pointer."""
    return callback(CHOOSE)(function)


def emitter(function: Emit) -> Callable[[], Emit]:
    """Declares an `emit` function; calling the result gives its compiled pointer."""
    return callback(EMIT)(function)


@emitter
def no_label(state: Ints, links: Ints, host: Int, link: Int, packet: Int, time: Int) -> Int:
    """For strategies in which hosts decide nothing."""
    return 0


@dataclass(frozen=True)
class Rules:
    """A strategy bound to a fabric, a workload and a seed. `state` is changed by a run."""

    choose: Choose
    emit: Emit
    state: Ints
    reads_queues: bool = False
    sees_all: bool = False
    any_port: bool = False
    """Every port of a host may send any of its packets; else a flow keeps to one port, in turn."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    fabric: Fabric | None = None
    """The fabric with other groups or weights; None for the one given."""
    hosts: tuple[EvState, HostFunctions] | None = None
    """Hosts that choose the label of data from what they learn, instead of `emit`; they need the
    event-driven driver."""
    rerouted: Callable[[Fabric, Int32s], Rules] | None = None
    """The same for a run in which routing changes: the fabric has the groups of all routing states,
    int32[states, S, E] tells which holds in each (`failures.Scheduled`). None: the rules serve
    whatever group they are given."""


class Strategy(Protocol):
    """What the drivers ask of every strategy, whether it decides packet by packet or places flows.

    Strategies inherit from this class, so each states only what differs from the defaults.
    """

    @property
    def name(self) -> str:
        """Its standard name."""

    @property
    def reacts(self) -> bool:
        """Whether hosts learn from what comes back: only the event-driven driver can run it."""
        return False

    @property
    def static_paths(self) -> bool:
        """Whether labels name links: switches do not route around links that are down."""
        return False

    @abstractmethod
    def rules(self, workload: Workload, fabric: Fabric, seed: int) -> Rules:
        """Bind it. UsageError when options, fabric and strategy do not go together."""
